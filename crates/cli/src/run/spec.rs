//! A job to start: its programs and options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use memonet_core::ENV_FABRIC;
use memonet_core::unstable::settings::ENV_KEEP_GOING;

use super::stats::Form;
use super::values::{events, fabric, factor, hosts, name_and_value, seconds, seed};

/// A job to start.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// The programs, in the order of their PE numbers.
    pub programs: Vec<Program>,
    /// How to run them.
    pub options: Options,
}

/// As many PEs as the hosts of the job have slots.
pub const ALL: usize = 0;

/// A program of a job.
#[derive(Debug, Clone)]
pub struct Program {
    /// Number of PEs that run it, or [`ALL`].
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
    /// End the job after this many seconds, with exit status 124, and say what each PE waits for
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Say what each PE waits for whenever a wait has lasted this long, twice as long, and so on.
    /// SIGQUIT to memonet (Ctrl-\ in its terminal) asks for the same at any moment, and the job
    /// goes on
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// Let the other PEs continue when one fails
    #[arg(long)]
    pub keep_going: bool,
    /// Choose how PEs of different hosts reach each other, `tcp`, `ofi` or `ofi:provider=NAME`, or
    /// how those of one machine do, instead of by memory: these, or the test fabric, as in
    /// `far:delay_us=50,reorder=1,seed=7` (sets MEMONET_FABRIC)
    #[arg(long, value_name = "SPEC", value_parser = fabric)]
    pub fabric: Option<String>,
    /// Set an environment variable in all PEs (may be repeated)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = name_and_value)]
    pub environment: Vec<(String, String)>,
    /// At the end, tell what each PE has done: operations and bytes by kind and target, time in
    /// calls and waits, shared objects and channels; on a simulated machine, in its time, with the
    /// time of the run and the busiest links. As a table on standard error, or in a file, by
    /// `--stats json:FILE` or `--stats html:FILE` (may be repeated)
    #[arg(
        long,
        value_name = "FORM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    pub stats: Vec<Form>,
    /// Write a timeline of each PE's calls and waits to a file, in Chrome's format, which
    /// ui.perfetto.dev opens; on a simulated machine, of NICs, links and switches, too
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Keep so many events of each PE in the timeline, the first ones; each takes 64 bytes of
    /// memory [default: 1000000, and less where a host has more than 16 PEs]
    #[arg(long, value_name = "N", requires = "trace", value_parser = events)]
    pub trace_events: Option<u64>,
    /// Print the CPUs and the process id of each PE. MEMONET_LOG=info, debug or trace does, too,
    /// and the PEs tell of their choices
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten, next_help_heading = "Several hosts")]
    pub several: Several,
    #[command(flatten, next_help_heading = "Simulated machine")]
    pub simulated: Simulated,
}

impl Options {
    /// Lets PEs know whether the job goes on without those that fail. This launcher may be a PE of
    /// another job, of which the variable then says so.
    pub fn tell_of_keep_going(&mut self) {
        if self.keep_going || std::env::var_os(ENV_KEEP_GOING).is_some() {
            let told = u8::from(self.keep_going).to_string();
            self.environment.push((ENV_KEEP_GOING.into(), told));
        }
    }

    /// Refuses two reports in one file: the later one would overwrite the other.
    pub fn check_files(&self) -> Result<()> {
        let mut files: Vec<PathBuf> = Vec::new();
        for path in self.stats.iter().filter_map(Form::file).chain(self.trace.as_deref()) {
            let file = std::path::absolute(path)?;
            if files.contains(&file) && !file.starts_with("/dev") {
                bail!("{} is given for two reports: each needs a file of its own", path.display());
            }
            files.push(file);
        }
        Ok(())
    }

    /// The names of the variables that PEs inherit from this process or get from the user.
    pub fn names_of_variables(&self) -> impl Iterator<Item = OsString> {
        let set = self.environment.iter().map(|(name, _)| name.into());
        std::env::vars_os().map(|(name, _)| name).chain(set)
    }

    /// The value of MEMONET_FABRIC that PEs get.
    pub fn fabric_of_pes(&self) -> Option<String> {
        self.of_pes(ENV_FABRIC).map(|value| value.to_string_lossy().into())
    }

    /// The value of a variable that PEs get. An empty one is none.
    pub fn of_pes(&self, variable: &str) -> Option<OsString> {
        let mut set = self.environment.iter().rev();
        let asked = set.find(|(name, _)| name == variable).map(|(_, value)| value.into());
        let inherited = || std::env::var_os(variable);
        asked.or_else(inherited).filter(|value| !value.is_empty())
    }

    /// Whether the user has set this variable of the PEs, to any value.
    pub fn decides(&self, variable: &str) -> bool {
        std::env::var_os(variable).is_some()
            || self.environment.iter().any(|(name, _)| name == variable)
    }
}

/// How to run a job on several hosts.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Several {
    /// Run on these hosts, with so many PEs on each: `a:4,b:4`. Without numbers, -n PEs in equal
    /// shares
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    pub hosts: Option<String>,
    /// Run on the hosts of a file, one in a line: `a:4` or `a slots=4`
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// Start memonet on each host by `COMMAND HOST WORDS...` [default: ssh -o BatchMode=yes -T]
    #[arg(long, value_name = "COMMAND")]
    pub launch_agent: Option<String>,
    /// Start memonet on up to N hosts from here. On more hosts, some of them start it on the others
    /// [default: 32]
    #[arg(long, value_name = "N", value_parser = hosts)]
    pub direct_hosts: Option<usize>,
    /// Let hosts reach each other by this network interface, or by that of this network
    /// (`10.0.0.0/8`) [default: any that is up]
    #[arg(long, value_name = "NAME|CIDR")]
    pub interface: Option<String>,
    /// Whether a host is lost of which nothing was heard for 2.4 seconds [default: on]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub heartbeat: Option<Heartbeat>,
}

/// Whether silence of a host is taken for a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Heartbeat {
    /// It is
    On,
    /// It is not
    Off,
}

impl Several {
    /// Whether the job runs on hosts of a list.
    pub fn is_asked(&self) -> bool {
        self.hosts.is_some() || self.hostfile.is_some()
    }

    /// Refuses options that do nothing without hosts. An allocation of Slurm's may have one host
    /// alone, and a script for several works there, too.
    pub fn check(&self) -> Result<()> {
        let given = [
            ("--launch-agent", self.launch_agent.is_some()),
            ("--direct-hosts", self.direct_hosts.is_some()),
            ("--interface", self.interface.is_some()),
            ("--heartbeat", self.heartbeat.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) if !self.is_asked() && std::env::var_os("SLURM_JOB_ID").is_none() => {
                bail!("{option} is for --hosts or --hostfile, which is missing")
            }
            _ => Ok(()),
        }
    }

    /// Whether silence of a host is taken for a loss.
    pub fn heartbeat(&self) -> bool {
        self.heartbeat != Some(Heartbeat::Off)
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
    #[arg(long, value_name = "NUMBER", requires = "machine", value_parser = seed)]
    pub seed: Option<u64>,
    /// Let computing take its CPU time on this machine, times this factor [default: no time]. The
    /// threads of a PE share one CPU, so their times add up. Such runs are not repeatable
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
