//! The writer's end: room in the ring, records, and who has read what.

use super::datagrams::Sending;
use super::ring::{Fragment, Header, Ring};
use super::tree::{Node, Upstream};
use crate::base::doorbell::Doorbell;
use crate::base::error::{Cause, Error, Result};
use crate::base::layout::ReaderLine;
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::wait::limit::{Limit, Patience};
use crate::wait::polling;
use crate::wait::{self, Awaiting, Terms};
use crate::window::Inner;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

/// The position of a reader that has left.
pub(super) const LEFT: u64 = u64::MAX;

pub(super) struct Writer {
    pub(super) pe: Arc<Pe>,
    pub(super) ring: Ring,
    /// End of what was published.
    pub(super) position: u64,
    /// Records that end here, with the zero behind them, need no look at the readers.
    pub(super) limit: u64,
    /// Those that are still taken into account,
    pub(super) readers: Vec<Peer>,
    /// and those that are not.
    pub(super) dropped: Vec<usize>,
    /// After how long a reader that stops this PE is dropped.
    pub(super) drop_slow: Option<Duration>,
    /// Whether a reader may die.
    pub(super) survive: bool,
    /// Whose deaths are looked for: all readers, also those that do not read this ring.
    pub(super) watched: Vec<usize>,
    pub(super) onward: Onward,
    /// Keeps the memory.
    pub(super) _window: Arc<Inner>,
}

/// How the log gets to the readers.
pub(super) enum Onward {
    /// They read it here.
    Here,
    Tree(Arc<Node>),
    Datagrams(Arc<Sending>),
}

/// A reader, as the writer of the ring that it reads knows it.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) pe: usize,
    pub(super) bell: Doorbell,
    /// Its line, in this PE's segment.
    pub(super) line: PositionLine,
    /// Where it looks whether it was dropped.
    pub(super) dropped: Upstream,
}

/// Address of a [`ReaderLine`].
#[derive(Clone, Copy)]
pub(super) struct PositionLine(pub(super) *mut u8);

// SAFETY: an address in the window that the end of the channel keeps, used only through
// `crate::base::shm`.
unsafe impl Send for PositionLine {}
// SAFETY: as above.
unsafe impl Sync for PositionLine {}

impl PositionLine {
    /// How far the reader says it is; [`LEFT`] when it has left.
    #[inline]
    pub(super) fn position(self) -> u64 {
        // SAFETY: an aligned word of a line of the mapped window.
        let position =
            unsafe { shm::load(self.0.wrapping_add(offset_of!(ReaderLine, position)).cast()) };
        // Nobody gets so far by reading: it has left, and something that it said before is still on
        // its way.
        if position > LEFT / 2 { LEFT } else { position }
    }

    pub(super) fn has_left(self) -> bool {
        self.position() == LEFT
    }

    #[inline]
    pub(super) fn is_dropped(self) -> bool {
        // SAFETY: as above.
        unsafe {
            shm::load::<u64>(self.0.wrapping_add(offset_of!(ReaderLine, dropped)).cast()) != 0
        }
    }
}

/// What a writer says of a reader that it does not hear.
fn silence(pe: usize) -> Error {
    Error::Silent { pe, after: Sending::dead_after() }
}

/// Room for a record.
#[derive(Clone, Copy)]
pub(super) struct Room {
    /// Bytes to be skipped before it.
    padding: u64,
}

