//! Plain numbers in reductions and scans: members may give numbers of different types, as in
//! `all_reduce(sum(mine))`, where the sum of no floats is the integer 0.
//!
//! A number travels with its type. The result has the widest type of all numbers that it combines:
//! bool, int, float, complex, as in Python's arithmetic. A number fits a line of a step, so this
//! takes no more messages than a word does.

use crate::blocking;
use crate::combine::{Form, Op, Place};
use crate::errors::{mismatch, type_error};
use memonet_core::{And, Max, Min, Number, Operator, Or, Product, Result, Sum, Team, Xor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyComplexMethods, PyFloat};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The types, from the narrowest to the widest.
const BOOL: u64 = 0;
const INT: u64 = 1;
const FLOAT: u64 = 2;
const COMPLEX: u64 = 3;

/// The upper bytes of a mark: what another call sends has others.
const PLAIN: u64 = u64::from_le_bytes(*b"\0memonet");

/// A number of any type. An integer is also kept as a float, for results that are floats.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Plain {
    /// [`PLAIN`], and the type. Zero in the zero with which exclusive scans begin.
    mark: u64,
    /// Of a bool or an integer.
    integer: i64,
    real: f64,
    imaginary: f64,
}

impl Number for Plain {}

impl Plain {
    /// A number of Python's. The sum and the product of bools are integers.
    pub fn read(x: &Bound<'_, PyAny>, op: Op) -> PyResult<Plain> {
        if x.is_instance_of::<PyFloat>() {
            return Ok(Plain::new(FLOAT, 0, x.extract()?, 0.0));
        }
        if let Ok(x) = x.cast::<PyComplex>() {
            return Ok(Plain::new(COMPLEX, 0, x.real(), x.imag()));
        }
        let counts = matches!(op, Op::Sum | Op::Product);
        let kind = if x.is_instance_of::<PyBool>() && !counts { BOOL } else { INT };
        let integer: i64 = x.extract()?;
        Ok(Plain::new(kind, integer, integer as f64, 0.0))
    }

    fn new(kind: u64, integer: i64, real: f64, imaginary: f64) -> Plain {
        Plain { mark: PLAIN | kind, integer, real, imaginary }
    }

    /// The Python number, of this type at least.
    fn show(self, py: Python<'_>, least: u64) -> PyResult<Bound<'_, PyAny>> {
        Ok(match self.kind().max(least) {
            BOOL => PyBool::new(py, self.integer != 0).to_owned().into_any(),
            INT => self.integer.into_pyobject(py)?.into_any(),
            FLOAT => self.real.into_pyobject(py)?.into_any(),
            _ => PyComplex::from_doubles(py, self.real, self.imaginary).into_any(),
        })
    }

    fn kind(self) -> u64 {
        self.mark & !PLAIN
    }

    /// Combines two numbers part by part. A mark that is none spoils the result's.
    fn with(self, other: Plain, integer: i64, real: f64) -> Plain {
        let (kind, is_plain) = (self.kind().max(other.kind()), self.mark & other.mark & PLAIN);
        Plain { mark: is_plain | kind, integer, real, imaginary: 0.0 }
    }
}

impl Operator<Plain> for Sum {
    fn combine(self, a: Plain, b: Plain) -> Plain {
        let sum = a.with(b, a.integer.wrapping_add(b.integer), a.real + b.real);
        Plain { imaginary: a.imaginary + b.imaginary, ..sum }
    }
}

impl Operator<Plain> for Product {
    fn combine(self, a: Plain, b: Plain) -> Plain {
        let product = a.with(b, a.integer.wrapping_mul(b.integer), a.real * b.real);
        match product.kind() {
            COMPLEX => Plain {
                real: a.real * b.real - a.imaginary * b.imaginary,
                imaginary: a.real * b.imaginary + a.imaginary * b.real,
                ..product
            },
            _ => product,
        }
    }
}

/// Operators whose parts are combined each by itself; complex numbers do not have them.
macro_rules! by_parts {
    ($($operator:ident: $integers:expr, $reals:expr;)*) => {$(
        impl Operator<Plain> for $operator {
            fn combine(self, a: Plain, b: Plain) -> Plain {
                a.with(b, $integers(a.integer, b.integer), $reals(a.real, b.real))
            }
        }
    )*};
}

by_parts! {
    Min: i64::min, f64::min;
    Max: i64::max, f64::max;
    And: std::ops::BitAnd::bitand, none;
    Or: std::ops::BitOr::bitor, none;
    Xor: std::ops::BitXor::bitxor, none;
}

/// Floats have no bits that are combined: such a result is refused.
fn none(_: f64, _: f64) -> f64 {
    0.0
}

/// Combines the numbers of all members. Collective.
pub fn combine<'py>(
    team: &Team,
    x: &Bound<'py, PyAny>,
    name: &str,
    form: Form,
) -> PyResult<Bound<'py, PyAny>> {
    let op = Op::named(name)?;
    let given = Plain::read(x, op)?;
    let mut words = [given];
    blocking::wait(x.py(), || combine_words(team, op, form, &mut words))?;
    let [result] = words;
    let is_zero = matches!(form, Form::Exclusive) && result.mark == 0;
    if result.mark & PLAIN != PLAIN && !is_zero || result.kind() > COMPLEX {
        return Err(mismatch(
            x.py(),
            "this PE gave a number to a reduction, and another one an array".into(),
        ));
    }
    match (op, result.kind()) {
        (Op::And | Op::Or | Op::Xor, FLOAT..) => {
            Err(type_error(format!("{name:?} combines integers, not floats")))
        }
        (Op::Min | Op::Max, COMPLEX) => {
            Err(type_error("complex numbers have a \"sum\" and a \"product\""))
        }
        _ => result.show(x.py(), given.kind()),
    }
}

fn combine_words(team: &Team, op: Op, form: Form, words: &mut [Plain]) -> Result<()> {
    match op {
        Op::Sum => words.combine(team, Sum, form),
        Op::Product => words.combine(team, Product, form),
        Op::Min => words.combine(team, Min, form),
        Op::Max => words.combine(team, Max, form),
        Op::And => words.combine(team, And, form),
        Op::Or => words.combine(team, Or, form),
        Op::Xor => words.combine(team, Xor, form),
    }
}
