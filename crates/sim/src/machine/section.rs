//! Reading the parameters of a section, by name.

use super::error::MachineError;
use super::model::Machine;
use super::parameter::{Parameter, Value};
use super::read;
use super::units::{self, Rate};
use crate::time::Ps;

impl Machine {
    /// A section.
    pub fn section(&self, name: &'static str) -> Section<'_> {
        Section { machine: self, path: name.into() }
    }

    /// What may help where the file without a variant lacks a parameter.
    fn hint_of_variants(&self) -> String {
        if self.variant.is_some() || self.variants.is_empty() {
            return String::new();
        }
        format!(", or name one of the variants {}", self.variants.join(", "))
    }

    /// Names the unread parameters that no built-in machine of this kind has. When a parameter is
    /// missing, one of these may be its misspelling.
    fn unknown_parameters(&self, missing: &str) -> String {
        let known = read::known(&self.kind);
        // A clock has any name, so it can be the misspelling of no more than another clock.
        let other = |key: &str| {
            key.starts_with("program.")
                || key.starts_with("clock.") && !missing.starts_with("clock.")
        };
        let is_unknown = |(key, parameter): &(&String, &Parameter)| {
            !parameter.used.get() && !other(key) && !known.contains(*key)
        };
        let mut unknown: Vec<_> = self.parameters.iter().filter(is_unknown).collect();
        unknown.sort_by_key(|(_, parameter)| parameter.line);
        let named: Vec<_> = unknown
            .iter()
            .map(|(key, parameter)| format!("{key} (line {})", parameter.line))
            .collect();
        match named.as_slice() {
            [] => String::new(),
            named => format!(", and none that is built in has {}", named.join(", ")),
        }
    }
}

/// A section of a machine file, read by name.
#[derive(Debug, Clone)]
pub struct Section<'a> {
    machine: &'a Machine,
    path: String,
}

impl<'a> Section<'a> {
    /// A section within this one.
    pub fn section(&self, name: &str) -> Section<'a> {
        Section { machine: self.machine, path: format!("{}.{name}", self.path) }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Whether the section has an optional parameter.
    pub fn has(&self, name: &str) -> bool {
        self.machine.asked.borrow_mut().entry(self.key(name)).or_default().optional = true;
        self.machine.parameters.contains_key(&self.key(name))
    }

    fn get(&self, name: &str, what: &str) -> Result<&'a Parameter, MachineError> {
        let key = self.key(name);
        self.machine.asked.borrow_mut().entry(key.clone()).or_default().what = what.into();
        match self.machine.parameters.get(&key) {
            Some(parameter) => {
                parameter.used.set(true);
                Ok(parameter)
            }
            None => {
                let hint = self.machine.hint_of_variants();
                let line = self
                    .path
                    .split('.')
                    .next()
                    .and_then(|outer| self.machine.sections.get(outer))
                    .copied();
                let here = line.map_or("", |_| " in this section");
                let unknown = self.machine.unknown_parameters(&key);
                let kind = &self.machine.kind;
                Err(self.machine.error(
                    &key,
                    line,
                    format!("is missing{here}; machines of kind {kind:?} need it{hint}{unknown}"),
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

    fn number(&self, name: &str, what: &str) -> Result<(f64, &'a str), MachineError> {
        let parameter = self.get(name, what)?;
        match parameter.value {
            Value::Number(number) if number.is_finite() && number >= 0.0 => {
                Ok((number, &parameter.unit))
            }
            _ => {
                let is = parameter.value.written();
                Err(self.error(name, format!("is {is}; it must be a {what}")))
            }
        }
    }

    /// The frequency of the clock in whose cycles a parameter of this section is.
    fn clock(&self, name: &str, clock: &str) -> Result<f64, MachineError> {
        let clocks = self.machine.section("clock");
        let key = clocks.key(clock);
        if self.machine.parameters.contains_key(&key) {
            return clocks.megahertz(clock);
        }
        let line = self.machine.parameters.get(&self.key(name)).map(|parameter| parameter.line);
        let hint = self.machine.hint_of_variants();
        let problem = format!("is missing, and {} is in cycles of it{hint}", self.key(name));
        Err(self.machine.error(&key, line, problem))
    }

    /// A length of time, in ps, ns, us, ms, s, or `cycles of` a clock of the section `clock`.
    ///
    /// # Errors
    /// [`MachineError`], when the parameter is missing, or is not what is asked for.
    pub fn time(&self, name: &str) -> Result<Ps, MachineError> {
        let (number, unit) = self.number(name, "time")?;
        let time = match unit.strip_prefix("cycles of ") {
            Some(clock) => Ps((number * 1e6 / self.clock(name, clock)?).round() as u64),
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
        let (number, unit) = self.number(name, "whole number")?;
        if !unit.is_empty() || number.fract() != 0.0 || number > 2f64.powi(53) {
            return Err(self.error(
                name,
                format!("is {number} {unit:?}; it must be a whole number without a unit"),
            ));
        }
        Ok(number as u64)
    }

    /// A number of things, from 1 to `most`.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn count_up_to(&self, name: &str, most: u64) -> Result<u64, MachineError> {
        let count = self.count(name)?;
        if !(1..=most).contains(&count) {
            return Err(self.error(name, format!("is {count}; it must be from 1 to {most}")));
        }
        Ok(count)
    }

    /// A number of bytes: B, KiB, MiB, GiB.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn bytes(&self, name: &str) -> Result<u64, MachineError> {
        let (number, unit) = self.number(name, "size")?;
        units::bytes(number, unit).ok_or_else(|| {
            self.error(name, format!("is {number} {unit:?}; a size needs {}", units::SIZES))
        })
    }

    /// A number of bytes, at most `most`.
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

    /// A rate, in bytes by time: MB/s, GB/s, Mbit/s, Gbit/s (all decimal), ns/B.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn rate(&self, name: &str) -> Result<Rate, MachineError> {
        let (number, unit) = self.number(name, "rate")?;
        units::rate(number, unit).ok_or_else(|| {
            self.error(name, format!("is {number} {unit:?}; a rate needs {}", units::RATES))
        })
    }

    /// A frequency.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn megahertz(&self, name: &str) -> Result<f64, MachineError> {
        let (number, unit) = self.number(name, "frequency")?;
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
        let (number, unit) = self.number(name, "probability")?;
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
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let words = words.join(", ");
        let parameter = self.get(name, &words)?;
        let found = choices
            .iter()
            .find(|(word, _)| matches!(&parameter.value, Value::Text(text) if text == word));
        found.map(|&(_, choice)| choice).ok_or_else(|| {
            let is = parameter.value.written();
            self.error(name, format!("is {is}; it must be one of {words}"))
        })
    }

    /// Yes or no.
    ///
    /// # Errors
    /// As for [`time`](Self::time).
    pub fn flag(&self, name: &str) -> Result<bool, MachineError> {
        let parameter = self.get(name, "flag")?;
        match parameter.value {
            Value::Flag(flag) => Ok(flag),
            _ => {
                let is = parameter.value.written();
                Err(self.error(name, format!("is {is}; it must be true or false")))
            }
        }
    }
}
