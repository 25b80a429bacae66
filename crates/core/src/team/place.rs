//! Places: ranges of every member's segment, and copies between them.

use super::Team;
use crate::base::error::Result;
use crate::endpoint::route::Route;

/// A range of every PE's segment, at one offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymmetricRange {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl SymmetricRange {
    #[cfg(loom)]
    pub(crate) fn at(offset: u64, bytes: usize) -> SymmetricRange {
        SymmetricRange { offset, bytes }
    }

    /// `bytes` bytes of the range from `at` on, which lie inside of it.
    pub(crate) fn part(self, at: usize, bytes: usize) -> SymmetricRange {
        assert!(
            at <= self.bytes && bytes <= self.bytes - at,
            "{bytes} bytes at {at} of {}",
            self.bytes
        );
        SymmetricRange { offset: self.offset + at as u64, bytes }
    }

    /// Whether the ranges have a byte in common.
    #[inline]
    pub fn overlaps(self, other: SymmetricRange) -> bool {
        let (ends, other_ends) =
            (self.offset + self.bytes as u64, other.offset + other.bytes as u64);
        self.bytes > 0 && other.bytes > 0 && self.offset < other_ends && other.offset < ends
    }

    /// Whether the ranges are equal, or have no byte in common.
    #[inline]
    pub fn is_apart(self, other: SymmetricRange) -> bool {
        self.offset == other.offset && self.bytes == other.bytes || !self.overlaps(other)
    }
}

/// Copies that collectives are built of.
impl Team {
    /// Address of a place in this PE's own segment.
    #[inline]
    pub(crate) fn here(&self, place: SymmetricRange) -> *mut u8 {
        self.pe().local(place.offset)
    }

    /// Route to a place in a member's segment.
    pub(crate) fn there(&self, rank: usize, place: SymmetricRange) -> Route {
        if rank == self.rank() {
            // Never through a fabric, as the caller reads the place without a quiet.
            return Route::Near(self.here(place));
        }
        self.pe().route(self.members()[rank], place.offset)
    }

    /// Copies a place of a member to `to`, which is private memory, or memory of this PE that does
    /// not overlap with the place.
    ///
    /// # Safety
    /// `to` is writable for the place's bytes.
    pub(crate) unsafe fn fetch(
        &self,
        rank: usize,
        from: SymmetricRange,
        to: *mut u8,
    ) -> Result<()> {
        if from.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the place lies in the member's segment; the caller promises the destination.
        Ok(unsafe { self.there(rank, from).get(self.pe(), to, from.bytes) }?)
    }

    /// Copies memory of this PE to a place of a member.
    ///
    /// # Safety
    /// `from` is readable for the place's bytes and does not overlap with the place.
    pub(crate) unsafe fn deliver(
        &self,
        rank: usize,
        to: SymmetricRange,
        from: *const u8,
    ) -> Result<()> {
        if to.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the place lies in the member's segment; the caller promises the source.
        unsafe { self.there(rank, to).put(self.pe(), from, to.bytes) }?;
        self.pe().wrote(self.members()[rank]);
        Ok(())
    }
}
