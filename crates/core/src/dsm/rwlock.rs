//! A lock for readers and writers that owns its data.

use crate::base::element::ElementName;
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{self, zeroed};
use crate::base::shows;
use crate::base::unwinding::unwinds;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::wait::limit::{Limit, Patience};
use crate::window::Window;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::data::{CacheLine, Data, bytes_of};
use super::protocol::{Checked, Protocol};
use crate::endpoint::recorder::objects::{Counters, ObjectKind, Stats};
use crate::sync::tickets::{Mode, Tickets};

/// How [`Mutex::with`](super::Mutex::with) and [`RwLock::with`] make a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockOptions {
    pub(super) shadow: bool,
    pub(super) element: ElementName,
}

impl LockOptions {
    /// Without a shadow.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the lock keeps the last released version of its data.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.shadow = shadow;
        self
    }

    /// What a front end calls the elements.
    pub fn elements(mut self, name: ElementName) -> Self {
        self.element = name;
        self
    }
}

/// Data of the whole job that many threads of many PEs may read at a time, or one thread change.
/// `T` is plain data, or a slice `[E]` of plain data.
///
/// MPI: data under `MPI_Win_lock` with `MPI_LOCK_SHARED` or `MPI_LOCK_EXCLUSIVE`.
///
/// ```
/// # use memonet_core::{Job, dsm::RwLock};
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let table = RwLock::<[u32]>::new(&job, &[0; 100])?; // collective
/// table.write()?[job.pe()] = 7;
/// job.barrier()?;
/// assert_eq!(table.read()?[..4], [7, 7, 7, 0]);
/// job.barrier()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
///
/// Readers and writers enter in the order in which they asked: readers with no writer between them
/// enter together, and a writer enters after all before it. Near, writers that ask just as one
/// leaves may come before those who wait, at most 16 times in a row. So neither keeps the other
/// out. Far, the data have a home. Writers bring there what they have changed; readers keep a copy,
/// and get what is newer.
pub struct RwLock<T: Data + ?Sized> {
    pe: Arc<Pe>,
    way: Protocol,
    /// The queue, if it is all that a use takes: near, without a shadow, nothing recorded or
    /// checked, and `membarrier` orders rings.
    at_once: Option<Tickets>,
    /// The data that guards refer to: near, in the home's part; far, in this PE's part.
    elements: *mut [T::Element],
    counters: Counters,
    _window: Window<CacheLine>,
    data: PhantomData<fn(&T) -> &T>,
}

shows!([T: Data + ?Sized] RwLock<T> as "RwLock", |_it| data = std::any::type_name::<T>());

// SAFETY: the pointers lead into a mapping that `_window` keeps. The protocol lets one guard change
// the data while there is no other, whatever thread has it; `Data` is `Send` and `Sync`.
unsafe impl<T: Data + ?Sized> Send for RwLock<T> {}
// SAFETY: as above.
unsafe impl<T: Data + ?Sized> Sync for RwLock<T> {}

impl<T: Data + ?Sized> RwLock<T> {
    /// Makes a lock. *Collective.* All PEs give equal `initial` data: the lock begins with those of
    /// one of them.
    ///
    /// # Errors
    /// As for [`Mutex::new`](super::Mutex::new).
    #[track_caller]
    pub fn new(job: &Job, initial: &T) -> Result<Self> {
        job.pe.waiting_call("RwLock::new", None, || {
            Self::make(job, initial, LockOptions::new(), ObjectKind::RwLock)
        })
    }

    /// Makes a lock that keeps the last released version of its data: see
    /// [`into_released`](Self::into_released). *Collective.* Near, each [`write`](Self::write)
    /// costs one copy of the data; far, this costs nothing.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    #[track_caller]
    pub fn with_shadow(job: &Job, initial: &T) -> Result<Self> {
        job.pe.waiting_call("RwLock::with_shadow", None, || {
            Self::make(job, initial, LockOptions::new().shadow(true), ObjectKind::RwLock)
        })
    }

    /// Makes a lock with options. *Collective.*
    ///
    /// # Errors
    /// As for [`new`](Self::new); [`Error::Unequal`] when PEs give different options.
    #[track_caller]
    pub fn with(job: &Job, initial: &T, options: LockOptions) -> Result<Self> {
        job.pe.waiting_call("RwLock::with", None, || {
            Self::make(job, initial, options, ObjectKind::RwLock)
        })
    }

