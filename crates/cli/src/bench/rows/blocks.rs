//! Rows of blocks between PE 0 and PE 1.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use memonet::{Cmp, SignalOp};

use crate::bench::raw;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, rates, time_batches, time_each};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Put,
    Get,
}

/// Bytes moved per sample where blocks are small: some tens of microseconds.
const SAMPLE_BYTES: usize = 1 << 20;
/// Most operations per sample.
const MOST_OPERATIONS: usize = 5000;
/// Most round trips per sample.
const MOST_TRIPS: usize = 100;
/// From this size on, a sample takes milliseconds, and few samples suffice.
const LARGE: usize = 4 << 20;

fn largest(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.size / size_of::<u64>()).max().unwrap_or_default()
}

fn batches(row: &Row) -> usize {
    if row.size >= LARGE { 3 } else { 20 }
}

/// Private memory that starts a cache line behind the start of a page.
///
/// On some CPUs memcpy falls to a twentieth of its rate when the destination begins up to 31 bytes
/// behind the source, modulo a page. Large allocations begin there, relative to a window. Such a
/// rate would be no limit.
struct Private {
    memory: Vec<u64>,
    start: usize,
}

impl Private {
    fn new(words: usize) -> Self {
        let memory = vec![2; words + PAGE];
        let start = (memory.as_ptr().align_offset(PAGE * size_of::<u64>()) + LINE) % PAGE;
        Self { memory, start }
    }

    fn words(&mut self) -> &mut [u64] {
        &mut self.memory[self.start..]
    }
}

/// Words of a page.
const PAGE: usize = 512;
/// Words of a cache line.
const LINE: usize = 8;

pub fn put_bandwidth(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    bandwidth(bench, rows, Direction::Put)
}

pub fn get_bandwidth(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    bandwidth(bench, rows, Direction::Get)
}

