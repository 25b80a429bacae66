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
    n: usize,
    f: &Bound<'_, PyAny>,
    threads: &Bound<'_, Threads>,
    fabric: Option<&str>,
) -> PyResult<Vec<Py<PyAny>>> {
    let (f, stops) = (f.clone().unbind(), threads.get());
    let options = match fabric {
        Some(spec) => memonet_fabrics::options(spec).map_err(|error| raise(py, error))?,
        None => JobOptions::new(),
    };
    let run = |job: memonet_core::Job| {
        stops.add(&job);
        let called = Python::attach(|py| f.call1(py, (Job { job, shares_interpreter: true },)));
        // An exception is this PE's death, as it is of a process.
        called.unwrap_or_else(|raised| resume_unwind(Box::new(raised)))
    };
    let ran = py.detach(|| {
        catch_unwind(AssertUnwindSafe(|| memonet_core::Job::threads_with(&options, n, run)))
    });
    match ran {
        Ok(results) => results.map_err(|error| raise(py, error)),
        Err(panic) => Err(match panic.downcast::<PyErr>() {
            Ok(raised) => *raised,
            Err(_) => PyRuntimeError::new_err("a PE panicked; see standard error"),
        }),
    }
}