    pub(super) fn make(
        job: &Job,
        initial: &T,
        options: LockOptions,
        kind: ObjectKind,
    ) -> Result<Self> {
        let elements = initial.elements();
        // The error must reach the other PEs, which would wait for this one.
        let bytes =
            bytes_of::<T::Element>(elements.len()).map_err(|error| job.refuse_window(error))?;
        // SAFETY: `initial` is borrowed private memory of so many bytes.
        let (way, data, window) = unsafe {
            Protocol::make(
                job,
                elements.as_ptr().cast(),
                bytes,
                align_of::<T::Element>(),
                options,
                kind,
            )
        }?;
        let looks_on = job.pe.recorder().is_some() || job.pe.is_checked();
        let at_once = match &way {
            Protocol::Near(near) if !looks_on && job.pe.rings_lightly() => near.without_shadow(),
            _ => None,
        };
        let way = match job.pe.is_checked() {
            true => Protocol::Checked(Box::new(Checked::new(way))),
            false => way,
        };
        let counters = job.pe.count_object(kind);
        Ok(RwLock {
            pe: job.pe.clone(),
            way,
            at_once,
            elements: std::ptr::slice_from_raw_parts_mut(data.cast(), elements.len()),
            counters,
            _window: window,
            data: PhantomData,
        })
    }

    pub(super) fn pe(&self) -> &Pe {
        &self.pe
    }

    #[inline(always)]
    fn enter(&self, mode: Mode, patience: Patience<'_>) -> Result<Option<u32>> {
        ending::refuse_child(&self.pe)?;
        self.way.enter(&self.pe, &self.counters, mode, patience)
    }

    #[inline(always)]
    #[track_caller]
    fn leave(&self, ticket: u32, mode: Mode, changed: bool) -> Quick<()> {
        let _call = self.pe.begin("Guard::release", Location::caller(), None);
        self.way.leave(&self.pe, &self.counters, ticket, mode, changed)
    }

