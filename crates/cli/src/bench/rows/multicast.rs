//! Rows of multicast channels from PE 0 to all others.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, ensure};
use memonet::{Delivery, Job, Multicast, MulticastOptions};

use crate::bench::raw;
use crate::bench::raw::multicast::RawMulticast;
use crate::bench::raw::udp::RawUdp;
use crate::bench::row::Row;
use crate::bench::toolkit::{Bench, Contender, rates, time_batches, time_each};

/// Blocks of a sample: its two barriers take a negligible part of it.
const BLOCKS: usize = 100_000;
/// Bytes of a sample of large blocks: many times those of a ring. At the end of a sample, when the
/// writer is done, the readers do not use all CPUs.
const BYTES: usize = 128 << 20;
/// Bytes of a sample by datagrams, which are slower.
const BYTES_BY_UDP: usize = 16 << 20;
const SAMPLES: usize = 3;
/// Round trips of a sample, and samples.
const TRIPS: usize = 200;
const TRIP_SAMPLES: usize = 100;
/// Words from the place of one bare sample to that of the next: a page and a line.
const APART: usize = (4096 + 64) / size_of::<u64>();
/// Slots of the raw ring, and words of each slot: the first is its number.
const SLOTS: usize = 1 << 12;
const SLOT: usize = 16;

pub fn latency(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| latency_of(bench, row))
}

pub fn rate(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| rate_of(bench, row))
}

pub fn bandwidth(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| bandwidth_of(bench, row, false))
}

pub fn in_place(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| bandwidth_of(bench, row, true))
}

pub fn over_udp(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    rows.iter().try_for_each(|row| over_udp_of(bench, row))
}

fn channel(job: &Job, writer: usize) -> Result<Multicast<u64>> {
    let readers: Vec<usize> = (0..job.npes()).filter(|&pe| pe != writer).collect();
    Ok(job.multicast(writer, &readers, MulticastOptions::new())?)
}

/// A block there and a block back, each on a channel of its own.
fn latency_of(bench: &mut Bench<'_>, row: &Row) -> Result<()> {
    let job = bench.job;
    let me = job.pe();
    let (mut there, mut back) = (channel(job, 0)?, channel(job, 1)?);
    // One place more than there are samples: the first sample only warms up.
    let words = job.window::<u64>((TRIP_SAMPLES + 1) * APART)?;
    let count = Cell::new(0u64);
    let mut block = vec![0u64; row.size / size_of::<u64>()];
    let mut contenders = vec![Contender::library(|| {
        time_each(TRIP_SAMPLES, TRIPS, || {
            block[0] += 1;
            let (first, second) = (&mut there, &mut back);
            if me == 0 {
                first.publish(&block)?;
                let answer = second.peek()?;
                ensure!(answer[0] == block[0], "a block was visible before its data");
                answer.pop();
            } else {
                let question = first.peek()?;
                ensure!(question[0] == block[0], "a block was visible before its data");
                question.pop();
                second.publish(&block)?;
            }
            Ok(())
        })
    })];
    if let Some(near) = raw::near(bench.job, &words, 1 - me) {
        let (own, count) = (words.local_ptr(), &count);
        contenders.push(Contender::polling("a bare store there and back", move || {
            bare_trips::<false>(me, own, near, count)
        }));
        contenders.push(Contender::polling("the same, polling with pause", move || {
            bare_trips::<true>(me, own, near, count)
        }));
    }
    bench.interleave(row, &mut contenders)
}

/// A word there and back, by bare stores and loads. The time of a line from CPU to CPU depends on
/// its address, by a third, and a channel goes through many lines. So each sample has a pair of
/// lines of its own: the median does not depend on one address.
fn bare_trips<const PAUSE: bool>(
    me: usize,
    own: *mut u64,
    near: *mut u64,
    count: &Cell<u64>,
) -> Result<Vec<f64>> {
    let mut at = 0;
    time_batches(TRIP_SAMPLES, TRIPS, |trips| {
        // SAFETY: both point to the beginning of the caller's window, which outlives this call and
        // has a place for each sample. Nothing else accesses it.
        let (own, near) =
            unsafe { (raw::word(own.wrapping_add(at)), raw::word(near.wrapping_add(at))) };
        at += APART;
        let mut value = count.get();
        for _ in 0..trips {
            value += 1;
            raw::trip::<PAUSE>(me, own, near, value);
        }
        count.set(value);
        Ok(())
    })
}

