//! Words: stores and loads of every width, never torn, without touching neighbours.

use crate::setup::{FEW, Run, Setup};
use memonet_core::{Job, Read, Result, Word, Write};

on_every_fabric!(
    [also on recorded]
    every_width_arrives,
    every_width_is_loaded_from_afar,
    a_far_store_is_a_word_of_its_own_width,
    neighbours_keep_their_bytes,
    no_word_is_torn,
    remotes_know_where_they_point,
    remotes_outlive_handles,
    ; with threads of their own:
    remotes_work_in_other_threads,
);

/// Values whose bytes all differ, then the ends of the range.
const PATTERNS: [u64; 5] = [0x0123_4567_89AB_CDEF, u64::MAX, 0, 0x8000_0080_8000_8080, 1];

/// Runs a piece of code for each type of word.
macro_rules! for_each_word {
    ($f:ident($($argument:expr),*)) => {{
        $f::<u8>($($argument),*)?;
        $f::<i8>($($argument),*)?;
        $f::<u16>($($argument),*)?;
        $f::<i16>($($argument),*)?;
        $f::<u32>($($argument),*)?;
        $f::<i32>($($argument),*)?;
        $f::<u64>($($argument),*)?;
        $f::<i64>($($argument),*)?;
        $f::<usize>($($argument),*)?;
        $f::<isize>($($argument),*)?;
        $f::<f32>($($argument),*)?;
        $f::<f64>($($argument),*)?;
    }};
}

/// The value of a word of this width after `bits` were stored. Floats compare by their bits.
fn narrowed<T: Word>(bits: u64) -> u64 {
    T::from_bits(bits).to_bits()
}

fn every_width_arrives(setup: Setup) {
    fn one<T: Word>(job: &Job) -> Result<()> {
        let (me, n) = (job.pe(), job.npes());
        let w = job.window::<T>(n)?;
        for (round, pattern) in PATTERNS.into_iter().enumerate() {
            for pe in 0..n {
                w.remote(pe, me)?.store(T::from_bits(pattern.rotate_left(me as u32)));
            }
            job.barrier()?;
            for writer in 0..n {
                let expected = narrowed::<T>(pattern.rotate_left(writer as u32));
                assert_eq!(w.read(writer).to_bits(), expected, "round {round}, from PE {writer}");
            }
            job.barrier()?;
        }
        Ok(())
    }
    for run in setup.runs(&[1, 2, 5, 9]) {
        run.job(|job| {
            for_each_word!(one(job));
            Ok(())
        });
    }
}

fn every_width_is_loaded_from_afar(setup: Setup) {
    fn one<T: Word>(job: &Job) -> Result<()> {
        let (me, n) = (job.pe(), job.npes());
        let w = job.window::<T>(PATTERNS.len())?;
        for (i, pattern) in PATTERNS.into_iter().enumerate() {
            w.write(i, T::from_bits(pattern.rotate_left(me as u32)));
        }
        job.barrier()?;
        for pe in 0..n {
            for (i, pattern) in PATTERNS.into_iter().enumerate() {
                let expected = narrowed::<T>(pattern.rotate_left(pe as u32));
                assert_eq!(w.remote(pe, i)?.load()?.to_bits(), expected);
                assert_eq!(w.remote_as::<Read>(pe, i)?.load()?.to_bits(), expected);
                assert_eq!(w.remote(pe, i)?.fetch()?.to_bits(), expected);
                assert_eq!(w.get_one(pe, i)?.to_bits(), expected);
            }
        }
        job.barrier()
    }
    for run in setup.runs(&[1, 2, 5]) {
        run.job(|job| {
            for_each_word!(one(job));
            Ok(())
        });
    }
}

/// Fields of elements, by their byte offsets.
fn a_far_store_is_a_word_of_its_own_width(setup: Setup) {
    #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
    #[repr(C)]
    struct Record {
        count: u64,
        weight: f32,
        kind: u16,
        flags: [u8; 2],
    }
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<Record>(3)?;
            let all_ones = Record {
                count: u64::MAX,
                weight: f32::from_bits(u32::MAX),
                kind: u16::MAX,
                flags: [u8::MAX; 2],
            };
            w.fill(0..3, all_ones);
            job.barrier()?;
            if job.pe() == 0 {
                let record = size_of::<Record>();
                w.remote_word::<u64>(1, record)?.store(7);
                w.remote_word::<f32>(1, record + 8)?.store(0.5);
                w.remote_word::<u16>(1, record + 12)?.store(3);
                w.remote_word::<u8>(1, record + 15)?.store(4);
            }
            job.barrier()?;
            if job.pe() == 1 {
                let Record { count, weight, kind, flags } = w.read(1);
                assert_eq!((count, weight, kind, flags), (7, 0.5, 3, [u8::MAX, 4]));
                for i in [0, 2] {
                    assert_eq!(
                        zerocopy::IntoBytes::as_bytes(&w.read(i)),
                        zerocopy::IntoBytes::as_bytes(&all_ones)
                    );
                }
            }
            assert_eq!(w.remote_word::<u64>(1, size_of::<Record>())?.fetch_add(0)?, 7);
            job.barrier()
        });
    }
}

