//! The writer's end: it sends the log, and stays until all heads have it.

use super::seal::{HEADER, Place, Seal};
use super::wire::Sender;
use crate::base::status::State;
use crate::base::{lock, try_lock};
use crate::endpoint::fabric::Due;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::multicast::first_dead;
use crate::multicast::position::PositionLine;
use crate::multicast::ring::{Header, Ring};
use crate::window::Inner;
use memonet_repair::Log;
use std::sync::{Arc, Mutex};

/// The writer's end.
pub(in crate::multicast) struct Cast {
    pub(super) pe: Arc<Pe>,
    pub(super) ring: Ring,
    /// The front, in this PE's segment.
    pub(super) front: PositionLine,
    /// All readers, of which any may end the channel by its death.
    pub(super) readers: Box<[usize]>,
    /// The heads of the other hosts, with their lines in this PE's segment.
    pub(super) heads: Box<[(usize, PositionLine)]>,
    pub(super) work: Mutex<Work>,
    /// This end, from when the program drops it until no head needs it.
    pub(super) keep: Mutex<Option<Arc<Cast>>>,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

pub(super) struct Work {
    pub(super) seal: Seal,
    pub(super) sender: Sender,
    /// Bytes under way to the slowest head: as many as the receive buffer of each head holds.
    pub(super) window: u64,
    pub(super) out: Box<[u8]>,
    /// The end of the published log.
    pub(super) end: u64,
    /// What lies below was sent as datagrams, or has reached all heads by itself.
    pub(super) sent: u64,
    /// The end of the log when the fabric last brought reports.
    pub(super) looked: u64,
    /// The log has its last record.
    pub(super) ended: bool,
}

impl Cast {
    /// The least position that heads have reported.
    pub(in crate::multicast) fn least(&self) -> u64 {
        self.heads.iter().map(|(_, line)| line.position()).min().unwrap_or(u64::MAX)
    }

    /// The line by which a head reports.
    pub(in crate::multicast) fn line_of(&self, pe: usize) -> Option<PositionLine> {
        self.heads.iter().find(|(head, _)| *head == pe).map(|&(_, line)| line)
    }

    /// Sends the log, which is written up to `end`.
    pub(in crate::multicast) fn commit(&self, end: u64) {
        let mut work = lock(&self.work);
        self.advance(&mut work, end);
    }

    fn advance(&self, work: &mut Work, end: u64) {
        work.end = end;
        self.front.advance(end); // H1
        // A writer that never waits sees reports, too.
        if end - work.looked >= work.window / 4 {
            work.looked = end;
            if let Some(fabric) = self.pe.far_fabric() {
                fabric.progress();
            }
        }
        self.send(work);
    }

    /// Leaves the channel, with this last record. This PE stays until all heads have it.
    pub(in crate::multicast) fn end(self: &Arc<Self>, last: Header) {
        *lock(&self.keep) = Some(self.clone());
        self.close(&mut lock(&self.work), last);
        self.release();
    }

    /// Writes the last record, unless it stands there.
    fn close(&self, work: &mut Work, last: Header) {
        if !std::mem::replace(&mut work.ended, true) {
            self.ring.set_word(work.end, last.to_word());
            self.advance(work, work.end + 8);
        }
    }

    /// Sends what the window allows, and shows how far that is. Heads get the rest by themselves.
    fn send(&self, work: &mut Work) {
        self.send_datagrams(work);
        self.front.report_received(work.sent);
    }

    fn send_datagrams(&self, work: &mut Work) {
        let Work { seal, sender, window, out, end, sent, .. } = work;
        let live = self.heads.iter().filter(|(_, line)| !line.has_left());
        let Some(seen) = live.map(|(_, line)| line.received()).min() else {
            *sent = *end;
            return;
        };
        *sent = (*sent).max(seen);
        let upto = (*end).min(seen + *window);
        while *sent < upto {
            let (mut at, mut bytes) = (*sent, 0);
            for datagram in out.chunks_mut(sender.most) {
                let len = (upto - at).min((datagram.len() - HEADER) as u64);
                let datagram = &mut datagram[..HEADER + len as usize];
                self.ring.read(at, &mut datagram[HEADER..]);
                seal.close(Place::Log(at), datagram);
                (at, bytes) = (at + len, bytes + datagram.len());
                if at == upto {
                    break;
                }
            }
            if !sender.send(&out[..bytes]) {
                return;
            }
            *sent = at;
        }
    }

    /// The heads that still need this end (H8).
    fn waiting(&self) -> impl Iterator<Item = usize> {
        let is_there =
            |pe: usize| !matches!(self.pe.control().state(pe), State::Dead(_) | State::Done);
        let waiting =
            move |&&(head, line): &&(usize, PositionLine)| !line.has_left() && is_there(head);
        self.heads.iter().filter(waiting).map(|&(head, _)| head)
    }

    fn is_needed(&self) -> bool {
        self.waiting().next().is_some()
    }

    /// Drops this end's reference to itself once no head needs it.
    fn release(&self) {
        let mut keep = lock(&self.keep);
        if keep.is_some() && !self.is_needed() {
            // The caller holds another reference.
            *keep = None;
        }
    }
}

impl Relay for Cast {
    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock does this work.
        let mut work = try_lock(&self.work)?;
        self.send(&mut work);
        drop(work);
        self.release();
        None
    }

    fn lacks(&self, is_lost: &dyn Fn(usize) -> bool) -> Option<usize> {
        self.waiting().find(|&head| is_lost(head))
    }

    fn let_go(&self) {
        *lock(&self.keep) = None;
    }

    fn depart(&self) -> bool {
        // Needed where the program still holds the end of the channel.
        let has_left = |reader| self.line_of(reader).is_some_and(PositionLine::has_left);
        let failed = first_dead(&self.pe, &self.readers, has_left);
        self.close(&mut lock(&self.work), Header::End { failed });
        self.is_needed()
    }
}
