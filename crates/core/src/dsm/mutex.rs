//! A mutex that owns its data.

use super::data::Data;
use super::rwlock::{RwLock, WriteGuard};
use super::stats::Stats;
use super::way::Kind;
use crate::base::error::Result;
use crate::job::Job;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Data of the whole job that one thread of one PE uses at a time: `T` is plain data, or a slice
/// `[E]` of it.
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
/// Those who wait get it in the order they came, threads of all PEs alike. The memory is freed when
/// every PE has dropped it, as a window's is. What a guard's holder has written elsewhere is not
/// made visible by its release on far peers: that takes a [`quiet`](Job::quiet).
// A lock of which everybody wants to write.
pub struct Mutex<T: Data + ?Sized>(RwLock<T>);

impl<T: Data + ?Sized> Mutex<T> {
    /// Makes a mutex. It holds what `initial` is at one of the PEs, so all give the same.
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`Job::window`]; [`Misuse`](crate::Error::Misuse) for data without a size, or aligned
    /// to more than 128 bytes.
    pub fn new(job: &Job, initial: &T) -> Result<Self> {
        RwLock::make(job, initial, false, Kind::Mutex).map(Mutex)
    }

    /// A mutex that keeps the last released version of its data, so that they outlive a holder: see
    /// [`into_released`](Self::into_released). Near, each lock costs one copy of them. Far, they
    /// then have a home, and each use costs messages, also of who had them last. *Collective.*
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_shadow(job: &Job, initial: &T) -> Result<Self> {
        RwLock::make(job, initial, true, Kind::Mutex).map(Mutex)
    }

    /// Waits for the data. Not reentrant.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) when any PE dies, or leaves with the lock; for
    /// ever, if it had it, or, near, panicked with it.
    #[inline(always)]
    pub fn lock(&self) -> Result<Guard<'_, T>> {
        self.0.write().map(Guard)
    }

    /// Takes the data if that needs no waiting for others who have them.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    pub fn try_lock(&self) -> Result<Option<Guard<'_, T>>> {
        Ok(self.0.try_write()?.map(Guard))
    }

    /// [`lock`](Self::lock), giving up after `timeout`.
    /// Up to 64 that wait, or twice as many as there are PEs, keep their order. Behind more than
    /// that, the call waits outside of the order until there is room in it.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`Timeout`](crate::Error::Timeout).
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_, T>> {
        self.0.write_timeout(timeout).map(Guard)
    }

    /// What this PE has done with it so far. Near, a use is a hit, and costs no messages.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// The data as the PE that died with them has left them: near perhaps half changed. Where they
    /// are not (it had them but for reading, say, or a shadow was kept), and on far peers, as for
    /// [`into_released`](Self::into_released).
    ///
    /// # Errors
    /// [`Misuse`](crate::Error::Misuse) when no PE has died or panicked: then [`lock`](Self::lock)
    /// them. Otherwise as for [`into_released`](Self::into_released).
    pub fn into_torn(self) -> Result<T::Owned> {
        self.0.into_torn()
    }

    /// After a death: the data as they were last released. Near that takes a
    /// [shadow](Self::with_shadow), unless nobody was changing them. Far, with a shadow they are,
    /// if their home's memory can be read; without, as they were last released by a PE whose memory
    /// can be read, or were got by one.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) where only what the holder left half changed is
    /// there, or the data's far home has died and cannot be read; [`Misuse`](crate::Error::Misuse)
    /// when no PE has died or panicked.
    pub fn into_released(self) -> Result<T::Owned> {
        self.0.into_released()
    }
}

/// The data of a [`Mutex`], until this is dropped: then the next one's turn comes. When a panic
/// drops it, the data count as torn, near.
#[must_use = "dropped, it gives the data back"]
pub struct Guard<'a, T: Data + ?Sized>(WriteGuard<'a, T>);

impl<T: Data + ?Sized> Guard<'_, T> {
    /// Gives the data back, as dropping does.
    ///
    /// # Errors
    /// What the fabric reports; when dropped, that surfaces at the next quiet.
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
