//! The writer's end: room in the ring, records, and the progress of readers.

use super::datagrams::Sending;
use super::hosts::Cast;
use super::position::{PositionLine, Upstream};
use super::ring::{Fragment, Header, Ring};
use super::stream::Lap;
use super::tree::Node;
use super::{finalised, first_dead};
use crate::base::doorbell::Doorbell;
use crate::base::error::{Cause, Error, Result};
use crate::base::shm::{self, Plain};
use crate::base::status::State;
use crate::base::unwinding::unwinds;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::objects::Counters;
use crate::endpoint::{calls, ending};
use crate::wait::limit::{Limit, Patience};
use crate::wait::polling;
use crate::wait::{self, Awaiting, Terms};
use crate::window::Inner;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Writer {
    pub(super) pe: Arc<Pe>,
    /// Where this PE records.
    pub(super) counters: Option<Counters>,
    pub(super) ring: Ring,
    /// The lap of the ring that this PE writes.
    pub(super) lap: Lap,
    /// The end of the published log.
    pub(super) position: u64,
    /// Records that end here, with the zero behind them, need no look at the readers.
    pub(super) limit: u64,
    /// Whole blocks whose records end here, with the zero behind them, can be published at once
    /// ([`publish_at_once`](Self::publish_at_once)).
    pub(super) at_once: u64,
    /// Readers of this ring that are still taken into account.
    pub(super) readers: Vec<Peer>,
    /// Readers without which the writer goes on.
    pub(super) dropped: Vec<usize>,
    /// The time after which a reader that stops this PE is dropped.
    pub(super) drop_slow: Option<Duration>,
    /// Whether a reader may die.
    pub(super) survive: bool,
    /// PEs whose death ends waits: all readers, also of other rings than this one.
    pub(super) watched: Vec<usize>,
    pub(super) onward: Onward,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

/// How the log reaches the readers.
pub(super) enum Onward {
    /// They read this ring.
    Here,
    Tree(Arc<Node>),
    Datagrams(Arc<Sending>),
    /// The readers of this host read this ring; datagrams go to the others.
    Hosts(Arc<Cast>),
}

/// A reader, as the writer of its ring knows it.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) pe: usize,
    pub(super) bell: Doorbell,
    /// Its line, in this PE's segment.
    pub(super) line: PositionLine,
    /// The word that says that it was dropped.
    pub(super) dropped: Upstream,
}

/// The error for a silent reader.
pub(super) fn silence(pe: usize) -> Error {
    Error::Silent { pe, after: Sending::dead_after(), call: None }
}

/// Room for a record.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Bytes to skip before the record.
    padding: u64,
}

