//! `memonet machines`: what programs can be simulated on.

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
  memonet machines                      all that are built in, with their variants
  memonet machines show dimmnet-1/D     every number of one, and where it is from
  memonet machines show ./mine.toml     the same of a file
  memonet machines fit -o ./mine.toml   measures this machine, and writes a file of it")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Every number of a machine, and where it is from
    Show {
        /// Its name, perhaps with a variant, or a file's path
        name: String,
    },
    /// Measure this machine with two PEs, and write a machine file of it, of the LogGP kind
    Fit {
        /// The file, which ends in .toml; without, it is printed
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Fewer rounds: seconds instead of half a minute, and less certain
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
        assert!(line.contains("324 ns") && line.contains("FITTED"), "{line}");
    }
}
