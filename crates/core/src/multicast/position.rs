//! A reader's line: how it reports its position to the writer of the ring that it reads, and how
//! that writer drops it.

use crate::base::layout::ReaderLine;
use crate::base::shm;
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use std::mem::offset_of;

/// The position of a reader that has left.
pub(super) const LEFT: u64 = u64::MAX;

/// A [`ReaderLine`] in mapped memory.
#[derive(Clone, Copy)]
pub(super) struct PositionLine(pub(super) *mut u8);

// SAFETY: an address in the window that the end of the channel keeps, used only through
// `crate::base::shm`.
unsafe impl Send for PositionLine {}
// SAFETY: as above.
unsafe impl Sync for PositionLine {}

impl PositionLine {
    /// The position that the reader has reported; [`LEFT`] when it has left.
    #[inline]
    pub(super) fn position(self) -> u64 {
        // SAFETY: an aligned word of a line of the mapped window.
        let position =
            unsafe { shm::load(self.0.wrapping_add(offset_of!(ReaderLine, position)).cast()) };
        // No reader gets so far by reading. It has left, and an earlier report is still on its way.
        if position > LEFT / 2 { LEFT } else { position }
    }

    /// Stores a position that only this PE writes.
    #[inline]
    pub(super) fn advance(self, position: u64) {
        // SAFETY: as above.
        unsafe {
            shm::store(self.0.wrapping_add(offset_of!(ReaderLine, position)).cast(), position);
        }
    }

    /// The position up to which all has reached the reader's host.
    #[inline]
    pub(super) fn received(self) -> u64 {
        // SAFETY: as above.
        unsafe { shm::load(self.0.wrapping_add(offset_of!(ReaderLine, received)).cast()) }
    }

    /// Stores what [`received`](Self::received) gives, where only this PE writes it.
    pub(super) fn report_received(self, position: u64) {
        // SAFETY: as above.
        unsafe {
            shm::store(self.0.wrapping_add(offset_of!(ReaderLine, received)).cast(), position);
        }
    }

    /// By which ways the channel's probes have reached the reader's host, as bits.
    pub(super) fn heard(self) -> u64 {
        // SAFETY: as above.
        unsafe { shm::load(self.0.wrapping_add(offset_of!(ReaderLine, heard)).cast()) }
    }

    /// Whether no more probes will come.
    pub(super) fn is_probed(self) -> bool {
        // SAFETY: as above.
        unsafe { shm::load::<u64>(self.0.wrapping_add(offset_of!(ReaderLine, probed)).cast()) != 0 }
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

/// A word of a [`ReaderLine`] in another PE's segment, changed by signals.
#[derive(Clone, Copy)]
pub(super) struct Upstream {
    pub(super) pe: usize,
    pub(super) word: Route,
}

impl Upstream {
    /// Adds to the word.
    pub(super) fn add(&self, me: &Pe, amount: u64) {
        if let Err(error) = self.word.signal(me, self.pe, SignalOp::Add, amount) {
            me.surface_later(*error);
        }
    }
}
