//! The `memonet` command.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use tell::tell;

mod bench;
mod chart;
mod demo;
mod doctor;
mod machines;
mod manual;
mod reproduce;
mod results;
mod run;
mod shared_file;
mod tell;
mod unpoisoned;

/// Parallel programs whose sends are stores
#[derive(Debug, Parser)]
#[command(name = "memonet", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Start a parallel program: `memonet run -n 4 ./program arguments`
    Run(Box<run::Args>),
    /// Start a parallel program with the options of other launchers: `oshrun -np 4 ./program`. A
    /// link named `oshrun` to this program does so, too
    Oshrun(run::Words),
    /// The PEs of one host, for `memonet run --hosts` on another
    #[command(hide = true)]
    Agent(run::agent::Args),
    /// Show what this machine offers to jobs, and what is wrong with it
    Doctor(doctor::Args),
    /// Run a real program on real data
    Demo(demo::Args),
    /// Measure this machine, each row beside its physical limit
    Bench(bench::Args),
    /// Show the machines on which programs can be simulated, and the source of each number
    Machines(machines::Args),
    /// Write the manual pages and the shells' completions, for an installation
    #[command(hide = true)]
    Manual(manual::Args),
    /// Run the published experiments on the simulated machines, each figure beside the published
    /// one
    Reproduce(reproduce::Args),
}

impl Cli {
    /// Reads the arguments of this process. Ends it with a message if they are wrong.
    fn of_this_process() -> anyhow::Result<Cli> {
        let mut command = Cli::command();
        let words = run::spell_out(&command, std::env::args_os())?;
        let read = command.try_get_matches_from_mut(words);
        let cli = read.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
        Ok(cli.unwrap_or_else(|error| error.format(&mut command).exit()))
    }
}

/// Lets this process end by SIGPIPE when its reader is gone, as commands in a pipeline do. The
/// launcher must not: it has to end its job first.
fn end_without_readers() {
    // SAFETY: restores the default action, which the Rust runtime had replaced. No code relies on
    // that replacement, and there are no other threads yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn main() -> ExitCode {
    let result = bench::part().or_else(|| run::oshrun(std::env::args_os())).unwrap_or_else(|| {
        let cli = Cli::of_this_process()?;
        if !matches!(cli.command, Command::Run(_) | Command::Agent(_)) {
            end_without_readers();
        }
        match cli.command {
            Command::Run(args) => run::run(*args),
            Command::Agent(args) => run::agent::run(args),
            Command::Oshrun(_) => unreachable!("handled above"),
            Command::Doctor(args) => doctor::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Machines(args) => machines::run(args),
            Command::Manual(args) => {
                manual::write(&args, Cli::command()).map(|()| ExitCode::SUCCESS)
            }
            Command::Reproduce(args) => reproduce::run(args),
        }
    });
    result.unwrap_or_else(|error| {
        tell(format_args!("{error:#}"));
        run::exit_code(&error)
    })
}
