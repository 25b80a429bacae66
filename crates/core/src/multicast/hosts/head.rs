//! A head's end: it brings the log into its ring, for all readers of its host.

use super::seal::{Place, Seal};
use super::wire::Receiver;
use crate::base::error::{Error, Result};
use crate::base::layout::ReaderLine;
use crate::base::status::State;
use crate::base::{lock, try_lock};
use crate::endpoint::fabric::Due;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::endpoint::route::Route;
use crate::multicast::datagrams::{MOST_AT_ONCE, MOST_GOES};
use crate::multicast::position::{LEFT, PositionLine, Upstream};
use crate::multicast::ring::{Header, Ring};
use crate::wait;
use crate::window::Inner;
use memonet_repair::{Gaps, Nanos, Store};
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

/// From the discovery of a gap until it is got: datagrams may only have been reordered.
const REORDERED: Nanos = 100_000;
/// From the last news to the first look at the writer's front, and the longest time between two
/// looks. The time doubles with each look in vain. On a link of 200 Mbit/s datagrams that are sent
/// at once come each 2.4 ms; with 1 ms, heads got a third of the log twice.
const LOOK_FIRST: Nanos = 4_000_000;
const LOOK_MOST: Nanos = 20_000_000;
/// The most bytes of a get: it then takes little longer than a round trip.
pub(super) const GET_BYTES: usize = 64 << 10;
/// Gets in one call; the next call goes on.
const MOST_GETS: usize = 4;

/// A head's end.
pub(in crate::multicast) struct Head {
    pub(super) pe: Arc<Pe>,
    pub(super) writer: usize,
    /// The front, in this PE's segment.
    pub(super) front: PositionLine,
    /// The readers of this host, with their lines in this PE's segment.
    pub(super) readers: Box<[(usize, PositionLine)]>,
    /// This PE's words at the writer: what its readers are done with, and what has come.
    pub(super) consumed: Upstream,
    pub(super) received: Upstream,
    /// The writer's line with its front, and with what it has sent.
    pub(super) theirs: Route,
    /// Offset of the ring in every segment.
    pub(super) offset: u64,
    pub(super) work: Mutex<Work>,
    /// This end, from when the program drops it until no reader needs it.
    pub(super) keep: Mutex<Option<Arc<Head>>>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct Work {
    pub(super) ring: Ring,
    pub(super) seal: Seal,
    pub(super) receiver: Receiver,
    pub(super) gaps: Gaps,
    /// The writer's window.
    pub(super) window: u64,
    /// Where bytes that were got wait until they are stored.
    pub(super) got: Box<[u8]>,
    /// The end of the last whole record.
    pub(super) whole: u64,
    pub(super) told_consumed: u64,
    pub(super) told_received: u64,
    /// The next look at the writer's front, and the time to the one after.
    pub(super) look_at: Nanos,
    pub(super) look_after: Nanos,
    /// All has come, or nothing is needed, or nothing can come any more.
    pub(super) done: bool,
    /// A get has failed, with which all could have come.
    pub(super) lost: bool,
}

impl Work {
    pub(super) fn new(
        pe: &Arc<Pe>,
        ring: Ring,
        seal: Seal,
        receiver: Receiver,
        window: u64,
    ) -> Self {
        Work {
            ring,
            seal,
            receiver,
            gaps: Gaps::new(),
            window,
            got: vec![0; GET_BYTES].into(),
            whole: 0,
            told_consumed: 0,
            told_received: 0,
            look_at: wait::nanos(pe),
            look_after: LOOK_FIRST,
            done: false,
            lost: false,
        }
    }

    /// The position beyond which nothing is stored (H3).
    fn room(&self) -> u64 {
        self.told_consumed.saturating_add(self.ring.len())
    }

    fn has_news(&mut self, now: Nanos) {
        self.look_after = LOOK_FIRST;
        self.look_at = now + self.look_after;
    }

