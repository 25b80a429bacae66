//! `memonet machines`: the machines on which programs can be simulated.

mod fit;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use memonet_sim::Machine;
use memonet_sim::machine::{BUILT_IN, MachineError};

/// The arguments of `memonet machines`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet machines                      list all built-in machines, with their variants
  memonet machines show dimmnet-1/D     show every number of a machine, and its source
  memonet machines show ./mine.toml     check a machine file, and show every number of it
  memonet machines fit -o ./mine.toml   measure this machine, and write a machine file")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show every number of a machine, and its source
    Show {
        /// The machine's name, perhaps with a variant, or the path of a machine file
        name: String,
    },
    /// Measure this machine with two PEs, and write a machine file of kind LogGP
    Fit {
        /// The file to write, which ends in .toml [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Take seconds instead of half a minute, with fewer rounds and less certain results
        #[arg(long)]
        quick: bool,
    },
}

/// `memonet machines`.
pub fn run(args: Args) -> Result<ExitCode> {
    let out = std::io::stdout().lock();
    match args.what {
        None => list(out)?,
        Some(What::Show { name }) => show(out, &name)?,
        Some(What::Fit { output, quick }) => fit::fit(out, output.as_deref(), quick)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(mut out: impl Write) -> Result<()> {
    for &(name, _) in BUILT_IN {
        let machine = Machine::load(name)?;
        let variants = names_of_variants(name, &machine);
        if machine.check().is_ok() {
            writeln!(out, "{name}\n    {}", machine.summary())?;
            if !variants.is_empty() {
                writeln!(out, "    variants: {}", variants.join(", "))?;
            }
        } else {
            writeln!(out, "{}\n    {}", variants.join("\n"), machine.summary())?;
        }
    }
    Ok(())
}

fn names_of_variants(name: &str, machine: &Machine) -> Vec<String> {
    machine.variants().iter().map(|variant| format!("{name}/{variant}")).collect()
}

/// The variants of which the machine is one that runs: none, if it runs as it is.
///
/// # Errors
/// [`MachineError`], if the machine or one of its variants has a mistake.
fn needed_variants(name: &str, machine: &Machine) -> Result<Vec<String>, MachineError> {
    let variants = names_of_variants(name, machine);
    if machine.variant().is_some() || variants.is_empty() {
        machine.check()?;
        return Ok(Vec::new());
    }
    variants.iter().try_for_each(|variant| Machine::load(variant)?.check())?;
    Ok(if machine.check().is_ok() { Vec::new() } else { variants })
}

fn show(mut out: impl Write, name: &str) -> Result<()> {
    let machine = Machine::load(name)?;
    let needed = needed_variants(name, &machine)?;
    writeln!(out, "{}: {}\nNICs of kind {}", machine.name(), machine.summary(), machine.kind())?;
    if !needed.is_empty() {
        writeln!(
            out,
            "These numbers are what its variants share. It runs only as a variant: {}",
            needed.join(", ")
        )?;
    }
    writeln!(out)?;
    for (key, parameter) in machine.parameters() {
        let value = format!("{} {}", parameter.value, parameter.unit);
        writeln!(out, "{key:32} {:24} {}", value.trim_end(), parameter.source)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_listed_and_explained() {
        let mut text = Vec::new();
        list(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("dimmnet-1/D") && text.contains("fast-ethernet-udp"), "{text}");
        let mut text = Vec::new();
        show(&mut text, "dimmnet-1/D").unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.starts_with("host.software")).unwrap();
        assert!(line.contains(" ns ") && line.contains("FITTED"), "{line}");
    }
}
