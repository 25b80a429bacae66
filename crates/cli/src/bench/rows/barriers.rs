//! Rows of barriers over the whole job.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use memonet::{Job, Window};

use crate::bench::raw;
use crate::bench::raw::barrier::{Idle, RawBarrier, Shape, WORDS};
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, microseconds, time_each};

/// Barriers per sample between two PEs with a core each, some tens of nanoseconds each.
const PAIR_BATCH: usize = 200;
const PAIR_BATCHES: usize = 100;
/// Barriers per sample of more PEs. Beside interference each barrier is a sample, because its tail
/// matters.
const BATCH: usize = 10;
/// How long each contender is measured in a round.
const TURN: Duration = Duration::from_millis(20);
/// How long beside interference: several time slices of the scheduler.
const BUSY_TURN: Duration = Duration::from_millis(60);
/// Samples between two checks whether the turn is over.
const CHUNK: usize = 20;
/// Polls of a raw barrier that spins before it sleeps: about the cost of going to sleep.
const SPIN_BEFORE_SLEEP: u32 = 50;

/// Barriers of PEs that have the machine to themselves.
pub fn barrier(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| match row.pes {
        2 => pair(bench, row),
        _ => group(bench, row, false),
    })
}

/// Barriers beside a busy process on each CPU.
pub fn barrier_busy(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| group(bench, row, true))
}

fn pair(bench: &mut Bench<'_>, row: &Row) -> Result<()> {
    let job = bench.job;
    let window = job.window::<u64>(1)?;
    let count = Cell::new(0);
    let library = || Ok(microseconds(time_each(PAIR_BATCHES, PAIR_BATCH, || Ok(job.barrier()?))?));
    let mut contenders = vec![Contender::library(library)];
    if let Some(near) = raw::near(bench.job, &window, 1 - job.pe()) {
        // SAFETY: words of a window that lives to the end of this function. Only this limit uses
        // them.
        let (own, near) = unsafe { (raw::word(window.local_ptr()), raw::word(near)) };
        let count = &count;
        contenders.push(Contender::polling("store and poll", move || {
            raw_pair::<false>(own, near, count)
        }));
        contenders.push(Contender::polling("store and poll with pause", move || {
            raw_pair::<true>(own, near, count)
        }));
    }
    bench.interleave(row, &mut contenders)
}

fn raw_pair<const PAUSE: bool>(
    own: &AtomicU64,
    near: &AtomicU64,
    count: &Cell<u64>,
) -> Result<Vec<f64>> {
    let mut value = count.get();
    let samples = time_each(PAIR_BATCHES, PAIR_BATCH, || {
        value += 1;
        near.store(value, Ordering::Release);
        raw::poll::<PAUSE>(own, value);
        Ok(())
    });
    count.set(value);
    Ok(microseconds(samples?))
}

fn group(bench: &mut Bench<'_>, row: &Row, busy: bool) -> Result<()> {
    let job = bench.job;
    let ended = job.window::<u64>(1)?;
    let variants = variants(busy, bench.have_cpus());
    let memory = job.window::<u32>(WORDS * variants.len())?;
    let parts: Option<Vec<*mut u32>> =
        (0..job.npes()).map(|pe| raw::near(bench.job, &memory, pe)).collect();
    let (budget, batch) = if busy { (BUSY_TURN, 1) } else { (TURN, BATCH) };
    let turn = Turn { job, ended: &ended, number: Cell::new(0), budget, batch };

    let mut contenders = vec![Contender::library(|| turn.measure(|| Ok(job.barrier()?)))];
    for (index, (name, shape, idle)) in variants.into_iter().enumerate() {
        let Some(parts) = &parts else { break };
        // SAFETY: windows start on cache lines and WORDS is a multiple of a line. Each barrier has
        // its own words, in a window that lives to the end of this function.
        let mut barrier = unsafe {
            let parts: Vec<_> = parts.iter().map(|part| part.add(index * WORDS)).collect();
            RawBarrier::new(shape, idle, job.pe(), &parts)
        };
        let turn = &turn;
        contenders.push(Contender::limit(name, move || {
            turn.measure(|| {
                barrier.pass();
                Ok(())
            })
        }));
    }
    bench.interleave(row, &mut contenders)
}

fn variants(busy: bool, have_cpus: bool) -> Vec<(&'static str, Shape, Idle)> {
    use Shape::{Central, Dissemination};
    let mut variants = vec![
        ("central counter, futex", Central, Idle::Futex(0)),
        ("dissemination, futex", Dissemination, Idle::Futex(0)),
    ];
    if busy {
        variants.push((
            "central counter, spin, then futex",
            Central,
            Idle::Futex(SPIN_BEFORE_SLEEP),
        ));
        variants.push((
            "dissemination, spin, then futex",
            Dissemination,
            Idle::Futex(SPIN_BEFORE_SLEEP),
        ));
    } else {
        variants.push(("central counter, yield", Central, Idle::Yield));
        variants.push(("dissemination, yield", Dissemination, Idle::Yield));
        if have_cpus {
            variants.push(("central counter, spin", Central, Idle::Spin));
            variants.push(("dissemination, spin", Dissemination, Idle::Spin));
        }
    }
    variants
}

/// The turn of one contender, which ends by PE 0's clock.
///
/// Beside interference, the time of a barrier varies a thousandfold from one moment to the next, so
/// the number of barriers cannot be chosen beforehand. PE 0 reads its clock, and notifies the
/// others by a word in their windows.
struct Turn<'a> {
    job: &'a Job,
    ended: &'a Window<u64>,
    /// Number of turns so far, equal in all PEs.
    number: Cell<u64>,
    budget: Duration,
    batch: usize,
}

impl Turn<'_> {
    fn measure(&self, mut barrier: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
        self.number.set(self.number.get() + 1);
        let mut samples = Vec::new();
        let start = Instant::now();
        // PE 0 writes before it arrives at the last barrier of a chunk. So all PEs see the write
        // after that barrier. And no PE sees it a chunk too early, because it must pass the chunk's
        // other barriers first.
        while self.ended.read(0) < self.number.get() {
            for sample in 0..CHUNK {
                if sample == CHUNK - 1 && self.job.pe() == 0 && start.elapsed() > self.budget {
                    for pe in 0..self.job.npes() {
                        self.ended.put_one(pe, 0, self.number.get())?;
                    }
                }
                let start = Instant::now();
                for _ in 0..self.batch {
                    barrier()?;
                }
                samples.push(start.elapsed().as_nanos() as f64 / self.batch as f64);
            }
        }
        // The first samples only warm up.
        Ok(microseconds(samples.split_off(CHUNK / 2)))
    }
}
