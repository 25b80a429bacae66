//! Atomics: applied exactly once, by all PEs at once, including the word's home.

use crate::setup::{FEW, Setup, eventually};
use memonet_core::{AtomicInt, Job, Result, SignalOp, Word};
use std::collections::BTreeSet;

on_every_fabric!(
    [also on recorded]
    sums_are_exact,
    every_ticket_is_drawn_once,
    bits_are_everybodys_own,
    swaps_lose_nothing,
    small_words_are_swapped,
    compare_swap_lets_one_through,
    compare_swap_compares_bits,
    sums_wrap,
    set_and_fetch,
    signals_and_atomics_share_a_word,
    quiet_covers_atomics_without_result,
);

const ROUNDS: usize = 40;

fn word<T: Word>(bits: usize) -> T {
    T::from_bits(bits as u64)
}

/// Every PE adds to a word on every PE.
fn sums_are_exact(setup: Setup) {
    fn one<T: AtomicInt>(job: &Job) -> Result<()> {
        let n = job.npes();
        let w = job.window::<T>(3)?;
        for round in 0..ROUNDS / 4 {
            for step in 0..n {
                let word_there = w.remote((job.pe() + step) % n, 1)?;
                if round % 2 == 0 {
                    word_there.add(word(job.pe() + 1))?;
                } else {
                    word_there.fetch_add(word(job.pe() + 1))?;
                }
            }
        }
        job.barrier()?;
        assert_eq!(w.read(1), word(ROUNDS / 4 * n * (n + 1) / 2));
        assert_eq!((w.read(0), w.read(2)), (word(0), word(0)), "a neighbour was touched");
        job.barrier()
    }
    for run in setup.runs(&[1, 2, 5, 9]) {
        run.job(|job| {
            one::<u32>(job)?;
            one::<i32>(job)?;
            one::<u64>(job)?;
            one::<i64>(job)?;
            one::<usize>(job)?;
            one::<isize>(job)
        });
    }
}

fn every_ticket_is_drawn_once(setup: Setup) {
    for run in setup.runs(&[1, 2, 3, 8, 17]) {
        let drawn = run.results(|job| -> Result<Vec<u64>> {
            let w = job.window::<u64>(1)?;
            let counter = w.remote(job.npes() - 1, 0)?;
            let tickets = (0..ROUNDS).map(|_| counter.fetch_add(1)).collect::<Result<Vec<_>>>()?;
            job.barrier()?;
            assert_eq!(counter.load()?, (ROUNDS * job.npes()) as u64);
            job.barrier()?;
            Ok(tickets)
        });
        let mut all = BTreeSet::new();
        for tickets in drawn {
            let tickets = tickets.unwrap();
            assert!(
                tickets.is_sorted(),
                "one PE's atomics on one word are in order, as each returns when it is applied"
            );
            all.extend(tickets);
        }
        assert_eq!(all, (0..(ROUNDS * run.npes) as u64).collect());
    }
}

/// Each PE owns one bit and changes it by or, xor and and. No change of another PE is lost.
fn bits_are_everybodys_own(setup: Setup) {
    fn one<T: AtomicInt>(job: &Job) -> Result<()> {
        let w = job.window::<T>(1)?;
        let shared = w.remote(0, 0)?;
        let bit = 1usize << job.pe();
        let has = |old: T| old.to_bits() as usize & bit != 0;
        for _ in 0..ROUNDS / 4 {
            assert!(!has(shared.fetch_or(word(bit))?));
            assert!(has(shared.fetch_or(word(bit))?));
            assert!(has(shared.fetch_xor(word(bit))?));
            assert!(!has(shared.fetch_xor(word(bit))?));
            assert!(has(shared.fetch_and(word(!bit))?));
            assert!(!has(shared.fetch()?));
            shared.or(word(bit))?;
            shared.xor(word(bit))?;
            shared.xor(word(bit))?;
            shared.and(word(!bit))?;
        }
        job.barrier()?;
        assert_eq!(shared.fetch()?, word(0));
        job.barrier()?;
        shared.xor(word(bit))?;
        job.barrier()?;
        assert_eq!(shared.fetch()?, word((1 << job.npes()) - 1));
        job.barrier()
    }
    for run in setup.runs(&[1, 2, 5, 9]) {
        run.job(|job| {
            one::<u32>(job)?;
            one::<i64>(job)
        });
    }
}

/// Every value that is swapped in comes out once, or is there at the end.
fn swaps_lose_nothing(setup: Setup) {
    fn one<T: Word>(job: &Job) -> Result<Vec<u64>> {
        let (me, n) = (job.pe(), job.npes());
        let w = job.window::<T>(1)?;
        let shared = w.remote(0, 0)?;
        let mut seen = Vec::new();
        for round in 0..ROUNDS {
            seen.push(shared.swap(word(1 + me + n * round))?.to_bits());
        }
        job.barrier()?;
        if me == 0 {
            seen.push(w.read(0).to_bits());
        }
        job.barrier()?;
        Ok(seen)
    }
    for run in setup.runs(&[1, 2, 5, 9]) {
        let seen = run.results(|job| -> Result<[Vec<u64>; 3]> {
            Ok([one::<u32>(job)?, one::<u64>(job)?, one::<f64>(job)?])
        });
        let seen: Vec<_> = seen.into_iter().map(Result::unwrap).collect();
        for kind in 0..3 {
            let mut all: Vec<u64> = seen.iter().flat_map(|pe| pe[kind].iter().copied()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..=(ROUNDS * run.npes) as u64).collect::<Vec<_>>());
        }
    }
}

