//! Data that belong to a lock.
//!
//! The data's memory is an exported buffer while this PE holds the lock: `lent`. `memonet._mutex`
//! empties the array that a `with` has given, and says which array is left.

use crate::blocking;
use crate::counts::{self, Counts};
use crate::errors::{freed, raise, room};
use crate::job::{Job, elements_of};
use crate::kept::Kept;
use crate::lent::Lent;
use crate::window::duration;
use memonet_core::dsm::{self, LockOptions};
use memonet_core::unstable::segment;
use pyo3::exceptions::{PyBufferError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The data, aligned for any element.
type Data = [u128];

/// Bytes of the whole job that one thread of one PE uses at a time.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct MutexData {
    job: memonet_core::Job,
    lent: Lent<dsm::Guard<'static, Data>, dsm::Mutex<Data>>,
    /// Locked as shortly as those of `lent`.
    mutex: Mutex<Option<Arc<dsm::Mutex<Data>>>>,
    /// How often this PE has got the data, and the thread that did last, as pthreads name it.
    turns: AtomicU64,
    holder: AtomicUsize,
}

impl MutexData {
    fn present(&self) -> MutexGuard<'_, Option<Arc<dsm::Mutex<Data>>>> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mutex, for a process that is the PE.
    fn mutex(&self, py: Python<'_>) -> PyResult<Arc<dsm::Mutex<Data>>> {
        self.job.refuse_child().map_err(|error| raise(py, error))?;
        self.present().clone().ok_or_else(|| freed("mutex"))
    }

    /// Keeps a guard of `mutex`, which other threads may have freed meanwhile.
    fn keep(&self, mutex: &Arc<dsm::Mutex<Data>>, guard: dsm::Guard<'_, Data>) {
        // SAFETY: a guard of `mutex`, as there is no other that one could have here. `Kept` keeps
        // that mutex until it has dropped the guard.
        let guard = unsafe {
            std::mem::transmute::<dsm::Guard<'_, Data>, dsm::Guard<'static, Data>>(guard)
        };
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.holder.store(blocking::this_thread(), Ordering::Relaxed);
        self.lent.keep(Kept::new(&self.job, mutex.clone(), guard));
    }

    /// The turn in which this PE has the data now.
    fn turn(&self) -> Option<u64> {
        self.lent.is_held().then(|| self.turns.load(Ordering::Relaxed))
    }
}

/// How often in a row signals may interrupt the end of a turn.
const MOST_INTERRUPTS: usize = 8;

/// The end of a turn, which no signal keeps from its place. Python runs handlers of signals between
/// the instructions of the functions that give the data back, and what a handler raises ends these
/// before they have. So they are called again, and then that is raised.
#[pyclass(frozen, subclass, module = "memonet._memonet")]
pub struct Turns;

#[pymethods]
impl Turns {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyTuple>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Turns
    }

    /// Gives the data back. The array that `acquire` gave becomes empty.
    fn release(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::end(slf, &slf.py().None().into_bound(slf.py()))
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        raised: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::end(slf, raised)
    }
}

impl Turns {
    fn end(slf: &Bound<'_, Self>, raised: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, data) = (slf.py(), slf.getattr("_data")?.cast_into::<MutexData>()?);
        let (turn, mut first) = (data.get().turn(), None);
        let mut raised = raised.clone();
        for _ in 0..MOST_INTERRUPTS {
            let Err(error) = slf.call_method1("_leave", (&raised,)) else { break };
            if error.is_instance_of::<PyBufferError>(py) {
                return Err(error);
            }
            // Functions that it has ended may have the array, and are cleared.
            raised = error.clone_ref(py).into_value(py).into_bound(py).into_any();
            first.get_or_insert(error);
            if turn.is_none() || data.get().turn() != turn {
                break;
            }
        }
        first.map_or(Ok(()), Err)
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
        let (start, bytes) = buffer.block()?;
        let mut data = room(0u128, bytes.div_ceil(size_of::<u128>()))?;
        // SAFETY: so many bytes of the buffer; the vector is private and has room for them.
        unsafe { segment::copy(data.as_mut_ptr().cast(), start.0, bytes) };
        let job = &job.get().job;
        let mutex = blocking::wait(py, || dsm::Mutex::with(job, &data[..], options))?;
        let (lent, mutex) = (Lent::new("mutex", bytes, None), Mutex::new(Some(Arc::new(mutex))));
        let (turns, holder) = (AtomicU64::new(0), AtomicUsize::new(0));
        Ok(MutexData { job: job.clone(), lent, mutex, turns, holder })
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
        let held = self.lent.take()?;
        blocking::wait(py, || held.release(dsm::Guard::release))
    }

    /// What this PE has done with the mutex so far.
    fn stats(&self, py: Python<'_>) -> PyResult<Counts> {
        Ok(counts::of(self.mutex(py)?.stats()))
    }

    /// The turn in which this thread has the data.
    #[getter]
    fn mine(&self) -> Option<u64> {
        self.turn().filter(|_| self.holder.load(Ordering::Relaxed) == blocking::this_thread())
    }

    /// How many buffers show the data.
    #[getter]
    fn exports(&self) -> usize {
        self.lent.exports()
    }

    /// Gives up this PE's handle.
    fn free(&self) -> PyResult<()> {
        if self.lent.is_held() {
            return Err(PyRuntimeError::new_err("this PE holds the mutex: leave it first"));
        }
        let mutex = self.present().take();
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
        let start = |guard: &mut dsm::Guard<'_, Data>| (guard.as_mut_ptr().cast(), false);
        // SAFETY: Python's view of this object.
        unsafe { slf.get().lent.export(view, slf.as_any(), flags, start) }
    }

    /// Takes an export back.
    ///
    /// # Safety
    /// Python calls it, once for each export.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.lent.take_back();
    }
}
