//! Remotes: one element of a PE's window, resolved once, then reached with one instruction.

use crate::base::access::Access;
use crate::base::error::{Call, Result};
use crate::base::shm::{AtomicInt, AtomicOp, Plain, Word};
use crate::base::shows;
use crate::endpoint::route::{Route, name_of};
use crate::wait::polling;
use crate::window::restricted::Hold;
use crate::window::{Inner, Target, Window};
use std::marker::PhantomData;
use std::sync::Arc;

/// Marker of a remote that may only be read.
#[derive(Debug)]
pub struct Read;
/// Marker of a remote that may only be written.
#[derive(Debug)]
pub struct Write;
/// Marker of a remote that may be read, written, and updated atomically.
#[derive(Debug)]
pub struct ReadWrite;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Read {}
    impl Sealed for super::Write {}
    impl Sealed for super::ReadWrite {}
}

/// What a remote may do; checked against the window when it is resolved.
pub trait Right: sealed::Sealed {
    /// The access it needs.
    const WANTED: Access;
}
/// Rights with which a remote may be loaded.
pub trait CanRead: Right {}
/// Rights with which a remote may be stored to.
pub trait CanWrite: Right {}

impl Right for Read {
    const WANTED: Access = Access::Read;
}
impl Right for Write {
    const WANTED: Access = Access::Write;
}
impl Right for ReadWrite {
    const WANTED: Access = Access::ReadWrite;
}
impl CanRead for Read {}
impl CanRead for ReadWrite {}
impl CanWrite for Write {}
impl CanWrite for ReadWrite {}

/// A word in a PE's memory, found and checked once: PE, bounds, key and access. Made by
/// [`Window::remote`].
///
/// On a near PE, [`store`](Self::store) is a predictable branch and one `mov`. While a remote
/// lives, the memory of its window is not reused, and [`Window::revoke_wait`] waits for the remote.
///
/// ```
/// # use memonet_core::{Cmp, Job};
/// # Job::threads(2, |job| -> memonet_core::Result<()> {
/// let mail = job.window::<u64>(1)?;
/// let other = mail.remote(1 - job.pe(), 0)?; // checked here, once
/// other.store(job.pe() as u64 + 1); // one instruction
/// assert_eq!(mail.wait_until(0, Cmp::Ne, 0)?, 2 - job.pe() as u64);
/// # job.barrier()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Remote<T, A = ReadWrite> {
    route: Route,
    pe: usize,
    // Dropped after `Drop for Remote` has run: the hold goes while the window still keeps the
    // memory.
    _hold: Option<Hold>,
    window: Arc<Inner>,
    word: PhantomData<fn(A) -> T>,
}

shows!([T, A] Remote<T, A> as "Remote", |it| word = std::any::type_name::<T>(), pe = it.pe);

impl<T: Plain> Window<T> {
    /// Resolves element `index` of `pe`'s part for reading, writing and atomics. Keep the remote to
    /// use it again: each use of it is one instruction on a near PE.
    ///
    /// # Errors
    /// [`NoSuchPe`](crate::Error::NoSuchPe), [`OutOfBounds`](crate::Error::OutOfBounds),
    /// [`AccessDenied`](crate::Error::AccessDenied), [`Revoked`](crate::Error::Revoked); nothing is
    /// written.
    #[track_caller]
    pub fn remote(&self, pe: usize, index: usize) -> Result<Remote<T>>
    where
        T: Word,
    {
        self.inner.pe.call("Window::remote", Some(self.inner.made), || self.remote_as(pe, index))
    }

    /// Resolves element `index` of `pe`'s part for the access `A`: [`Read`], [`Write`] or
    /// [`ReadWrite`].
    ///
    /// # Errors
    /// As for [`remote`](Self::remote).
    #[track_caller]
    pub fn remote_as<A: Right>(&self, pe: usize, index: usize) -> Result<Remote<T, A>>
    where
        T: Word,
    {
        self.inner.pe.call("Window::remote_as", Some(self.inner.made), || {
            let target = self.target(pe, index, 1, A::WANTED)?;
            Ok(Remote::new(self.inner.clone(), pe, target))
        })
    }