/// Blocks as fast as they go.
fn rate_of(bench: &mut Bench<'_>, row: &Row) -> Result<()> {
    let job = bench.job;
    let me = job.pe();
    let mut channel = channel(job, 0)?;
    let (len, blocks) = (row.size / size_of::<u64>(), bench.effort.of(BLOCKS));
    let slots = job.window::<u64>(SLOTS * SLOT + 16)?;
    let (block, mut buffer) = (vec![1u64; len], Vec::with_capacity(len));
    let mut contenders = vec![Contender::library(|| {
        sampled(job, blocks, || {
            if me == 0 {
                channel.publish(black_box(&block))?;
            } else {
                channel.recv(black_box(&mut buffer))?;
            }
            Ok(())
        })
        .map(|samples| rates(1.0, samples))
    })];
    if let Some(ring) = raw::near(bench.job, &slots, 0)
        && len < SLOT
    {
        let limit = RawRing { ring, next: Cell::new(0), seen: Cell::new(0) };
        let buffer = RefCell::new(vec![0u64; len]);
        contenders.push(Contender::limit("a bare ring of numbered slots", move || {
            sampled(job, blocks, || {
                let mut buffer = buffer.borrow_mut();
                // SAFETY: the ring is PE 0's part of a window that lives to the end of this
                // function. Slots are longer than blocks.
                unsafe { if me == 0 { limit.push(&buffer) } else { limit.pop(&mut buffer) } };
                Ok(())
            })
            .map(|samples| rates(1.0, samples))
        }));
    }
    bench.interleave(row, &mut contenders)
}

/// Slots of equal size, each with the number of the block in it. The reader's progress is on
/// another line.
struct RawRing {
    ring: *mut u64,
    next: Cell<u64>,
    /// The reader's progress, by the writer's last poll.
    seen: Cell<u64>,
}

impl RawRing {
    fn slot(&self, number: u64) -> *mut u64 {
        self.ring.wrapping_add(number as usize % SLOTS * SLOT)
    }

    /// # Safety
    /// The ring is mapped, and nothing else uses it.
    unsafe fn push(&self, block: &[u64]) {
        let number = self.next.get();
        // SAFETY: the caller grants the ring. The word and the slot lie in it, and the word is
        // accessed as 64 bits only.
        unsafe {
            let progress = raw::word(self.ring.wrapping_add(SLOTS * SLOT));
            while number - self.seen.get() >= SLOTS as u64 {
                self.seen.set(progress.load(Ordering::Acquire));
                std::hint::spin_loop();
            }
            raw::copy(
                self.slot(number).wrapping_add(1).cast(),
                block.as_ptr().cast(),
                size_of_val(block),
            );
            raw::word(self.slot(number)).store(number + 1, Ordering::Release);
        }
        self.next.set(number + 1);
    }

    /// # Safety
    /// As for [`push`](Self::push).
    unsafe fn pop(&self, block: &mut [u64]) {
        let number = self.next.get();
        // SAFETY: the caller grants the ring. The word and the slot lie in it, and the word is
        // accessed as 64 bits only.
        unsafe {
            raw::poll::<true>(raw::word(self.slot(number)), number + 1);
            raw::copy(
                block.as_mut_ptr().cast(),
                self.slot(number).wrapping_add(1).cast(),
                size_of_val(block),
            );
            if (number + 1).is_multiple_of(SLOTS as u64 / 8) {
                raw::word(self.ring.wrapping_add(SLOTS * SLOT))
                    .store(number + 1, Ordering::Release);
            }
        }
        self.next.set(number + 1);
    }
}

/// Bytes that all readers together receive, copied to private memory or read in place.
fn bandwidth_of(bench: &mut Bench<'_>, row: &Row, in_place: bool) -> Result<()> {
    let job = bench.job;
    let me = job.pe();
    let mut channel = channel(job, 0)?;
    let len = row.size / size_of::<u64>();
    let blocks = (bench.effort.of(BYTES) / row.size).max(4);
    let have_cpus = bench.have_cpus();
    let (memory, words) =
        (job.window::<u64>(len)?, job.window::<u64>(RawMulticast::words(job, have_cpus))?);
    memory.fill(0..len, 3);
    let (block, mut buffer) = (vec![1u64; len], Vec::with_capacity(len));
    let copied = RefCell::new(vec![0u64; len]);
    let delivered = (job.npes() - 1) as f64 * row.size as f64;
    let rate = |samples| rates(delivered, samples);
    let mut contenders = vec![Contender::library(|| {
        sampled(job, blocks, || {
            if me == 0 {
                channel.publish(black_box(&block))?;
            } else if in_place {
                let block = channel.peek()?;
                check_lines(&block)?;
                block.pop();
            } else {
                channel.recv(black_box(&mut buffer))?;
            }
            Ok(())
        })
        .map(rate)
    })];
    if let Some(ring) = RawMulticast::new(job, &words, have_cpus) {
        let (block, copied) = (&block, &copied);
        contenders.push(Contender::limit("a bare ring between as many", move || {
            sampled(job, blocks, || match (me, in_place) {
                (0, _) => push_all(&ring, block),
                (_, true) => check_all(&ring, len),
                (_, false) => pop_all(&ring, &mut copied.borrow_mut()),
            })
            .map(rate)
        }));
    }
    let own = memory.local_ptr();
    let private = vec![2u64; len];
    contenders.push(Contender::limit("memcpy by one PE", move || {
        if me != 0 {
            return Ok(Vec::new());
        }
        let samples = time_each(SAMPLES, blocks, || {
            // SAFETY: a window and a vector of that many bytes.
            unsafe { raw::copy(own.cast(), private.as_ptr().cast(), row.size) };
            Ok(())
        })?;
        Ok(rates(row.size as f64, samples))
    }));
    bench.interleave(row, &mut contenders)
}

