//! A job to start: its programs and options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::values::{factor, name_and_value, seconds};

/// A job to start.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// The programs, in the order of their PE numbers.
    pub programs: Vec<Program>,
    /// How to run them.
    pub options: Options,
}

/// A program of a job.
#[derive(Debug, Clone)]
pub struct Program {
    /// Number of PEs that run it.
    pub n: usize,
    /// A path, or a name to look up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// How to run a job.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Bind each PE to CPUs of its own, an equal share for itself and its threads, or let the
    /// kernel choose [default: core if there is a CPU for each PE; else equally many PEs on each
    /// CPU, if the numbers allow; else none]
    #[arg(long, value_enum)]
    pub bind: Option<Bind>,
    /// Start each line of output with the number of its PE. A line that arrives in pieces is kept
    /// until it is whole, for up to ten seconds while other PEs write; a line above 1 MiB is passed
    /// on in pieces. A prompt is shown when no other PE has written for a second. If a line of
    /// another PE then breaks it, the whole line is repeated
    #[arg(long)]
    pub label: bool,
    /// End the job after this many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Let the other PEs continue when one fails
    #[arg(long)]
    pub keep_going: bool,
    /// Choose how PEs reach each other, for tests: `far`, or e.g.
    /// `far:delay_us=50,reorder=1,seed=7` (sets MEMONET_FABRIC)
    #[arg(long, value_name = "SPEC")]
    pub fabric: Option<String>,
    /// Set an environment variable in all PEs (may be repeated)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub environment: Vec<(String, String)>,
    /// At the end, print how often each PE used its shared objects (`memonet::dsm`), and how much
    /// they moved
    #[arg(long)]
    pub stats: bool,
    /// Print the CPUs and the process id of each PE
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten, next_help_heading = "Simulated machine")]
    pub simulated: Simulated,
}

impl Options {
    /// The names of the variables that PEs inherit from this process or get from the user.
    pub fn names_of_variables(&self) -> impl Iterator<Item = OsString> {
        let set = self.environment.iter().map(|(name, _)| name.into());
        std::env::vars_os().map(|(name, _)| name).chain(set)
    }

    /// Whether the user has set this variable of the PEs, to any value.
    pub fn decides(&self, variable: &str) -> bool {
        std::env::var_os(variable).is_some()
            || self.environment.iter().any(|(name, _)| name == variable)
    }
}

/// How to run a job on a simulated machine.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Simulated {
    /// Run on a simulated machine, in its time: one of `memonet machines`, or a file
    /// (`./mine.toml`, `./mine.toml/VARIANT`)
    #[arg(long, value_name = "NAME", conflicts_with = "fabric")]
    pub machine: Option<String>,
    /// Seed of all chance in the machine: two runs with one seed are identical [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "machine")]
    pub seed: Option<u64>,
    /// Write a timeline of PEs, NICs, links and switches: Chrome's format, which Perfetto opens
    #[arg(long, value_name = "FILE", requires = "machine")]
    pub trace: Option<PathBuf>,
    /// Let computing take its CPU time on this machine, times this factor [default: no time]. Such
    /// runs are not repeatable
    #[arg(long, value_name = "FACTOR", requires = "machine", value_parser = factor)]
    pub cpu_scale: Option<f64>,
    /// Treat a PE that runs for this long without a call as an error [default: 10]
    #[arg(long, value_name = "SECONDS", requires = "machine", value_parser = seconds)]
    pub patience: Option<Duration>,
}

/// Whether PEs are bound to CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bind {
    /// To CPUs of their own
    Core,
    /// Not at all
    None,
}
