//! The entry point of the bench's PEs: they measure rows and hand the samples back.

use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result, bail};

use super::catalog;
use super::row::{Effort, Ground, Row};
use super::spec::Measure;
use super::stats::Record;
use super::toolkit::Bench;

/// Measures `rows`, all of one specification, and appends the records to the file behind
/// `records_fd`.
pub fn run(rows: &[Row], effort: Effort, records_fd: RawFd) -> Result<()> {
    let measure = catalog::spec(&rows[0]).measure;
    let before = match measure {
        Measure::Joining { before, .. } => before()?,
        _ => 0.0,
    };
    let job = memonet::init()?;
    let mut bench = Bench::new(&job, effort);
    match measure {
        Measure::Pes(rows_of) => rows_of(&mut bench, rows)?,
        Measure::Joining { after, .. } => after(&mut bench, rows, before)?,
        _ => bail!("{} is not measured by PEs of one machine", rows[0].id),
    }
    // SAFETY: the parent opened the descriptor for this process, and nothing else in it uses it.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(records_fd) });
    send(file, &bench.into_records()).context(HANDING)?;
    job.barrier()?;
    Ok(())
}

/// The same in a job on several hosts, where standard output leads to the bench.
pub fn run_on_hosts(rows: &[Row], effort: Effort, ground: Ground) -> Result<()> {
    let (Measure::PesOnHosts(measure) | Measure::WithAndWithoutFar(measure)) =
        catalog::spec(&rows[0]).measure
    else {
        bail!("{} is not measured by PEs on several hosts", rows[0].id);
    };
    let job = memonet::init()?;
    let mut bench = Bench::on_hosts(&job, effort, ground);
    measure(&mut bench, rows)?;
    send(std::io::stdout().lock(), &bench.into_records()).context(HANDING)?;
    job.barrier()?;
    Ok(())
}

const HANDING: &str = "cannot hand the samples to `memonet bench`";

/// Writes one line of JSON per record, all in one write: a file is in append mode, so the lines of
/// PEs do not mix.
fn send(mut to: impl Write, records: &[Record]) -> Result<()> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    to.write_all(&lines)?;
    Ok(to.flush()?)
}
