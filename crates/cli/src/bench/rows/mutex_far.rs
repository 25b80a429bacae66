//! Rows of a shared value that goes from one PE of a simulated machine to the other, in the time of
//! that machine.

use std::time::Duration;

use anyhow::{Result, ensure};
use memonet::dsm::Mutex;
use memonet::{Cmp, Job, SignalOp};
use memonet_sim::{Machine, Options};

use crate::bench::row::{Effort, Row};
use crate::bench::rows::simulated::MACHINE;
use crate::bench::stats::{LIBRARY, Sample};

/// Hand-overs, and round trips, of a sample.
const TURNS: usize = 10;

/// From the release by its owner until the value is at a PE that waits for it.
pub fn released(row: &Row, _round: usize, _effort: Effort) -> Result<Sample> {
    beside_round_trips(row.size, Asks::BeforeRelease)
}

/// From the lock until the value is there, which its last owner has released long ago.
pub fn fetched(row: &Row, _round: usize, _effort: Effort) -> Result<Sample> {
    beside_round_trips(row.size, Asks::AfterRelease)
}

/// When the next owner of the value asks for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    BeforeRelease,
    AfterRelease,
}

/// Microseconds of a hand-over of a value of `bytes`, and of a put with signal of as many bytes
/// there and back.
fn beside_round_trips(bytes: usize, asks: Asks) -> Result<Sample> {
    let len = bytes / 8;
    let act = |job: Job| -> Result<([Vec<Duration>; 2], Duration)> {
        Ok((hand_overs(&job, len, asks)?, round_trips(&job, len)?))
    };
    let done = memonet_sim::run(&Machine::load(MACHINE)?, 2, &Options::default(), act)?;
    let (moments, trips): (Vec<_>, Vec<_>) =
        done.results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3 / TURNS as f64;
    let sum = |which: usize| moments.iter().flat_map(|both| &both[which]).sum::<Duration>();
    let hand_over = micros(sum(1) - sum(0));
    Ok(vec![(LIBRARY, hand_over), ("round trip of a put with signal", micros(trips[0]))])
}

/// The moments at which this PE begins a hand-over, and those at which it ends one. Each hand-over
/// begins on one PE and ends on the same or the other.
fn hand_overs(job: &Job, len: usize, asks: Asks) -> Result<[Vec<Duration>; 2]> {
    let mutex = Mutex::<[u64]>::new(job, &vec![0; len])?;
    let [mut begun, mut ended] = [Vec::new(), Vec::new()];
    let waits = asks == Asks::BeforeRelease;
    for turn in 0..TURNS {
        let gives = turn % 2 == job.pe();
        let guard = gives.then(|| mutex.lock()).transpose()?.map(|mut guard| {
            guard.fill(turn as u64);
            guard
        });
        job.barrier()?;
        if gives {
            memonet_sim::sleep(Duration::from_millis(1));
            if waits {
                begun.push(memonet_sim::now());
            }
            drop(guard);
            job.barrier()?;
        } else if waits {
            ensure!(mutex.lock()?[..] == vec![turn as u64; len], "another value came");
            ended.push(memonet_sim::now());
            job.barrier()?;
        } else {
            job.barrier()?;
            begun.push(memonet_sim::now());
            ensure!(mutex.lock()?[..] == vec![turn as u64; len], "another value came");
            ended.push(memonet_sim::now());
        }
        // The idle PE waits in this barrier, and not for the data.
        job.barrier()?;
    }
    Ok([begun, ended])
}

/// The time of all puts with signal there and back.
fn round_trips(job: &Job, len: usize) -> Result<Duration> {
    let (window, signals, peer) = (job.window::<u64>(len)?, job.window::<u64>(1)?, 1 - job.pe());
    let block = vec![1; len];
    job.barrier()?;
    let start = memonet_sim::now();
    for turn in 1..=TURNS as u64 {
        if job.pe() == 0 {
            window.put_signal(peer, 0, &block, &signals, 0, SignalOp::Set, turn)?;
        }
        signals.wait_until(0, Cmp::Ge, turn)?;
        if job.pe() == 1 {
            window.put_signal(peer, 0, &block, &signals, 0, SignalOp::Set, turn)?;
        }
    }
    let time = memonet_sim::now() - start;
    job.barrier()?;
    Ok(time)
}
