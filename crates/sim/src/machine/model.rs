//! A machine that has been read.

use super::error::MachineError;
use super::parameter::{Parameter, Value};
use std::collections::BTreeMap;

/// A machine, read but not built.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(super) name: String,
    pub(super) summary: String,
    pub(super) kind: String,
    pub(super) kind_line: usize,
    pub(super) variants: Vec<String>,
    /// By key with sections: `nic.overhead`.
    pub(super) parameters: BTreeMap<String, Parameter>,
    /// Where the outermost sections begin that have a line for that.
    pub(super) sections: BTreeMap<String, usize>,
}

impl Machine {
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

    /// An error of this machine's `kind`, for who looks for it in vain.
    pub fn unknown_kind(&self, known: &str) -> MachineError {
        self.error("kind", Some(self.kind_line), format!("is {:?}; there are {known}", self.kind))
    }

    pub(super) fn error(&self, key: &str, line: Option<usize>, problem: String) -> MachineError {
        MachineError { machine: self.name.clone(), line, key: Some(key.into()), problem }
    }
}
