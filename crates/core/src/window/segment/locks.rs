//! Locks in words of the segments, by their offsets.

use super::Segment;
use crate::base::error::{Error, Result};
use crate::sync::left_place;
use crate::sync::lock::Queue;

impl Segment {
    /// Waits for the lock in the 8-byte word at byte `offset` of the segments, which must be zero
    /// on every PE before its first use. The order is that of
    /// [`Lock::lock`](crate::Lock::lock). Not reentrant.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when any PE dies, or finalises while it holds this lock;
    /// [`Error::Misuse`] where there can be no lock.
    ///
    /// # Safety
    /// The word is memory of the caller's own at every PE, as [`at`](Self::at) requires.
    #[inline]
    pub unsafe fn lock_set(&self, offset: u64) -> Result<()> {
        self.check_lock(offset)?;
        Ok(left_place::set(&self.pe, offset, || None)?)
    }

    /// [`lock_set`](Self::lock_set) where that takes no waiting and nothing else: near, and for a
    /// process with one thread. False: nothing was done, whatever the reason.
    ///
    /// # Safety
    /// As for [`lock_set`](Self::lock_set); and the word is one that there can be a lock in.
    #[inline(always)]
    pub unsafe fn lock_set_at_once(&self, offset: u64) -> bool {
        // SAFETY: the caller's promise.
        self.locks.is_some_and(|locks| unsafe { locks.set(offset) })
    }

    /// [`lock_clear`](Self::lock_clear) where that takes nothing else: near, and for a process with
    /// one thread. False: nothing was done, whatever the reason.
    ///
    /// # Safety
    /// As for [`lock_clear`](Self::lock_clear); and the word is one that there can be a lock in.
    #[inline(always)]
    pub unsafe fn lock_clear_at_once(&self, offset: u64) -> bool {
        // SAFETY: the caller's promise.
        self.locks.is_some_and(|locks| unsafe { locks.clear(&self.pe, offset) })
    }

    /// Takes the lock at `offset` if that needs no waiting. Gives whether it took the lock.
    ///
    /// # Errors
    /// As for [`lock_set`](Self::lock_set).
    ///
    /// # Safety
    /// The word is memory of the caller's own at every PE, as [`at`](Self::at) requires.
    pub unsafe fn lock_test(&self, offset: u64) -> Result<bool> {
        Ok(self.lock_at(offset)?.test()?)
    }

    /// Completes this PE's writes, and gives the lock at `offset` to the next waiter.
    ///
    /// # Errors
    /// As for [`lock_set`](Self::lock_set); [`Error::Misuse`] when this PE does not hold the lock;
    /// the error with which an earlier write failed.
    ///
    /// # Safety
    /// The word is memory of the caller's own at every PE, as [`at`](Self::at) requires.
    #[inline]
    pub unsafe fn lock_clear(&self, offset: u64) -> Result<()> {
        Ok(self.lock_at(offset)?.clear()?)
    }

    #[inline]
    fn lock_at(&self, offset: u64) -> Result<Queue<'_>> {
        self.check_lock(offset)?;
        Ok(Queue::new(self.pe(), offset))
    }

    #[inline]
    fn check_lock(&self, offset: u64) -> Result<()> {
        // The words before the heap are the library's own.
        let words = self.heap.start..self.stride as u64;
        if offset.is_multiple_of(8) && words.contains(&offset) {
            Ok(())
        } else {
            Err(Error::misuse("a lock is an aligned 8-byte word of the segments' heap or globals"))
        }
    }
}
