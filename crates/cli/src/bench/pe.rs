//! The entry point of the bench's PEs: they measure rows and hand the samples back.

use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result, bail};

use super::catalog;
use super::row::{Effort, Row};
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
        Measure::Here(_) | Measure::Process(_) => bail!("{} is not measured by PEs", rows[0].id),
    }
    send(records_fd, &bench.into_records())
        .context("cannot hand the samples to `memonet bench`")?;
    job.barrier()?;
    Ok(())
}

/// Writes one line of JSON per record, all in one write: the file is in append mode, so the lines
/// of PEs do not mix.
fn send(records_fd: RawFd, records: &[Record]) -> Result<()> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    // SAFETY: the parent opened the descriptor for this process, and nothing else in it uses it.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(records_fd) });
    file.write_all(&lines)?;
    Ok(())
}
