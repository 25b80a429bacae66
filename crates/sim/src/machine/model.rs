//! A machine that has been read.

use super::error::MachineError;
use super::parameter::{Parameter, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A machine, read but not built.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(super) name: String,
    pub(super) summary: String,
    pub(super) kind: String,
    pub(super) kind_line: usize,
    pub(super) variants: Vec<String>,
    /// The one that this machine is.
    pub(super) variant: Option<String>,
    /// The parameters, by key with sections: `nic.overhead`.
    pub(super) parameters: BTreeMap<String, Parameter>,
    /// The lines on which the outermost sections begin, for those that have such a line.
    pub(super) sections: BTreeMap<String, usize>,
    /// What building the machine has asked for so far, by key.
    pub(super) asked: RefCell<BTreeMap<String, Asked>>,
}

/// What the code that builds machines wants of a parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// What it must be: `time`, `size`, `rate`, `number`, `frequency`, `probability`, `flag`, or
    /// the words to choose from, with commas between.
    pub what: String,
    /// Whether it may be left out.
    pub optional: bool,
}

impl Machine {
    /// The machine's name, with the variant.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the machine is, in a line.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The machine's kind of NIC.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The variants that the machine's file has.
    pub fn variants(&self) -> &[String] {
        &self.variants
    }

    /// The variant that this machine is, if its name has one.
    pub fn variant(&self) -> Option<&str> {
        self.variant.as_deref()
    }

    /// All parameters by key.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(key, parameter)| (key.as_str(), parameter))
    }

    /// The parameters that building this machine has asked for until now, by key.
    pub fn asked(&self) -> BTreeMap<String, Asked> {
        self.asked.borrow().clone()
    }

    /// Gives a parameter another number, in the parameter's unit: for studies of its effect.
    ///
    /// # Errors
    /// [`MachineError`], when there is no such parameter, or its value is no number.
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

    /// Refuses parameters that were not read. This is the last step of building a machine.
    ///
    /// # Errors
    /// [`MachineError`], which names the first such parameter.
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

    /// The error for a `kind` that does not exist. `known` lists the kinds that do.
    pub fn unknown_kind(&self, known: &str) -> MachineError {
        self.error("kind", Some(self.kind_line), format!("is {:?}; there are {known}", self.kind))
    }

    /// An error about a key of this machine.
    pub(super) fn error(&self, key: &str, line: Option<usize>, problem: String) -> MachineError {
        MachineError { machine: self.name.clone(), line, key: Some(key.into()), problem }
    }
}