    fn reading(&self, ticket: u32) -> ReadGuard<'_, T> {
        ReadGuard { lock: self, ticket }
    }

    #[inline(always)]
    fn writing<'a>(
        &'a self,
        ticket: u32,
        at_once: Option<(&'a Tickets, u64)>,
    ) -> WriteGuard<'a, T> {
        let panicking = unwinds();
        let at_once = at_once.filter(|_| !panicking);
        WriteGuard { lock: self, ticket, changed: false, panicking, at_once }
    }

    /// A guard of a thread that may have waited.
    fn writing_after(&self, ticket: u32) -> WriteGuard<'_, T> {
        self.writing(ticket, self.at_once.as_ref().map(|tickets| (tickets, tickets.left(ticket))))
    }

    /// Waits until the data may be read. A thread that has a guard must not ask for another one: a
    /// writer may stand between the two in the queue.
    ///
    /// MPI: `MPI_Win_lock` with `MPI_LOCK_SHARED`.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when any PE dies, or leaves while it has a guard; for ever, if it had
    /// a guard when it died, or panicked while it wrote.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard<'_, T>> {
        self.pe.waiting_call("RwLock::read", None, || {
            match self.enter(Mode::Shared, Patience::Forever)? {
                Some(ticket) => Ok(self.reading(ticket)),
                None => unreachable!("only a call that does not wait gets nothing"),
            }
        })
    }

    /// Waits until the data may be changed.
    ///
    /// MPI: `MPI_Win_lock` with `MPI_LOCK_EXCLUSIVE`.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    #[inline(always)]
    #[track_caller]
    pub fn write(&self) -> Result<WriteGuard<'_, T>> {
        match self.write_at_once() {
            Some(guard) => Ok(guard),
            None => self.write_slowly("RwLock::write"),
        }
    }

    /// The data, if that takes no more than the queue's turn.
    #[inline(always)]
    pub(super) fn write_at_once(&self) -> Option<WriteGuard<'_, T>> {
        let tickets = self.at_once.as_ref().filter(|_| !ending::is_forked())?;
        let left = match tickets.enter_own() {
            Some(left) => left,
            None => self.write_again(tickets)?,
        };
        self.counters.used();
        Some(self.writing(left as u32, Some((tickets, left))))
    }

    /// Comes in if the queue's ticket is open, whoever had it last.
    #[inline(never)]
    fn write_again(&self, tickets: &Tickets) -> Option<u64> {
        let ticket = tickets.enter_again(Mode::Exclusive)?;
        if !tickets.was_last(&self.pe) {
            self.counters.handed_over();
            tickets.set_last(&self.pe, false);
        }
        Some(tickets.left(ticket))
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn write_slowly(&self, call: &'static str) -> Result<WriteGuard<'_, T>> {
        self.pe.waiting_call(call, None, || {
            match self.enter(Mode::Exclusive, Patience::Forever)? {
                Some(ticket) => Ok(self.writing_after(ticket)),
                None => unreachable!("only a call that does not wait gets nothing"),
            }
        })
    }

    /// [`read`](Self::read), if that needs no waiting for others; `None` otherwise.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    #[track_caller]
    pub fn try_read(&self) -> Result<Option<ReadGuard<'_, T>>> {
        self.pe.call("RwLock::try_read", None, || {
            Ok(self.enter(Mode::Shared, Patience::Try)?.map(|ticket| self.reading(ticket)))
        })
    }

    /// [`write`](Self::write), if that needs no waiting for others; `None` otherwise.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    #[track_caller]
    pub fn try_write(&self) -> Result<Option<WriteGuard<'_, T>>> {
        self.pe.call("RwLock::try_write", None, || {
            Ok(self.enter(Mode::Exclusive, Patience::Try)?.map(|ticket| self.writing_after(ticket)))
        })
    }

    /// [`read`](Self::read) that gives up after `timeout`. The order has room for 64 waiters, or
    /// twice as many as there are PEs; a further caller waits outside of the order until there is
    /// room.
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`Error::Timeout`].
    #[track_caller]
    pub fn read_timeout(&self, timeout: Duration) -> Result<ReadGuard<'_, T>> {
        self.pe.waiting_call("RwLock::read_timeout", None, || {
            let limit = Limit::new(timeout);
            let ticket = self.enter(Mode::Shared, limit.patience())?;
            ticket
                .map(|ticket| self.reading(ticket))
                .ok_or(Error::Timeout { after: timeout, call: None })
        })
    }

    /// [`write`](Self::write) that gives up after `timeout`. The order has limited room for
    /// waiters, as for [`read_timeout`](Self::read_timeout).
    ///
    /// # Errors
    /// As for [`read`](Self::read), and [`Error::Timeout`].
    #[track_caller]
    pub fn write_timeout(&self, timeout: Duration) -> Result<WriteGuard<'_, T>> {
        self.pe.waiting_call("RwLock::write_timeout", None, || {
            let limit = Limit::new(timeout);
            let ticket = self.enter(Mode::Exclusive, limit.patience())?;
            ticket
                .map(|ticket| self.writing_after(ticket))
                .ok_or(Error::Timeout { after: timeout, call: None })
        })
    }

    /// Where the data lie for this PE, as for [`Mutex::data_ptr`](super::Mutex::data_ptr).
    pub fn data_ptr(&self) -> *mut T::Element {
        self.elements.cast()
    }

    /// What this PE has done with the lock so far. Far, a hand-over is a version of the data that
    /// came to this PE.
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    /// After a death: the data as the PE that died with them has left them, as
    /// [`Mutex::into_torn`](super::Mutex::into_torn) gives them.
    ///
    /// # Errors
    /// As for [`Mutex::into_torn`](super::Mutex::into_torn).
    #[track_caller]
    pub fn into_torn(self) -> Result<T::Owned> {
        self.rescue("RwLock::into_torn", true)
    }

    /// After a death: the data as they were last released. Near, that takes a
    /// [shadow](Self::with_shadow), unless no PE was changing them.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] where there is only what a writer left half changed, or where the
    /// data's far home has died and cannot be read; [`Error::Misuse`] when no PE has died or
    /// panicked.
    #[track_caller]
    pub fn into_released(self) -> Result<T::Owned> {
        self.rescue("RwLock::into_released", false)
    }

    #[track_caller]
    pub(super) fn rescue(self, call: &'static str, torn: bool) -> Result<T::Owned> {
        self.pe.call(call, None, || {
            ending::refuse_child(&self.pe)?;
            let mut copy: Vec<T::Element> = zeroed(self.elements.len());
            self.way.rescue(&self.pe, zerocopy::IntoBytes::as_mut_bytes(&mut copy[..]), torn)?;
            Ok(T::from_elements(copy))
        })
    }
}

