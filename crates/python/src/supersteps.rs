//! Supersteps of bulk-synchronous programs.
//!
//! The core's handle is behind a lock: calls that put share it, and a step has it alone. Nobody
//! waits for that lock, as the thread that has it may need the interpreter's lock to go on.
//!
//! Arrays of what was received keep the handle, and so all of its windows. An array of an earlier
//! superstep shows a window to which others put now, as the array of any window may. Such an array
//! may be the source of a put to this PE itself, and overlap with its target: so these puts go by a
//! private copy.

use crate::blocking;
use crate::buffer::Raw;
use crate::elements::{Elements, Staged};
use crate::errors::freed;
use crate::job::{Job, dtype_of, elements_of, shape_of};
use crate::kind::{Kind, with_word};
use crate::place::{Part, Place};
use crate::window::{duration, element, number};
use memonet_core::{Error, Plain, Result, WindowOptions};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Duration;

/// Supersteps without their element type.
trait Steps: Send + Sync {
    /// Puts elements to a PE.
    ///
    /// # Safety
    /// `from` can be read for `count` elements, and none of them is an element that is written.
    unsafe fn put(&self, pe: usize, index: usize, from: Raw, count: usize) -> Used<()>;
    fn step(&self, timeout: Option<Duration>) -> Used<()>;
    /// Number of the superstep, and the address of what was received.
    fn now(&self) -> Used<(u64, Raw)>;
}

/// What a call gives; `None` where another thread uses the supersteps in a way that excludes it.
type Used<R> = Option<Result<R>>;

/// Elements of the library, of which `each` make one of Python's.
struct Handle<T> {
    steps: RwLock<memonet_core::Supersteps<T>>,
    each: usize,
}

impl<T: Plain> Steps for Handle<T> {
    unsafe fn put(&self, pe: usize, index: usize, from: Raw, count: usize) -> Used<()> {
        let steps = held(self.steps.try_read())?;
        let overflow = Error::Overflow { index, size: self.each, call: None };
        let at = index.checked_mul(self.each).zip(count.checked_mul(self.each));
        let Some((index, count)) = at else { return Some(Err(overflow)) };
        // SAFETY: the caller's promise.
        Some(unsafe { steps.put_from(pe, index, from.0.cast::<T>().cast_const(), count) })
    }

    fn step(&self, timeout: Option<Duration>) -> Used<()> {
        let mut steps = held(self.steps.try_write())?;
        Some(match timeout {
            Some(timeout) => steps.step_timeout(timeout),
            None => steps.step(),
        })
    }

    fn now(&self) -> Used<(u64, Raw)> {
        let steps = held(self.steps.try_read())?;
        Some(Ok((steps.superstep(), Raw(steps.received_ptr().cast_mut().cast()))))
    }
}

fn held<G>(tried: std::result::Result<G, TryLockError<G>>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The result of a call that may have found another thread in its way.
fn unless_in_use<R>(used: PyResult<Option<R>>) -> PyResult<R> {
    used?.ok_or_else(|| {
        PyRuntimeError::new_err(
            "another thread is in a step, or puts while this one makes a step: let one thread make the step when the others have put",
        )
    })
}

/// Elements that all PEs put to each other in supersteps (BSP): what is put in one is received in
/// the next. Making them is collective.
///
///     steps = memonet.Supersteps(job, 100, "float64")
///     for _ in range(10):
///         steps.put(right, 0, borders)       # as often as one likes, to any PEs
///         steps.step()                       # puts are complete; one barrier
///         use(steps.received)                # an array of 100; zero where nobody has put
///
/// With `overlapped`, the barrier goes on while the next superstep works: elements are received in
/// the second superstep after the one in which they are put.
#[pyclass(frozen, module = "memonet", weakref)]
pub struct Supersteps {
    job: memonet_core::Job,
    kind: Kind,
    shape: Vec<usize>,
    len: usize,
    delay: u64,
    dtype: Py<PyAny>,
    held: Mutex<Held>,
}

/// What `free` gives up.
struct Held {
    steps: Option<Arc<dyn Steps>>,
    /// The arrays of received elements that a program has asked for, by their addresses.
    arrays: Vec<(usize, Py<PyAny>)>,
}

impl Supersteps {
    /// Never held while Python code runs.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn steps(&self) -> PyResult<Arc<dyn Steps>> {
        self.held().steps.clone().ok_or_else(|| freed("object for supersteps"))
    }

    fn now(&self) -> PyResult<(u64, Raw)> {
        let now = unless_in_use(Ok(self.steps()?.now()))?;
        Python::attach(|py| now.map_err(|error| blocking::ended(py, error)))
    }
}