    /// Resolves a word inside of `pe`'s part by its byte offset: a field of an element, for
    /// example.
    ///
    /// # Errors
    /// As for [`remote`](Self::remote), and [`Misaligned`](crate::Error::Misaligned).
    #[track_caller]
    pub fn remote_word<W: Word>(&self, pe: usize, offset: usize) -> Result<Remote<W>> {
        self.inner.pe.call("Window::remote_word", Some(self.inner.made), || {
            let target = self.word_target(pe, offset, size_of::<W>(), Access::ReadWrite)?;
            Ok(Remote::new(self.inner.clone(), pe, target))
        })
    }
}

impl<T: Word, A> Remote<T, A> {
    fn new(window: Arc<Inner>, pe: usize, target: Target) -> Self {
        window.pe.remote_made(pe);
        Remote { route: target.route, pe, _hold: target.hold, window, word: PhantomData }
    }

    /// The PE whose memory it is.
    pub fn pe(&self) -> usize {
        self.pe
    }

    /// Whether it is mapped into this process.
    pub fn is_near(&self) -> bool {
        self.route.mapped().is_some()
    }
}

impl<T, A> Drop for Remote<T, A> {
    fn drop(&mut self) {
        self.window.pe.remote_dropped(self.pe);
    }
}

impl<T: Word, A: CanWrite> Remote<T, A> {
    /// Stores a word.
    ///
    /// OpenSHMEM: `shmem_p`; MPI: `MPI_Put` of one word.
    ///
    /// The word is never seen torn. On a near PE it is visible at once; on a far PE it is visible
    /// for certain after a [`quiet`](crate::Job::quiet). The store comes after earlier stores and
    /// puts only across a [`fence`](crate::Job::fence); that includes plain writes to
    /// [`local_slice_mut`](Window::local_slice_mut).
    ///
    /// A store wakes nobody. A PE that sleeps while it waits for this word polls by itself within
    /// about 4 ms, and at once when this PE enters any wait, fence or quiet. [`Window::signal`]
    /// wakes it at once.
    #[inline(always)]
    #[track_caller]
    pub fn store(&self, value: T) {
        self.route.post(&self.window.pe, value);
    }
}

impl<T: Word, A: CanRead> Remote<T, A> {
    /// Loads the word.
    ///
    /// OpenSHMEM: `shmem_g`; MPI: `MPI_Get` of one word and a flush.
    ///
    /// # Errors
    /// Only on a far PE: what the fabric reports.
    #[inline(always)]
    #[track_caller]
    pub fn load(&self) -> Result<T> {
        let call = self.called("Remote::load");
        let value = self.route.load(&self.window.pe).map_err(|error| error.of_call(Some(call)))?;
        self.has_read(value);
        Ok(value)
    }
}

impl<T: Word, A> Remote<T, A> {
    /// The call that the program makes.
    #[inline(always)]
    #[track_caller]
    fn called(&self, name: &'static str) -> Call {
        Call::here(name, self.window.pe.me(), Some(self.window.made))
    }

    /// A program may read again and again until it finds another value.
    #[inline(always)]
    fn has_read(&self, value: T) {
        if polling::is_on() {
            polling::has_read(&self.window.pe, self.route.place(), value.to_bits());
        }
    }
}

impl<T: Word> Remote<T, ReadWrite> {
    #[inline(always)]
    #[track_caller]
    fn fetch_op(&self, op: AtomicOp, operand: T) -> Result<T> {
        let call = self.called(name_of(op));
        let old = self.route.fetch_op(&self.window.pe, op, operand);
        let old = old.map_err(|error| error.of_call(Some(call)))?;
        if op.keeps(old.to_bits(), operand.to_bits()) {
            self.has_read(old);
        }
        Ok(old)
    }

    /// Atomically replaces the word; returns what it held.
    ///
    /// OpenSHMEM: `shmem_atomic_swap`; MPI: `MPI_Fetch_and_op` with `MPI_REPLACE`.
    ///
    /// # Errors
    /// Only on a far PE: what the fabric reports. This holds for all atomics.
    #[inline(always)]
    #[track_caller]
    pub fn swap(&self, value: T) -> Result<T> {
        self.fetch_op(AtomicOp::Swap, value)
    }

