//! Element types: what NumPy calls a dtype.

use crate::errors::type_error;
use pyo3::prelude::*;

/// What the elements of a window or an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
    /// Elements of so many bytes that the library only copies: complex numbers, structures, short
    /// floats.
    Bytes(usize),
}

impl Kind {
    /// The kind of a dtype, an object of NumPy's class.
    pub fn of(dtype: &Bound<'_, PyAny>) -> PyResult<Kind> {
        if dtype.getattr("hasobject")?.extract::<bool>()? {
            return Err(type_error(format!(
                "elements of {dtype} are references, which mean nothing to another PE: use numbers or structures of numbers, or pickle objects with broadcast_object"
            )));
        }
        let size: usize = dtype.getattr("itemsize")?.extract()?;
        let letter: char = dtype.getattr("kind")?.extract()?;
        if size == 0 {
            return Err(type_error(format!(
                "elements of {dtype} have no size: give it, as in \"S16\""
            )));
        }
        if letter == 'V' && !dtype.getattr("subdtype")?.is_none() {
            return Err(type_error(format!(
                "each element of {dtype} is an array: give its dtype, and add its shape to the window's"
            )));
        }
        let native: bool = dtype.getattr("isnative")?.extract()?;
        Ok(match (letter, size) {
            _ if !native => Kind::Bytes(size),
            ('u' | 'b', 1) => Kind::U8,
            ('u', 2) => Kind::U16,
            ('u', 4) => Kind::U32,
            ('u', 8) => Kind::U64,
            ('i', 1) => Kind::I8,
            ('i', 2) => Kind::I16,
            ('i', 4) => Kind::I32,
            ('i', 8) => Kind::I64,
            ('f', 4) => Kind::F32,
            ('f', 8) => Kind::F64,
            _ => Kind::Bytes(size),
        })
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 => 1,
            Kind::U16 | Kind::I16 => 2,
            Kind::U32 | Kind::I32 | Kind::F32 => 4,
            Kind::U64 | Kind::I64 | Kind::F64 => 8,
            Kind::Bytes(size) => size,
        }
    }
}

/// Whether elements of this kind, whose dtype is given, are bools: bytes of which 0 and 1 alone
/// have a meaning.
pub fn is_bool(kind: Kind, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(kind == Kind::U8 && dtype.getattr("kind")?.extract::<char>()? == 'b')
}

/// As NumPy names it.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = match self {
            Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => "uint",
            Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => "int",
            Kind::F32 | Kind::F64 => "float",
            Kind::Bytes(size) => return write!(f, "structures or numbers of {size} bytes"),
        };
        write!(f, "{letter}{}", 8 * self.size())
    }
}

/// Calls a generic function with the word type of a kind, or with `u8` for bytes.
macro_rules! with_word {
    ($kind:expr, $T:ident => $body:expr, bytes $size:ident => $bytes:expr) => {
        match $kind {
            Kind::U8 => {
                type $T = u8;
                $body
            }
            Kind::U16 => {
                type $T = u16;
                $body
            }
            Kind::U32 => {
                type $T = u32;
                $body
            }
            Kind::U64 => {
                type $T = u64;
                $body
            }
            Kind::I8 => {
                type $T = i8;
                $body
            }
            Kind::I16 => {
                type $T = i16;
                $body
            }
            Kind::I32 => {
                type $T = i32;
                $body
            }
            Kind::I64 => {
                type $T = i64;
                $body
            }
            Kind::F32 => {
                type $T = f32;
                $body
            }
            Kind::F64 => {
                type $T = f64;
                $body
            }
            Kind::Bytes($size) => $bytes,
        }
    };
}
pub(crate) use with_word;
