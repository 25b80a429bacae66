//! Parameters as machine files write them.

use std::cell::Cell;
use std::fmt;

/// The source of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Published, or measured: where.
    Published(String),
    /// Chosen so that the simulation gives a published figure: which figure.
    Fitted(String),
    /// Neither published nor fitted: why the value was chosen.
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

/// A value as a machine file writes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number. TOML's difference between integers and floats has no meaning here.
    Number(f64),
    /// A choice among words.
    Text(String),
    /// Yes or no.
    Flag(bool),
}

impl Value {
    /// The value as errors quote it, who must tell the text "true" from the flag.
    pub(super) fn written(&self) -> String {
        match self {
            Value::Text(text) => format!("{text:?}"),
            Value::Number(_) | Value::Flag(_) => self.to_string(),
        }
    }
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

/// A parameter as a machine file writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The value.
    pub value: Value,
    /// The value's unit; empty if it has none.
    pub unit: String,
    /// The source of the value.
    pub source: Source,
    /// Line in the file.
    pub line: usize,
    /// Whether something that builds the machine has read it.
    pub(super) used: Cell<bool>,
}
