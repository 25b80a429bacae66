//! Rows of single words between PE 0 and PE 1.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::Ordering;

use anyhow::Result;
use memonet::Cmp;

use crate::bench::raw;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, rates, time_batches, time_each};

/// Words of the windows used here: each side has a cache line of its own.
const WORDS: usize = 64;
/// Round trips, or one-sided operations of some nanoseconds, per sample: far above the clock's
/// resolution.
const BATCH: usize = 200;
/// Stores per sample.
const BURST: usize = 10_000;
const BATCHES: usize = 100;
/// Stores in the body of the loop: processors take one jump a cycle, but may store twice.
const UNROLLED: usize = 8;

/// One word there and back.
pub fn ping_pong(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let window = bench.job.window::<u64>(WORDS)?;
    let me = bench.job.pe();
    let peer = 1 - me;
    let remote = window.remote(peer, 0)?;
    let near = raw::near(bench.job, &window, peer);
    let own = window.local_ptr();
    // All contenders continue to count in one pair of words, so that the place of the words in the
    // caches is the same for all.
    let count = Cell::new(0);
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            let mut value = count.get();
            let samples = time_each(BATCHES, BATCH, || {
                value += 1;
                if me == 0 {
                    remote.store(value);
                }
                window.wait_until(0, Cmp::Ge, value)?;
                if me == 1 {
                    remote.store(value);
                }
                Ok(())
            });
            count.set(value);
            samples
        })];
        if let Some(near) = near {
            let count = &count;
            contenders.push(Contender::polling("polling", move || {
                raw_ping_pong::<false>(me, own, near, count)
            }));
            contenders.push(Contender::polling("polling with pause", move || {
                raw_ping_pong::<true>(me, own, near, count)
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

fn raw_ping_pong<const PAUSE: bool>(
    me: usize,
    own: *mut u64,
    near: *mut u64,
    count: &Cell<u64>,
) -> Result<Vec<f64>> {
    // SAFETY: both are first words of the caller's window, which outlives this call. Memonet stores
    // and loads them as 64 bits.
    let (own, near) = unsafe { (raw::word(own), raw::word(near)) };
    let mut value = count.get();
    let samples = time_each(BATCHES, BATCH, || {
        value += 1;
        raw::trip::<PAUSE>(me, own, near, value);
        Ok(())
    });
    count.set(value);
    samples
}

/// Stores to one word of a peer, as fast as possible.
pub fn store_rate(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let window = bench.job.window::<u64>(WORDS)?;
    let acts = bench.job.pe() == 0;
    let remote = window.remote(1, 0)?;
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            one_sided(acts, BURST, |count| {
                for value in 0..(count / UNROLLED) as u64 {
                    for step in 0..UNROLLED as u64 {
                        remote.store(value + step);
                    }
                }
                Ok(())
            })
        })];
        if let Some(near) = raw::near(bench.job, &window, 1) {
            // SAFETY: a word of the window, which lives to the end of this function. Memonet stores
            // to it as 64 bits.
            let near = unsafe { raw::word(near) };
            contenders.push(Contender::limit("bare stores", move || {
                one_sided(acts, BURST, |count| {
                    for value in 0..(count / UNROLLED) as u64 {
                        for step in 0..UNROLLED as u64 {
                            near.store(value + step, Ordering::Relaxed);
                        }
                    }
                    Ok(())
                })
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Non-blocking puts of one word, completed once a batch.
pub fn put_nbi_rate(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let window = bench.job.window::<u64>(WORDS)?;
    let source = bench.job.window::<u64>(WORDS)?;
    let job = bench.job;
    let acts = job.pe() == 0;
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            one_sided(acts, BURST, |count| {
                for _ in 0..count {
                    window.put_nbi(1, 0, &source, 0..1)?;
                }
                job.quiet()?;
                Ok(())
            })
        })];
        if let Some(near) = raw::near(bench.job, &window, 1) {
            // SAFETY: words of windows that live to the end of this function. Memonet accesses them
            // as 64 bits.
            let (near, own) = unsafe { (raw::word(near), raw::word(source.local_ptr())) };
            contenders.push(Contender::limit("bare loads and stores", move || {
                one_sided(acts, BURST, |count| {
                    for _ in 0..count {
                        near.store(own.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                    Ok(())
                })
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Fetch-add on a peer's word that no other PE touches meanwhile.
pub fn fetch_add(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let window = bench.job.window::<u64>(WORDS)?;
    let acts = bench.job.pe() == 0;
    let remote = window.remote(1, 0)?;
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            if !acts {
                return Ok(Vec::new());
            }
            time_each(BATCHES, BURST, || {
                black_box(remote.fetch_add(1)?);
                Ok(())
            })
        })];
        if let Some(near) = raw::near(bench.job, &window, 1) {
            // SAFETY: a word of the window, which lives to the end of this function. Memonet
            // updates it as 64 bits.
            let near = unsafe { raw::word(near) };
            contenders.push(Contender::limit("lock xadd", move || {
                if !acts {
                    return Ok(Vec::new());
                }
                time_each(BATCHES, BURST, || {
                    black_box(near.fetch_add(1, Ordering::Relaxed));
                    Ok(())
                })
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Rates of a loop that only PE 0 runs, in millions per second.
#[inline(always)]
fn one_sided(acts: bool, count: usize, batch: impl FnMut(usize) -> Result<()>) -> Result<Vec<f64>> {
    if !acts {
        return Ok(Vec::new());
    }
    Ok(rates(1.0, time_batches(BATCHES, count, batch)?))
}