/// The data of a [`RwLock`] to read, until this guard is dropped.
#[must_use = "dropped, it gives the data back"]
pub struct ReadGuard<'a, T: Data + ?Sized> {
    lock: &'a RwLock<T>,
    ticket: u32,
}

/// The data.
impl<T: Data + ?Sized + std::fmt::Debug> std::fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// The data of a [`RwLock`] to change, until this guard is dropped. When a panic drops the guard,
/// near data without a shadow count as torn; other data become what they were before.
#[must_use = "dropped, it gives the data back"]
pub struct WriteGuard<'a, T: Data + ?Sized> {
    lock: &'a RwLock<T>,
    ticket: u32,
    changed: bool,
    /// Whether the thread was panicking when it got the guard.
    panicking: bool,
    /// The queue, if its turn is all that ends this guard, and what the turn is then.
    at_once: Option<(&'a Tickets, u64)>,
}

/// The data.
impl<T: Data + ?Sized + std::fmt::Debug> std::fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Data + ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: mapped and aligned as long as the lock lives; any bytes are a `T`; and while this
        // guard lives, no PE changes the data: see the proofs in `sync::tickets`,
        // `migratory::queue` and `homed`.
        unsafe { &*T::at(self.lock.elements) }
    }
}

impl<T: Data + ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as for a `ReadGuard`.
        unsafe { &*T::at(self.lock.elements) }
    }
}

impl<T: Data + ?Sized> DerefMut for WriteGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.changed = true;
        // SAFETY: as for a `ReadGuard`; there is no other guard, and this one is borrowed for as
        // long as the reference.
        unsafe { &mut *T::at(self.lock.elements) }
    }
}

impl<T: Data + ?Sized> ReadGuard<'_, T> {
    /// Gives the data back, as dropping does.
    ///
    /// # Errors
    /// What the fabric reports; after a drop, the next quiet reports it.
    pub fn release(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        ending::refuse_child(&this.lock.pe)?;
        Ok(this.lock.leave(this.ticket, Mode::Shared, false)?)
    }
}

impl<T: Data + ?Sized> WriteGuard<'_, T> {
    /// Gives the data back, as dropping does.
    ///
    /// # Errors
    /// What the fabric reports; after a drop, the next quiet reports it.
    pub fn release(self) -> Result<()> {
        let this = std::mem::ManuallyDrop::new(self);
        ending::refuse_child(&this.lock.pe)?;
        Ok(this.lock.leave(this.ticket, Mode::Exclusive, this.changed)?)
    }
}

impl<T: Data + ?Sized> Drop for ReadGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if ending::refuse_child(&self.lock.pe).is_ok()
            && let Err(error) = self.lock.leave(self.ticket, Mode::Shared, false)
        {
            self.lock.pe.surface_later(*error);
        }
    }
}

impl<T: Data + ?Sized> Drop for WriteGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let lock = self.lock;
        match self.at_once {
            Some((tickets, left)) if !unwinds() && !ending::is_forked() => {
                tickets.leave_alone(&lock.pe, left, shm::light_fence);
            }
            _ => lock.end_slowly(self.ticket, self.changed, self.panicking),
        }
    }
}

impl<T: Data + ?Sized> RwLock<T> {
    /// Ends a guard, whatever the case. It gets what the guard has, and not the guard: that can be
    /// in registers then.
    #[cold]
    #[inline(never)]
    fn end_slowly(&self, ticket: u32, changed: bool, panicking: bool) {
        if ending::refuse_child(&self.pe).is_err() {
            return;
        }
        let left = if unwinds() && !panicking {
            self.way.leave_broken(&self.pe, &self.counters, ticket)
        } else {
            self.leave(ticket, Mode::Exclusive, changed)
        };
        if let Err(error) = left {
            self.pe.surface_later(*error);
        }
    }
}
