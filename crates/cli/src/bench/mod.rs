//! `memonet bench`: measures this machine, each row beside its physical limit.
//!
//! ```text
//!   the command      run: filter, groups of rows, table and files        (here, report, plot)
//!        |
//!   processes        a job; a process for each sample; this process      (job, pe, apart, part)
//!        |           jobs on several hosts                               (hosts)
//!        |           busy processes beside the job                       (interference)
//!        v
//!   the table        each row once: name, unit, limit, PEs, function     (table, spec, catalog)
//!        |           rows between hosts                                  (table_of_hosts)
//!        |
//!        v
//!   the rows         one function each                                   (rows)
//!        |
//!        v
//!   the toolkit      turns, clocks, samples; bare operations     (toolkit, raw, stats, row)
//! ```
//!
//! Every arrow points down. A new row is a function in `rows` and an entry in `table`.
//!
//! A limit does the same work on the same words of the same processes, without memonet in between.
//! Those of `broadcast` and `all_reduce` have memonet's barrier in them, which has rows of its own.
//! Memonet and its limits take turns, so that other work on the machine disturbs both alike.

mod apart;
mod catalog;
mod hosts;
mod interference;
mod job;
mod part;
mod pe;
mod plot;
mod raw;
mod report;
mod row;
mod rows;
mod spec;
mod stats;
mod table;
mod table_of_hosts;
mod toolkit;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use memonet_core::unstable::launch::available_cpus;

use crate::results::Results;
use crate::run::Chosen;
use hosts::Hosts;
use part::Part;
pub use report::{Machine, Measured};
use row::Row;
use spec::{Measure, Setting};
use stats::Record;

/// The arguments of `memonet bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet bench                                  all rows, about two minutes
  memonet bench --quick barrier startup          few rounds of some rows, within ten seconds
  memonet bench --json bench.json --plot .       also as data and as figures
  memonet bench --hosts a,b                      what lies between hosts, each row beside bare sockets
  memonet bench --hosts a,b --list               what these rows are

With --hosts, other rows are measured: by jobs with one or two PEs on each host, between the first two hosts or
over all of them. memonet must be at the same path on each host. Without it, the bench measures this machine.

`ratio` is memonet over the limit. Each round gives the ratio of its two medians; the table shows the median of
these ratios, and in `rounds` their number.
Nothing else should run on the machine meanwhile. The first line shows the load average.")]
pub struct Args {
    /// Only rows whose id contains one of these
    filter: Vec<String>,
    /// Also write the rows, and a description of the machine, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw latency and bandwidth against size, as SVG and PNG, into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Take at most a minute, with less certain results: samples are smaller, and a row begins no
    /// further round after 0.2 s. Rows whose samples take long are left out unless their whole id
    /// is given
    #[arg(long)]
    quick: bool,
    /// List what each row measures and what its limit is, and measure nothing
    #[arg(long)]
    list: bool,
    #[command(flatten, next_help_heading = "Several hosts")]
    chosen: Chosen,
}

/// If a `memonet bench` started this process: plays the part that it was started for.
pub fn part() -> Option<Result<ExitCode>> {
    let part = Part::of_this_process()?;
    Some(part.and_then(play).map(|()| ExitCode::SUCCESS))
}

fn play(part: Part) -> Result<()> {
    match part {
        Part::Pe { rows, effort, records } => pe::run(&rows, effort, records),
        Part::PeOnHosts { rows, effort, ground } => pe::run_on_hosts(&rows, effort, ground),
        Part::Interference { cpu, parent } => interference::run(cpu, parent),
        Part::Join => memonet::init().map(drop).map_err(Into::into),
        Part::Sample { row, round, effort } => apart::run(&row, round, effort),
    }
}

/// `memonet bench`.
pub fn run(args: Args) -> Result<ExitCode> {
    bench(&args).map(|()| ExitCode::SUCCESS)
}