impl Writer {
    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(super) fn dropped(&self) -> &[usize] {
        &self.dropped
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
                // A program may try until it succeeds: that is a wait, and ends like one.
                self.pe.progress();
                self.pe.wake_written();
                polling::has_looked(&self.pe, false);
                if let Some(pe) = self.silent() {
                    return self.outlive(pe).map(|()| None);
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
        Room { padding: self.ring.padding(self.position, self.ring.record(len)) }
    }

    /// End of what publishing a record stores to, the zero behind it included.
    #[inline]
    fn end(&self, room: Room, len: usize) -> u64 {
        self.position + room.padding + self.ring.record(len) + 8
    }

    /// Where the block of the record goes.
    #[inline]
    pub(super) fn block(&self, room: Room) -> *mut u8 {
        self.ring.block(self.position + room.padding)
    }

    /// Publishes the record, whose block is complete.
    #[inline(always)]
    pub(super) fn publish(&mut self, room: Room, len: usize, part: Fragment) {
        let start = self.position + room.padding;
        let end = start + self.ring.record(len);
        self.ring.set_word(end, 0);
        self.ring.set_word(start, Header::Block { len, part }.to_word());
        if room.padding > 0 {
            let padding = Header::Padding { len: room.padding as usize };
            self.ring.set_word(self.position, padding.to_word());
        }
        self.position = end;
        match &self.onward {
            Onward::Here => self.ring_readers(),
            Onward::Tree(node) => node.advance(end, true),
            Onward::Datagrams(sending) => sending.commit(end),
        }
        // The zero behind the next record often lies in another line, and the header must not wait
        // for that.
        shm::prefetch_to_write(self.ring.at(end + 64));
    }

    #[inline]
    fn ring_readers(&self) {
        self.pe.order_rings();
        for reader in &self.readers {
            reader.bell.ring_ordered();
        }
    }

    /// How far all readers allow to write.
    #[inline]
    fn allowed(&self) -> u64 {
        if let Onward::Datagrams(sending) = &self.onward {
            return sending.limit();
        }
        // Nobody has read what is not written; who has left allows everything.
        let least =
            self.readers.iter().map(|reader| reader.line.position()).fold(self.position, u64::min);
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
        // One for the record, though others may die or fall silent meanwhile.
        let limit = Limit::from(self.drop_slow);
        loop {
            let enough = || Some(self.allowed()).filter(|&limit| limit >= end).map(Ok);
            let look = || enough().or_else(|| self.silent().map(Err));
            match self
                .with_terms(limit.patience(), |terms| wait::until(&self.pe, terms, look))
                .map_err(|error| *error)
            {
                Ok(Ok(limit)) => {
                    self.limit = limit;
                    return Ok(());
                }
                Ok(Err(pe)) => self.outlive(pe)?,
                Err(Error::Timeout { .. }) => self.drop_slow(end),
                Err(error) => self.survive(error)?,
            }
        }
    }

    /// A reader of which nothing is heard.
    fn silent(&self) -> Option<usize> {
        match &self.onward {
            Onward::Datagrams(sending) => sending.silent(),
            _ => None,
        }
    }

    /// Goes on without a reader of which nothing is heard, where that is allowed.
    fn outlive(&mut self, pe: usize) -> Result<()> {
        if !self.survive {
            return Err(silence(pe));
        }
        self.forget(pe);
        Ok(())
    }

    /// What a wait for readers depends on: those that are taken into account, unless they have
    /// left.
    fn with_terms<R>(&self, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        let reads_here = |pe: usize| self.readers.iter().find(|reader| reader.pe == pe);
        // In a tree, who finalises still passes on.
        let passes_on = matches!(self.onward, Onward::Tree(_)) && !self.survive;
        let left =
            |pe: usize| passes_on || reads_here(pe).is_none_or(|reader| reader.line.has_left());
        f(Terms { awaiting: Awaiting::Channel { ends: &self.watched, done: &left }, patience })
    }

    /// Goes on without those that do not allow to write up to `end`.
    pub(super) fn drop_slow(&mut self, end: u64) {
        if let Onward::Datagrams(sending) = &self.onward {
            let sending = sending.clone();
            while let Some(pe) = sending.slow(end) {
                self.forget(pe);
            }
            return;
        }
        let slow =
            |reader: &Peer| reader.line.position().min(self.position) + self.ring.len() < end;
        let slow: Vec<Peer> = self.readers.iter().copied().filter(slow).collect();
        for reader in &slow {
            // Told before anything is overwritten, and woken: it may wait for the rest of a block.
            reader.dropped.add(&self.pe, 1);
            self.forget(reader.pe);
        }
    }

    fn forget(&mut self, pe: usize) {
        self.readers.retain(|reader| reader.pe != pe);
        self.watched.retain(|&watched| watched != pe);
        self.dropped.push(pe);
        match &self.onward {
            Onward::Here => {}
            Onward::Tree(node) => node.forget(pe),
            Onward::Datagrams(sending) => sending.forget(pe),
        }
    }

    /// Whether nothing of a dead reader may still refer to what lies in this ring.
    fn reads_no_more(&self, pe: usize) -> bool {
        let has_left = || {
            let mut readers = self.readers.iter();
            readers.all(|reader| reader.pe != pe || reader.line.has_left())
        };
        !matches!(self.onward, Onward::Here) || self.pe.control().is_gone(pe) || has_left()
    }

    /// Goes on without a reader that is gone, where that is allowed.
    fn survive(&mut self, error: Error) -> Result<()> {
        match error {
            // One that has finalised may still be reading, and is waited for until it drops its
            // end.
            Error::PeerFailed { pe, cause }
                if self.survive && cause != Cause::Finalized && self.reads_no_more(pe) =>
            {
                self.forget(pe);
                Ok(())
            }
            error => Err(error),
        }
    }
}

impl Writer {
    /// Waits until all that are still readers have received everything: what they miss nobody else
    /// can send again.
    fn wait_for_arrival(&mut self) {
        let Onward::Datagrams(sending) = &self.onward else { return };
        let sending = sending.clone();
        while !sending.is_complete() && !std::thread::panicking() {
            let look =
                || sending.is_complete().then_some(None).or_else(|| sending.silent().map(Some));
            match self
                .with_terms(Patience::Forever, |terms| wait::until(&self.pe, terms, look))
                .map_err(|error| *error)
            {
                Ok(None) => {}
                Ok(Some(pe)) => {
                    if !self.survive {
                        self.pe.surface_later(silence(pe));
                    }
                    self.forget(pe);
                }
                Err(Error::PeerFailed { pe, .. }) => self.forget(pe),
                Err(error) => return self.pe.surface_later(error),
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Its place is the zero behind the last record.
        self.ring.set_word(self.position, Header::End.to_word());
        match &self.onward {
            Onward::Here => self.ring_readers(),
            Onward::Tree(node) => node.end(),
            Onward::Datagrams(sending) => {
                sending.commit(self.position + 8);
                self.wait_for_arrival();
            }
        }
    }
}
