//! Operators, and the words that they combine: those of an array, or of windows.

use crate::errors::value_error;
use crate::scalar::Scalar;
use memonet_core::{And, Max, Min, Number, Operator, Or, Product, Result, Span, Sum, Team, Xor};
use pyo3::prelude::*;

/// What a reduction or a scan does with the elements.
#[derive(Clone, Copy)]
pub enum Form {
    All,
    Root(usize),
    Scan,
    Exclusive,
}

impl Form {
    pub fn named(name: &str, root: usize, op: &str) -> PyResult<Form> {
        Ok(match name {
            "all" => Form::All,
            "root" => Form::Root(root),
            "scan" => Form::Scan,
            _ if op == "sum" => Form::Exclusive,
            _ => {
                return Err(value_error(
                    "an exclusive scan is a sum: other operators have no element to begin with",
                ));
            }
        })
    }
}

/// An operator by its name.
#[derive(Clone, Copy)]
pub enum Op {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl Op {
    pub fn named(name: &str) -> PyResult<Op> {
        Ok(match name {
            "sum" => Op::Sum,
            "product" | "prod" => Op::Product,
            "min" => Op::Min,
            "max" => Op::Max,
            "and" => Op::And,
            "or" => Op::Or,
            "xor" => Op::Xor,
            _ => {
                return Err(value_error(format!(
                    "{name:?} is no operator: use \"sum\", \"product\", \"min\", \"max\", \"and\", \"or\" or \"xor\""
                )));
            }
        })
    }
}

/// Where a call finds the elements that it combines, and leaves the result.
pub trait Place<T: Number> {
    fn combine(self, team: &Team, operator: impl Operator<T>, form: Form) -> Result<()>
    where
        Sum: Operator<T>;
}

/// Private words, in place.
impl<T: Number> Place<T> for &mut [T] {
    fn combine(self, team: &Team, operator: impl Operator<T>, form: Form) -> Result<()>
    where
        Sum: Operator<T>,
    {
        match form {
            Form::All => team.all_reduce_slice(operator, self),
            Form::Root(root) => team.reduce_slice(operator, root, self),
            Form::Scan => team.scan_slice(operator, self),
            Form::Exclusive => team.exclusive_scan_slice(self),
        }
    }
}

/// Words of two windows: where they go, and where they come from.
impl<T: Number> Place<T> for (Span<'_, T>, Span<'_, T>) {
    fn combine(self, team: &Team, operator: impl Operator<T>, form: Form) -> Result<()>
    where
        Sum: Operator<T>,
    {
        let (to, from) = self;
        match form {
            Form::All => team.all_reduce_into(operator, to, from),
            Form::Root(root) => team.reduce_into(operator, root, to, from),
            Form::Scan => team.scan_into(operator, to, from),
            Form::Exclusive => team.exclusive_scan_into(to, from),
        }
    }
}

/// Words that the operators combine.
pub trait Combined: Scalar + Number {
    /// `None` where the operator is for integers, and this is none.
    fn combine(team: &Team, op: Op, form: Form, place: impl Place<Self>) -> Option<Result<()>>;
}

macro_rules! combined {
    ($($t:ty)*, $bits:expr) => {$(
        impl Combined for $t {
            fn combine(
                team: &Team,
                op: Op,
                form: Form,
                place: impl Place<$t>,
            ) -> Option<Result<()>> {
                Some(match op {
                    Op::Sum => place.combine(team, Sum, form),
                    Op::Product => place.combine(team, Product, form),
                    Op::Min => place.combine(team, Min, form),
                    Op::Max => place.combine(team, Max, form),
                    Op::And | Op::Or | Op::Xor => return $bits(team, op, form, place),
                })
            }
        }
    )*};
}

fn bits<T: Number>(team: &Team, op: Op, form: Form, place: impl Place<T>) -> Option<Result<()>>
where
    Sum: Operator<T>,
    And: Operator<T>,
    Or: Operator<T>,
    Xor: Operator<T>,
{
    Some(match op {
        Op::And => place.combine(team, And, form),
        Op::Or => place.combine(team, Or, form),
        _ => place.combine(team, Xor, form),
    })
}

fn no_bits<T: Number>(_: &Team, _: Op, _: Form, _: impl Place<T>) -> Option<Result<()>> {
    None
}

combined!(u8 u16 u32 u64 i8 i16 i32 i64, bits);
combined!(f32 f64, no_bits);