impl Writer {
    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) fn dropped(&self) -> &[usize] {
        &self.dropped
    }

    /// Refuses a process that is not the PE, and a PE that has told its readers by finalising that
    /// nothing follows.
    #[inline]
    pub(super) fn refuse_departed(&self) -> Result<()> {
        let cause = || self.pe.control().state(self.pe.me()).departed();
        if !matches!(self.onward, Onward::Here) && cause() == Some(Cause::Finalized) {
            return Err(finalised());
        }
        ending::refuse_child(&self.pe)
    }

    /// Waits for room for a record of `len` bytes, at most [`Ring::most`].
    #[inline]
    pub(super) fn room(&mut self, len: usize) -> Result<Room> {
        let room = self.place(len);
        let end = self.end(room, len);
        if end > self.limit {
            self.wait_for(end)?;
        }
        Ok(room)
    }

    /// [`room`](Self::room), if that needs no waiting.
    #[inline]
    pub(super) fn try_room(&mut self, len: usize) -> Result<Option<Room>> {
        let room = self.place(len);
        let end = self.end(room, len);
        if end > self.limit {
            self.look();
            if end > self.limit {
                // A program may try until it succeeds. Such a loop is a wait, and ends like one.
                self.pe.progress();
                self.pe.wake_written();
                polling::has_looked(&self.pe, false);
                if let Some(pe) = self.silent() {
                    return Err(silence(pe));
                }
                return match self.with_terms(Patience::Forever, |terms| terms.departed(&self.pe)) {
                    Some(error) => self.survive(error).map(|()| None),
                    None => Ok(None),
                };
            }
        }
        Ok(Some(room))
    }

    #[inline]
    fn place(&self, len: usize) -> Room {
        let goes_on = || self.lap.is_of_stream(self.ring.lap_lines());
        Room { padding: self.ring.padding(self.position, self.ring.record(len), goes_on) }
    }

    /// The end of all bytes that publishing a record stores, the zero behind it included (M3).
    #[inline]
    fn end(&self, room: Room, len: usize) -> u64 {
        self.position + room.padding + self.ring.record(len) + 8
    }

    /// Address of the record's block.
    #[inline]
    pub(super) fn block(&self, room: Room) -> *mut u8 {
        self.ring.block(self.position + room.padding)
    }

    /// Publishes a whole block, if nothing has to be done for it but to store it: no look, no
    /// padding, nobody that records it or sends it on. False if nothing was done. Between a call of
    /// a program and its store, each instruction adds to a short block's latency.
    #[inline(always)]
    pub(super) fn publish_at_once<T: Plain>(&mut self, block: &[T]) -> bool {
        let (start, len) = (self.position, size_of_val(block));
        let end = start + self.ring.record(len);
        if end + 8 > self.at_once || ending::is_forked() {
            return false;
        }
        // SAFETY: up to `at_once` the ring is one piece, and no reader reads there before the
        // header says so (M1, M3); `block` is private memory.
        unsafe { shm::copy(self.ring.block(start), block.as_ptr().cast(), len) };
        self.store_header(start, end, len, Fragment::WHOLE);
        self.position = end;
        self.wake_readers();
        self.prefetch_next();
        true
    }

    /// Has blocks be published at once from here on, as far as that goes.
    pub(super) fn reach_ahead(&mut self) {
        self.at_once = match self.onward {
            Onward::Here if self.counters.is_none() && self.pe.recorder().is_none() => {
                self.limit.min(self.position + self.ring.run(self.position))
            }
            _ => 0,
        };
    }

    /// Stores the header of the record from `start` to `end`, whose block is complete.
    #[inline(always)]
    fn store_header(&self, start: u64, end: u64, len: usize, part: Fragment) {
        self.ring.set_word(end, 0); // M2
        self.ring.set_word(start, Header::Block { len, part }.to_word()); // M1
    }

    /// The zero behind the next record often lies in another line, for which its header must not
    /// wait.
    #[inline(always)]
    fn prefetch_next(&self) {
        shm::prefetch_to_write(self.ring.at(self.position + 64));
    }

    /// Publishes the record, whose block is complete.
    #[inline(always)]
    pub(super) fn publish(&mut self, room: Room, len: usize, part: Fragment) {
        if let Some(counters) = &self.counters {
            counters.passed(len, part.last);
        }
        let start = self.position + room.padding;
        let end = start + self.ring.record(len);
        self.store_header(start, end, len, part);
        if room.padding > 0 {
            let padding = Header::Padding { len: room.padding as usize };
            self.ring.set_word(self.position, padding.to_word());
            self.lap = Lap::begin();
        }
        self.position = end;
        match &self.onward {
            Onward::Here => self.wake_readers(),
            Onward::Tree(node) => node.advance(end, true),
            Onward::Datagrams(sending) => {
                sending.commit(end);
                let lost = sending.take_lost();
                lost.into_iter().for_each(|pe| self.forget(pe));
            }
            Onward::Hosts(cast) => {
                cast.commit(end);
                self.wake_readers();
            }
        }
        self.prefetch_next();
    }

    /// Wakes readers that sleep (M4).
    #[inline]
    fn wake_readers(&self) {
        self.pe.order_rings();
        for reader in &self.readers {
            reader.bell.ring_ordered();
        }
    }

    /// The position up to which all readers allow to write (M3).
    #[inline]
    fn allowed(&self) -> u64 {
        if let Onward::Datagrams(sending) = &self.onward {
            return sending.limit();
        }
        let others = match &self.onward {
            Onward::Hosts(cast) => cast.least(),
            _ => u64::MAX,
        };
        // No reader is beyond `position`, and one that has left allows everything.
        let lines = self.readers.iter().map(|reader| reader.line.position());
        let least = lines.fold(self.position.min(others), u64::min);
        least + self.ring.len()
    }

    #[inline]
    fn look(&mut self) {
        self.limit = self.allowed();
    }

    #[cold]
    fn wait_for(&mut self, end: u64) -> Result<()> {
        if let Onward::Datagrams(sending) = &self.onward {
            sending.want(end);
        }
        // One limit for the record, though readers may die or fall silent meanwhile.
        let limit = Limit::from(self.drop_slow);
        loop {
            let enough = || Some(self.allowed()).filter(|&limit| limit >= end).map(Ok);
            let look = || enough().or_else(|| self.silent().map(Err));
            match self
                .with_terms(limit.patience(), |terms| {
                    calls::within("Multicast::publish", None, None, || {
                        wait::until(&self.pe, terms, look)
                    })
                })
                .map_err(|error| *error)
            {
                Ok(Ok(limit)) => {
                    self.limit = limit;
                    // Another thread may have finalised meanwhile.
                    return self.refuse_departed();
                }
                Ok(Err(pe)) => return Err(silence(pe)),
                Err(Error::Timeout { .. }) => self.drop_slow(end),
                Err(error) => self.survive(error)?,
            }
        }
    }

    /// A silent reader, where none may die.
    fn silent(&self) -> Option<usize> {
        match &self.onward {
            Onward::Datagrams(sending) => sending.silent(),
            _ => None,
        }
    }

    /// The line of a PE that reports its position to this one.
    fn line_of(&self, pe: usize) -> Option<PositionLine> {
        let reader = self.readers.iter().find(|reader| reader.pe == pe);
        reader.map(|reader| reader.line).or_else(|| match &self.onward {
            Onward::Hosts(cast) => cast.line_of(pe),
            _ => None,
        })
    }

    /// Whether a reader is known to have left: in a tree, a child of this node. Others may still
    /// pass blocks on.
    fn has_left(&self, reader: usize) -> bool {
        match &self.onward {
            Onward::Datagrams(sending) => sending.has_left(reader),
            _ => self.line_of(reader).is_some_and(PositionLine::has_left),
        }
    }

    /// Terms of a wait for readers: those that are taken into account live, unless they have left.
    fn with_terms<R>(&self, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        // In a tree, a PE that finalises still relays, and says that it has left before it is gone.
        let relays = matches!(self.onward, Onward::Tree(_) | Onward::Hosts(_)) && !self.survive;
        let stays = |pe: usize| relays && self.pe.control().state(pe) != State::Done;
        // The state comes first: who is gone has said so before.
        let left = |pe: usize| self.line_of(pe).is_none_or(|line| stays(pe) || line.has_left());
        f(Terms::new(Awaiting::Channel { ends: &self.watched, done: &left }, patience))
    }

    /// Goes on without the readers that do not allow to write up to `end`.
    pub(super) fn drop_slow(&mut self, end: u64) {
        if let Onward::Datagrams(sending) = &self.onward {
            let sending = sending.clone();
            while let Some(pe) = sending.drop_slow(end) {
                self.forget(pe);
            }
            return;
        }
        let slow =
            |reader: &Peer| reader.line.position().min(self.position) + self.ring.len() < end;
        let slow: Vec<Peer> = self.readers.iter().copied().filter(slow).collect();
        for reader in &slow {
            // M5: before anything is overwritten. The signal also wakes it, as it may wait for the
            // rest of a block.
            reader.dropped.add(&self.pe, 1);
            self.forget(reader.pe);
        }
        if !slow.is_empty() {
            self.pe.flush_far(); // T6
        }
    }

    fn forget(&mut self, pe: usize) {
        if !self.watched.contains(&pe) {
            return;
        }
        self.readers.retain(|reader| reader.pe != pe);
        self.watched.retain(|&watched| watched != pe);
        self.dropped.push(pe);
        match &self.onward {
            // Between hosts no reader is dropped.
            Onward::Here | Onward::Hosts(_) => {}
            Onward::Tree(node) => node.forget(pe),
            Onward::Datagrams(sending) => sending.forget(pe),
        }
    }

    /// Whether no reference of a dead reader into this ring can remain.
    fn reads_no_more(&self, pe: usize) -> bool {
        let has_left = || {
            let mut readers = self.readers.iter();
            readers.all(|reader| reader.pe != pe || reader.line.has_left())
        };
        !matches!(self.onward, Onward::Here) || self.pe.control().is_gone(pe) || has_left()
    }

    /// Goes on without a reader that is gone, where that is allowed, or where it had left before.
    fn survive(&mut self, error: Error) -> Result<()> {
        match error {
            Error::PeerFailed { pe, .. } if self.watched.contains(&pe) && self.has_left(pe) => {
                self.readers.retain(|reader| reader.pe != pe);
                self.watched.retain(|&watched| watched != pe);
                Ok(())
            }
            // A reader that has finalised may still be reading. The writer waits until it drops its
            // end.
            Error::PeerFailed { pe, cause, .. }
                if self.survive
                    && self.watched.contains(&pe)
                    && cause != Cause::Finalized
                    && self.reads_no_more(pe) =>
            {
                self.forget(pe);
                Ok(())
            }
            error => Err(error),
        }
    }
}

