//! The least that a call of PyO3 does which stores a number.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};

/// A word of this object.
#[pyclass(frozen)]
#[derive(Default)]
struct Cell(AtomicI64);

#[pymethods]
impl Cell {
    #[new]
    fn new() -> Self {
        Cell::default()
    }

    fn store(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.store(value.extract()?, Ordering::Relaxed);
        Ok(())
    }
}

#[pymodule]
mod bare {
    #[pymodule_export]
    use super::Cell;
}
