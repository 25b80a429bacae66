//! Machines: TOML files in which every number says where it is from.
//!
//! ```toml
//! summary = "What it is, in a line"
//! kind = "loggp"                                   # which NICs: a file in nic/
//!
//! [clock]                                          # clocks that times may be given in cycles of
//! dimm = { value = 100, unit = "MHz", source = "published.toml, dimmnet-1.environments" }
//!
//! [nic]
//! send_queue = { value = 2, unit = "cycles of dimm", source = "published.toml, dimmnet-1.stages" }
//! overhead   = { value = 214, unit = "ns", fitted = "on the round trip of environment D" }
//!
//! [variant.E]                                      # `NAME/E`: what differs
//! like = "D"                                       # after taking over another variant's differences
//! clock.dimm = { value = 133, unit = "MHz", assumed = "the board was never built" }
//! ```
//!
//! A parameter is a table with a `value`; every other table is a section. Each parameter has
//! exactly one of `source` (who published it), `fitted` (on what) and `assumed` (why so). A variant
//! may set and add any parameter. A file whose machine exists only in variants leaves out what they
//! set.
//!
//! Whoever builds the machine reads parameters through [`Section`]; then [`Machine::finish`]
//! refuses what nobody has read. So an unknown, a missing, and an unused parameter are all errors
//! that name line and key. Only the section `program` is left to programs: it has what software
//! takes that is not the library's, such as that of a published experiment.

mod read;
mod units;

pub use units::Rate;

use crate::time::Ps;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

/// The machines that are built in: file name without its ending, and text.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("dimmnet-1", include_str!("../../../../machines/dimmnet-1.toml")),
    ("dimmnet-2", include_str!("../../../../machines/dimmnet-2.toml")),
    ("fast-ethernet-udp", include_str!("../../../../machines/fast-ethernet-udp.toml")),
    ("gigabit-ethernet-udp", include_str!("../../../../machines/gigabit-ethernet-udp.toml")),
    ("memory-channel-2", include_str!("../../../../machines/memory-channel-2.toml")),
    ("pci-sci", include_str!("../../../../machines/pci-sci.toml")),
    ("rdma-100g", include_str!("../../../../machines/rdma-100g.toml")),
    ("scc", include_str!("../../../../machines/scc.toml")),
    ("sr2201", include_str!("../../../../machines/sr2201.toml")),
];

/// What is wrong with a machine file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("machine {machine}{}: {}{problem}", .line.map(|line| format!(", line {line}")).unwrap_or_default(),
    .key.as_ref().map(|key| format!("{key} ")).unwrap_or_default())]
pub struct MachineError {
    /// The name or path that was asked for.
    pub machine: String,
    /// The line, where there is one.
    pub line: Option<usize>,
    /// The key, with the sections it is in, where it is about one.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub problem: String,
}

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
    used: Cell<bool>,
}

/// A machine, read but not built.
#[derive(Debug, Clone)]
pub struct Machine {
    name: String,
    summary: String,
    kind: String,
    kind_line: usize,
    variants: Vec<String>,
    /// By key with sections: `nic.overhead`.
    parameters: BTreeMap<String, Parameter>,
    /// Where the outermost sections begin that have a line for that.
    sections: BTreeMap<String, usize>,
}

impl Machine {
    /// The machine of this name, perhaps with a variant (`dimmnet-1/D`): a built-in one, or that of
    /// a file (`./mine.toml`, `./mine.toml/D`).
    ///
    /// # Errors
    /// [`MachineError`]: no such machine or variant, not TOML, a parameter that is not one.
    pub fn load(name: &str) -> Result<Machine, MachineError> {
        read::load(name)
    }

