//! Locks in words of windows.

use super::{Inner, Window};
use crate::base::access::Access;
use crate::base::error::{Error, Result};
use crate::base::shows;
use crate::sync::left_place::{self, Keeper};
use crate::sync::lock::{AtOnce, Queue};
use std::panic::Location;
use std::sync::Arc;

/// A lock in a word of a window: one PE of the whole job holds it at a time. Made by
/// [`Window::lock`].
///
/// OpenSHMEM: `shmem_set_lock` and `shmem_clear_lock`; MPI: epochs of `MPI_Win_lock` with
/// `MPI_LOCK_EXCLUSIVE`. Puts and gets need no lock here. A [`dsm::Mutex`](crate::dsm::Mutex) is a
/// lock that owns the data that it protects.
///
/// ```
/// # use memonet_core::Job;
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let w = job.window::<u64>(2)?; // a lock, and what it protects
/// let lock = w.lock(0)?;
/// for _ in 0..10 {
///     let held = lock.lock()?;
///     let seen = w.get_one(0, 1)?;
///     w.put_one(0, 1, seen + 1)?;
///     held.release()?; // or dropped
/// }
/// job.barrier()?;
/// assert_eq!(w.get_one(0, 1)?, 30);
/// job.barrier()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
#[derive(Clone)]
pub struct Lock {
    window: Arc<Inner>,
    offset: u64,
    at_once: Option<AtOnce>,
}

shows!([] Lock as "Lock", |it| offset = it.offset);

impl Window<u64> {
    /// The lock in element `index` of all parts. These elements must be zero before its first use,
    /// and nothing else may touch them.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::AccessDenied`] for a window that other PEs may not read and
    /// write; [`Error::Misuse`] for a restricted window, because not every PE may reach its parts.
    #[track_caller]
    pub fn lock(&self, index: usize) -> Result<Lock> {
        self.inner.pe.call("Window::lock", Some(self.inner.made), || {
            let bytes = self.range(index, 1)?;
            let pe = &self.inner.pe;
            let base = self.inner.heap_offset().ok_or(Error::misuse(
                "a lock needs a word of an ordinary window, not of a restricted one",
            ))?;
            // Asked of somebody else's part, where there is one: one's own may always be written.
            self.target((pe.me() + 1) % pe.npes(), index, 1, Access::ReadWrite)?;
            Ok(Lock {
                window: self.inner.clone(),
                offset: base + bytes as u64,
                at_once: AtOnce::of(pe),
            })
        })
    }
}

impl Lock {
    fn queue(&self) -> Queue<'_> {
        Queue::new(&self.window.pe, self.offset)
    }

    /// Takes the lock if nothing else has to be done.
    #[inline(always)]
    fn set_at_once(&self) -> bool {
        // SAFETY: `Window::lock` has checked the word, which the window keeps.
        self.at_once.is_some_and(|locks| unsafe { locks.set(self.offset) })
    }

    /// Gives the lock back if nothing else has to be done.
    #[inline(always)]
    fn clear_at_once(&self) -> bool {
        // SAFETY: as in `set_at_once`.
        self.at_once.is_some_and(|locks| unsafe { locks.clear(&self.window.pe, self.offset) })
    }

    /// Waits for the lock. PEs and their threads get it in the order in which they came; but a PE
    /// that asks again just after it gave the lock back may have it before a near PE that waits,
    /// for at most 16 turns in a row. Not reentrant.
    ///
    /// OpenSHMEM: `shmem_set_lock`.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when any PE dies, or finalises while it holds this lock.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Result<Held<'_>> {
        if self.set_at_once() {
            return Ok(Held { lock: self });
        }
        self.window.pe.waiting_call("Lock::lock", Some(self.window.made), || {
            let keeper = || Some(self.window.clone() as Keeper);
            left_place::set(&self.window.pe, self.offset, keeper)?;
            Ok(Held { lock: self })
        })
    }

    /// Takes the lock if that needs no waiting; `None` otherwise.
    ///
    /// OpenSHMEM: `shmem_test_lock`.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<Held<'_>>> {
        self.window.pe.call("Lock::try_lock", Some(self.window.made), || {
            Ok(self.queue().test()?.then(|| Held { lock: self }))
        })
    }
}

/// This PE holds the lock until this guard is dropped. The drop completes this PE's writes, then
/// gives the lock to the next waiter. A panic that drops the guard does so too: what the lock
/// protects then stays as it was left.
#[must_use = "dropped, it gives the lock back"]
pub struct Held<'a> {
    lock: &'a Lock,
}

shows!([] Held<'_> as "Held", |it| lock = it.lock);

impl Held<'_> {
    /// Gives the lock back, as dropping does.
    ///
    /// OpenSHMEM: `shmem_clear_lock`.
    ///
    /// # Errors
    /// The error with which an earlier write failed; after a drop, the next quiet reports it.
    #[track_caller]
    pub fn release(self) -> Result<()> {
        let lock = self.lock;
        std::mem::forget(self);
        if lock.clear_at_once() {
            return Ok(());
        }
        lock.window.pe.call("Held::release", Some(lock.window.made), || Ok(lock.queue().clear()?))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.lock.clear_at_once() {
            return;
        }
        let window = &self.lock.window;
        let _call = window.pe.begin("Held::release", Location::caller(), Some(window.made));
        if let Err(error) = self.lock.queue().clear() {
            window.pe.surface_later(*error);
        }
    }
}