    /// Takes datagrams that have come. Gives whether there were any.
    fn receive(&mut self, now: Nanos) -> bool {
        let room = self.room();
        let mut came = false;
        for _ in 0..MOST_GOES * MOST_AT_ONCE {
            let Work { ring, seal, receiver, gaps, .. } = self;
            let Some(datagram) = receiver.receive() else { break };
            let missing = gaps.received();
            let wanted = |place: Place, len: usize| match place {
                Place::Log(position) => position
                    .checked_add(len as u64)
                    .is_some_and(|end| len > 0 && missing < end && end <= room),
                Place::Probe(_) => false,
            };
            let Some((Place::Log(position), bytes)) = seal.open(datagram, wanted) else {
                continue;
            };
            let end = position + bytes.len() as u64;
            // H2. With too many gaps, these bytes are got later.
            let _filled = gaps.fill(position, end, now + REORDERED, |from, to| {
                ring.write(from, &bytes[(from - position) as usize..(to - position) as usize]);
            });
            came = true;
        }
        if came {
            self.has_news(now);
        }
        came
    }

    /// The first range to get now, if there is one: from a gap whose time has come to the end of
    /// the last such gap that a get can take with it.
    fn missing(&mut self, now: Nanos) -> Option<(u64, u64)> {
        let mut due = self.gaps.list().iter().filter(|gap| gap.due <= now);
        let first = due.next()?;
        let most = first.start + GET_BYTES as u64;
        let last = due.take_while(|gap| gap.end <= most).last().unwrap_or(first);
        Some((first.start, last.end.min(most)))
    }

    /// Notes records that are complete. Gives whether there are any.
    fn find_records(&mut self) -> bool {
        let (before, received) = (self.whole, self.gaps.received());
        while self.whole + 8 <= received {
            let record = match self.ring.decode(self.whole, self.ring.word(self.whole)) {
                Ok(Header::Block { len, .. }) => self.ring.record(len),
                Ok(Header::Padding { len }) => len as u64,
                // A wrong header is an error of the call that reads it, and nothing can follow it.
                Ok(Header::End { .. }) | Err(_) => {
                    self.done = true;
                    8
                }
            };
            if self.whole + record > received {
                break;
            }
            self.whole += record;
            if self.done {
                break;
            }
        }
        self.whole != before
    }
}

impl Head {
    /// Leaves the channel as a reader. This PE goes on for the readers of its host.
    pub(in crate::multicast) fn leave(self: &Arc<Self>) {
        *lock(&self.keep) = Some(self.clone());
        self.relay();
    }

    /// Whether another reader is there that lacks what the writer has (H8).
    fn is_awaited(&self) -> bool {
        let state = |pe: usize| self.pe.control().state(pe);
        if let State::Dead(_) = state(self.writer) {
            return false;
        }
        let is_there = |pe: usize| !matches!(state(pe), State::Dead(_) | State::Done);
        self.readers
            .iter()
            .any(|&(pe, line)| pe != self.pe.me() && !line.has_left() && is_there(pe))
    }

    fn work(&self, work: &mut Work) {
        if work.done {
            return;
        }
        let now = wait::nanos(&self.pe);
        let came = work.receive(now);
        match self.get_missing(work, now) {
            Ok(()) => {}
            // Waits that depend on the writer say it.
            Err(Error::PeerFailed { .. }) => (work.done, work.lost) = (true, true),
            Err(error) => {
                self.pe.surface_later(error);
                (work.done, work.lost) = (true, true);
            }
        }
        if work.find_records() {
            self.show(work.whole);
        }
        self.report(work, came);
    }

    /// Lets the readers see whole records (H1), and wakes those that sleep.
    fn show(&self, whole: u64) {
        self.front.advance(whole);
        self.pe.order_rings();
        for &(pe, _) in self.readers.iter().filter(|&&(pe, _)| pe != self.pe.me()) {
            self.pe.control().doorbell(pe).ring_ordered();
        }
    }