    /// The machine of this text, which errors call `name`.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn parse(name: &str, text: &str, variant: Option<&str>) -> Result<Machine, MachineError> {
        read::parse(name, text, variant)
    }

    /// Its name, with the variant.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// Which kind of NIC.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Variants that its file has.
    pub fn variants(&self) -> &[String] {
        &self.variants
    }

    /// All parameters by key.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(key, parameter)| (key.as_str(), parameter))
    }

    /// Gives a parameter another number, in the unit that it has: for studies of what follows from
    /// it.
    ///
    /// # Errors
    /// [`MachineError`] when there is no such parameter, or it is no number.
    pub fn set(&mut self, key: &str, number: f64) -> Result<(), MachineError> {
        match self.parameters.get_mut(key).map(|parameter| &mut parameter.value) {
            Some(Value::Number(old)) => *old = number,
            _ => {
                return Err(self.error(
                    key,
                    None,
                    "is no number of this machine, and cannot be given another".into(),
                ));
            }
        }
        Ok(())
    }

    /// A section.
    pub fn section(&self, name: &'static str) -> Section<'_> {
        Section { machine: self, path: name.into() }
    }

    /// Refuses parameters that nobody has read; the last step of building a machine.
    ///
    /// # Errors
    /// [`MachineError`] that names the first of them.
    pub fn finish(&self) -> Result<(), MachineError> {
        let left = |key: &str, parameter: &Parameter| {
            !parameter.used.get() && !key.starts_with("program.")
        };
        let mut unused: Vec<_> =
            self.parameters.iter().filter(|(key, parameter)| left(key, parameter)).collect();
        unused.sort_by_key(|(_, parameter)| parameter.line);
        match unused.first() {
            None => Ok(()),
            Some((key, parameter)) => {
                let problem = format!(
                    "is unknown to machines of kind {:?}, or of no use beside the others; remove it",
                    self.kind
                );
                Err(self.error(key, Some(parameter.line), problem))
            }
        }
    }

    /// What is perhaps unknown, where not all that would be read can be: what no machine of this
    /// kind has that is built in. One of them may be misspelt.
    fn strangers(&self) -> String {
        let known = read::known(&self.kind);
        let strange = |(key, parameter): &(&String, &Parameter)| {
            !parameter.used.get() && !key.starts_with("program.") && !known.contains(*key)
        };
        let mut strange: Vec<_> = self.parameters.iter().filter(strange).collect();
        strange.sort_by_key(|(_, parameter)| parameter.line);
        let named: Vec<_> = strange
            .iter()
            .map(|(key, parameter)| format!("{key} (line {})", parameter.line))
            .collect();
        match named.as_slice() {
            [] => String::new(),
            named => format!(", and none that is built in has {}", named.join(", ")),
        }
    }

    /// An error of this machine's `kind`, for who looks for it in vain.
    pub fn unknown_kind(&self, known: &str) -> MachineError {
        self.error("kind", Some(self.kind_line), format!("is {:?}; there are {known}", self.kind))
    }

    fn error(&self, key: &str, line: Option<usize>, problem: String) -> MachineError {
        MachineError { machine: self.name.clone(), line, key: Some(key.into()), problem }
    }
}

/// A section of a machine file, read by name.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    machine: &'a Machine,
    path: String,
}

impl<'a> Section<'a> {
    /// A section in it.
    pub fn section(&self, name: &str) -> Section<'a> {
        Section { machine: self.machine, path: format!("{}.{name}", self.path) }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Whether there is such a parameter, for those that may be left out.
    pub fn has(&self, name: &str) -> bool {
        self.machine.parameters.contains_key(&self.key(name))
    }

