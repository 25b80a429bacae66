//! Data that belong to a lock for readers and writers.
//!
//! As in `mutex`, the data's memory is an exported buffer while a guard is held, and at no other
//! time. The buffer of a reader's guard cannot be written. Each thread that reads has a guard of
//! its own.

use crate::blocking;
use crate::buffer::Buffer;
use crate::counts::{self, Counts};
use crate::errors::{freed, raise, room};
use crate::job::{Job, elements_of};
use crate::kept::Kept;
use crate::lent::Lent;
use crate::window::duration;
use memonet_core::dsm::{LockOptions, ReadGuard, RwLock, WriteGuard};
use memonet_core::unstable::segment;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The data, aligned for any element.
type Data = [u128];
/// The lock, which each guard keeps, too.
type Lock = Arc<RwLock<Data>>;

/// Bytes of the whole job that many read at a time, or one changes. `memonet._rwlock` has the class
/// for programs.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct RwLockData {
    job: memonet_core::Job,
    bytes: usize,
    lock: Mutex<Option<Lock>>,
}

#[pymethods]
impl RwLockData {
    /// Makes a lock whose data begin as those of `initial`. Collective.
    #[new]
    fn new(
        job: &Bound<'_, Job>,
        initial: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        shape: Vec<usize>,
        shadow: bool,
    ) -> PyResult<Self> {
        let options = LockOptions::new().shadow(shadow).elements(elements_of(dtype, &shape)?);
        let (py, buffer) = (job.py(), Buffer::of(initial)?);
        let (start, bytes) = buffer.block()?;
        let mut data = room(0u128, bytes.div_ceil(size_of::<u128>()))?;
        // SAFETY: so many bytes of the buffer; the vector is private and has room for them.
        unsafe { segment::copy(data.as_mut_ptr().cast(), start.0, bytes) };
        let job = &job.get().job;
        let lock = blocking::wait(py, || RwLock::with(job, &data[..], options))?;
        Ok(RwLockData { job: job.clone(), bytes, lock: Mutex::new(Some(Arc::new(lock))) })
    }

    /// Takes the data to read them, or to `write` them: at once or not at all if `at_once`, which
    /// gives None where others have them.
    #[pyo3(signature = (write, at_once, timeout=None))]
    fn enter(
        &self,
        py: Python<'_>,
        write: bool,
        at_once: bool,
        timeout: Option<f64>,
    ) -> PyResult<Option<RwLockGuard>> {
        self.job.refuse_child().map_err(|error| raise(py, error))?;
        let lock = self.held().clone().ok_or_else(|| freed("lock"))?;
        let timeout = timeout.map(duration).transpose()?;
        let held = blocking::wait(py, || Held::enter(&lock, write, at_once, timeout))?;
        let keep = |held| Some(Kept::new(&self.job, lock, held));
        Ok(held.map(|held| RwLockGuard(Lent::new("lock", self.bytes, keep(held)))))
    }

    /// What this PE has done with the lock so far.
    fn stats(&self) -> PyResult<Counts> {
        let lock = self.held().clone().ok_or_else(|| freed("lock"))?;
        Ok(counts::of(lock.stats()))
    }

    /// Gives up this PE's handle. A guard keeps it until it is released.
    fn free(&self) {
        let lock = self.held().take();
        drop(lock);
    }
}

impl RwLockData {
    /// Never held while Python code runs, or while a call waits.
    fn held(&self) -> MutexGuard<'_, Option<Lock>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that borrows from the `Arc` beside it, whose contents do not move.
enum Held {
    Read(ReadGuard<'static, Data>),
    Write(WriteGuard<'static, Data>),
}

impl Held {
    fn enter(
        lock: &Lock,
        write: bool,
        at_once: bool,
        timeout: Option<Duration>,
    ) -> memonet_core::Result<Option<Held>> {
        // SAFETY: `Kept` keeps the `Arc` beside the guard, and drops it after the guard. The
        // caller's clone lives until then.
        let lock = unsafe { &*Arc::as_ptr(lock) };
        Ok(match (write, at_once, timeout) {
            (false, true, _) => lock.try_read()?.map(Held::Read),
            (true, true, _) => lock.try_write()?.map(Held::Write),
            (false, _, None) => Some(Held::Read(lock.read()?)),
            (true, _, None) => Some(Held::Write(lock.write()?)),
            (false, _, Some(limit)) => Some(Held::Read(lock.read_timeout(limit)?)),
            (true, _, Some(limit)) => Some(Held::Write(lock.write_timeout(limit)?)),
        })
    }

    /// The first byte, and whether it may only be read.
    fn start(&mut self) -> (*mut u8, bool) {
        match self {
            Held::Read(guard) => (guard.as_ptr().cast_mut().cast(), true),
            Held::Write(guard) => (guard.as_mut_ptr().cast(), false),
        }
    }

    fn release(self) -> memonet_core::Result<()> {
        match self {
            Held::Read(guard) => guard.release(),
            Held::Write(guard) => guard.release(),
        }
    }
}

/// The data while this PE may use them.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct RwLockGuard(Lent<Held, RwLock<Data>>);

#[pymethods]
impl RwLockGuard {
    /// Gives the data back.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.0.take()?;
        blocking::wait(py, || held.release(Held::release))
    }

    /// Exports the data, which this PE holds.
    ///
    /// # Safety
    /// Python calls it, with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: Python's view of this object.
        unsafe { slf.get().0.export(view, slf.as_any(), flags, Held::start) }
    }

    /// Takes an export back.
    ///
    /// # Safety
    /// Python calls it, once for each export.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.0.take_back();
    }
}
