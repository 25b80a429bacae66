//! The `memonet` command.

use std::process::ExitCode;

use clap::Parser;

mod bench;
mod demo;
mod doctor;
mod run;

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
    Run(run::Args),
    /// The same with the options of other launchers: `oshrun -np 4 ./program`; also under the name oshrun
    Oshrun(run::Words),
    /// Show what this machine offers to jobs, and what is wrong with it
    Doctor(doctor::Args),
    /// Run a real program on real data
    Demo(demo::Args),
    /// Measure this machine, each row beside its physical limit
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let result = bench::part().or_else(|| run::oshrun(std::env::args_os())).unwrap_or_else(|| {
        let cli = Cli::parse_from(run::spell_out_np(std::env::args_os()));
        match cli.command {
            Command::Run(args) => run::run(args),
            Command::Oshrun(_) => unreachable!("handled above"),
            Command::Doctor(args) => doctor::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Bench(args) => bench::run(args),
        }
    });
    result.unwrap_or_else(|error| {
        eprintln!("memonet: {error:#}");
        run::exit_code(&error)
    })
}
