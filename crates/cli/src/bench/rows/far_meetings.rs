//! Rows of barriers and collectives over all PEs of all hosts. Their limit is a number of messages,
//! each of which needs the one before it, times the time of a bare message in one direction.

use std::time::Instant;

use anyhow::Result;
use memonet::{Job, Sum};

use crate::bench::raw::stream::RawStream;
use crate::bench::row::{Effort, Row};
use crate::bench::rows::far::round_trips;
use crate::bench::toolkit::{Bench, Contender};

/// Operations of a sample, and samples.
const BATCH: usize = 10;
const BATCHES: usize = 50;
const LIMIT: &str = "one bare message in one direction";

/// A barrier of all PEs.
pub fn barrier(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    against_one_message(bench, rows, |_, _| Ok(job.barrier()?))
}

/// The sum of one word of each PE.
pub fn all_reduce(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let words = job.window::<u64>(2)?;
    let (to, from) = (words.span(0..1)?, words.span(1..2)?);
    against_one_message(bench, rows, |_, _| Ok(job.world().all_reduce_into(Sum, to, from)?))
}

/// Broadcasts whose roots are PE 0 and the first PE of the second host in turns: none begins before
/// the one before it has arrived on the other host.
pub fn broadcast(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let size = rows.iter().map(|row| row.size).max().unwrap_or(0);
    let (to, from) = (job.window::<u8>(size)?, job.window::<u8>(size)?);
    // A broadcast does not pay for page faults.
    to.fill(0..size, 1);
    from.fill(0..size, 2);
    let roots = [0, bench.far_peer().unwrap_or(0)];
    against_one_message(bench, rows, |row, number| {
        let (target, source) = (to.span(0..row.size)?, from.span(0..row.size)?);
        Ok(job.world().broadcast_into(roots[number % roots.len()], target, source)?)
    })
}

fn against_one_message(
    bench: &mut Bench<'_>,
    rows: &[Row],
    mut once: impl FnMut(&Row, usize) -> Result<()>,
) -> Result<()> {
    let (job, effort) = (bench.job, bench.effort);
    let stream = RawStream::meet(bench)?;
    for row in rows {
        let library = || timed(job, effort, |number| once(row, number));
        let limit = || one_way(effort, stream.as_ref(), row.size);
        bench
            .interleave(row, &mut [Contender::library(library), Contender::limit(LIMIT, limit)])?;
    }
    Ok(())
}

/// Microseconds of a bare message in one direction: half a round trip.
fn one_way(effort: Effort, stream: Option<&RawStream>, bytes: usize) -> Result<Vec<f64>> {
    Ok(round_trips(effort, stream, bytes)?.into_iter().map(|trip| trip / 2.0).collect())
}

/// Microseconds of an operation of all PEs, by the clock of this one.
pub fn timed(
    job: &Job,
    effort: Effort,
    mut once: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<f64>> {
    job.barrier()?;
    once(0)?;
    let mut samples = Vec::new();
    for _ in 0..effort.of(BATCHES) {
        let start = Instant::now();
        for number in 0..BATCH {
            once(number + 1)?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / BATCH as f64 / 1e3);
    }
    Ok(samples)
}
