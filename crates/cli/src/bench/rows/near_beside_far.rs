//! Rows between PEs of one host, in a job that may have PEs on other hosts.

use std::cell::Cell;

use anyhow::Result;
use memonet::Cmp;

use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, time_each};

/// Operations of a sample, some hundred nanoseconds each, and samples.
const BATCH: usize = 200;
const BATCHES: usize = 100;

/// A word there and back between PEs 0 and 1. The others wait.
pub fn ping_pong(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let (job, effort) = (bench.job, bench.effort);
    let window = job.window::<u64>(64)?;
    touch_all(bench)?;
    let me = job.pe();
    let remote = (me < 2).then(|| window.remote(1 - me, 0)).transpose()?;
    let count = Cell::new(0);
    for row in rows {
        let library = || {
            let Some(remote) = &remote else { return Ok(Vec::new()) };
            let times = time_each(effort.of(BATCHES), BATCH, || {
                count.set(count.get() + 1);
                if me == 0 {
                    remote.store(count.get());
                }
                window.wait_until(0, Cmp::Ge, count.get())?;
                if me == 1 {
                    remote.store(count.get());
                }
                Ok(())
            })?;
            Ok(if me == 0 { times } else { Vec::new() })
        };
        bench.interleave(row, &mut [Contender::library(library)])?;
    }
    Ok(())
}

/// A barrier of the first host's PEs. The others wait.
pub fn barrier(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let (job, effort) = (bench.job, bench.effort);
    touch_all(bench)?;
    let node = job.world().split_by_node()?;
    for row in rows {
        let library = || match job.pe() < row.pes {
            true => time_each(effort.of(BATCHES), BATCH, || Ok(node.barrier()?)),
            false => Ok(Vec::new()),
        };
        bench.interleave(row, &mut [Contender::library(library)])?;
    }
    Ok(())
}

/// Has each PE talk to all others: there is a stream to each far one.
fn touch_all(bench: &Bench<'_>) -> Result<()> {
    let window = bench.job.window::<u64>(1)?;
    for pe in 0..bench.job.npes() {
        window.get_one(pe, 0)?;
    }
    Ok(bench.job.barrier()?)
}