/// Words of a block of `len` words that a ring takes at once.
fn part_of(ring: &RawMulticast<'_>, len: usize) -> usize {
    len.min(ring.most() / size_of::<u64>())
}

/// Writes a block to a bare ring, in parts.
fn push_all(ring: &RawMulticast<'_>, block: &[u64]) -> Result<()> {
    let part = part_of(ring, block.len());
    for first in (0..block.len()).step_by(part) {
        ring.push(black_box(&block[first..first + part]));
    }
    Ok(())
}

/// Reads a block of `len` words in a bare ring, in parts.
fn check_all(ring: &RawMulticast<'_>, len: usize) -> Result<()> {
    let part = part_of(ring, len);
    for _ in (0..len).step_by(part) {
        ring.pop(part * size_of::<u64>(), |at| {
            // SAFETY: a part of the ring, which the writer does not change before this returns.
            check_lines(unsafe { std::slice::from_raw_parts(at.cast(), part) })
        })?;
    }
    Ok(())
}

/// Copies a block out of a bare ring, in parts.
fn pop_all(ring: &RawMulticast<'_>, to: &mut [u64]) -> Result<()> {
    let part = part_of(ring, to.len());
    for first in (0..to.len()).step_by(part) {
        ring.pop(part * size_of::<u64>(), |at| {
            let to = &mut to[first..first + part];
            // SAFETY: a part of the ring, which the writer does not change before this returns. The
            // private part is as long.
            unsafe { raw::copy(to.as_mut_ptr().cast(), at, size_of_val(to)) };
        });
    }
    Ok(())
}

/// Bytes that each reader receives by datagrams.
fn over_udp_of(bench: &mut Bench<'_>, row: &Row) -> Result<()> {
    let job = bench.job;
    let me = job.pe();
    let mut channel = channel(job, 0)?;
    ensure!(
        channel.delivery() == Delivery::Datagrams,
        "the channel delivers by {}",
        channel.delivery()
    );
    let words = job.window::<u64>(RawUdp::words(job))?;
    let raw = RawUdp::new(job, &words)?;
    let (block, mut buffer) = (vec![1u64; row.size / size_of::<u64>()], Vec::new());
    let raw_block = RefCell::new(vec![1u8; row.size]);
    let blocks = bench.effort.of(BYTES_BY_UDP) / row.size;
    let rate = |samples| rates(row.size as f64, samples);
    let mut contenders = vec![Contender::library(|| {
        sampled(job, blocks, || {
            if me == 0 {
                channel.publish(&block)?;
            } else {
                channel.recv(&mut buffer)?;
                ensure!(buffer.len() == block.len(), "a block of {} words arrived", buffer.len());
            }
            Ok(())
        })
        .map(rate)
    })];
    if let Some(raw) = &raw {
        contenders.push(Contender::limit("bare sockets", || {
            sampled(job, blocks, || {
                let mut block = raw_block.borrow_mut();
                if me == 0 { raw.send(&block) } else { raw.receive(&mut block) }
            })
            .map(rate)
        }));
    }
    bench.interleave(row, &mut contenders)
}

/// Reads each cache line of a block of ones once.
#[inline(always)]
fn check_lines(block: &[u64]) -> Result<()> {
    let sum = block.iter().step_by(8).fold(0u64, |sum, &word| sum.wrapping_add(word));
    ensure!(sum == block.len().div_ceil(8) as u64, "a block arrived torn");
    Ok(())
}

/// Nanoseconds of one of `count` operations, by PE 0's clock: from when all PEs begin until all
/// have ended.
#[inline(always)]
fn sampled(job: &Job, count: usize, mut once: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..=SAMPLES {
        job.barrier()?;
        let start = Instant::now();
        for _ in 0..count {
            once()?;
        }
        job.barrier()?;
        // The first sample only warms up.
        if sample > 0 {
            samples.push(start.elapsed().as_nanos() as f64 / count as f64);
        }
    }
    Ok(if job.pe() == 0 { samples } else { Vec::new() })
}
