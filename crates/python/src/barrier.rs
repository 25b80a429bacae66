//! Barriers in two phases: a PE arrives, does something else, and waits.

use crate::blocking;
use crate::team::Team;
use crate::window::duration;
use pyo3::prelude::*;

/// A barrier of a team. Made by `Team.new_barrier`.
#[pyclass(frozen, module = "memonet")]
pub struct Barrier(memonet_core::Barrier);

/// Makes a barrier of a team. Collective.
#[pyfunction]
pub fn new_barrier(team: &Bound<'_, Team>) -> PyResult<Barrier> {
    let (py, team) = (team.py(), team.get().core());
    Ok(Barrier(blocking::wait(py, || team.new_barrier())?))
}

#[pymethods]
impl Barrier {
    /// Phases at which this PE has arrived so far.
    #[getter]
    fn phase(&self) -> u64 {
        self.0.phase()
    }

    /// Completes this PE's writes, and arrives at the next phase. Waits only where the phase before
    /// is not complete.
    fn arrive(&self, py: Python<'_>) -> PyResult<()> {
        blocking::wait(py, || self.0.step())
    }

    /// Whether all members have arrived at the phase at which this PE arrived last.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        blocking::wait(py, || self.0.test())
    }

    /// Waits until all members have arrived at the phase at which this PE arrived last, for so many
    /// seconds at most. After a `Timeout` the phase goes on, and one may wait again.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let timeout = timeout.map(duration).transpose()?;
        blocking::wait(py, || match timeout {
            Some(timeout) => self.0.wait_timeout(timeout),
            None => self.0.wait(),
        })
    }

    fn __repr__(&self) -> String {
        format!("<memonet.Barrier: phase {}>", self.0.phase())
    }
}