    /// Atomically replaces the word by `new` if it holds `expected`, bit for bit; returns what it
    /// held.
    ///
    /// OpenSHMEM: `shmem_atomic_compare_swap`; MPI: `MPI_Compare_and_swap`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let winner = job.window::<u64>(1)?;
    /// let mine = job.pe() as u64 + 1;
    /// let first = winner.remote(0, 0)?.compare_swap(0, mine)? == 0; // true at one PE
    /// job.barrier()?;
    /// assert_eq!(first, winner.remote(0, 0)?.load()? == mine);
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`swap`](Self::swap).
    #[inline(always)]
    #[track_caller]
    pub fn compare_swap(&self, expected: T, new: T) -> Result<T> {
        let call = self.called("Remote::compare_swap");
        let old = self.route.compare_swap(&self.window.pe, expected, new);
        let old = old.map_err(|error| error.of_call(Some(call)))?;
        if old.to_bits() != expected.to_bits() || old.to_bits() == new.to_bits() {
            self.has_read(old);
        }
        Ok(old)
    }

    /// Loads the word as an atomic: in order with other atomics on it, on every fabric.
    ///
    /// OpenSHMEM: `shmem_atomic_fetch`; MPI: `MPI_Fetch_and_op` with `MPI_NO_OP`.
    ///
    /// # Errors
    /// As for [`swap`](Self::swap).
    #[inline(always)]
    #[track_caller]
    pub fn fetch(&self) -> Result<T> {
        match self.route {
            Route::Near(_) => self.load(),
            // Swapping a value for itself where it is what is there, and nothing otherwise.
            Route::Far(_) => self.compare_swap(T::from_bits(0), T::from_bits(0)),
        }
    }

    /// Stores the word as an atomic: in order with other atomics on it, on every fabric.
    ///
    /// OpenSHMEM: `shmem_atomic_set`; MPI: `MPI_Accumulate` with `MPI_REPLACE`.
    ///
    /// # Errors
    /// As for [`swap`](Self::swap).
    #[inline(always)]
    #[track_caller]
    pub fn set(&self, value: T) -> Result<()> {
        self.swap(value).map(drop)
    }
}

macro_rules! arithmetic {
    ($($fetch:ident $plain:ident $op:ident $what:literal $mpi:literal;)*) => {
        impl<T: AtomicInt> Remote<T, ReadWrite> {
            $(
                #[doc = concat!("Atomically replaces the word by ", $what, "; returns what it held.")]
                ///
                #[doc = concat!(
                    "OpenSHMEM: `shmem_atomic_", stringify!($fetch), "`; ",
                    "MPI: `MPI_Fetch_and_op` with `", $mpi, "`."
                )]
                ///
                /// ```
                /// # use memonet_core::Job;
                /// # Job::threads(2, |job| -> memonet_core::Result<()> {
                /// let word = job.window::<u64>(1)?;
                #[doc = concat!("word.remote(0, 0)?.", stringify!($fetch), "(1)?;")]
                /// # job.barrier()
                /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
                /// ```
                ///
                /// # Errors
                /// As for [`swap`](Self::swap).
                #[inline(always)]
                #[track_caller]
                pub fn $fetch(&self, value: T) -> Result<T> {
                    self.fetch_op(AtomicOp::$op, value)
                }

                #[doc = concat!("Atomically replaces the word by ", $what, ".")]
                ///
                #[doc = concat!(
                    "OpenSHMEM: `shmem_atomic_", stringify!($plain), "`; ",
                    "MPI: `MPI_Accumulate` with `", $mpi, "`."
                )]
                ///
                /// # Errors
                /// As for [`swap`](Self::swap).
                #[inline(always)]
                #[track_caller]
                pub fn $plain(&self, value: T) -> Result<()> {
                    self.fetch_op(AtomicOp::$op, value).map(drop)
                }
            )*
        }
    };
}

arithmetic! {
    fetch_add add Add "its sum with `value`, wrapping" "MPI_SUM";
    fetch_and and And "its bitwise and with `value`" "MPI_BAND";
    fetch_or or Or "its bitwise or with `value`" "MPI_BOR";
    fetch_xor xor Xor "its bitwise exclusive or with `value`" "MPI_BXOR";
}
