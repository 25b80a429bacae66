//! Rows of jobs whose PEs reach each other by libfabric, beside libfabric itself: between PE 0 and
//! the first PE of the second host.

use std::cell::Cell;

use anyhow::{Context, Result};
use memonet::Cmp;

use super::far::{BATCH, BATCHES, BURSTS};
use crate::bench::raw::libfabric::RawEndpoint;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, microseconds, rates, time_batches, time_each};

/// Blocks of a sample of bandwidth.
const BLOCKS: usize = 8;
const BARE: &str = "libfabric without memonet, both ends polling";

/// A word there and back.
pub fn ping_pong(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let (job, effort) = (bench.job, bench.effort);
    let peer = bench.far_peer().context("there is one host only")?;
    let (window, bare) = (job.window::<u64>(1)?, RawEndpoint::meet(bench, 8)?);
    let (begins, takes_part) = (job.pe() == 0, job.pe() == 0 || job.pe() == peer);
    let remote = window.remote(if begins { peer } else { 0 }, 0)?;
    let count = Cell::new(0);
    for row in rows {
        let library = || {
            if !takes_part {
                return Ok(Vec::new());
            }
            let times = time_each(effort.of(BATCHES), BATCH, || {
                count.set(count.get() + 1);
                if begins {
                    remote.store(count.get());
                }
                window.wait_until(0, Cmp::Ge, count.get())?;
                if !begins {
                    remote.store(count.get());
                }
                Ok(())
            })?;
            Ok(if begins { microseconds(times) } else { Vec::new() })
        };
        let limit = || {
            let Some(bare) = &bare else { return Ok(Vec::new()) };
            let times = time_each(effort.of(BATCHES), BATCH, || bare.trip())?;
            Ok(if bare.begins() { microseconds(times) } else { Vec::new() })
        };
        bench.interleave(row, &mut [Contender::library(library), Contender::limit(BARE, limit)])?;
    }
    Ok(())
}

/// Blocks to a target that waits, completed once a sample.
pub fn put_bandwidth(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let (job, effort) = (bench.job, bench.effort);
    let peer = bench.far_peer().context("there is one host only")?;
    for row in rows {
        let (target, bare) = (job.window::<u8>(row.size)?, RawEndpoint::meet(bench, row.size)?);
        let block = vec![1; row.size];
        let batches = effort.of(BURSTS);
        let rate = |times| rates(row.size as f64, times);
        let library = || {
            if job.pe() != 0 {
                return Ok(Vec::new());
            }
            Ok(rate(time_batches(batches, BLOCKS, |count| {
                for _ in 0..count {
                    target.put(peer, 0, &block)?;
                }
                Ok(job.quiet()?)
            })?))
        };
        let limit = || {
            let Some(bare) = &bare else { return Ok(Vec::new()) };
            let times = time_batches(batches, BLOCKS, |count| bare.blocks(count))?;
            Ok(if bare.begins() { rate(times) } else { Vec::new() })
        };
        bench.interleave(row, &mut [Contender::library(library), Contender::limit(BARE, limit)])?;
    }
    Ok(())
}
