//! Parameters as machine files write them.

use std::cell::Cell;
use std::fmt;

/// Where a parameter is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Published, or measured: where.
    Published(String),
    /// Chosen so that a figure comes out: which.
    Fitted(String),
    /// Neither: why it is what it is.
    Assumed(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Published(text) => f.write_str(text),
            Source::Fitted(text) => write!(f, "FITTED {text}"),
            Source::Assumed(text) => write!(f, "ASSUMED: {text}"),
        }
    }
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number; whole or not, TOML's difference is of no meaning here.
    Number(f64),
    /// A choice among words.
    Text(String),
    /// Yes or no.
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
            Value::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// A parameter as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its value,
    pub value: Value,
    /// in this unit; empty where there is none.
    pub unit: String,
    /// Who says so.
    pub source: Source,
    /// Line in the file.
    pub line: usize,
    /// Whether something that builds the machine has read it.
    pub(super) used: Cell<bool>,
}
