//! A PE's handle on its job.

use crate::blocking;
use crate::caller;
use crate::cells;
use crate::errors::{raise, value_error};
use crate::kind::Kind;
use crate::team::Team;
use crate::window::{Window, number, numbers};
use memonet_core::unstable::launch::Participation;
use memonet_core::{Cause, ElementName, Error, WindowOptions};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// A PE's handle on its job.
#[pyclass(frozen, module = "memonet", weakref)]
pub struct Job {
    pub job: memonet_core::Job,
    /// Whether the PEs are threads of this interpreter.
    pub shares_interpreter: bool,
}

/// Joins the job in which this process was started: by `memonet run`, or alone as a job of one PE.
/// A second call gives the same job.
#[pyfunction]
pub fn init(py: Python<'_>) -> PyResult<Job> {
    // Joining already tells the launcher of this call.
    caller::watch();
    let job = py.detach(memonet_fabrics::init).map_err(|error| raise(py, error))?;
    if blocking::watch(py, &job)? {
        // The C library may have been loaded, and joined, before. The copy that takes part first
        // is the PE.
        [Participation::NotYet, Participation::Taking]
            .into_iter()
            .try_for_each(|part| job.take_part(part))
            .map_err(|error| raise(py, error))?;
    }
    Ok(Job { job, shares_interpreter: false })
}

/// A dtype as NumPy takes it.
pub fn dtype_of<'py>(dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    dtype.py().import("numpy")?.call_method1("dtype", (dtype,))
}

/// A shape as NumPy takes it, a number, or one for each dimension; and how many elements it has.
pub fn shape_of(shape: &Bound<'_, PyAny>) -> PyResult<(Vec<usize>, usize)> {
    let counts: PyResult<Vec<usize>> =
        match shape.is_instance_of::<PyTuple>() || shape.hasattr("__len__")? {
            true => shape.extract(),
            false => shape.extract().map(|count| vec![count]),
        };
    let shape =
        counts.map_err(|error| match error.is_instance_of::<PyOverflowError>(shape.py()) {
            true => value_error("a shape is a number, or one for each dimension, from 0 on"),
            false => error,
        })?;
    let len = shape.iter().try_fold(1usize, |all, &count| all.checked_mul(count));
    let len =
        len.ok_or_else(|| value_error(format!("a shape of {shape:?} has too many elements")))?;
    Ok((shape, len))
}

/// What PEs compare of an array: the name of its elements, and how many make a row.
pub fn elements_of(dtype: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<ElementName> {
    Ok(ElementName::new(&name_of(dtype)?, shape.last().copied().unwrap_or(1)))
}

/// The name of a dtype: of a structure, those of its fields, one behind the other.
fn name_of(dtype: &Bound<'_, PyAny>) -> PyResult<String> {
    let Some(fields) = dtype.getattr("names")?.extract::<Option<Vec<String>>>()? else {
        let name: String = dtype.getattr("str")?.extract()?;
        // Native order is told by the kind alone.
        return Ok(name.trim_start_matches(['<', '=', '|']).into());
    };
    fields.iter().map(|field| name_of(&dtype.get_item(field)?)).collect()
}

#[pymethods]
impl Job {
    /// This PE's number, from 0 on.
    #[getter]
    fn pe(&self) -> usize {
        self.job.pe()
    }

    /// Number of PEs in the job.
    #[getter]
    fn npes(&self) -> usize {
        self.job.npes()
    }

    /// The team of all PEs.
    #[getter]
    fn world(&self) -> Team {
        Team::world(&self.job)
    }

    /// Name of the fabric to far peers; None when all peers are near.
    #[getter]
    fn fabric(&self) -> Option<&'static str> {
        self.job.fabric()
    }

    /// Whether a PE's memory is mapped into this process.
    fn is_near(&self, py: Python<'_>, #[pyo3(from_py_with = number)] pe: usize) -> PyResult<bool> {
        match pe < self.job.npes() {
            true => Ok(self.job.is_near(pe)),
            false => Err(raise(py, Error::NoSuchPe { pe, npes: self.job.npes(), call: None })),
        }
    }

    /// Why a PE takes part in nothing any more: how it has died, or "finalised". None while it
    /// lives, as far as is known here. For programs that go on without PEs that fail.
    fn departed(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] pe: usize,
    ) -> PyResult<Option<String>> {
        let departed = self.job.departed(pe).map_err(|error| raise(py, error))?;
        Ok(departed.map(|cause| match cause {
            Cause::Finalized => "finalised".into(),
            cause => cause.to_string(),
        }))
    }

    fn __repr__(&self) -> String {
        format!("<memonet.Job: PE {} of {}>", self.job.pe(), self.job.npes())
    }

    /// Makes a window: an array of `shape` (a number, or one for each dimension) and `dtype`
    /// (float64) on every PE, zero at first. Pages are given to it when they are first used, or
    /// here with `populate`. Collective.
    #[pyo3(signature = (shape, dtype=None, *, populate=false))]
    fn window(
        &self,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        populate: bool,
    ) -> PyResult<Window> {
        let py = shape.py();
        let dtype = dtype_of(&dtype.map_or_else(|| py.None().into_bound(py), Bound::clone))?;
        let (kind, (shape, len)) = (Kind::of(&dtype)?, shape_of(shape)?);
        let options = WindowOptions::new().populate(populate);
        let options = options.elements(elements_of(&dtype, &shape)?);
        let cells = blocking::wait(py, || cells::make(&self.job, kind, len, options))?;
        Window::new(self.job.clone(), self.shares_interpreter, shape, dtype, cells)
    }

    /// Completes this PE's writes, and waits until all PEs have called. Collective.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        blocking::wait(py, || self.job.barrier())
    }

    /// Orders this PE's writes.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        blocking::call(py, self.job.fabric().is_some(), || self.job.fence())
    }

    /// Completes this PE's writes.
    fn quiet(&self, py: Python<'_>) -> PyResult<()> {
        blocking::call(py, self.job.fabric().is_some(), || self.job.quiet())
    }

    /// Whether this PE's writes are complete.
    fn is_quiet(&self, py: Python<'_>) -> PyResult<bool> {
        blocking::call(py, self.job.fabric().is_some(), || self.job.is_quiet())
    }

    /// Leaves the job in order. A process that ends with status 0 does so by itself.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        blocking::wait(py, || self.job.finalize())
    }

    /// Says that the program computes for so many seconds: on a simulated machine they pass.
    fn compute(&self, seconds: f64) -> PyResult<()> {
        self.job.compute(crate::window::duration(seconds)?.as_nanos() as u64);
        Ok(())
    }

    /// Ends the whole job with this status.
    #[pyo3(signature = (status=0))]
    fn exit(&self, py: Python<'_>, status: u8) -> PyResult<()> {
        for stream in ["stdout", "stderr"] {
            py.import("sys")?.getattr(stream)?.call_method0("flush")?;
        }
        self.job.exit(status)
    }

    /// The team of these PEs; None at all others. Collective over all PEs.
    fn team(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] pes: Vec<usize>,
    ) -> PyResult<Option<Team>> {
        let made = blocking::wait(py, || self.job.team(&pes))?;
        Ok(made.map(|team| Team::new(&self.job, Arc::new(team))))
    }
}
