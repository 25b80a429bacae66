//! Rows of shared data: locks, and regions.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use memonet::Job;
use memonet::dsm::{Mutex, Placement, Region, RegionOptions};

use crate::bench::raw;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, rates, time_batches, time_each};

const BATCH: usize = 2_000;
const BATCHES: usize = 50;
/// Pages of the region whose changes are merged.
const PAGES: usize = 256;

/// Lock, change 8 bytes, unlock, by PE 0 alone.
pub fn mutex(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    mutex_of(bench, rows, false)
}

/// Lock, change 8 bytes, unlock, by all PEs at once.
pub fn mutex_contended(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    mutex_of(bench, rows, true)
}

fn mutex_of(bench: &mut Bench<'_>, rows: &[Row], contended: bool) -> Result<()> {
    let mutex = Mutex::new(bench.job, &0u64)?;
    turns(bench, rows, contended, || {
        *mutex.lock()? += 1;
        Ok(())
    })
}

/// Set a lock, change a word of PE 0, clear the lock, by PE 0 alone.
pub fn lock(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    lock_of(bench, rows, false)
}

/// Set a lock, change a word of PE 0, clear the lock, by all PEs at once.
pub fn lock_contended(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    lock_of(bench, rows, true)
}

fn lock_of(bench: &mut Bench<'_>, rows: &[Row], contended: bool) -> Result<()> {
    // The word has a line of its own.
    const WORD: usize = 32;
    let words = bench.job.window::<u64>(2 * WORD)?;
    let lock = words.lock(0)?;
    turns(bench, rows, contended, || {
        let held = lock.lock()?;
        words.put_one(0, WORD, words.get_one(0, WORD)? + 1)?;
        Ok(held.release()?)
    })
}

/// A turn at a lock beside one at the simplest lock.
fn turns(
    bench: &mut Bench<'_>,
    rows: &[Row],
    contended: bool,
    mut turn: impl FnMut() -> Result<()>,
) -> Result<()> {
    let window = bench.job.window::<u64>(64)?;
    let job = bench.job;
    let samples = |batch: &mut dyn FnMut(usize) -> Result<()>| match (contended, job.pe()) {
        (false, 0) => time_batches(BATCHES, BATCH, batch),
        (false, _) => Ok(Vec::new()),
        (true, _) => {
            let mut samples = Vec::new();
            for _ in 0..BATCHES {
                // All begin together. Else one PE could be done before the other begins.
                job.barrier()?;
                let start = Instant::now();
                batch(BATCH)?;
                // And end together: no PE counts what others do after its own end.
                job.barrier()?;
                samples.push(start.elapsed().as_nanos() as f64);
            }
            // All PEs together do so many.
            Ok(rates((job.npes() * BATCH) as f64, samples))
        }
    };
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            samples(&mut |count| {
                for _ in 0..count {
                    turn()?;
                }
                Ok(())
            })
        })];
        if let Some(words) = raw::near(bench.job, &window, 0) {
            // SAFETY: words of one line of the window, which lives to the end of this function.
            // Only the loops here use them.
            let lock = unsafe { TicketLock::new(words) };
            contenders.push(Contender::limit("bare ticket lock", move || {
                samples(&mut |count| {
                    for _ in 0..count {
                        lock.add_one();
                    }
                    Ok(())
                })
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// The simplest fair lock, and a word that it protects, in one cache line.
struct TicketLock<'a> {
    next: &'a AtomicU64,
    turn: &'a AtomicU64,
    data: &'a AtomicU64,
}

impl TicketLock<'_> {
    /// # Safety
    /// As for [`raw::word`], for three words.
    unsafe fn new(words: *mut u64) -> Self {
        // SAFETY: by the contract of this function, all three words may be shared.
        unsafe {
            TicketLock {
                next: raw::word(words),
                turn: raw::word(words.wrapping_add(1)),
                data: raw::word(words.wrapping_add(2)),
            }
        }
    }

    #[inline(always)]
    fn add_one(&self) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        while self.turn.load(Ordering::Acquire) != ticket {
            std::hint::spin_loop();
        }
        self.data.store(black_box(self.data.load(Ordering::Relaxed)) + 1, Ordering::Relaxed);
        self.turn.store(ticket + 1, Ordering::Release);
    }
}

/// Two PEs that are threads, with the test fabric between them. Returns what `measure` returns on
/// PE 0.
fn far(fabric: &str, measure: impl Fn(&Job) -> Result<Vec<f64>> + Sync) -> Result<Vec<f64>> {
    let options = memonet_fabrics::options(fabric)?;
    let mut samples = Job::threads_with(&options, 2, |job| measure(&job))?;
    let second = samples.pop().expect("two PEs");
    second?;
    samples.pop().expect("two PEs")
}

/// Fabric of the rows in which messages take time: up to 200 us each, 100 us on average.
const SLOW: &str = "far:delay_us=200";

/// Lock, change 8 bytes, unlock, by a PE that already has the data.
pub fn mutex_kept(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    for row in rows {
        let library = || {
            far(SLOW, |job| {
                let mutex = Mutex::new(job, &0u64)?;
                let mut samples = Vec::new();
                if job.pe() == 0 {
                    *mutex.lock()? += 1;
                    let before = mutex.stats().messages;
                    samples = time_batches(BATCHES, BATCH, |count| {
                        for _ in 0..count {
                            *mutex.lock()? += 1;
                        }
                        Ok(())
                    })?;
                    anyhow::ensure!(mutex.stats().messages == before, "the owner sent messages");
                }
                job.barrier()?;
                Ok(samples)
            })
        };
        let mut words = [0u64; 3];
        // SAFETY: private words, which outlive the lock. Only the loop here uses them.
        let lock = unsafe { TicketLock::new(words.as_mut_ptr()) };
        let limit = || {
            time_batches(BATCHES, BATCH, |count| {
                (0..count).for_each(|_| lock.add_one());
                Ok(())
            })
        };
        let mut contenders =
            [Contender::library(library), Contender::limit("bare ticket lock", limit)];
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Release of partly changed pages: bytes of compared pages per second.
pub fn region_merge(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    for row in rows {
        let library = || {
            far("far", |job| {
                let options = RegionOptions::new().placement(Placement::Block);
                // PE 1 is the home of the second half.
                let region = Region::<u64>::with(job, 2 * PAGES * 512, options)?;
                let mut samples = Vec::new();
                if job.pe() == 0 {
                    // The first round makes pages and buffers.
                    for round in 0..=10 {
                        let mut part = region.write(PAGES * 512..2 * PAGES * 512)?;
                        for page in PAGES..2 * PAGES {
                            (0..row.size / 8)
                                .for_each(|word| part.set(page * 512 + word, 1 + round));
                        }
                        drop(part);
                        let start = Instant::now();
                        region.release()?;
                        samples.push(start.elapsed().as_nanos() as f64);
                    }
                    samples.remove(0);
                }
                job.barrier()?;
                Ok(rates(PAGES as f64 * 4096.0, samples))
            })
        };
        let (from, mut to) = (vec![1u8; PAGES * 4096], vec![0u8; PAGES * 4096]);
        let limit = || {
            let samples = time_each(10, 1, || {
                // SAFETY: both vectors have that many bytes.
                unsafe { raw::copy(to.as_mut_ptr(), from.as_ptr(), from.len()) };
                Ok(())
            })?;
            Ok(rates(from.len() as f64, samples))
        };
        let mut contenders = [Contender::library(library), Contender::limit("libc memcpy", limit)];
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}
