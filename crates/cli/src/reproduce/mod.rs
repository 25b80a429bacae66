//! `memonet reproduce`: the published experiments, simulated beside published.

mod figures;
mod page;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use memonet_sim::reproduce::{
    EXPERIMENTS, Experiment, MOST, Outcome, Role, Row, SCALE, errors, errors_of, experiments, scale,
};
use serde::Serialize;

/// The arguments of `memonet reproduce`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet reproduce                       every experiment
  memonet reproduce dimmnet-1             those of one system
  memonet reproduce --json rows.json --plot figures --html report.html
  memonet reproduce scale --max-nodes 4096 --plot figures

`error` is by how much more came out than was published. Rows marked `fitted` are those that a constant of the machine
file was fitted on, rows marked `input` show what went in: neither counts in the errors below the table. Rows marked
`left out` are published figures, each predicted by a constant that was fitted on all others of its kind.")]
pub struct Args {
    /// Only experiments of this name, or of this system
    name: Option<String>,
    /// Also write the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures, as SVG, into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Also write tables and figures as one page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Of `scale`: no more nodes than this
    #[arg(long, value_name = "N", default_value_t = MOST, value_parser = clap::value_parser!(usize))]
    max_nodes: usize,
    /// Show what there is, and run nothing
    #[arg(long)]
    list: bool,
}

/// An experiment and what came of it.
struct Ran {
    experiment: Experiment,
    outcome: Outcome,
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
    let mut all = Vec::new();
    for experiment in wanted {
        let outcome =
            if experiment.name == SCALE.name { scaled(args.max_nodes) } else { experiment.run() };
        let outcome = outcome.with_context(|| format!("{} failed", experiment.name))?;
        let ran = Ran { experiment, outcome };
        print(&mut out, &ran)?;
        all.push(ran);
    }
    if let Some(path) = &args.json {
        let rows: Vec<_> = all.iter().flat_map(|ran| &ran.outcome.rows).map(JsonRow::of).collect();
        let text = serde_json::to_string_pretty(&rows)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(folder) = &args.plot {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        for (name, svg) in figures::all(all.iter().flat_map(|ran| &ran.outcome.curves))? {
            let path = folder.join(format!("{}.svg", figures::file_name(&name)));
            std::fs::write(&path, svg)
                .with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "drawn: {}", path.display())?;
        }
    }
    if let Some(path) = &args.html {
        std::fs::write(path, page::page(&all)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells on stderr what is being simulated: in one line where that is a terminal, else line by
/// line.
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

fn print(out: &mut impl Write, Ran { experiment, outcome }: &Ran) -> Result<()> {
    writeln!(out, "{}: {}", experiment.name, experiment.summary)?;
    writeln!(out, "  {:44} {:>12} {:>12} {:>8}", "", "simulated", "published", "error")?;
    for row in &outcome.rows {
        let [simulated, published, error] = cells(row);
        let mark = mark(row.role);
        let line = format!(
            "  {:44} {simulated:>12} {published:>12} {error:>8} {:4} {mark}",
            row.id, row.unit
        );
        writeln!(out, "{}", line.trim_end())?;
        for note in remarks(row) {
            writeln!(out, "      {note}")?;
        }
    }
    for line in summary(outcome) {
        writeln!(out, "  {line}")?;
    }
    for note in &outcome.notes {
        writeln!(out, "  * {note}")?;
    }
    Ok(writeln!(out)?)
}

fn mark(role: Role) -> &'static str {
    match role {
        Role::Predicted => "",
        Role::Fitted => "fitted",
        Role::LeftOut => "left out",
        Role::Input => "input",
    }
}

/// What there is to say of a row, besides its numbers.
fn remarks(row: &Row) -> impl Iterator<Item = String> {
    let flag = row
        .contradiction
        .as_ref()
        .map(|how| format!("FLAGGED, what was published contradicts itself: {how}"));
    flag.into_iter().chain(row.note.clone())
}

fn summary(outcome: &Outcome) -> impl Iterator<Item = String> {
    let line = |what: &str, errors: Option<(f64, f64, usize)>| {
        let (median, largest, count) = errors?;
        Some(format!("{count} {what}: error {median:.1} % in the median, {largest:.1} % at most"))
    };
    let predicted = line("predicted rows with a published figure", errors(&outcome.rows));
    let left_out = line(
        "published rows left out of fitting one after the other",
        errors_of(Role::LeftOut, &outcome.rows),
    );
    predicted.into_iter().chain(left_out)
}

/// Simulated, published, error, as they are shown.
fn cells(row: &Row) -> [String; 3] {
    let error = row.error_percent().map(|error| format!("{error:+.1} %"));
    [
        number(row.simulated),
        row.published.map(number).unwrap_or_default(),
        error.unwrap_or_default(),
    ]
}

/// With four digits at least.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

#[derive(Debug, Serialize)]
struct JsonRow<'a> {
    id: &'a str,
    unit: &'a str,
    simulated: f64,
    published: Option<f64>,
    error_percent: Option<f64>,
    role: &'a str,
    note: Option<&'a str>,
    contradiction: Option<&'a str>,
}

impl JsonRow<'_> {
    fn of(row: &Row) -> JsonRow<'_> {
        JsonRow {
            id: &row.id,
            unit: row.unit,
            simulated: row.simulated,
            published: row.published,
            error_percent: row.error_percent(),
            role: match row.role {
                Role::Predicted => "predicted",
                Role::LeftOut => "left_out",
                other => mark(other),
            },
            note: row.note.as_deref(),
            contradiction: row.contradiction.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let shown = [1814.23, 907.04, 4.0887, 0.00071].map(number);
        assert_eq!(shown, ["1814", "907.0", "4.089", "0.00071"]);
    }
}