#[pymethods]
impl Supersteps {
    #[new]
    #[pyo3(signature = (job, shape, dtype=None, *, overlapped=false))]
    fn new(
        job: &Bound<'_, Job>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        overlapped: bool,
    ) -> PyResult<Self> {
        let (py, job) = (job.py(), &job.get().job);
        let dtype = dtype_of(&dtype.map_or_else(|| py.None().into_bound(py), Bound::clone))?;
        let (kind, (shape, len)) = (Kind::of(&dtype)?, shape_of(shape)?);
        let options = WindowOptions::new().elements(elements_of(&dtype, &shape)?);
        let steps = blocking::wait(py, || {
            Ok(with_word!(kind, T => make::<T>(job, len, 1, overlapped, options)?, bytes size => {
                make::<u8>(job, len, size, overlapped, options)?
            }))
        })?;
        let held = Mutex::new(Held { steps: Some(steps), arrays: Vec::new() });
        let (job, delay) = (job.clone(), if overlapped { 2 } else { 1 });
        Ok(Supersteps { job, kind, shape, len, delay, dtype: dtype.unbind(), held })
    }

    /// The shape of each PE's array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The dtype of the elements.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyAny> {
        self.dtype.clone_ref(py)
    }

    /// Number of the superstep that this PE is in, from 1 on.
    #[getter]
    fn superstep(&self) -> PyResult<u64> {
        Ok(self.now()?.0)
    }

    /// Number of supersteps from a put to where it is received: 1, or 2 if they overlap.
    #[getter]
    fn delay(&self) -> u64 {
        self.delay
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = PyTuple::new(py, &self.shape)?.repr()?;
        Ok(format!("<memonet.Supersteps {shape} {}>", self.dtype.bind(py).str()?))
    }

    /// Copies an array, or a number, to `pe`, which may be this PE. It is received there `delay`
    /// steps later, from element `index` on. Of two puts to one element in one superstep, either
    /// may be received.
    fn put(
        &self,
        #[pyo3(from_py_with = number)] pe: usize,
        index: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (py, steps) = (index.py(), self.steps()?);
        let (index, from) =
            (element(&self.shape, index)?, Elements::of(self.kind, &self.dtype, source)?);
        let size = self.kind.size();
        // See the head of the file.
        let block = from.block(size).filter(|_| pe != self.job.pe());
        let staged =
            block.is_none().then(|| Staged::of(from.start(), &from.layout(size))).transpose()?;
        let (start, count) = match &staged {
            Some(staged) => (staged.start(), staged.bytes() / size),
            None => (from.start(), block.unwrap_or_default()),
        };
        let far = pe < self.job.npes() && !self.job.is_near(pe);
        let put = blocking::call(py, far || count * size >= blocking::LONG_BYTES, || {
            let start = &start;
            // SAFETY: the elements of `from` or `staged`. Those that are written lie at another PE,
            // or are no part of the private copy.
            unsafe { steps.put(pe, index, *start, count) }.transpose()
        });
        unless_in_use(put)
    }

    /// What this PE has received: an array that shows it without a copy, and cannot be written,
    /// until the next `step`. Copy what you need longer.
    #[getter]
    fn received<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (steps, (_, start)) = (self.steps()?, self.now()?);
        let address = start.0 as usize;
        let known = |held: &Held| {
            let found = held.arrays.iter().find(|(at, _)| *at == address);
            found.map(|(_, array)| array.bind(py).clone())
        };
        if let Some(array) = known(&self.held()) {
            return Ok(array);
        }
        let place = Place { start, bytes: self.len * self.kind.size(), readonly: true };
        // SAFETY: `steps` keeps all of its windows.
        let part = unsafe { Part::new(place, Box::new(steps)) };
        let array = part.array(&self.shape, self.dtype.bind(py))?;
        self.held().arrays.push((address, array.clone().unbind()));
        Ok(array)
    }

    /// Ends this superstep: completes this PE's puts, and passes one barrier, for `timeout` seconds
    /// at most. After a `Timeout` the superstep goes on: call `step` again, and put nothing before.
    /// Collective.
    #[pyo3(signature = (timeout=None))]
    fn step(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let (steps, timeout) = (self.steps()?, timeout.map(duration).transpose()?);
        unless_in_use(blocking::wait(py, || steps.step(timeout).transpose()))
    }

    /// Gives up this PE's hold on the memory, which is used again when all PEs have freed it and no
    /// array shows it. If the last barrier still goes on, as it may where supersteps overlap, the
    /// memory stays lost until the job ends.
    fn free(&self) {
        let held = {
            let mut held = self.held();
            (held.steps.take(), std::mem::take(&mut held.arrays))
        };
        drop(held);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        self.free();
    }
}

fn make<T: Plain>(
    job: &memonet_core::Job,
    len: usize,
    each: usize,
    overlapped: bool,
    options: WindowOptions,
) -> Result<Arc<dyn Steps>> {
    let len = len.saturating_mul(each);
    let steps = memonet_core::Supersteps::<T>::with(job, len, overlapped, options)?;
    Ok(Arc::new(Handle { steps: RwLock::new(steps), each }))
}
