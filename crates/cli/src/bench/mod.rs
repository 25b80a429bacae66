//! `memonet bench`: measures this machine, each row beside its physical limit.
//!
//! ```text
//!   memonet bench
//!      |  per kind of row: a job of this program, whose PEs
//!      |     take turns: limit, memonet, memonet, limit, ...     (pe, words, blocks, barriers, shared, waits, handover)
//!      |     append their samples to a memfd                     (stats::Record)
//!      |  busy strangers, where a row wants them                 (stranger)
//!      |  start-up is measured from here                         (startup)
//!      |  the simulated machine, in a process of its own          (simulated)
//!      v
//!   table, JSON, figures                                         (report, plot)
//! ```
//!
//! A limit does the same work on the same words of the same processes with nothing of memonet in
//! between (`raw`, `raw_barrier`, `raw_multicast`, `raw_udp`). Because the two take turns, what
//! else the machine does disturbs both alike.

mod barriers;
mod blocks;
mod catalog;
mod collectives;
mod handover;
mod job;
mod multicast;
mod pe;
mod plot;
mod raw;
mod raw_barrier;
mod raw_multicast;
mod raw_udp;
mod report;
mod shared;
mod simulated;
mod startup;
mod stats;
mod stranger;
mod waits;
mod words;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use memonet_core::launch::available_cpus;
use serde::{Deserialize, Serialize};

use catalog::{Kind, Row};
pub use report::{Machine, Measured};

/// The arguments of `memonet bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet bench                                  all rows, about two minutes
  memonet bench --quick barrier startup          few rounds of some rows, within ten seconds
  memonet bench --json bench.json --plot .       also as data and as figures

`ratio` is memonet over the limit: the median over the rounds of the ratio of the two medians of a round.
`rounds` says of how many.
Nothing else should run on the machine meanwhile; see the load average in the first line.")]
pub struct Args {
    /// Only rows whose id contains one of these
    filter: Vec<String>,
    /// Also write the rows, and what the machine is, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw latency and bandwidth against size, as SVG and PNG, into this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// At most a minute, and less certain: samples are smaller, a row begins no further round after
    /// 0.2 s, and rows of which one sample takes long are left out unless their whole id is given
    #[arg(long)]
    quick: bool,
    /// Show what each row measures and what its limit is, and measure nothing
    #[arg(long)]
    list: bool,
}

/// The processes that a bench starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Part {
    Pe(pe::Task),
    Stranger(stranger::Task),
    /// Joins its job and ends.
    Join,
    Simulated(simulated::Task),
}

/// First argument of the processes that a bench starts. The command line's parser never sees it:
/// what it touches would be measured as memory of a PE.
const PART: &str = "bench-part";

impl Part {
    /// The arguments that make this program do it.
    fn arguments(&self) -> Result<[String; 2]> {
        Ok([PART.into(), serde_json::to_string(self)?])
    }
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the memonet program, to start it as PEs")
}

/// Does what this process is to do for another `memonet bench`, if that is what it was started for.
pub fn part() -> Option<Result<ExitCode>> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == PART).then(|| {
        match serde_json::from_str(&args.next().unwrap_or_default().to_string_lossy())? {
            Part::Pe(task) => pe::run(&task)?,
            Part::Stranger(task) => stranger::run(&task)?,
            Part::Join => drop(memonet::init()?),
            Part::Simulated(task) => simulated::run(&task)?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// `memonet bench`.
pub fn run(args: Args) -> Result<ExitCode> {
    bench(&args).map(|()| ExitCode::SUCCESS)
}

fn bench(args: &Args) -> Result<()> {
    let mut rows = catalog::select(catalog::rows(available_cpus()), &args.filter);
    ensure!(
        !rows.is_empty(),
        "no row has an id that contains `{}`: `memonet bench --list` shows them",
        args.filter.join("` or `")
    );
    if args.list {
        return Ok(report::list(&mut std::io::stdout().lock(), &rows)?);
    }
    let left_out =
        if args.quick { catalog::leave_out_long(&mut rows, &args.filter) } else { Vec::new() };
    // Made before the measurement, so that a wrong name is told before the minutes and not after
    // them.
    let json = args
        .json
        .as_ref()
        .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())));
    let json = json.transpose()?;
    if let Some(folder) = &args.plot {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }

    let machine = Machine::found(args.quick);
    let measured = measure_all(&rows, args.quick, &machine)?;
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        writeln!(
            std::io::stdout(),
            "left out, as one sample takes too long to be quick: {left_out}"
        )?;
    }
    if let Some(mut file) = json {
        report::write_json(&mut file, &machine, &measured).context("cannot write the JSON file")?;
    }
    if let Some(folder) = &args.plot {
        for path in plot::draw(folder, &measured)? {
            writeln!(std::io::stdout(), "drawn: {}", path.display())?;
        }
    }
    Ok(())
}

/// Measures these rows, for who makes something of them.
pub fn measure_rows(ids: &[&str], quick: bool) -> Result<(Machine, Vec<Measured>)> {
    let mut rows = catalog::rows(available_cpus());
    rows.retain(|row| ids.contains(&row.id.as_str()));
    let machine = Machine::found(quick);
    let mut measured = Vec::new();
    for row in &rows {
        let records = measure(std::slice::from_ref(row), quick)
            .with_context(|| format!("cannot measure {}", row.id))?;
        measured.push(Measured::new(row, &records)?);
    }
    Ok((machine, measured))
}

fn measure_all(rows: &[Row], quick: bool, machine: &Machine) -> Result<Vec<Measured>> {
    let mut out = std::io::stdout();
    writeln!(out, "{machine}\n{}", report::HEADER)?;
    let bar = ProgressBar::new(rows.len() as u64);
    bar.set_style(ProgressStyle::with_template("{pos}/{len} rows, measuring {msg}")?);
    let mut measured = Vec::new();
    for rows in rows.chunk_by(|a, b| (a.kind, a.pes) == (b.kind, b.pes)) {
        let traits = rows[0].kind.traits();
        // No ticking thread: what draws must not disturb what is measured.
        bar.set_message(if rows[0].pes > 2 {
            format!("{} with {} PEs", traits.name, rows[0].pes)
        } else {
            traits.name.into()
        });
        let records =
            measure(rows, quick).with_context(|| format!("cannot measure {}", rows[0].id))?;
        for row in rows {
            let row = Measured::new(row, &records)?;
            bar.suspend(|| writeln!(out, "{row}"))?;
            measured.push(row);
        }
        bar.inc(rows.len() as u64);
    }
    bar.finish_and_clear();
    Ok(measured)
}

fn measure(rows: &[Row], quick: bool) -> Result<Vec<stats::Record>> {
    let effort = rows[0].kind.effort(quick);
    match rows[0].kind {
        Kind::Startup => startup::measure(rows, effort),
        Kind::MutexHandOver
        | Kind::MutexFetched
        | Kind::SimulatedEvents
        | Kind::SimulatedBarrier
        | Kind::SimulatedBarrierMemory => simulated::measure(rows, effort),
        Kind::BarrierBusy => {
            let _strangers = stranger::Strangers::on_each_cpu()?;
            job::measure(rows, effort)
        }
        _ => job::measure(rows, effort),
    }
}
