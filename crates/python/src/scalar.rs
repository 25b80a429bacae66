//! Words as Python's numbers, and the atomic operations that a word has.

use crate::errors::type_error;
use crate::kind::Kind;
use memonet_core::{Remote, Word};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyComplex;
use std::fmt::Debug;

/// The atomic updates of a word, beside exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    Add,
    And,
    Or,
    Xor,
}

impl Update {
    /// The method of `Remote`.
    fn name(self) -> &'static str {
        match self {
            Update::Add => "fetch_add",
            Update::And => "fetch_and",
            Update::Or => "fetch_or",
            Update::Xor => "fetch_xor",
        }
    }
}

/// A word that Python shows as a number.
pub trait Scalar: Word {
    /// The kind of a window of such words.
    const KIND: Kind;

    /// The value of a Python number. An integer must be in range, and a float is no integer.
    fn read(value: &Bound<'_, PyAny>) -> PyResult<Self>;

    /// The Python number.
    fn show(self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// How a word is updated atomically: a function that gives what it held.
    fn atomic(op: Update) -> PyResult<Atomic<Self>>;
}

/// An atomic operation of a word.
pub type Atomic<T> = fn(&Remote<T>, T) -> memonet_core::Result<T>;

macro_rules! scalars {
    ($($t:ty, $kind:ident, $op:ident => $atomic:expr;)*) => {$(
        impl Scalar for $t {
            const KIND: Kind = Kind::$kind;

            #[inline]
            fn read(value: &Bound<'_, PyAny>) -> PyResult<Self> {
                value.extract().map_err(|error| {
                    out_of_range(value.py(), error, Kind::$kind, <$t>::MIN, <$t>::MAX)
                })
            }

            #[inline]
            fn show(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                Ok(self.into_pyobject(py)?.into_any().unbind())
            }

            fn atomic($op: Update) -> PyResult<Atomic<$t>> {
                $atomic
            }
        }
    )*};
}

macro_rules! atomic {
    ($($t:ty, $kind:ident;)*) => {scalars! {$(
        $t, $kind, op => Ok(match op {
            Update::Add => Remote::fetch_add,
            Update::And => Remote::fetch_and,
            Update::Or => Remote::fetch_or,
            Update::Xor => Remote::fetch_xor,
        });
    )*}};
}

macro_rules! not_atomic {
    ($($t:ty, $kind:ident;)*) => {scalars! {$(
        $t, $kind, op => Err(no_arithmetic(op, Kind::$kind));
    )*}};
}

atomic!(u32, U32; u64, U64; i32, I32; i64, I64;);
not_atomic!(u8, U8; u16, U16; i8, I8; i16, I16; f32, F32; f64, F64;);

/// Whether a number is other than zero.
pub fn truth(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !value.is_instance_of::<PyComplex>() {
        value.extract::<f64>()?; // other objects have a truth, too, and are no numbers
    }
    value.is_truthy()
}

/// Names the range of the words where a number is not in it.
#[cold]
fn out_of_range(
    py: Python<'_>,
    error: PyErr,
    kind: Kind,
    least: impl Debug,
    most: impl Debug,
) -> PyErr {
    if !error.is_instance_of::<PyOverflowError>(py) {
        return error;
    }
    PyOverflowError::new_err(format!(
        "the number does not fit: {kind} goes from {least:?} to {most:?}; a window of a wider dtype holds more"
    ))
}

fn no_arithmetic(op: Update, kind: Kind) -> PyErr {
    type_error(format!(
        "{} needs integers of 4 or 8 bytes, and these elements are {kind}: make the window with dtype int64, or use swap and compare_swap",
        op.name()
    ))
}
