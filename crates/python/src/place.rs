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
            let bytes = cells.len() * cells.kind().size();
            export(view, slf.as_any(), (cells.local(), bytes), false, flags)
        }
    }
}

/// Fills a view with `bytes` from `start` on, which `owner` keeps.
///
/// # Safety
/// `view` may be written. The bytes stay readable, and writable unless `readonly`, while `owner`
/// lives.
pub unsafe fn export(
    view: *mut ffi::Py_buffer,
    owner: &Bound<'_, PyAny>,
    (start, bytes): (*mut u8, usize),
    readonly: bool,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    // SAFETY: the caller's promise.
    let filled = unsafe {
        let (start, readonly) = (start.cast(), c_int::from(readonly));
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, bytes as isize, readonly, flags)
    };
    match filled {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}
