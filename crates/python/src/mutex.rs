//! Data that belong to a lock.
//!
//! The data's memory is an exported buffer while this PE holds the lock, and at no other time. The
//! lock is released only when no export is left: no array, view or memoryview then shows the data,
//! as for Rust no reference outlives the guard. `memonet._mutex` empties the array that a `with`
//! has given, and says which array is left.

use crate::blocking;
use crate::counts::{self, Counts};
use crate::errors::{freed, raise};
use crate::job::{Job, elements_of};
use crate::kept::Kept;
use crate::place::export;
use crate::window::duration;
use memonet_core::dsm::{self, LockOptions};
use memonet_core::unstable::segment;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The data, aligned for any element.
type Data = [u128];
/// The guard borrows from the `Arc` beside it, whose contents do not move.
type Held = Kept<dsm::Guard<'static, Data>, dsm::Mutex<Data>>;

/// Bytes of the whole job that one thread of one PE uses at a time.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct MutexData {
    job: memonet_core::Job,
    bytes: usize,
    state: Mutex<State>,
}

struct State {
    held: Option<Held>,
    /// Buffers that show the data.
    exports: usize,
    mutex: Option<Arc<dsm::Mutex<Data>>>,
}

impl MutexData {
    /// Never held while Python code runs, or while a call waits.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mutex, for a process that is the PE.
    fn mutex(&self, py: Python<'_>) -> PyResult<Arc<dsm::Mutex<Data>>> {
        self.job.refuse_child().map_err(|error| raise(py, error))?;
        self.state().mutex.clone().ok_or_else(|| freed("mutex"))
    }

    /// Keeps a guard of `mutex`, which other threads may have freed meanwhile.
    fn keep(&self, mutex: &Arc<dsm::Mutex<Data>>, guard: dsm::Guard<'_, Data>) {
        // SAFETY: a guard of `mutex`, as there is no other that one could have here. `Kept` keeps
        // that mutex until it has dropped the guard.
        let guard = unsafe {
            std::mem::transmute::<dsm::Guard<'_, Data>, dsm::Guard<'static, Data>>(guard)
        };
        self.state().held = Some(Kept::new(&self.job, mutex.clone(), guard));
    }
}

#[pymethods]
impl MutexData {
    /// Makes a mutex whose data begin as those of `initial`. Collective.
    #[new]
    fn new(
        job: &Bound<'_, Job>,
        initial: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        shape: Vec<usize>,
        shadow: bool,
    ) -> PyResult<Self> {
        let options = LockOptions::new().shadow(shadow).elements(elements_of(dtype, &shape)?);
        let (py, buffer) = (job.py(), crate::buffer::Buffer::of(initial)?);
        let bytes = buffer.bytes();
        let mut data = vec![0u128; bytes.div_ceil(size_of::<u128>())];
        // SAFETY: so many bytes of the buffer, which is without gaps, as `_mutex` makes it; the
        // vector is private and has room for them.
        unsafe { segment::copy(data.as_mut_ptr().cast(), buffer.start().0, bytes) };
        let job = &job.get().job;
        let mutex = blocking::wait(py, || dsm::Mutex::with(job, &data[..], options))?;
        let state = State { held: None, exports: 0, mutex: Some(Arc::new(mutex)) };
        Ok(MutexData { job: job.clone(), bytes, state: Mutex::new(state) })
    }

    /// Waits for the data.
    #[pyo3(signature = (timeout=None))]
    fn lock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (mutex, limit) = (self.mutex(py)?, timeout.map(duration).transpose()?);
        blocking::wait(py, || {
            let guard = match limit {
                Some(limit) => mutex.lock_timeout(limit),
                None => mutex.lock(),
            }?;
            self.keep(&mutex, guard);
            Ok(())
        })
    }

    /// Takes the data if no other thread or PE has them; gives whether it has.
    fn try_lock(&self, py: Python<'_>) -> PyResult<bool> {
        let mutex = self.mutex(py)?;
        blocking::wait(py, || {
            let guard = mutex.try_lock()?;
            let got = guard.is_some();
            if let Some(guard) = guard {
                self.keep(&mutex, guard);
            }
            Ok(got)
        })
    }

    /// Gives the data back.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let held = {
            let mut state = self.state();
            if state.exports > 0 {
                return Err(PyBufferError::new_err(
                    "arrays still show the mutex's data, so it stays locked: copy what you need, and del its views before you leave",
                ));
            }
            state.held.take()
        };
        let held =
            held.ok_or_else(|| PyRuntimeError::new_err("this PE does not hold the mutex"))?;
        blocking::wait(py, || held.release(dsm::Guard::release))
    }

    /// What this PE has done with the mutex so far.
    fn stats(&self, py: Python<'_>) -> PyResult<Counts> {
        Ok(counts::of(self.mutex(py)?.stats()))
    }

    /// How many buffers show the data.
    #[getter]
    fn exports(&self) -> usize {
        self.state().exports
    }

    /// Gives up this PE's handle.
    fn free(&self) -> PyResult<()> {
        let mutex = {
            let mut state = self.state();
            if state.held.is_some() {
                return Err(PyRuntimeError::new_err("this PE holds the mutex: leave it first"));
            }
            state.mutex.take()
        };
        drop(mutex);
        Ok(())
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
        let this = slf.get();
        let start = {
            let mut state = this.state();
            let Some(held) = &mut state.held else {
                return Err(PyBufferError::new_err(
                    "the data can be used only while the mutex is held",
                ));
            };
            let start = held.guard().as_mut_ptr().cast();
            state.exports += 1;
            start
        };
        // SAFETY: Python's view; while there is an export, the guard is not released.
        let filled = unsafe { export(view, slf.as_any(), (start, this.bytes), false, flags) };
        if filled.is_err() {
            this.state().exports -= 1;
        }
        filled
    }

    /// Takes an export back.
    ///
    /// # Safety
    /// Python calls it, once for each export.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().exports -= 1;
    }
}
