//! Rows of words and blocks between PE 0 and the first PE of the second host. The other PEs wait.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use memonet::{Cmp, Job, Window};

use crate::bench::raw;
use crate::bench::raw::stream::{RawStream, compute};
use crate::bench::row::{Effort, Row};
use crate::bench::toolkit::{Bench, Contender, microseconds, rates, time_batches, time_each};

/// Words of a window.
const WORDS: usize = 64;
/// The word that ends the computing of a target, in a cache line of its own.
const OVER: usize = WORDS - 8;
/// Round trips of a sample, some tens of microseconds each: few, so that most samples have no pause
/// of a process that lost its CPU.
pub const BATCH: usize = 10;
pub const BATCHES: usize = 100;
/// Non-blocking puts of a sample.
const BURST: usize = 10_000;
pub const BURSTS: usize = 20;
/// Blocks of a sample of bandwidth.
const BLOCKS: usize = 8;
/// Names of limits.
const SPIN: &str = "a bare socket, both ends polling";
const ECHO: &str = "a bare socket, a thread that blocks beside the computing";
const BATCHED: &str = "batches of bare records";
const BARE: &str = "a bare socket";

/// What PE 0 and its far peer share.
struct Pair<'a> {
    job: &'a Job,
    effort: Effort,
    window: Window<u64>,
    stream: Option<RawStream>,
    peer: usize,
}

impl<'a> Pair<'a> {
    fn meet(bench: &Bench<'a>) -> Result<Self> {
        let peer = bench.far_peer().context("there is one host only")?;
        let (window, stream) = (bench.job.window(WORDS)?, RawStream::meet(bench)?);
        Ok(Pair { job: bench.job, effort: bench.effort, window, stream, peer })
    }

    /// Microseconds of each operation of PE 0; nothing at the others.
    fn timed(&self, operation: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
        if self.job.pe() != 0 {
            return Ok(Vec::new());
        }
        Ok(microseconds(time_each(self.effort.of(BATCHES), BATCH, operation)?))
    }

    /// Microseconds of each operation of PE 0, while the target computes and makes no call.
    fn timed_beside_computing(
        &self,
        turn: u64,
        operation: impl FnMut() -> Result<()>,
    ) -> Result<Vec<f64>> {
        if self.job.pe() == self.peer {
            // SAFETY: a word of the window, which lives as long as this value. All others access it
            // as 64 bits.
            let over = unsafe { raw::word(self.window.local_ptr().wrapping_add(OVER)) };
            compute(|| over.load(Ordering::Acquire) == turn);
        }
        let times = self.timed(operation)?;
        if self.job.pe() == 0 {
            self.window.put_one(self.peer, OVER, turn)?;
            self.job.quiet()?;
        }
        Ok(times)
    }

    /// Microseconds of bare round trips, beside computing.
    fn echoes(&self) -> Result<Vec<f64>> {
        let Some(stream) = &self.stream else { return Ok(Vec::new()) };
        if !stream.begins() {
            stream.echo_beside_computing()?;
            return Ok(Vec::new());
        }
        let times = self.timed(|| stream.trip(&mut [1; 8]))?;
        stream.end_echo()?;
        Ok(times)
    }
}

/// Microseconds of bare round trips with so many bytes in each direction, at the end that begins
/// them.
pub fn round_trips(effort: Effort, stream: Option<&RawStream>, bytes: usize) -> Result<Vec<f64>> {
    let Some(stream) = stream else { return Ok(Vec::new()) };
    let mut buffer = vec![1; bytes];
    let times = time_each(effort.of(BATCHES), BATCH, || stream.trip(&mut buffer))?;
    Ok(if stream.begins() { microseconds(times) } else { Vec::new() })
}

/// A word there and back.
pub fn ping_pong(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let pair = Pair::meet(bench)?;
    let me = pair.job.pe();
    let (begins, takes_part) = (me == 0, me == 0 || me == pair.peer);
    let remote = pair.window.remote(if begins { pair.peer } else { 0 }, 0)?;
    let count = Cell::new(0);
    for row in rows {
        let library = || {
            if !takes_part {
                return Ok(Vec::new());
            }
            let times = time_each(pair.effort.of(BATCHES), BATCH, || {
                count.set(count.get() + 1);
                if begins {
                    remote.store(count.get());
                }
                pair.window.wait_until(0, Cmp::Ge, count.get())?;
                if !begins {
                    remote.store(count.get());
                }
                Ok(())
            })?;
            Ok(if begins { microseconds(times) } else { Vec::new() })
        };
        let limit = || round_trips(pair.effort, pair.stream.as_ref(), row.size);
        bench.interleave(row, &mut [Contender::library(library), Contender::limit(SPIN, limit)])?;
    }
    Ok(())
}

