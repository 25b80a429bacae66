//! A mutex that owns its data.

use crate::error::{Error, Quick, Result};
use crate::job::Job;
use crate::pe::Pe;
use crate::window::Window;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use super::data::{Data, Line, bytes_of};
use super::queue::Mode;
use super::stats::{Counters, Stats};
use super::way::Way;

/// Data of the whole job that one thread of one PE uses at a time: `T` is plain data, or a slice `[E]` of it.
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
/// Those who wait get it in the order they came, threads of all PEs alike. The memory is freed when every PE has dropped it, as a window's is.
/// What a guard's holder has written elsewhere is not made visible by its release on far peers: that takes a [`quiet`](Job::quiet).
pub struct Mutex<T: Data + ?Sized> {
    pe: Arc<Pe>,
    way: Way,
    /// What guards refer to: near, in the home's part; far, in this PE's.
    elements: *mut [T::Element],
    counters: Arc<Counters>,
    _window: Window<Line>,
    data: PhantomData<fn(&T) -> &T>,
}

// SAFETY: the pointers are addresses in a mapping that `_window` keeps; the data they lead to are used by one guard at a time, and may move
// between threads.
unsafe impl<T: Data + ?Sized> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Data + ?Sized> Sync for Mutex<T> {}

impl<T: Data + ?Sized> Mutex<T> {
    /// Makes a mutex. It holds what `initial` is at one of the PEs, so all give the same. *Collective.*
    ///
    /// # Errors
    /// As for [`Job::window`]; [`Error::Misuse`] for data without a size, or aligned to more than 128 bytes.
    pub fn new(job: &Job, initial: &T) -> Result<Self> {
        Self::make(job, initial, false)
    }

    /// A mutex that keeps the last released version of its data, so that they outlive a holder: see [`into_released`](Self::into_released). Near, each
    /// lock costs one copy of them; far, nothing. *Collective.*
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_shadow(job: &Job, initial: &T) -> Result<Self> {
        Self::make(job, initial, true)
    }

    fn make(job: &Job, initial: &T, shadow: bool) -> Result<Self> {
        let elements = initial.elements();
        let bytes = bytes_of::<T::Element>(elements.len())?;
        // SAFETY: the caller's elements are private memory of so many bytes.
        let (way, data, window) = unsafe { Way::make(job, elements.as_ptr().cast(), bytes, align_of::<T::Element>(), shadow) }?;
        let counters = job.pe.shared_objects.count("mutex");
        Ok(Mutex {
            pe: job.pe.clone(),
            way,
            elements: std::ptr::slice_from_raw_parts_mut(data.cast(), elements.len()),
            counters,
            _window: window,
            data: PhantomData,
        })
    }

    /// Waits for the data. Not reentrant.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when any PE dies, or leaves with the lock; for ever, if it had it, or panicked with it.
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, T>> {
        match self.enter(None)? {
            Some(ticket) => Ok(self.guard(ticket)),
            None => unreachable!("only who will not wait gets nothing"),
        }
    }

    /// Takes the data if that needs no waiting for others who have them.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock).
    pub fn try_lock(&self) -> Result<Option<Guard<'_, T>>> {
        Ok(self.enter(Some(Duration::ZERO))?.map(|ticket| self.guard(ticket)))
    }

    /// [`lock`](Self::lock), giving up after `timeout`.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`Error::Timeout`].
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_, T>> {
        match self.enter(Some(timeout))? {
            Some(ticket) => Ok(self.guard(ticket)),
            None => Err(Error::Timeout { after: timeout }),
        }
    }

    #[inline(always)]
    fn enter(&self, timeout: Option<Duration>) -> Result<Option<u32>> {
        self.way.enter(&self.pe, &self.counters, Mode::Alone, timeout)
    }

    #[inline(always)]
    fn guard(&self, ticket: u32) -> Guard<'_, T> {
        Guard {
            mutex: self,
            ticket,
            changed: false,
            panicking: std::thread::panicking(),
        }
    }

    #[inline(always)]
    fn leave(&self, ticket: u32, changed: bool) -> Quick<()> {
        self.way.leave(&self.pe, &self.counters, ticket, Mode::Alone, changed)
    }

    /// What this PE has done with it so far. Near, a use is a hit, and costs no messages.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    /// The data as the PE that died with them has left them: near perhaps half changed. Where they are not (it had them but for reading, say, or a shadow
    /// was kept), and on far peers, as for [`into_released`](Self::into_released).
    ///
    /// # Errors
    /// [`Error::Misuse`] when no PE has died or panicked: then [`lock`](Self::lock) them. Otherwise as for [`into_released`](Self::into_released).
    pub fn into_torn(self) -> Result<T::Owned> {
        self.rescue(true)
    }

    /// After a death: the data as they were last released. Near that takes a [shadow](Self::with_shadow), unless nobody was changing them. Far they are,
    /// unless their home is what died.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] where only what the holder left half changed is there, or the data's far home is what died; [`Error::Misuse`] when no PE has died or panicked.
    pub fn into_released(self) -> Result<T::Owned> {
        self.rescue(false)
    }

    fn rescue(self, torn: bool) -> Result<T::Owned> {
        let mut copy: Vec<T::Element> = vec![zerocopy::FromZeros::new_zeroed(); self.elements.len()];
        self.way.rescue(&self.pe, zerocopy::IntoBytes::as_mut_bytes(&mut copy[..]), torn)?;
        Ok(T::from_elements(copy))
    }
}

/// The data of a [`Mutex`], until this is dropped: then the next one's turn comes. When a panic drops it, the data count as torn.
#[must_use = "dropped, it gives the data back"]
pub struct Guard<'a, T: Data + ?Sized> {
    mutex: &'a Mutex<T>,
    ticket: u32,
    changed: bool,
    /// Already when it was made.
    panicking: bool,
}

impl<T: Data + ?Sized> Guard<'_, T> {
    /// Gives the data back, as dropping does.
    ///
    /// # Errors
    /// What the fabric reports; when dropped, that surfaces at the next quiet.
    pub fn release(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        Ok(this.mutex.leave(this.ticket, this.changed)?)
    }
}

impl<T: Data + ?Sized> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: mapped and aligned as long as the mutex lives; any bytes are a `T`; and while this guard lives, nobody else in the job touches
        // the data: see the proofs of the two ways to a guard, in `queue` and `shared`.
        unsafe { &*T::at(self.mutex.elements) }
    }
}

impl<T: Data + ?Sized> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        // SAFETY: as in `deref`; the guard is borrowed for as long.
        unsafe { &mut *T::at(self.mutex.elements) }
    }
}

impl<T: Data + ?Sized> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let mutex = self.mutex;
        let left = if std::thread::panicking() && !self.panicking {
            mutex.way.leave_broken(&mutex.pe, &mutex.counters, self.ticket)
        } else {
            mutex.leave(self.ticket, self.changed)
        };
        if let Err(error) = left {
            self.mutex.pe.surface_later(*error);
        }
    }
}
