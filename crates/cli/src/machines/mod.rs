//! `memonet machines`: the machines on which programs can be simulated.

mod fit;
mod json;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
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
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Show every number of a machine, and its source
    Show {
        /// The machine's name, perhaps with a variant, or the path of a machine file
        name: String,
        /// Print the numbers as JSON
        #[arg(long)]
        json: bool,
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
        None if args.json => json::list(out)?,
        None => list(out)?,
        Some(What::Show { name, json }) if json || args.json => json::show(out, &name)?,
        Some(What::Show { name, .. }) => show(out, &name)?,
        Some(What::Fit { .. }) if args.json => {
            bail!("`memonet machines fit` writes TOML: leave --json out")
        }
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

/// Whether the mistake is that a parameter is missing. Then variants may have it.
fn lacks(machine: &Machine, error: &MachineError) -> bool {
    let missing = |key: &str| machine.parameters().all(|(other, _)| other != key);
    error.key.as_deref().is_some_and(missing)
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
    // A mistake in a number that all variants replace is a mistake all the same.
    let runs = match machine.check() {
        Ok(()) => true,
        Err(error) if lacks(machine, &error) => false,
        Err(error) => return Err(error),
    };
    variants.iter().try_for_each(|variant| Machine::load(variant)?.check())?;
    Ok(if runs { Vec::new() } else { variants })
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
        let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
        let (mask, software) = (line("program.barrier_mask"), line("host.software"));
        assert!(mask.contains(" ns ") && mask.contains("FITTED"), "{mask}");
        assert!(software.contains("data/published.toml"), "{software}");
    }

    #[test]
    fn json_says_the_same() {
        let read = |text: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&text).unwrap();
        let (mut all, mut one) = (Vec::new(), Vec::new());
        json::list(&mut all).unwrap();
        let all = read(all);
        let named =
            |name: &str| all.as_array().unwrap().iter().find(|one| one["name"] == name).cloned();
        assert_eq!(all.as_array().unwrap().len(), BUILT_IN.len());
        let (scc, dimmnet) = (named("scc").unwrap(), named("dimmnet-1").unwrap());
        assert_eq!((&scc["runs"], &dimmnet["runs"]), (&true.into(), &false.into()));
        assert!(dimmnet["variants"].as_array().unwrap().contains(&"dimmnet-1/D".into()));
        json::show(&mut one, "dimmnet-1/D").unwrap();
        let one = read(one);
        let mask = &one["parameters"]["program.barrier_mask"];
        assert!(mask["value"].is_number() && mask["unit"] == "ns", "{mask}");
        assert_eq!(mask["source"]["kind"], "fitted", "{mask}");
    }
}
