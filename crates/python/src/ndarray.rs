//! NumPy's arrays, read where they are.
//!
//! For each use of an array's buffer, NumPy writes a description of the array, of which these calls
//! need next to nothing. The beginning of an array object is a part of NumPy's binary interface
//! (`PyArrayObject_fields` in its `ndarraytypes.h`), and is the same in all versions 1 and 2. Here
//! it is compared once with what the buffer of an array says. Where they differ, arrays go by their
//! buffers.

use crate::buffer::{Buffer, Raw};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ffi::{c_char, c_int};

/// How NumPy's array objects begin.
#[repr(C)]
struct Fields {
    _head: ffi::PyObject,
    data: *mut c_char,
    dimensions: c_int,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    base: *mut ffi::PyObject,
    dtype: *mut ffi::PyObject,
    flags: c_int,
}

/// Bits of the flags.
const C_CONTIGUOUS: c_int = 1;
const WRITEABLE: c_int = 0x400;
const ALIGNED: c_int = 0x100;

/// NumPy's class of arrays, if they are as said above.
static CLASS: PyOnceLock<Option<Py<PyType>>> = PyOnceLock::new();

/// The elements of an array without gaps, in the order of C, which the caller keeps.
pub struct Block {
    pub start: Raw,
    pub count: usize,
    /// Whether it has dimensions and can be written, so that a get may fill it.
    pub can_be_filled: bool,
}

/// The elements of an object that is an array with this dtype, without gaps. `None`: it is another
/// object, or its buffer has to say.
pub fn block(object: &Bound<'_, PyAny>, dtype: &Py<PyAny>) -> Option<Block> {
    let class = CLASS.get_or_init(object.py(), || class(object.py()).unwrap_or(None));
    let class = class.as_ref()?;
    // SAFETY: a living object.
    if unsafe { ffi::Py_TYPE(object.as_ptr()) } != class.as_ptr().cast() {
        return None;
    }
    // SAFETY: an array of exactly this class, whose objects begin so.
    let fields = unsafe { &*object.as_ptr().cast::<Fields>() };
    if fields.dtype != dtype.as_ptr() || fields.flags & C_CONTIGUOUS == 0 {
        return None;
    }
    let shape = match fields.dimensions {
        0 => &[],
        // SAFETY: so many numbers, which stay while no other thread has the interpreter's lock.
        n => unsafe { std::slice::from_raw_parts(fields.shape, n as usize) },
    };
    Some(Block {
        start: Raw(fields.data.cast()),
        count: shape.iter().map(|&count| count as usize).product(),
        can_be_filled: fields.dimensions > 0 && fields.flags & WRITEABLE != 0,
    })
}

/// NumPy's class of arrays. `None` where an array does not begin as its buffer says.
fn class(py: Python<'_>) -> PyResult<Option<Py<PyType>>> {
    let numpy = py.import("numpy")?;
    let class = numpy.getattr("ndarray")?.cast_into::<PyType>()?;
    let array = numpy.call_method1("ones", ((3, 5), "int32"))?;
    let (buffer, dtype) = (Buffer::of(&array)?, array.getattr("dtype")?);
    let size = array.get_type().getattr("__basicsize__")?.extract::<usize>()?;
    if !array.get_type().is(&class) || size < size_of::<Fields>() {
        return Ok(None);
    }
    // SAFETY: the object has so many bytes, of which any are such fields.
    let fields = unsafe { &*array.as_ptr().cast::<Fields>() };
    let (shape, strides) = buffer.pointers();
    let alike = fields.data.cast() == buffer.start().0
        && fields.dimensions == 2
        && fields.dtype == dtype.as_ptr()
        && fields.base.is_null()
        && fields.flags & (C_CONTIGUOUS | ALIGNED | WRITEABLE)
            == C_CONTIGUOUS | ALIGNED | WRITEABLE
        && !fields.shape.is_null()
        && !fields.strides.is_null();
    // SAFETY: where all else is alike, these point to two numbers each, as those of the buffer do.
    let alike = alike
        && unsafe {
            (*fields.shape, *fields.shape.add(1)) == (*shape, *shape.add(1))
                && (*fields.strides, *fields.strides.add(1)) == (*strides, *strides.add(1))
        };
    Ok(alike.then(|| class.unbind()))
}
