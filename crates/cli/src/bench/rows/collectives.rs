//! Rows of collectives over the whole job.

use std::time::Instant;

use anyhow::Result;
use memonet::{Job, Sum};

use crate::bench::raw;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender};

/// The least bytes that one contender's turn moves: a turn of small blocks must be long enough to
/// measure.
const BYTES_PER_TURN: usize = 64 << 20;
const MOST: usize = 2000;
const LEAST: usize = 4;
/// Operations per sample.
const BATCH: usize = 20;

pub fn broadcast(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| broadcast_of(bench, row))
}

/// A broadcast from PE 0, and the barrier that is needed before its memory is used again.
fn broadcast_of(bench: &mut Bench<'_>, row: &Row) -> Result<()> {
    let job = bench.job;
    let (to, from) = (job.window::<u8>(row.size)?, job.window::<u8>(row.size)?);
    // A broadcast does not pay for page faults.
    to.fill(0..row.size, 1);
    from.fill(0..row.size, 2);
    let (target, source) = (to.span(0..row.size)?, from.span(0..row.size)?);
    let times = (BYTES_PER_TURN / row.size).clamp(LEAST, MOST);
    let mut contenders = vec![Contender::library(|| {
        timed(job, times, || {
            job.world().broadcast_into(0, target, source)?;
            Ok(job.barrier()?)
        })
    })];
    if let Some(root) = raw::near(bench.job, &from, 0) {
        let own = to.local_ptr();
        contenders.push(Contender::limit("barrier, memcpy from the root, barrier", move || {
            timed(job, times, || {
                job.barrier()?;
                if job.pe() > 0 {
                    // SAFETY: two windows of that many bytes, which live to the end of this
                    // function.
                    unsafe { std::ptr::copy_nonoverlapping(root, own, row.size) };
                }
                Ok(job.barrier()?)
            })
        }));
    }
    bench.interleave(row, &mut contenders)
}

/// The sum of one word of each PE.
pub fn all_reduce(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| all_reduce_of(bench, row))
}

fn all_reduce_of(bench: &mut Bench<'_>, row: &Row) -> Result<()> {
    let job = bench.job;
    let words = job.window::<u64>(2)?;
    let (to, from) = (words.span(0..1)?, words.span(1..2)?);
    let mut contenders = vec![Contender::library(|| {
        timed(job, MOST, || Ok(job.world().all_reduce_into(Sum, to, from)?))
    })];
    contenders.push(Contender::limit("barrier", move || timed(job, MOST, || Ok(job.barrier()?))));
    bench.interleave(row, &mut contenders)
}

/// Microseconds of one operation, by the clock of this PE.
fn timed(job: &Job, times: usize, mut once: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let batch = if times >= 10 * BATCH { BATCH } else { 1 };
    job.barrier()?;
    once()?;
    let mut samples = Vec::with_capacity(times / batch);
    for _ in 0..times / batch {
        let start = Instant::now();
        for _ in 0..batch {
            once()?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / batch as f64 / 1e3);
    }
    Ok(samples)
}
