//! Memory of Python's objects, as raw pointers.

use crate::errors::{type_error, value_error};
use crate::kind::{Kind, is_bool};
use crate::strides::Layout;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::CStr;

/// An exported buffer: its memory stays where it is while this exists. It does not leave the thread
/// that has the interpreter's lock, which releasing it takes.
///
/// PyO3's own refuses arrays without dimensions.
pub struct Buffer(Box<ffi::Py_buffer>);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: filled by `PyObject_GetBuffer`, and released here alone. This thread has the
        // interpreter's lock, as the type is not `Send`.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

/// An address that a thread without the interpreter's lock uses. Whoever makes one keeps the memory
/// during that use, and accesses it only by the core's copies.
#[derive(Clone, Copy)]
pub struct Raw(pub *mut u8);

// SAFETY: an address; the maker's promise holds in any thread.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Buffer {
    /// The buffer of an object. NumPy gives none of dates and times, nor of structures that have
    /// such fields: their elements are then plain bytes.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let refused = match Self::get(object, ffi::PyBUF_RECORDS_RO) {
            Ok(buffer) => return Ok(buffer),
            Err(refused) => refused,
        };
        let numpy = object.py().import("numpy")?;
        if !object.is_instance(&numpy.getattr("ndarray")?)? {
            return Err(refused);
        }
        let bytes = object.getattr("dtype")?.getattr("itemsize")?;
        let view = object.call_method1("view", (format!("V{bytes}"),))?;
        Self::get(&view, ffi::PyBUF_RECORDS_RO)
    }

    /// The buffer of an object that the call writes.
    pub fn writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(object)?.written()
    }

    /// Refuses a buffer that cannot be written.
    pub fn written(self) -> PyResult<Self> {
        match self.0.readonly {
            0 => Ok(self),
            _ => {
                Err(value_error("the destination is read-only: give an array that can be written"))
            }
        }
    }

    /// The buffer of an array, or of whatever has a buffer or `__dlpack__`. Refuses elements that
    /// are not of `dtype`, whose kind is `kind`.
    pub fn of_elements(object: &Bound<'_, PyAny>, kind: Kind, dtype: &Py<PyAny>) -> PyResult<Self> {
        let numpy = object.py().import("numpy")?;
        if object.is_instance(&numpy.getattr("ndarray")?)? {
            let its = object.getattr("dtype")?;
            return match its.eq(dtype)? {
                true => Self::of(object),
                false => Err(type_error(format!(
                    "the array's elements are {its}, and those here are {}: convert them first, as in array.astype(window.dtype)",
                    dtype.bind(object.py())
                ))),
            };
        }
        // SAFETY: a living object.
        let has_buffer = unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0;
        if !has_buffer && object.hasattr("__dlpack__")? {
            let array = numpy.call_method1("from_dlpack", (object,))?;
            return Self::of_elements(&array, kind, dtype);
        }
        if !has_buffer {
            return Err(type_error(format!(
                "an object of class {} is no array, and has no buffer: make an array of it, as in numpy.array(x, window.dtype)",
                object.get_type().name()?
            )));
        }
        if let Kind::Bytes(_) = kind {
            let array = match object.is_instance(&numpy.getattr("generic")?)? {
                // NumPy gives no buffers of dates and times.
                true => numpy.call_method1("asarray", (object,))?,
                false => numpy.call_method1("asarray", (PyMemoryView::from(object)?,))?,
            };
            return Self::of_elements(&array, kind, dtype);
        }
        let buffer = Self::of(object)?;
        buffer.check(kind)?;
        if buffer.format() != b"?" && is_bool(kind, dtype.bind(object.py()))? {
            return Err(type_error(
                "the buffer's elements are bytes, and those here are bools: convert them first, as in numpy.array(x, bool)",
            ));
        }
        Ok(buffer)
    }

    fn get(object: &Bound<'_, PyAny>, flags: std::ffi::c_int) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: a living object, and a view to fill.
        match unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } {
            0 => Ok(Buffer(view)),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// The first byte of the first element.
    pub fn start(&self) -> Raw {
        Raw(self.0.buf.cast())
    }

    /// Shape and strides.
    pub fn layout(&self) -> Layout {
        let (shape, strides) = (self.numbers(self.0.shape), self.numbers(self.0.strides));
        Layout {
            shape: shape.into_iter().map(|count| count as usize).collect(),
            strides,
            size: self.0.itemsize as usize,
        }
    }

    /// Whether the elements lie without gaps, in the order of C.
    pub fn is_block(&self) -> bool {
        // SAFETY: a buffer that was filled.
        unsafe { ffi::PyBuffer_IsContiguous(&raw const *self.0, b'C' as std::ffi::c_char) != 0 }
    }

    /// Address and bytes of all elements, which have to lie without gaps.
    pub fn block(&self) -> PyResult<(Raw, usize)> {
        match self.is_block() {
            true => Ok((self.start(), self.0.len as usize)),
            false => Err(value_error(
                "an array with gaps between its elements: copy it, as numpy.ascontiguousarray does",
            )),
        }
    }

    /// Whether it is an array, and not one element.
    pub fn has_dimensions(&self) -> bool {
        self.0.ndim > 0
    }

    /// Where shape and strides stand, one number for each dimension, while this exists.
    pub fn pointers(&self) -> (*const ffi::Py_ssize_t, *const ffi::Py_ssize_t) {
        (self.0.shape, self.0.strides)
    }

    /// One number for each dimension.
    fn numbers(&self, first: *const ffi::Py_ssize_t) -> Vec<isize> {
        if self.0.ndim == 0 {
            return Vec::new();
        }
        // SAFETY: what was asked for has shape and strides, of so many numbers, which stay while
        // the buffer is exported.
        unsafe { std::slice::from_raw_parts(first, self.0.ndim as usize) }.to_vec()
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.0.len as usize
    }

    /// The elements' format, as the module `struct` writes it.
    fn format(&self) -> &[u8] {
        match self.0.format.is_null() {
            true => b"B",
            // SAFETY: a string of C that stays while the buffer is exported.
            false => unsafe { CStr::from_ptr(self.0.format) }.to_bytes(),
        }
    }

    /// Refuses a buffer whose elements are not of this kind.
    pub fn check(&self, kind: Kind) -> PyResult<()> {
        let (format, size) = (self.format(), self.0.itemsize as usize);
        let letter = match format {
            [letter] | [b'@' | b'=', letter] => *letter,
            [b'<', letter] if cfg!(target_endian = "little") => *letter,
            _ => 0,
        };
        let same = size == kind.size()
            && match kind {
                Kind::U8 => matches!(letter, b'B' | b'?' | b'c'),
                Kind::I8 => letter == b'b',
                Kind::U16 | Kind::U32 | Kind::U64 => b"HILQN".contains(&letter),
                Kind::I16 | Kind::I32 | Kind::I64 => b"hilqn".contains(&letter),
                Kind::F32 => letter == b'f',
                Kind::F64 => letter == b'd',
                // `of_elements` compares the dtypes.
                Kind::Bytes(_) => false,
            };
        if same {
            return Ok(());
        }
        Err(type_error(format!(
            "the buffer's elements ({} bytes, format {:?}) are not those here ({kind}): convert them first, as in numpy.array(x, window.dtype)",
            size,
            String::from_utf8_lossy(format),
        )))
    }
}
