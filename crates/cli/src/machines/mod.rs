//! `memonet machines`: the machines on which programs can be simulated.

mod fit;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use memonet_sim::Machine;
use memonet_sim::machine::BUILT_IN;

/// The arguments of `memonet machines`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet machines                      list all built-in machines, with their variants
  memonet machines show dimmnet-1/D     show every number of a machine, and its source
  memonet machines show ./mine.toml     show every number of a machine file
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
        Some(What::Show { name }) => show(out, &Machine::load(&name)?)?,
        Some(What::Fit { output, quick }) => fit::fit(out, output.as_deref(), quick)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(mut out: impl Write) -> Result<()> {
    for &(name, _) in BUILT_IN {
        let machine = Machine::load(name)?;
        writeln!(out, "{name}\n    {}", machine.summary())?;
        if !machine.variants().is_empty() {
            let variants: Vec<_> =
                machine.variants().iter().map(|variant| format!("{name}/{variant}")).collect();
            writeln!(out, "    {}", variants.join(", "))?;
        }
    }
    Ok(())
}

fn show(mut out: impl Write, machine: &Machine) -> Result<()> {
    writeln!(out, "{}: {}\nNICs of kind {}\n", machine.name(), machine.summary(), machine.kind())?;
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
        show(&mut text, &Machine::load("dimmnet-1/D").unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find(|line| line.starts_with("host.software")).unwrap();
        assert!(line.contains(" ns ") && line.contains("FITTED"), "{line}");
    }
}
