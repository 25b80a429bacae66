//! Machines as JSON, for other programs.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use memonet_sim::Machine;
use memonet_sim::machine::{BUILT_IN, Source, Value};
use serde::Serialize;

use super::{names_of_variants, needed_variants};

#[derive(Serialize)]
struct Listed {
    name: String,
    summary: String,
    /// Whether it runs by this name, and not only as one of its variants.
    runs: bool,
    variants: Vec<String>,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    summary: String,
    /// The kind of its NICs.
    kind: String,
    /// If it runs only as a variant: which ones there are.
    needs_one_of: Vec<String>,
    parameters: BTreeMap<String, Number>,
}

/// A number of a machine, or a choice.
#[derive(Serialize)]
struct Number {
    value: serde_json::Value,
    unit: Option<String>,
    source: From,
}

#[derive(Serialize)]
struct From {
    kind: &'static str,
    text: String,
}

/// All built-in machines.
pub fn list(out: impl Write) -> Result<()> {
    let listed = BUILT_IN.iter().map(|&(name, _)| {
        let machine = Machine::load(name)?;
        Ok(Listed {
            name: name.into(),
            summary: machine.summary().to_string(),
            runs: machine.check().is_ok(),
            variants: names_of_variants(name, &machine),
        })
    });
    write(out, &listed.collect::<Result<Vec<_>>>()?)
}

/// Every number of a machine.
pub fn show(out: impl Write, name: &str) -> Result<()> {
    let machine = Machine::load(name)?;
    let needs_one_of = needed_variants(name, &machine)?;
    let parameters = machine.parameters().map(|(key, parameter)| {
        let value = match &parameter.value {
            Value::Number(number) => (*number).into(),
            Value::Text(text) => text.as_str().into(),
            Value::Flag(flag) => (*flag).into(),
        };
        let (kind, text) = match &parameter.source {
            Source::Published(text) => ("published", text),
            Source::Fitted(text) => ("fitted", text),
            Source::Assumed(text) => ("assumed", text),
        };
        let source = From { kind, text: text.clone() };
        let unit = Some(parameter.unit.clone()).filter(|unit| !unit.is_empty());
        (key.to_string(), Number { value, unit, source })
    });
    write(
        out,
        &Shown {
            name: machine.name().to_string(),
            summary: machine.summary().to_string(),
            kind: machine.kind().to_string(),
            needs_one_of,
            parameters: parameters.collect(),
        },
    )
}

fn write(mut out: impl Write, what: &impl Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut out, what)?;
    Ok(writeln!(out)?)
}
