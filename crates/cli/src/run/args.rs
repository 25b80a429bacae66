//! The command line of `memonet run`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{CommandFactory, FromArgMatches, Parser};

use memonet_core::layout::MAX_PES;

use super::{Program, Spec};

/// The arguments of `memonet run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet run -n 4 ./program arguments
  memonet run -n 1 ./server : -n 3 ./client       one job of 4 PEs, two programs
  memonet run -n 2 --label gdb -batch -ex run ./program
  memonet run -n 2 valgrind ./program
  memonet run --machine dimmnet-1/D -n 2 ./program      on a simulated machine, which it shows the time of

Exit status: that of the first PE that failed (128 + signal when killed by one), 124 after --timeout,
126 or 127 when a program cannot be started, otherwise 0.")]
pub struct Args {
    #[command(flatten)]
    part: Part,
    #[command(flatten)]
    options: Options,
}

/// One program of a job, as it stands between two `:`.
#[derive(Debug, clap::Args)]
struct Part {
    /// Number of PEs (also -np)
    #[arg(short, value_name = "N", value_parser = pes)]
    n: usize,
    /// Program and its arguments; ` : -n N PROGRAM [ARGUMENTS]...` adds another program to the job
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
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

impl Args {
    /// The job that these arguments ask for.
    pub fn spec(self) -> Result<Spec> {
        let Args { mut options, part: Part { n, command } } = self;
        if let Some(fabric) = options.fabric.take() {
            options.environment.push(("MEMONET_FABRIC".into(), fabric));
        }
        let mut parts = command.split(|word| word == ":");
        let first = parts.next().unwrap_or_default();
        let mut programs = vec![program(n, first)?];
        for words in parts {
            let Part { n, command } = Part::read(words)?;
            programs.push(program(n, &command)?);
        }
        Ok(Spec { programs, options })
    }
}

fn program(n: usize, words: &[OsString]) -> Result<Program> {
    match words {
        // clap takes anything for a program, as programs' arguments may be anything.
        [option, ..] if option.as_encoded_bytes().starts_with(b"-") => {
            bail!("there is no option {}. `memonet run --help` lists all", option.display())
        }
        [program, args @ ..] => Ok(Program { n, program: program.clone(), args: args.to_vec() }),
        [] => bail!(
            "there is no program before ` : `. Write e.g. `memonet run -n 1 ./server : -n 3 ./client`"
        ),
    }
}

impl Part {
    fn read(words: &[OsString]) -> Result<Part> {
        let command = <Part as clap::Args>::augment_args(
            clap::Command::new("memonet run").no_binary_name(true),
        );
        let parsed = command
            .try_get_matches_from(words)
            .and_then(|matches| Part::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let rendered = error.render().to_string();
            let cause: Vec<&str> = rendered.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let cause = cause.join(" ");
            let cause = cause.trim_start_matches("error: ");
            let what = words.join(OsStr::new(" "));
            anyhow::anyhow!(
                "after ` : `, in `{}`: {cause}. Each part is `-n N PROGRAM [ARGUMENTS]...`; options of the whole job stand before the first program",
                what.display()
            )
        })
    }
}

/// The command line with `-np`, as other launchers spell it, made `-n`: wherever it is an option of
/// ours and not of a program.
pub fn spell_out_np(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        args: Args,
    }
    let ours = Whole::command();
    let takes_value = |word: &OsStr| {
        let word = word.to_str().unwrap_or_default();
        ours.get_arguments().filter(|arg| arg.get_action().takes_values()).any(|arg| {
            let short = arg.get_short().is_some_and(|short| word == format!("-{short}"));
            short || arg.get_long().is_some_and(|long| word == format!("--{long}"))
        })
    };

    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_none_or(|subcommand| subcommand != "run") {
        return words;
    }
    let (mut in_options, mut is_value) = (true, false);
    for word in &mut words[2..] {
        if !in_options {
            in_options = word == ":";
        } else if is_value {
            is_value = false;
        } else {
            if word == "-np" {
                *word = "-n".into();
            }
            is_value = takes_value(word);
            in_options = word.as_encoded_bytes().starts_with(b"-") && word != "--";
        }
    }
    words
}

/// A number of PEs.
pub fn pes(text: &str) -> Result<usize> {
    match text.parse().context("not a number of PEs")? {
        0 => bail!("a job has at least one PE"),
        n if n > MAX_PES => bail!("a job has at most {MAX_PES} PEs"),
        n => Ok(n),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().context("not a number of seconds")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        // More than fits: never.
        Err(_) if seconds > 0.0 => Ok(Duration::MAX),
        _ => bail!("not a positive number of seconds"),
    }
}

fn factor(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(factor) if f64::is_finite(factor) && factor > 0.0 => Ok(factor),
        _ => bail!("not a positive number"),
    }
}

pub(super) fn name_and_value(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => bail!("not of the form NAME=VALUE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn np(line: &str) -> String {
        let words = spell_out_np(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn np_is_n_where_it_is_ours() {
        assert_eq!(np("memonet run -np 2 prog"), "memonet run -n 2 prog");
        assert_eq!(
            np("memonet run --bind core -np 2 prog -np 3"),
            "memonet run --bind core -n 2 prog -np 3"
        );
        assert_eq!(
            np("memonet run --label -n 1 a -np : -np 2 b -np"),
            "memonet run --label -n 1 a -np : -n 2 b -np"
        );
        assert_eq!(np("memonet run --env -np -np 2 prog"), "memonet run --env -np -n 2 prog");
        assert_eq!(np("memonet demo -np 2"), "memonet demo -np 2");
    }
}