/// A get from a target that waits.
pub fn get(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    beside_a_wait(bench, rows, |pair| {
        black_box(pair.window.get_one(pair.peer, 0)?);
        Ok(())
    })
}

/// A fetch-add at a target that waits.
pub fn fetch_add(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    beside_a_wait(bench, rows, |pair| {
        black_box(pair.window.remote(pair.peer, 0)?.fetch_add(1)?);
        Ok(())
    })
}

/// A put that is complete at a target that waits.
pub fn put_quiet(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    beside_a_wait(bench, rows, |pair| {
        pair.window.put_one(pair.peer, 0, 1)?;
        Ok(pair.job.quiet()?)
    })
}

/// The target is in the barrier that ends the turn.
fn beside_a_wait(
    bench: &mut Bench<'_>,
    rows: &[Row],
    operation: impl Fn(&Pair<'_>) -> Result<()>,
) -> Result<()> {
    let pair = Pair::meet(bench)?;
    for row in rows {
        let library = || pair.timed(|| operation(&pair));
        let limit = || round_trips(pair.effort, pair.stream.as_ref(), 8);
        bench.interleave(row, &mut [Contender::library(library), Contender::limit(SPIN, limit)])?;
    }
    Ok(())
}

/// A get from a target that computes.
pub fn get_computing(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    beside_computing(bench, rows, |pair| {
        black_box(pair.window.get_one(pair.peer, 0)?);
        Ok(())
    })
}

/// A fetch-add at a target that computes.
pub fn fetch_add_computing(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    beside_computing(bench, rows, |pair| {
        black_box(pair.window.remote(pair.peer, 0)?.fetch_add(1)?);
        Ok(())
    })
}

fn beside_computing(
    bench: &mut Bench<'_>,
    rows: &[Row],
    operation: impl Fn(&Pair<'_>) -> Result<()>,
) -> Result<()> {
    let pair = Pair::meet(bench)?;
    let turn = Cell::new(0);
    for row in rows {
        let library = || {
            turn.set(turn.get() + 1);
            pair.timed_beside_computing(turn.get(), || operation(&pair))
        };
        let limit = || pair.echoes();
        bench.interleave(row, &mut [Contender::library(library), Contender::limit(ECHO, limit)])?;
    }
    Ok(())
}

/// Non-blocking puts of one word, completed once a sample.
pub fn put_nbi_rate(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let pair = Pair::meet(bench)?;
    let source = pair.job.window::<u64>(OVER)?;
    let words = RefCell::new([1; OVER]);
    let (bursts, burst) = (pair.effort.of(BURSTS), pair.effort.of(BURST));
    for row in rows {
        let library = || {
            if pair.job.pe() != 0 {
                return Ok(Vec::new());
            }
            let times = time_batches(bursts, burst, |count| {
                for number in 0..count {
                    let at = number % OVER;
                    pair.window.put_nbi(pair.peer, at, &source, at..at + 1)?;
                }
                Ok(pair.job.quiet()?)
            })?;
            Ok(rates(1.0, times))
        };
        let limit = || {
            let Some(stream) = &pair.stream else { return Ok(Vec::new()) };
            let mut words = words.borrow_mut();
            let times = time_batches(bursts, burst, |count| stream.records(count, &mut words[..]))?;
            Ok(if stream.begins() { rates(1.0, times) } else { Vec::new() })
        };
        bench.interleave(
            row,
            &mut [Contender::library(library), Contender::limit(BATCHED, limit)],
        )?;
    }
    Ok(())
}

/// Blocks to a target that waits, completed once a sample.
pub fn put_bandwidth(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let pair = Pair::meet(bench)?;
    for row in rows {
        let target = pair.job.window::<u8>(row.size)?;
        let block = RefCell::new(vec![1; row.size]);
        let batches = pair.effort.of(BURSTS);
        let rate = |times| rates(row.size as f64, times);
        let library = || {
            if pair.job.pe() != 0 {
                return Ok(Vec::new());
            }
            let block = block.borrow();
            Ok(rate(time_batches(batches, BLOCKS, |count| {
                for _ in 0..count {
                    target.put(pair.peer, 0, &block)?;
                }
                Ok(pair.job.quiet()?)
            })?))
        };
        let limit = || {
            let Some(stream) = &pair.stream else { return Ok(Vec::new()) };
            let mut block = block.borrow_mut();
            let times = time_batches(batches, BLOCKS, |count| stream.blocks(count, &mut block))?;
            Ok(if stream.begins() { rate(times) } else { Vec::new() })
        };
        bench.interleave(row, &mut [Contender::library(library), Contender::limit(BARE, limit)])?;
    }
    Ok(())
}
