//! What a put copies: the elements of an array, or a number.

use crate::buffer::{Buffer, Raw};
use crate::errors::{room, type_error};
use crate::kind::{Kind, is_bool, with_word};
use crate::ndarray;
use crate::scalar::{Scalar, truth};
use crate::strides::{Layout, each_run};
use memonet_core::Word;
use memonet_core::unstable::segment;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt};

/// The source of a put.
pub enum Elements<'py> {
    /// NumPy's array, which this keeps, and its elements, which lie without gaps.
    Block { start: Raw, count: usize, array: Bound<'py, PyAny> },
    /// An array, or whatever has a buffer.
    Array(Buffer),
    /// The bytes of a number that was given in place of an array.
    Number([u8; 8]),
}

impl<'py> Elements<'py> {
    /// The elements of an array of this kind, which is that of `dtype`, or a number.
    pub fn of(
        kind: Kind,
        dtype: &Py<PyAny>,
        source: &Bound<'py, PyAny>,
    ) -> PyResult<Elements<'py>> {
        if let Some(block) = ndarray::block(source, dtype) {
            let (start, count) = (block.start, block.count);
            return Ok(Elements::Block { start, count, array: source.clone() });
        }
        let is_number = source.is_exact_instance_of::<PyFloat>()
            || source.is_exact_instance_of::<PyInt>()
            || source.is_exact_instance_of::<PyBool>()
            || source.is_exact_instance_of::<PyComplex>();
        if is_number {
            return match kind {
                Kind::Bytes(_) => Ok(Elements::Array(number(dtype, source)?)),
                _ => Ok(Elements::Number(encode(kind, dtype, source)?)),
            };
        }
        let error = match Buffer::of_elements(source, kind, dtype) {
            Ok(buffer) => return Ok(Elements::Array(buffer)),
            Err(error) => error,
        };
        // A number of NumPy's.
        let is_number = source.getattr("ndim").is_ok_and(|n| n.eq(0).unwrap_or(false));
        match encode(kind, dtype, source) {
            Ok(bytes) if is_number => Ok(Elements::Number(bytes)),
            _ => Err(error),
        }
    }

    /// The first byte of the first element.
    pub fn start(&self) -> Raw {
        match self {
            Elements::Block { start, .. } => *start,
            Elements::Array(buffer) => buffer.start(),
            Elements::Number(bytes) => Raw(bytes.as_ptr().cast_mut()),
        }
    }

    /// Number of elements of `size` bytes, where they lie without gaps.
    pub fn block(&self, size: usize) -> Option<usize> {
        match self {
            Elements::Block { count, .. } => Some(*count),
            Elements::Array(buffer) => buffer.is_block().then(|| buffer.bytes() / size),
            Elements::Number(_) => Some(1),
        }
    }

    /// Shape and strides of elements of `size` bytes.
    pub fn layout(&self, size: usize) -> Layout {
        match self {
            Elements::Block { count, array, .. } => {
                let shape = array.getattr("shape").and_then(|shape| shape.extract::<Vec<usize>>());
                Layout::contiguous(&shape.unwrap_or_else(|_| vec![*count]), size)
            }
            Elements::Array(buffer) => buffer.layout(),
            Elements::Number(_) => Layout::contiguous(&[], size),
        }
    }
}

/// A number as an element that is no word: a complex number, or a short or long float.
fn number(dtype: &Py<PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let (numpy, dtype) = (value.py().import("numpy")?, dtype.bind(value.py()));
    match dtype.getattr("kind")?.extract()? {
        'f' | 'c' => Buffer::of(&numpy.call_method1("asarray", (value, dtype))?),
        _ => Err(type_error(format!("give an array: elements of {dtype} are not plain numbers"))),
    }
}

/// The bytes of one element that Python gives as a number.
fn encode(kind: Kind, dtype: &Py<PyAny>, value: &Bound<'_, PyAny>) -> PyResult<[u8; 8]> {
    if is_bool(kind, dtype.bind(value.py()))? {
        return Ok(u64::from(truth(value)?).to_le_bytes());
    }
    with_word!(kind, T => Ok(Word::to_bits(<T as Scalar>::read(value)?).to_le_bytes()), bytes _size => {
        Err(type_error("give an array: elements of this window are not plain numbers"))
    })
}

/// Private copies of elements.
pub struct Staged {
    bytes: Vec<u8>,
    pub layout: Layout,
}

impl Staged {
    /// Copies elements, which the caller keeps meanwhile.
    pub fn of(start: Raw, from: &Layout) -> PyResult<Self> {
        let layout = Layout::contiguous(&from.shape, from.size);
        let mut bytes = room(0, from.count() * from.size)?;
        let to = bytes.as_mut_ptr();
        let Ok(()) = each_run(&layout, from, |into, from, bytes| {
            // SAFETY: a run of elements that the caller keeps, and its place in `bytes`.
            unsafe {
                segment::copy(to.wrapping_offset(into), start.0.wrapping_offset(from), bytes)
            };
            Ok::<(), std::convert::Infallible>(())
        });
        Ok(Staged { bytes, layout })
    }

    pub fn start(&self) -> Raw {
        Raw(self.bytes.as_ptr().cast_mut())
    }

    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
