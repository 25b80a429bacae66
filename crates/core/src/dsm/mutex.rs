//! A mutex that owns its data.

use super::data::Data;
use super::rwlock::{LockOptions, RwLock, WriteGuard};
use crate::base::error::Result;
use crate::base::shows;
use crate::endpoint::recorder::objects::{ObjectKind, Stats};
use crate::job::Job;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Data of the whole job that one thread of one PE uses at a time. `T` is plain data, or a slice
/// `[E]` of plain data.
///
/// OpenSHMEM: data under a `shmem_set_lock`; MPI: data that are reached in epochs of `MPI_Win_lock`
/// with `MPI_LOCK_EXCLUSIVE` alone.
///
/// ```
/// # use memonet_core::{Job, dsm::Mutex};
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let best = Mutex::new(&job, &u64::MAX)?; // collective
/// let mut guard = best.lock()?;
/// *guard = (*guard).min(100 + job.pe() as u64);
/// drop(guard);
/// job.barrier()?;
/// assert_eq!(*best.lock()?, 100);
/// job.barrier()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
///
/// Waiting threads of all PEs get it in the order in which they came. Near, threads that ask for it
/// just as it is released may come before the first that waits, at most 16 times in a row: whoever
/// has it in its cache is by far the fastest to take it again. The memory is freed when every PE
/// has dropped the mutex, as a window's is. On far peers, releasing a guard does not make visible
/// what its holder has written elsewhere: that takes a [`quiet`](Job::quiet).
pub struct Mutex<T: Data + ?Sized>(RwLock<T>);

shows!([T: Data + ?Sized] Mutex<T> as "Mutex", |_it| data = std::any::type_name::<T>());

impl<T: Data + ?Sized> Mutex<T> {
    /// Makes a mutex. *Collective.* All PEs give equal `initial` data: the mutex begins with those
    /// of one of them.
    ///
    /// # Errors
    /// As for [`Job::window`]; [`Misuse`](crate::Error::Misuse) for data without a size, or aligned
    /// to more than 128 bytes.
    #[track_caller]
    pub fn new(job: &Job, initial: &T) -> Result<Self> {
        job.pe.waiting_call("Mutex::new", None, || {
            RwLock::make(job, initial, LockOptions::new(), ObjectKind::Mutex).map(Mutex)
        })
    }

    /// Makes a mutex that keeps the last released version of its data, so that they outlive a
    /// holder: see [`into_released`](Self::into_released). *Collective.* Near, each lock costs one
    /// copy of the data. Far, the data then have a home, and each use costs messages, also at the
    /// PE that had them last.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    #[track_caller]
    pub fn with_shadow(job: &Job, initial: &T) -> Result<Self> {
        job.pe.waiting_call("Mutex::with_shadow", None, || {
            let options = LockOptions::new().shadow(true);
            RwLock::make(job, initial, options, ObjectKind::Mutex).map(Mutex)
        })
    }

    /// Makes a mutex with options. *Collective.*
    ///
    /// # Errors
    /// As for [`new`](Self::new); [`Unequal`](crate::Error::Unequal) when PEs give different
    /// options.
    #[track_caller]
    pub fn with(job: &Job, initial: &T, options: LockOptions) -> Result<Self> {
        job.pe.waiting_call("Mutex::with", None, || {
            RwLock::make(job, initial, options, ObjectKind::Mutex).map(Mutex)
        })
    }

    /// Waits for the data. Not reentrant. Dropping the guard unlocks.
    ///
    /// OpenSHMEM: `shmem_set_lock`.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) when any PE dies, or leaves while it holds the
    /// lock; for ever, if that PE held the lock, or, near, panicked while it held it.
    #[inline(always)]
    #[track_caller]
    pub fn lock(&self) -> Result<Guard<'_, T>> {
        match self.0.write_at_once() {
            Some(guard) => Ok(Guard(guard)),
            None => self.0.write_slowly("Mutex::lock").map(Guard),
        }
    }

    /// Takes the data if no other thread or PE has them; `None` otherwise.
    ///
    /// OpenSHMEM: `shmem_test_lock`.
    ///
    /// ```
    /// # use memonet_core::{Job, dsm::Mutex};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let turns = Mutex::new(&job, &0u32)?;
    /// if let Some(mut turns) = turns.try_lock()? {
    ///     *turns += 1;
    /// } else {
    ///     // another PE has it: do something else
    /// }
    /// job.barrier()?;
    /// assert!(*turns.lock()? >= 1);
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    #[track_caller]
    pub fn try_lock(&self) -> Result<Option<Guard<'_, T>>> {
        self.0.pe().call("Mutex::try_lock", None, || Ok(self.0.try_write()?.map(Guard)))
    }

    /// [`lock`](Self::lock) that gives up after `timeout`. The order has room for 64 waiters, or
    /// twice as many as there are PEs; a further caller waits outside of the order until there is
    /// room.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`Timeout`](crate::Error::Timeout).
    #[track_caller]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_, T>> {
        self.0
            .pe()
            .waiting_call("Mutex::lock_timeout", None, || self.0.write_timeout(timeout).map(Guard))
    }

    /// Where the data lie for this PE, as long as the mutex lives: what all of its guards refer to.
    /// Whoever reads or writes there holds a guard meanwhile.
    pub fn data_ptr(&self) -> *mut T::Element {
        self.0.data_ptr()
    }

    /// What this PE has done with the mutex so far. Near, each use is a hit and costs no messages.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// After a death: the data as the PE that died with them has left them, near perhaps half
    /// changed. Where no data are half changed (the PE only read them, for example, or there is a
    /// shadow), and on far peers, this is [`into_released`](Self::into_released).
    ///
    /// # Errors
    /// [`Misuse`](crate::Error::Misuse) when no PE has died or panicked: then [`lock`](Self::lock)
    /// the data. Otherwise as for [`into_released`](Self::into_released).
    #[track_caller]
    pub fn into_torn(self) -> Result<T::Owned> {
        self.0.rescue("Mutex::into_torn", true)
    }

    /// After a death: the data as they were last released.
    ///
    /// Near, that takes a [shadow](Self::with_shadow), unless no PE was changing them. Far with a
    /// shadow, the memory of their home must be readable. Far without a shadow, they are the last
    /// version that a PE released or got whose memory can be read.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) where there is only what the holder left half
    /// changed, or where the data's far home has died and cannot be read;
    /// [`Misuse`](crate::Error::Misuse) when no PE has died or panicked.
    #[track_caller]
    pub fn into_released(self) -> Result<T::Owned> {
        self.0.rescue("Mutex::into_released", false)
    }
}

/// The data of a [`Mutex`], until this guard is dropped: then the next waiter gets them. When a
/// panic drops the guard, near data count as torn.
#[must_use = "dropped, it gives the data back"]
pub struct Guard<'a, T: Data + ?Sized>(WriteGuard<'a, T>);

/// The data.
impl<T: Data + ?Sized + std::fmt::Debug> std::fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Data + ?Sized> Guard<'_, T> {
    /// Gives the data back, as dropping does.
    ///
    /// # Errors
    /// What the fabric reports; after a drop, the next quiet reports it.
    pub fn release(self) -> Result<()> {
        self.0.release()
    }
}

impl<T: Data + ?Sized> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Data + ?Sized> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