fn bench(args: &Args) -> Result<()> {
    let hosts = Hosts::of(&args.chosen)?;
    let (all, option) = match hosts {
        Some(_) => (catalog::rows_of_hosts(), " --hosts a,b"),
        None => (catalog::rows(available_cpus()), ""),
    };
    let in_none = |filter: &&String| !all.iter().any(|row| row.id.contains(filter.as_str()));
    if let Some(filter) = args.filter.iter().find(in_none) {
        bail!(
            "no row has an id that contains `{filter}`: `memonet bench{option} --list` shows them"
        );
    }
    let mut rows = catalog::select(all, &args.filter);
    if args.list {
        return Ok(report::list(&mut std::io::stdout().lock(), &rows)?);
    }
    let left_out =
        if args.quick { catalog::leave_out_long(&mut rows, &args.filter) } else { Vec::new() };
    ensure!(
        !rows.is_empty(),
        "one sample takes too long for --quick: leave that out, or give the whole id of a row"
    );
    leave_out_libfabric(&mut rows)?;
    // Before the measurement, which takes minutes: a wrong name is reported at once.
    let json = args.json.as_deref().map(Results::open_named).transpose()?;
    if let Some(folder) = &args.plot {
        ensure!(
            plot::can_draw(&rows),
            "--plot draws rows of {}, and none of them is to be measured",
            plot::DRAWN.join(", ")
        );
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }

    let mut machine = Machine::found(args.quick);
    machine.hosts = hosts.as_ref().map_or(Vec::new(), |hosts| hosts.names.clone());
    let measured = measure_all(&rows, args.quick, &machine, hosts.as_ref())?;
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        writeln!(
            std::io::stdout(),
            "left out, because one sample takes too long for --quick: {left_out}"
        )?;
    }
    if let Some(file) = json {
        report::write_json(&mut file.begin()?, &machine, &measured)
            .context("cannot write the JSON file")?;
    }
    if let Some(folder) = &args.plot {
        for path in plot::draw(folder, &measured)? {
            writeln!(std::io::stdout(), "drawn: {}", path.display())?;
        }
    }
    Ok(())
}

/// Leaves out what needs libfabric where there is none, and says so.
fn leave_out_libfabric(rows: &mut Vec<Row>) -> Result<()> {
    let needs_it = |row: &Row| table_of_hosts::is_by_libfabric(catalog::spec(row));
    if !rows.iter().any(needs_it) {
        return Ok(());
    }
    if let Err(why) = memonet_fabrics::libfabric_has(&raw::libfabric::provider()) {
        rows.retain(|row| !needs_it(row));
        ensure!(!rows.is_empty(), "these rows need libfabric: {why}");
        writeln!(std::io::stdout(), "left out, because libfabric cannot be used here: {why}")?;
    }
    Ok(())
}

/// Measures these rows for another command.
pub fn measure_rows(ids: &[&str], quick: bool) -> Result<(Machine, Vec<Measured>)> {
    let mut rows = catalog::rows(available_cpus());
    rows.retain(|row| ids.contains(&row.id.as_str()));
    let machine = Machine::found(quick);
    let (mut measured, bar) = (Vec::new(), progress(rows.len())?);
    for row in &rows {
        bar.set_message(row.id.clone());
        let records = measure(std::slice::from_ref(row), quick, None)
            .with_context(|| format!("cannot measure {}", row.id))?;
        measured.push(Measured::new(row, &records)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((machine, measured))
}

fn measure_all(
    rows: &[Row],
    quick: bool,
    machine: &Machine,
    hosts: Option<&Hosts>,
) -> Result<Vec<Measured>> {
    let mut out = std::io::stdout();
    let width = rows.iter().map(|row| row.id.len()).max().unwrap_or_default();
    writeln!(out, "{machine}\n{}", report::header(width))?;
    let bar = progress(rows.len())?;
    let mut measured = Vec::new();
    for rows in rows.chunk_by(|a, b| (&a.spec, a.pes) == (&b.spec, b.pes)) {
        let Row { spec, pes, .. } = &rows[0];
        bar.set_message(match pes {
            0..=2 => spec.clone(),
            _ => format!("{spec} with {pes} PEs"),
        });
        let records = measure(rows, quick, hosts)
            .with_context(|| format!("cannot measure {}", rows[0].id))?;
        for row in rows {
            let row = Measured::new(row, &records)?;
            bar.suspend(|| writeln!(out, "{row:width$}"))?;
            measured.push(row);
        }
        bar.inc(rows.len() as u64);
    }
    bar.finish_and_clear();
    if measured.iter().any(|row| row.ratio.is_some()) {
        writeln!(out, "{}", report::RATIO)?;
    }
    Ok(measured)
}

/// No thread redraws it: drawing must not disturb the measurement.
fn progress(rows: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{pos}/{len} rows, measuring {msg}")?;
    Ok(ProgressBar::new(rows as u64).with_style(style))
}

const NEEDS_HOSTS: &str = "the row is measured between hosts: give --hosts a,b";

fn measure(rows: &[Row], quick: bool, hosts: Option<&Hosts>) -> Result<Vec<Record>> {
    let spec = catalog::spec(&rows[0]);
    let effort = spec.effort(quick);
    match spec.measure {
        Measure::Pes(_) | Measure::Joining { .. } => job::measure(rows, effort),
        Measure::Process(_) => apart::measure(rows, effort),
        Measure::Here(measure) => measure(rows, effort),
        Measure::PesOnHosts(_) => {
            let variable = match spec.special.setting {
                Setting::Variable(set) => Some(set()),
                _ => None,
            };
            hosts.context(NEEDS_HOSTS)?.measure(rows, effort, variable)
        }
        Measure::WithAndWithoutFar(_) => hosts.context(NEEDS_HOSTS)?.measure_near(rows, effort),
        Measure::Hosts(measure) => measure(hosts.context(NEEDS_HOSTS)?, rows, effort),
    }
}