impl Writer {
    /// The last record. What a writer that panics has published may be less than it meant to, and
    /// so may what it has published without a reader.
    fn last(&self) -> Header {
        let readers = if self.survive { &[] } else { &self.watched[..] };
        let failed = match unwinds() {
            true => Some(self.pe.me()),
            false => first_dead(&self.pe, readers, |reader| self.has_left(reader)),
        };
        Header::End { failed }
    }

    /// Waits until all that are still readers have received everything: no other PE can send again
    /// what they miss. A writer that panics does so for a second: it may be about to die.
    fn wait_for_arrival(&mut self) {
        let Onward::Datagrams(sending) = &self.onward else { return };
        let sending = sending.clone();
        let panics = unwinds();
        let limit = Limit::from(panics.then_some(Duration::from_secs(1)));
        while !sending.is_complete() {
            let look =
                || sending.is_complete().then_some(None).or_else(|| sending.silent().map(Some));
            match self
                .with_terms(limit.patience(), |terms| wait::until(&self.pe, terms, look))
                .map_err(|error| *error)
            {
                Ok(None) => {}
                Err(Error::Timeout { .. }) => return,
                Ok(Some(pe)) => {
                    self.pe.surface_later(silence(pe));
                    self.forget(pe);
                }
                Err(Error::PeerFailed { pe, .. }) if self.watched.contains(&pe) => self.forget(pe),
                Err(error) => return self.pe.surface_later(error),
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if ending::refuse_child(&self.pe).is_err() {
            return;
        }
        let last = self.last();
        match &self.onward {
            Onward::Hosts(cast) => {
                cast.end(last);
                self.wake_readers();
            }
            Onward::Datagrams(sending) => {
                sending.end(last);
                self.wait_for_arrival();
            }
            // It replaces the zero behind the last record.
            Onward::Here => {
                self.ring.set_word(self.position, last.to_word());
                self.wake_readers();
            }
            Onward::Tree(node) => {
                self.ring.set_word(self.position, last.to_word());
                node.end();
            }
        }
    }
}