/// Neighbouring words of one and two bytes.
fn small_words_are_swapped(setup: Setup) {
    fn one<T: Word>(job: &Job) -> Result<()> {
        let (me, n) = (job.pe(), job.npes());
        let w = job.window::<T>(n)?;
        let mine = w.remote((me + 1) % n, me)?;
        let mut before = 0;
        for round in 1..=ROUNDS {
            assert_eq!(mine.swap(word(round))?, word(before));
            let stale = mine.compare_swap(word(before), word(99))?;
            assert_eq!(stale, word(round), "the old value is gone");
            assert_eq!(mine.compare_swap(word(round), word(round + 100))?, word(round));
            before = round + 100;
        }
        job.barrier()?;
        let from = (me + n - 1) % n;
        for i in 0..n {
            assert_eq!(w.read(i), word(if i == from { ROUNDS + 100 } else { 0 }));
        }
        job.barrier()
    }
    for run in setup.runs(&[1, 2, 5]) {
        run.job(|job| {
            one::<u8>(job)?;
            one::<i8>(job)?;
            one::<u16>(job)?;
            one::<i16>(job)?;
            one::<u32>(job)
        });
    }
}

/// A lock made of atomics alone.
fn compare_swap_lets_one_through(setup: Setup) {
    for run in setup.runs(&[1, 2, 5, 9]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(2)?;
            let (lock, count) = (w.remote(0, 0)?, w.remote(0, 1)?);
            for _ in 0..8 {
                eventually("the lock", || lock.compare_swap(0, 1 + me as u64).unwrap() == 0);
                // Only the lock makes the two steps atomic.
                count.set(count.fetch()? + 1)?;
                assert_eq!(lock.compare_swap(1 + me as u64, 0)?, 1 + me as u64);
            }
            job.barrier()?;
            assert_eq!(count.load()?, 8 * n as u64);
            job.barrier()
        });
    }
}

fn compare_swap_compares_bits(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (doubles, floats) = (job.window::<f64>(1)?, job.window::<f32>(1)?);
            if job.pe() == 0 {
                let d = doubles.remote(1, 0)?;
                assert_eq!(
                    d.compare_swap(-0.0, 1.0)?.to_bits(),
                    0.0f64.to_bits(),
                    "-0.0 equals 0.0 but has other bits"
                );
                assert_eq!(d.fetch()?, 0.0);
                d.set(f64::NAN)?;
                assert!(d.compare_swap(f64::NAN, 2.5)?.is_nan(), "not equal, but the same bits");
                assert_eq!(d.swap(1e300)?, 2.5);
                let f = floats.remote(1, 0)?;
                f.set(f32::NAN)?;
                assert!(f.compare_swap(f32::NAN, -1.5)?.is_nan());
                assert_eq!(f.fetch()?, -1.5);
            }
            job.barrier()?;
            if job.pe() == 1 {
                assert_eq!((doubles.read(0), floats.read(0)), (1e300, -1.5));
            }
            job.barrier()
        });
    }
}

fn sums_wrap(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (w, s) = (job.window::<u32>(3)?, job.window::<i64>(2)?);
            if job.pe() == 0 {
                let u = w.remote(1, 1)?;
                u.set(u32::MAX)?;
                assert_eq!(u.fetch_add(3)?, u32::MAX);
                assert_eq!(u.fetch()?, 2);
                let i = s.remote(1, 0)?;
                i.set(i64::MAX)?;
                i.add(1)?;
                assert_eq!(i.fetch_add(-1)?, i64::MIN);
                assert_eq!(i.fetch()?, i64::MAX);
            }
            job.barrier()?;
            if job.pe() == 1 {
                assert_eq!(w.to_vec(), [0, 2, 0], "no carry into a neighbour");
                assert_eq!(s.to_vec(), [i64::MAX, 0]);
            }
            job.barrier()
        });
    }
}

/// A fetched value is one that a PE has set, never torn.
fn set_and_fetch(setup: Setup) {
    for run in setup.runs(&[2, 5]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(1)?;
            let shared = w.remote(n - 1, 0)?;
            for _ in 0..ROUNDS {
                shared.set((me as u64 + 1) * 0x0101_0101_0101_0101)?;
                let seen = shared.fetch()?;
                assert!(seen != 0 && seen.is_multiple_of(0x0101_0101_0101_0101), "{seen:#x}");
                assert!(seen & 0xFF <= n as u64);
            }
            job.barrier()?;
            shared.set(5)?;
            assert_eq!(shared.fetch()?, 5);
            job.barrier()
        });
    }
}

/// Atomics and signals that update one word are atomic with each other.
fn signals_and_atomics_share_a_word(setup: Setup) {
    for run in setup.runs(&[1, 2, 3, 8]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (w, data) = (job.window::<u64>(1)?, job.window::<u8>(n)?);
            let mut transfer =
                data.prepare(0, me, &data, me..me)?.with_signal(&w, 0, SignalOp::Add, 1000)?;
            for _ in 0..ROUNDS / 2 {
                w.remote(0, 0)?.fetch_add(1)?;
                w.signal(0, 0, SignalOp::Add, 10)?;
                data.put_signal(0, me, &[1], &w, 0, SignalOp::Add, 100)?;
                transfer.start()?;
                transfer.wait()?;
            }
            job.barrier()?;
            assert_eq!(w.remote(0, 0)?.fetch()?, (n * ROUNDS / 2 * 1111) as u64);
            job.barrier()
        });
    }
}

fn quiet_covers_atomics_without_result(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<i32>(1)?;
            if job.pe() == 0 {
                let there = w.remote(1, 0)?;
                for i in 0..10 {
                    there.add(i)?;
                }
                job.quiet()?;
                assert_eq!(there.load()?, 45);
            }
            job.barrier()
        });
    }
}
