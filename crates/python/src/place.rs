//! Memory of the job as a Python object whose buffer arrays show.

use crate::buffer::Raw;
use crate::cells::Cells;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::any::Any;
use std::ffi::c_int;
use std::sync::Arc;

/// Memory that an array shows.
#[derive(Clone, Copy)]
pub struct Place {
    pub start: Raw,
    pub bytes: usize,
    pub readonly: bool,
}

/// A place of the job's memory. It keeps what the memory belongs to while an array shows it.
#[pyclass(frozen, module = "memonet._memonet")]
pub struct Part {
    place: Place,
    _owner: Box<dyn Any + Send + Sync>,
}

impl Part {
    /// This PE's part of a window.
    pub fn of(cells: Arc<dyn Cells>) -> Self {
        let bytes = cells.len() * cells.kind().size();
        let place = Place { start: Raw(cells.local()), bytes, readonly: false };
        // SAFETY: the window keeps its memory.
        unsafe { Part::new(place, Box::new(cells)) }
    }

    /// A place that `owner` keeps.
    ///
    /// # Safety
    /// While `owner` lives, the bytes stay readable, and writable unless the place is read-only.
    pub unsafe fn new(place: Place, owner: Box<dyn Any + Send + Sync>) -> Self {
        Part { place, _owner: owner }
    }

    /// An array that shows it.
    pub fn array<'py>(
        self,
        shape: &[usize],
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = dtype.py();
        let arguments = PyDict::new(py);
        arguments.set_item("shape", PyTuple::new(py, shape)?)?;
        arguments.set_item("dtype", dtype)?;
        arguments.set_item("buffer", Bound::new(py, self)?)?;
        py.import("numpy")?.getattr("ndarray")?.call((), Some(&arguments))
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
        let Place { start, bytes, readonly } = slf.get().place;
        // SAFETY: Python's view; `new`'s caller promises the memory while `slf` lives, which the
        // view keeps.
        unsafe { export(view, slf.as_any(), (start.0, bytes), readonly, flags) }
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
