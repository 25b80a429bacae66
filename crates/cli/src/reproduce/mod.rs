//! `memonet reproduce`: simulates published experiments, and shows each figure beside the published
//! one.

mod figures;
mod overview;
mod page;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use memonet_sim::reproduce::{EXPERIMENTS, Experiment, MOST, Outcome, SCALE, experiments, scale};

use crate::results::Results;
use table::{JsonRow, Ran};

/// The arguments of `memonet reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet reproduce                       every experiment
  memonet reproduce dimmnet-1             those of one system
  memonet reproduce --json rows.json --plot figures --html report.html
  memonet reproduce scale --max-nodes 4096 --plot figures

`error` says by how much the simulated figure exceeds the published one. A bound is met or not. Rows do not count in the
errors below the table that are marked `fitted` (a constant of the machine file was fitted to the figure, or chosen in
knowledge of it), `input` (of the model), `FLAGGED` (the publication contradicts itself), or `estimate` (the authors
have not measured it; these have errors of their own). Rows marked `left out` are published figures, each predicted by a
constant that was fitted to all others of its kind.")]
pub struct Args {
    /// Run only the experiments of this name, or of this system
    name: Option<String>,
    /// Also write the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures, as SVG, into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Also write tables and figures as one HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// For `scale`: the largest number of nodes [default: 65536]
    #[arg(long, value_name = "N", value_parser = crate::run::nodes)]
    max_nodes: Option<usize>,
    /// List the experiments, and run nothing
    #[arg(long)]
    list: bool,
}

/// `memonet reproduce`.
pub fn run(args: Args) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    if args.list {
        for experiment in EXPERIMENTS.iter().chain([&SCALE]) {
            writeln!(out, "{:20} {}", experiment.name, experiment.summary)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = match args.name.as_deref() {
        Some(name) if name == SCALE.name => vec![SCALE],
        name => experiments(name),
    };
    ensure!(
        !wanted.is_empty(),
        "there is no experiment {}: `memonet reproduce --list` shows them",
        args.name.unwrap_or_default()
    );
    ensure!(
        args.max_nodes.is_none() || args.name.as_deref() == Some(SCALE.name),
        "--max-nodes is for `memonet reproduce {}`",
        SCALE.name
    );
    // Before the simulations, which may take minutes: a wrong name is reported at once.
    let json = args.json.as_deref().map(Results::open_named).transpose()?;
    let html = args.html.as_deref().map(Results::open_named).transpose()?;
    if let Some(folder) = &args.plot {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let all = simulate(wanted, args.max_nodes.unwrap_or(MOST), &mut out)?;
    if let Some(file) = json {
        let rows: Vec<_> = all.iter().flat_map(|ran| &ran.outcome.rows).map(JsonRow::of).collect();
        let text = serde_json::to_string_pretty(&rows)? + "\n";
        file.begin()?.write_all(text.as_bytes()).context("cannot write the JSON file")?;
    }
    if let Some(folder) = &args.plot {
        for (name, svg) in figures::all(all.iter().flat_map(|ran| &ran.outcome.curves))? {
            let path = folder.join(format!("{}.svg", figures::file_name(&name)));
            std::fs::write(&path, svg)
                .with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "drawn: {}", path.display())?;
        }
    }
    if let Some(file) = html {
        let page = page::page(&all)?;
        file.begin()?.write_all(page.as_bytes()).context("cannot write the HTML page")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs experiments, and prints the table of each when it is over.
fn simulate(wanted: Vec<Experiment>, most: usize, out: &mut impl Write) -> Result<Vec<Ran>> {
    let mut all = Vec::new();
    for experiment in wanted {
        let outcome = if experiment.name == SCALE.name { scaled(most) } else { experiment.run() };
        let outcome = outcome.with_context(|| format!("{} failed", experiment.name))?;
        let ran = Ran { experiment, outcome };
        table::print(out, &ran)?;
        all.push(ran);
    }
    Ok(all)
}

/// Reports on stderr what is being simulated: a terminal shows one line that changes, a file gets
/// line after line.
fn scaled(most: usize) -> Result<Outcome, memonet_sim::Error> {
    let (bar, start) = (ProgressBar::new_spinner(), Instant::now());
    let outcome = scale(most, |what| {
        let line = format!("{:4} s: {what}", start.elapsed().as_secs());
        if bar.is_hidden() {
            eprintln!("memonet: {line}");
        }
        bar.set_message(line);
        bar.tick();
    });
    bar.finish_and_clear();
    outcome
}