/// Every byte of one word belongs to another PE.
fn neighbours_keep_their_bytes(setup: Setup) {
    fn hammer<T: Word>(job: &Job) -> Result<()> {
        let (me, n) = (job.pe(), job.npes());
        let w = job.window::<T>(n)?;
        let mine = w.remote_as::<Write>(0, me)?;
        for i in 0..=120u64 {
            mine.store(T::from_bits(i + me as u64));
            // Without a fence, the last store may arrive before others.
            if i % 40 == 39 {
                job.fence()?;
            }
        }
        job.barrier()?;
        if me == 0 {
            for pe in 0..n {
                assert_eq!(w.read(pe).to_bits(), narrowed::<T>(120 + pe as u64), "word {pe}");
            }
        }
        job.barrier()
    }
    for run in setup.many_runs(&[2, 9], 2) {
        run.job(|job| {
            hammer::<u8>(job)?;
            hammer::<u16>(job)?;
            hammer::<u32>(job)
        });
    }
}

fn no_word_is_torn(setup: Setup) {
    const LEGAL: [u64; 4] = [0, u64::MAX, 0x0101_0101_0101_0101, 0xFEDC_BA98_7654_3210];

    fn hammer<T: Word>(job: &Job) -> Result<()> {
        let w = job.window::<T>(2)?;
        let legal = LEGAL.map(narrowed::<T>);
        let word = w.remote(0, 0)?;
        let done = w.remote(0, 1)?;
        let mut looks = 0;
        if job.pe() == 1 {
            for i in 0..500 {
                word.store(T::from_bits(LEGAL[i % LEGAL.len()]));
                if i % 50 == 0 {
                    job.quiet()?;
                }
            }
            job.fence()?;
            done.store(T::from_bits(LEGAL[2]));
        } else {
            while done.load()?.to_bits() == 0 && looks < 100_000 {
                let seen = if job.pe() == 0 { w.read(0) } else { word.load()? };
                assert!(legal.contains(&seen.to_bits()), "torn: {:#x}", seen.to_bits());
                looks += 1;
            }
        }
        job.barrier()
    }
    for run in setup.many_runs(&[2, 3], 1) {
        run.job(|job| {
            hammer::<u8>(job)?;
            hammer::<u16>(job)?;
            hammer::<u32>(job)?;
            hammer::<u64>(job)?;
            hammer::<f64>(job)
        });
    }
}

fn remotes_know_where_they_point(setup: Setup) {
    for run in setup.runs(&[1, 3]) {
        run.job(move |job| {
            let w = job.window::<u32>(1)?;
            for pe in 0..job.npes() {
                let remote = w.remote(pe, 0)?;
                assert_eq!(remote.pe(), pe);
                assert_eq!(remote.is_near(), job.is_near(pe));
                assert_eq!(w.near_ptr(pe, 0).is_some(), job.is_near(pe));
                if pe != job.pe() {
                    assert_eq!(job.is_near(pe), setup.are_near(&[job.pe(), pe], job.npes()));
                }
            }
            assert_eq!(job.fabric().is_some(), !setup.is_near());
            job.barrier()
        });
    }
}

/// A remote keeps its memory, even when all handles of the window are dropped.
fn remotes_outlive_handles(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(4)?;
            let remote = w.remote((me + 1) % n, 2)?;
            drop(w);
            // Would get that memory, if it were free.
            let others: Vec<_> = (0..4).map(|_| job.window::<u64>(4)).collect::<Result<_>>()?;
            remote.store(77);
            job.quiet()?;
            assert_eq!(remote.load()?, 77);
            job.barrier()?;
            for other in others {
                assert_eq!(other.to_vec(), [0; 4]);
            }
            job.barrier()
        });
    }
}

fn remotes_work_in_other_threads(setup: Setup) {
    for run in setup.runs(FEW) {
        let run: Run = run;
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(8)?;
            let to = (me + 1) % n;
            std::thread::scope(|scope| {
                for i in 0..8 {
                    let remote = w.remote(to, i)?;
                    scope.spawn(move || remote.store(me as u64 * 10 + i as u64 + 1));
                }
                Ok::<(), memonet_core::Error>(())
            })?;
            job.barrier()?;
            let from = (me + n - 1) % n;
            assert_eq!(w.to_vec(), (0..8).map(|i| (from * 10 + i + 1) as u64).collect::<Vec<_>>());
            job.barrier()
        });
    }
}
