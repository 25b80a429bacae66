//! A job to start: which programs, and how.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::values::{factor, name_and_value, seconds};

/// A job to start: the programs, in the order of their PE numbers, and how.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// The programs of the job.
    pub programs: Vec<Program>,
    /// How to run them.
    pub options: Options,
}

/// A program of a job.
#[derive(Debug, Clone)]
pub struct Program {
    /// Number of PEs that run it.
    pub n: usize,
    /// A path, or a name to be found in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// How to run a job.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Give each PE CPUs of its own, an equal share for itself and its threads, or let the kernel
    /// choose [default: core when there is a CPU for each PE; as many PEs to each CPU, where that
    /// comes out even; else none]
    #[arg(long, value_enum)]
    pub bind: Option<Bind>,
    /// Start each line of output with the number of its PE. A line that comes in pieces is kept
    /// until it is whole, for up to ten seconds while other PEs write; of a line above 1 MiB,
    /// pieces are passed on. A prompt is shown when no other PE has written for a second; if a line
    /// of another PE breaks it then, it is repeated whole
    #[arg(long)]
    pub label: bool,
    /// End the job after this many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Let the other PEs go on when one fails
    #[arg(long)]
    pub keep_going: bool,
    /// How PEs reach each other, for tests: `far` or e.g. `far:delay_us=50,reorder=1,seed=7` (sets
    /// MEMONET_FABRIC)
    #[arg(long, value_name = "SPEC")]
    pub fabric: Option<String>,
    /// Set an environment variable in all PEs (may be repeated)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub environment: Vec<(String, String)>,
    /// At the end, print what each PE's shared objects (`memonet::dsm`) were used for and have
    /// moved
    #[arg(long)]
    pub stats: bool,
    /// Say what each PE is bound to, and its process id
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten, next_help_heading = "Simulated machine")]
    pub simulated: Simulated,
}

impl Options {
    /// The names of the variables that PEs have from this process and from the user.
    pub fn names_of_variables(&self) -> impl Iterator<Item = OsString> {
        let set = self.environment.iter().map(|(name, _)| name.into());
        std::env::vars_os().map(|(name, _)| name).chain(set)
    }

    /// Whether the user has set this variable of the PEs, to whatever.
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
    /// Of all chance in the machine: two runs with the same one are the same [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "machine")]
    pub seed: Option<u64>,
    /// Write a timeline of PEs, NICs, links and switches: Chrome's format, which Perfetto opens
    #[arg(long, value_name = "FILE", requires = "machine")]
    pub trace: Option<PathBuf>,
    /// Computing takes the CPU time that it takes here, times this [default: no time]. Such runs do
    /// not repeat themselves
    #[arg(long, value_name = "FACTOR", requires = "machine", value_parser = factor)]
    pub cpu_scale: Option<f64>,
    /// How long a PE may run without a call before that is an error [default: 10]
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