    /// Gets what is missing and due (H4), and looks at the writer's front when that is due (H5).
    fn get_missing(&self, work: &mut Work, now: Nanos) -> Result<()> {
        for _ in 0..MOST_GETS {
            if let Some((start, end)) = work.missing(now) {
                self.get(work, start, end)?;
                work.has_news(now);
            } else if work.look_at <= now {
                work.look_at = now + work.look_after;
                work.look_after = (2 * work.look_after).min(LOOK_MOST);
                let (front, sent) = self.look()?;
                // What was sent may still come. What was not may soon be, but for a writer that
                // computes, or that waits for another head.
                let (known, due) = match work.look_after < LOOK_MOST {
                    true => (sent, now + REORDERED),
                    false => (front, now),
                };
                if known <= work.gaps.highest() || known > work.room() {
                    return Ok(());
                }
                // With too many gaps, the next look opens this one.
                let _opened = work.gaps.know(known, due);
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The writer's front, and how far datagrams were sent.
    fn look(&self) -> Result<(u64, u64)> {
        let mut line = [0u64; 3];
        const {
            assert!(offset_of!(ReaderLine, position) == 0 && offset_of!(ReaderLine, received) == 16)
        };
        // SAFETY: private memory of that size; the words lie in the writer's segment.
        unsafe { self.theirs.get(&self.pe, line.as_mut_ptr().cast(), size_of_val(&line)) }?;
        Ok((line[0], line[2]))
    }

    /// Gets a range of the log from the writer's ring, and stores what is missing of it.
    fn get(&self, work: &mut Work, start: u64, end: u64) -> Result<()> {
        let Work { ring, gaps, got, .. } = work;
        let mut at = start;
        while at < end {
            let within = at & (ring.len() - 1);
            let len = (end - at).min(ring.len() - within) as usize;
            let to = got[(at - start) as usize..][..len].as_mut_ptr();
            // SAFETY: `to` has room for so many bytes, just sliced. They lie in the writer's ring,
            // up to its end.
            unsafe { self.pe.route(self.writer, self.offset + within).get(&self.pe, to, len) }?;
            at += len as u64;
        }
        let filled = gaps.fill(start, end, 0, |from, to| {
            ring.write(from, &got[(from - start) as usize..(to - start) as usize]);
        });
        // It begins with a gap, so it splits none.
        debug_assert!(filled.is_ok());
        Ok(())
    }

    /// Needs nothing of the writer any more. What lies in the ring stays there.
    fn give_up(&self, work: &mut Work) {
        if work.told_consumed != LEFT {
            work.done = true;
            self.report(work, false);
        }
    }

    /// Tells the writer what has come and what is done with (H3, H6, H7).
    fn report(&self, work: &mut Work, came: bool) {
        let received = work.gaps.received();
        if received - work.told_received >= work.window / 4 {
            self.received.add(&self.pe, received - work.told_received);
            work.told_received = received;
        }
        let least = self.readers.iter().map(|(_, line)| line.position()).min();
        let mut least = least.unwrap_or(LEFT);
        if work.done || least == LEFT {
            // H8
            (least, work.done) = (LEFT, true);
        }
        let enough = if came && least != LEFT { work.ring.len() / 8 } else { 1 };
        if least - work.told_consumed >= enough {
            self.consumed.add(&self.pe, least - work.told_consumed);
            work.told_consumed = least;
        }
    }
}

impl Relay for Head {
    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock does this work.
        let mut work = try_lock(&self.work)?;
        self.work(&mut work);
        let mut keep = lock(&self.keep);
        let over = work.done && !work.lost;
        if keep.is_some() && (over || !self.is_awaited()) {
            self.give_up(&mut work);
            // The caller holds another reference.
            *keep = None;
        }
        None
    }

    fn lacks(&self, is_lost: &dyn Fn(usize) -> bool) -> Option<usize> {
        let lacks = try_lock(&self.work).is_some_and(|work| work.lost || !work.done);
        let is_wanted = || lock(&self.keep).is_none() || self.is_awaited();
        Some(self.writer).filter(|&writer| lacks && is_lost(writer) && is_wanted())
    }

    fn let_go(&self) {
        *lock(&self.keep) = None;
    }

    fn depart(&self) -> bool {
        let mut work = lock(&self.work);
        self.work(&mut work);
        let needed = !work.done && self.is_awaited();
        if !needed {
            self.give_up(&mut work);
        }
        needed
    }
}
