//! Transfers: copies prepared once, and started many times.

use crate::exclusive::Exclusive;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A copy of a part of a window, checked and resolved in advance. Made by `memonet.transfer`.
#[pyclass(frozen, module = "memonet")]
pub struct Transfer(Exclusive<memonet_core::Transfer>);

impl Transfer {
    pub fn new(prepared: memonet_core::Transfer) -> Self {
        Transfer(Exclusive::new("transfer", prepared))
    }
}

#[pymethods]
impl Transfer {
    /// Starts the copy. The source must not change until it is complete.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        self.0.wait(py, memonet_core::Transfer::start)
    }

    /// Whether the last start is complete.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.wait(py, memonet_core::Transfer::test)
    }

    /// Waits until the last start is complete.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.0.wait(py, memonet_core::Transfer::wait)
    }

    /// Gives up what was prepared.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.0.free(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*raised))]
    fn __exit__(&self, raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.0.free(raised.py())
    }
}
