//! Memory of the job as a Python object whose buffer arrays show.

use crate::cells::Cells;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::Arc;

/// This PE's part of a window. It keeps the window while an array shows it.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct Part {
    cells: Arc<dyn Cells>,
}

impl Part {
    pub fn new(cells: Arc<dyn Cells>) -> Self {
        Part { cells }
    }
}

#[pymethods]
impl Part {
    /// Exports the bytes.
    ///
    /// # Safety
    /// Python calls it, with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let cells = &slf.get().cells;
        // SAFETY: Python's view; the memory stays mapped while `slf` lives, which the view keeps.
        unsafe {
            export(view, slf.as_any(), cells.local(), cells.len() * cells.kind().size(), flags)
        }
    }
}

/// Fills a view with `bytes` from `start` on, which `owner` keeps.
///
/// # Safety
/// `view` may be written. The bytes stay readable and writable while `owner` lives.
pub unsafe fn export(
    view: *mut ffi::Py_buffer,
    owner: &Bound<'_, PyAny>,
    start: *mut u8,
    bytes: usize,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    // SAFETY: the caller's promise.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start.cast(), bytes as isize, 0, flags)
    };
    match filled {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}