    fn get(&self, name: &str) -> Result<&'a Parameter, MachineError> {
        let key = self.key(name);
        match self.machine.parameters.get(&key) {
            Some(parameter) => {
                parameter.used.set(true);
                Ok(parameter)
            }
            None => {
                let hint = match self.machine.variants.as_slice() {
                    [] => String::new(),
                    variants => format!(", or name one of the variants {}", variants.join(", ")),
                };
                let line = self
                    .path
                    .split('.')
                    .next()
                    .and_then(|outer| self.machine.sections.get(outer))
                    .copied();
                let here = line.map_or("", |_| " in this section");
                let strangers = self.machine.strangers();
                let kind = &self.machine.kind;
                Err(self.machine.error(
                    &key,
                    line,
                    format!("is missing{here}; machines of kind {kind:?} need it{hint}{strangers}"),
                ))
            }
        }
    }

    /// An error about a parameter of this section.
    pub fn error(&self, name: &str, problem: impl Into<String>) -> MachineError {
        let key = self.key(name);
        let line = self.machine.parameters.get(&key).map(|parameter| parameter.line);
        self.machine.error(&key, line, problem.into())
    }

    fn number(&self, name: &str, wanted: &str) -> Result<(f64, &'a str), MachineError> {
        let parameter = self.get(name)?;
        match parameter.value {
            Value::Number(number) if number.is_finite() && number >= 0.0 => {
                Ok((number, &parameter.unit))
            }
            _ => Err(self.error(name, format!("is {}; it must be {wanted}", parameter.value))),
        }
    }

    /// A length of time, in ps, ns, us, ms, s, or `cycles of` a clock of the section `clock`.
    ///
    /// # Errors
    /// [`MachineError`], as all of these: missing, or not what is asked for.
    pub fn time(&self, name: &str) -> Result<Ps, MachineError> {
        let (number, unit) = self.number(name, "a time")?;
        let time = match unit.strip_prefix("cycles of ") {
            Some(clock) => {
                Ps((number * 1e6 / self.machine.section("clock").megahertz(clock)?).round() as u64)
            }
            None => units::time(number, unit).ok_or_else(|| {
                self.error(name, format!("has the unit {unit:?}; a time needs {}", units::TIMES))
            })?,
        };
        if time > units::LONGEST {
            return Err(self.error(
                name,
                format!("is {number} {unit:?}; nothing here takes longer than 1000 s"),
            ));
        }
        Ok(time)
    }

    /// A time of at least a picosecond.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn time_not_zero(&self, name: &str) -> Result<Ps, MachineError> {
        let time = self.time(name)?;
        if time == Ps::ZERO {
            return Err(self.error(name, "is 0, and time would stand still"));
        }
        Ok(time)
    }

    /// A number of things.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn count(&self, name: &str) -> Result<u64, MachineError> {
        let (number, unit) = self.number(name, "a whole number")?;
        if !unit.is_empty() || number.fract() != 0.0 || number > 2f64.powi(53) {
            return Err(self.error(
                name,
                format!("is {number} {unit:?}; it must be a whole number without a unit"),
            ));
        }
        Ok(number as u64)
    }

    /// A number of bytes: B, KiB, MiB, GiB.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn bytes(&self, name: &str) -> Result<u64, MachineError> {
        let (number, unit) = self.number(name, "a size")?;
        units::bytes(number, unit).ok_or_else(|| {
            self.error(name, format!("is {number} {unit:?}; a size needs {}", units::SIZES))
        })
    }

    /// The same, of at most so many.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn bytes_up_to(&self, name: &str, most: u64) -> Result<u64, MachineError> {
        let bytes = self.bytes(name)?;
        if bytes > most {
            return Err(self.error(name, format!("is {bytes} bytes; it must be at most {most}")));
        }
        Ok(bytes)
    }

    /// Bytes by time: MB/s, GB/s, Mbit/s, Gbit/s (all decimal), ns/B.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn rate(&self, name: &str) -> Result<Rate, MachineError> {
        let (number, unit) = self.number(name, "a rate")?;
        units::rate(number, unit).ok_or_else(|| {
            self.error(name, format!("is {number} {unit:?}; a rate needs {}", units::RATES))
        })
    }

    /// A frequency.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn megahertz(&self, name: &str) -> Result<f64, MachineError> {
        let (number, unit) = self.number(name, "a frequency")?;
        match unit {
            "MHz" if (0.001..=1e6).contains(&number) => Ok(number),
            _ => Err(self.error(
                name,
                format!("is {number} {unit:?}; a clock needs MHz, from 0.001 to 1,000,000"),
            )),
        }
    }

    /// A probability, 0 to 1.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn probability(&self, name: &str) -> Result<f64, MachineError> {
        let (number, unit) = self.number(name, "a probability")?;
        if !unit.is_empty() || number > 1.0 {
            return Err(self.error(
                name,
                format!("is {number} {unit:?}; a probability is from 0 to 1, without a unit"),
            ));
        }
        Ok(number)
    }

    /// One of these words.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, MachineError> {
        let parameter = self.get(name)?;
        let found = choices
            .iter()
            .find(|(word, _)| matches!(&parameter.value, Value::Text(text) if text == word));
        found.map(|&(_, choice)| choice).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.error(
                name,
                format!("is {}; it must be one of {}", parameter.value, words.join(", ")),
            )
        })
    }

    /// Yes or no.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn flag(&self, name: &str) -> Result<bool, MachineError> {
        let parameter = self.get(name)?;
        match parameter.value {
            Value::Flag(flag) => Ok(flag),
            _ => Err(self.error(name, format!("is {}; it must be true or false", parameter.value))),
        }
    }
}