/// Blocks of each row's size between the window of PE 1 and private memory of PE 0. All samples use
/// the same memory.
fn bandwidth(bench: &mut Bench<'_>, rows: &[Row], direction: Direction) -> Result<()> {
    let job = bench.job;
    let acts = job.pe() == 0;
    let window = job.window::<u64>(largest(rows))?;
    // From here on, all pages exist.
    window.fill(0..window.len(), 1);
    let private = RefCell::new(Private::new(window.len()));
    for row in rows {
        let operations = (SAMPLE_BYTES / row.size).clamp(1, MOST_OPERATIONS);
        let batches = batches(row);
        let len = row.size / size_of::<u64>();
        let mut contenders = vec![Contender::library(|| {
            if !acts {
                return Ok(Vec::new());
            }
            let mut private = private.borrow_mut();
            let buffer = &mut private.words()[..len];
            let samples = time_batches(batches, operations, |count| {
                for _ in 0..count {
                    match direction {
                        Direction::Put => window.put(1, 0, black_box(&*buffer))?,
                        Direction::Get => window.get(1, 0, black_box(&mut *buffer))?,
                    }
                }
                job.quiet()?;
                Ok(())
            });
            Ok(rates(row.size as f64, samples?))
        })];
        if let Some(near) = raw::near(bench.job, &window, 1) {
            let private = &private;
            contenders.push(Contender::limit("memcpy", move || {
                if !acts {
                    return Ok(Vec::new());
                }
                let mut private = private.borrow_mut();
                let buffer = &mut private.words()[..len];
                let (to, from) = match direction {
                    Direction::Put => (near, buffer.as_mut_ptr()),
                    Direction::Get => (buffer.as_mut_ptr(), near),
                };
                let samples = time_each(batches, operations, || {
                    // SAFETY: one side is the window, the other the borrowed buffer. Both have at
                    // least `len` words, are aligned and do not overlap.
                    unsafe { raw::copy(to.cast(), from.cast(), len * size_of::<u64>()) };
                    Ok(())
                });
                Ok(rates(row.size as f64, samples?))
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// A block with its signal there and back. The block's first word changes every time, and the
/// receiver checks it.
pub fn put_signal(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let me = job.pe();
    let peer = 1 - me;
    let window = job.window::<u64>(largest(rows))?;
    window.fill(0..window.len(), 0);
    let signals = job.window::<u64>(1)?;
    let block = RefCell::new(vec![0u64; window.len()]);
    let count = Cell::new(0);
    for row in rows {
        let len = row.size / size_of::<u64>();
        let operations = (SAMPLE_BYTES / row.size).clamp(1, MOST_TRIPS);
        let batches = batches(row);
        let mut contenders = vec![Contender::library(|| {
            let block = &mut block.borrow_mut()[..len];
            time_each(batches, operations, || {
                let value = count.get() + 1;
                count.set(value);
                block[0] = value;
                if me == 0 {
                    window.put_signal(peer, 0, block, &signals, 0, SignalOp::Set, value)?;
                }
                signals.wait_until(0, Cmp::Ge, value)?;
                ensure!(window.read(0) == value, "a signal was visible before its data");
                if me == 1 {
                    window.put_signal(peer, 0, block, &signals, 0, SignalOp::Set, value)?;
                }
                Ok(())
            })
        })];
        if let (Some(near_block), Some(near_flag)) =
            (raw::near(bench.job, &window, peer), raw::near(bench.job, &signals, peer))
        {
            // SAFETY: first words of windows that live to the end of this function. Memonet, too,
            // accesses them as 64 bits.
            let (own_block, own_flag, near_flag) = unsafe {
                (
                    raw::word(window.local_ptr()),
                    raw::word(signals.local_ptr()),
                    raw::word(near_flag),
                )
            };
            let (block, count) = (&block, &count);
            let limit = RawSignal { me, own_block, own_flag, near_block, near_flag };
            contenders.push(Contender::polling("payload, then flag", move || {
                let block = &mut block.borrow_mut()[..len];
                // SAFETY: the peer's part of the window is as long as the block, and aligned. The
                // block is private memory, elsewhere.
                time_each(batches, operations, || unsafe { limit.trip::<false>(block, count) })
            }));
            contenders.push(Contender::polling(
                "payload, then flag; polling with pause",
                move || {
                    let block = &mut block.borrow_mut()[..len];
                    // SAFETY: the peer's part of the window is as long as the block, and aligned.
                    // The block is private memory, elsewhere.
                    time_each(batches, operations, || unsafe { limit.trip::<true>(block, count) })
                },
            ));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// The limit of a put with signal, between two PEs.
#[derive(Clone, Copy)]
struct RawSignal<'a> {
    me: usize,
    own_block: &'a AtomicU64,
    own_flag: &'a AtomicU64,
    near_block: *mut u64,
    near_flag: &'a AtomicU64,
}

impl RawSignal<'_> {
    /// # Safety
    /// `near_block` is valid for as many words as `block` has, and does not overlap it.
    #[inline(always)]
    unsafe fn trip<const PAUSE: bool>(&self, block: &mut [u64], count: &Cell<u64>) -> Result<()> {
        let value = count.get() + 1;
        count.set(value);
        block[0] = value;
        let send = || {
            if let [word] = *block {
                // SAFETY: the caller grants the range. Memonet accesses a range of this length as
                // 64 bits.
                unsafe { raw::word(self.near_block) }.store(word, Ordering::Relaxed);
            } else {
                // SAFETY: by the contract of this function, both ranges are as long as the block
                // and do not overlap.
                unsafe {
                    raw::copy(self.near_block.cast(), block.as_ptr().cast(), size_of_val(block))
                };
            }
            self.near_flag.store(value, Ordering::Release);
        };
        if self.me == 0 {
            send();
        }
        raw::poll::<PAUSE>(self.own_flag, value);
        ensure!(
            self.own_block.load(Ordering::Relaxed) == value,
            "a flag was visible before its data"
        );
        if self.me == 1 {
            send();
        }
        Ok(())
    }
}
