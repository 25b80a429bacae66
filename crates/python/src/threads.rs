//! Jobs whose PEs are threads of this interpreter.
//!
//! Python runs one of its threads at a time, so these PEs compute in turns: for notebooks, tests
//! and examples. Ctrl-C is the main thread's. It calls [`Threads::stop`], which ends the waits of
//! all PEs.

use crate::errors::raise;
use crate::job::Job;
use memonet_core::JobOptions;
use memonet_core::unstable::wait::Attention;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How the threads of a job are stopped.
#[pyclass(frozen, module = "memonet._memonet")]
#[derive(Default)]
pub struct Threads {
    stopped: AtomicBool,
    attentions: Mutex<Vec<Attention>>,
}

#[pymethods]
impl Threads {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends all waits of the PEs, also those that begin later.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for attention in &*self.attentions.lock().unwrap_or_else(PoisonError::into_inner) {
            attention.call();
        }
    }
}

impl Threads {
    fn add(&self, job: &memonet_core::Job) {
        let attention = job.attention();
        attention.set_hook(|_| ControlFlow::Break(()));
        self.attentions.lock().unwrap_or_else(PoisonError::into_inner).push(attention.clone());
        // Either `stop` has seen it in the list, or this sees `stopped`.
        if self.stopped.load(Ordering::SeqCst) {
            attention.call();
        }
    }
}

/// Runs `f(job)` on `n` PEs that are threads of this process; gives what each returned.
#[pyfunction]
#[pyo3(signature = (n, f, threads, fabric=None))]
pub fn threads(
    py: Python<'_>,
    n: isize,
    f: &Bound<'_, PyAny>,
    threads: &Bound<'_, Threads>,
    fabric: Option<&str>,
) -> PyResult<Vec<Py<PyAny>>> {
    let (f, stops) = (f.clone().unbind(), threads.get());
    // The core refuses 0.
    let n = usize::try_from(n).unwrap_or(0);
    let options = match fabric {
        Some(spec) => memonet_fabrics::options(spec).map_err(|error| raise(py, error))?,
        None => JobOptions::new(),
    };
    // The core has none of them: it would drop them without the interpreter's lock.
    let called = Mutex::new(Vec::new());
    let run = |job: memonet_core::Job| {
        let pe = job.pe();
        stops.add(&job);
        let raised = Python::attach(|py| {
            let result = f.call1(py, (Job { job, shares_interpreter: true },));
            let raised = result.is_err();
            called.lock().unwrap_or_else(PoisonError::into_inner).push((pe, result));
            raised
        });
        if raised {
            // An exception is this PE's death, as it is of a process.
            resume_unwind(Box::new(Raised(pe)));
        }
    };
    let ran = py.detach(|| {
        catch_unwind(AssertUnwindSafe(|| memonet_core::Job::threads_with(&options, n, run)))
    });
    let mut called = called.into_inner().unwrap_or_else(PoisonError::into_inner);
    match ran {
        Ok(ended) => {
            ended.map_err(|error| raise(py, error))?;
            called.sort_by_key(|(pe, _)| *pe);
            called.into_iter().map(|(_, result)| result).collect()
        }
        Err(panic) => {
            let first = panic.downcast::<Raised>().map(|raised| raised.0).ok();
            match called.into_iter().find(|(pe, _)| Some(*pe) == first) {
                Some((_, Err(raised))) => Err(raised),
                _ => Err(PyRuntimeError::new_err("a PE panicked; see standard error")),
            }
        }
    }
}

/// The end of a PE whose function has raised an exception.
struct Raised(usize);
