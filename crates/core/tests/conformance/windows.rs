//! Windows: made and freed in step, zero at first, never overlapping, and freed when no PE has them
//! any more.

use crate::setup::{Dice, NEAR, Setup, mark, marks};
use memonet_core::{Error, Job, Result, Window, WindowOptions};
use std::collections::VecDeque;

on_every_fabric!(
    [also on recorded]
    windows_come_and_go,
    dropped_in_different_orders,
    new_windows_are_zero,
    what_is_still_under_way_spares_new_windows,
    sources_under_way_are_kept,
    clones_keep_the_memory,
    every_alignment,
    too_large,
    different_requests,
    different_windows_are_not_freed,
    windows_outlive_job_handles,
    windows_outlive_the_job,
);

/// A window, its number at all PEs, and the contents of this PE's part.
struct Known {
    number: usize,
    window: Window<u64>,
}

impl Known {
    fn make(job: &Job, number: usize, len: usize) -> Result<Known> {
        let window = job.window::<u64>(len)?;
        assert!(window.to_vec().iter().all(|&value| value == 0), "a new window is zero");
        job.barrier()?;
        let next = (job.pe() + 1) % job.npes();
        window.put(next, 0, &marks(next, number, len))?;
        Ok(Known { number, window })
    }

    fn check(&self, job: &Job) {
        assert_eq!(
            self.window.to_vec(),
            marks(job.pe(), self.number, self.window.len()),
            "window {}",
            self.number
        );
    }
}

/// All PEs make and free windows, in random order.
fn windows_come_and_go(setup: Setup) {
    for run in setup.runs(&[1, 2, 3, 5, 9]) {
        run.job(move |job| {
            let mut dice = run.shared_dice();
            let mut known: Vec<Known> = Vec::new();
            for number in 0..if job.npes() < 9 { 50 } else { 15 } {
                if known.len() < 2 || dice.below(8) > known.len() {
                    let len = [0, 1, 7, 100, 513, 5000][dice.below(6)];
                    known.push(Known::make(job, number, len)?);
                } else {
                    known.swap_remove(dice.below(known.len())).window.free()?;
                }
                job.barrier()?;
                known.iter().for_each(|k| k.check(job));
            }
            job.barrier()
        });
    }
}

/// Each PE drops windows at any time. Only memory that all have dropped is used again.
fn dropped_in_different_orders(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 9]) {
        run.job(move |job| {
            let (mut shared, mut own) = (run.shared_dice(), run.dice(job.pe()));
            let mut known: VecDeque<Known> = VecDeque::new();
            for number in 0..if job.npes() < 9 { 40 } else { 15 } {
                known.push_back(Known::make(job, number, 1 + shared.below(600))?);
                job.barrier()?;
                while known.len() > 6 || own.below(3) == 0 && !known.is_empty() {
                    let gone = known.remove(own.below(known.len())).unwrap();
                    gone.check(job);
                }
                known.iter().for_each(|k| k.check(job));
            }
            job.barrier()
        });
    }
}

fn new_windows_are_zero(setup: Setup) {
    for run in setup.runs(&[1, 2, 5]) {
        run.job(|job| {
            let next = (job.pe() + 1) % job.npes();
            for len in [1usize, 64, 4096, 100_000] {
                for _ in 0..3 {
                    let w = job.window::<u32>(len)?;
                    let mut theirs = vec![1; len];
                    w.get(next, 0, &mut theirs)?;
                    assert!(theirs[..len - 1].iter().all(|&v| v == 0), "{len} elements, from afar");
                    // Written at once: no PE may get the window before it is zero everywhere, or
                    // this write could be lost.
                    w.put(next, len - 1, &[7])?;
                    job.barrier()?;
                    let mut expected = vec![0; len];
                    expected[len - 1] = 7;
                    assert_eq!(w.to_vec(), expected);
                    job.barrier()?;
                    w.put(next, 0, &vec![u32::MAX; len])?;
                    w.free()?;
                }
            }
            job.barrier()
        });
    }
}

/// A put that was not completed must not land in a new window at the place of its target.
fn what_is_still_under_way_spares_new_windows(setup: Setup) {
    for run in setup.many_runs(&[2, 3], 4) {
        run.job(|job| {
            let next = (job.pe() + 1) % job.npes();
            for round in 0..12 {
                let w = job.window::<u64>(200)?;
                for i in 0..20 {
                    w.put(next, i * 10, &[u64::MAX; 10])?;
                    w.remote(next, i)?.store(u64::MAX);
                }
                if round % 2 == 0 {
                    w.free()?
                } else {
                    drop(w)
                }
                let new = job.window::<u64>(200)?;
                assert_eq!(new.to_vec(), [0; 200], "round {round}");
                job.quiet()?;
                job.barrier()?;
                assert_eq!(new.to_vec(), [0; 200], "round {round}: something came late");
                new.free()?;
            }
            job.barrier()
        });
    }
}

/// A source that is dropped while a fabric reads it is not used again before that ends.
fn sources_under_way_are_kept(setup: Setup) {
    for run in setup.many_runs(&[2, 3], 4) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let target = job.window::<u64>(100)?;
            for round in 0..12 {
                let source = job.window::<u64>(100)?;
                source.write_from(0, &marks(me, round, 100));
                for i in 0..10 {
                    target.put_nbi((me + 1) % n, 10 * i, &source, 10 * i..10 * i + 10)?;
                }
                drop(source);
                let other = job.window::<u64>(100)?;
                other.fill(0..100, u64::MAX);
                job.barrier()?;
                assert_eq!(target.to_vec(), marks((me + n - 1) % n, round, 100), "round {round}");
                other.free()?;
            }
            job.barrier()
        });
    }
}

/// Windows one after the other, with far more memory in all than there is.
#[test]
fn memory_is_used_again() {
    for run in NEAR.runs(&[1, 2]) {
        run.job(|job| {
            // Segments are as large as physical memory, unless a limit makes them smaller.
            let mut size = 1usize << 40;
            let largest = loop {
                match job.window::<u8>(size) {
                    Ok(w) => break w,
                    Err(Error::OutOfMemory { .. }) => size /= 2,
                    Err(other) => return Err(other),
                }
            };
            assert!(size >= 1 << 20, "at most {size} bytes?");
            let address = largest.local_ptr();
            largest.free()?;
            for round in 0..200 {
                let w = job.window::<u8>(size)?;
                assert_eq!(w.local_ptr(), address, "round {round}");
                if round % 3 == 0 { w.free()? } else { drop(w) }
            }
            // In many small windows, too.
            for _ in 0..3 {
                let pieces =
                    (0..50).map(|_| job.window::<u8>(size / 64)).collect::<Result<Vec<_>>>()?;
                drop(pieces);
            }
            job.window::<u8>(size)?.free()
        });
    }
}

/// Pages of a range that are in memory.
fn resident(start: *mut u8, len: usize) -> usize {
    let mut pages = vec![0u8; len.div_ceil(4096)];
    // SAFETY: the range is mapped as long as the window lives, and the vector has a byte per page;
    // the call only reads page tables.
    let answer = unsafe { libc::mincore(start.cast(), len, pages.as_mut_ptr()) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    pages.iter().filter(|&&page| page & 1 != 0).count()
}

#[test]
fn pages_are_given_back() {
    const LEN: usize = 8 << 20;
    for run in NEAR.runs(&[2]) {
        run.job(|job| {
            for dropped in [false, true] {
                let w = job.window::<u8>(LEN)?;
                let address = w.local_ptr();
                assert!(resident(address, LEN) < 1024, "pages exist when touched, not before");
                w.write_from(0, &vec![7; LEN]);
                assert!(resident(address, LEN) >= LEN / 4096);
                job.barrier()?;
                if dropped {
                    drop(w);
                    job.window::<u8>(1)?.free()?;
                } else {
                    w.free()?;
                }
                // The memory stays mapped as long as the job.
                assert!(resident(address, LEN) < 1024, "freed pages are given back");
                job.barrier()?;
            }
            job.barrier()
        });
    }
}

/// No use after free: memory that any PE can still address is not free.
fn clones_keep_the_memory(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(50)?;
            let clone = (me == 0).then(|| w.clone());
            w.free()?;
            let others = (0..3).map(|_| job.window::<u64>(50)).collect::<Result<Vec<_>>>()?;
            if let Some(clone) = &clone {
                // Other PEs have dropped their handles; their parts still exist.
                for to in 0..n {
                    clone.put(to, 0, &marks(0, to, 50))?;
                }
                job.quiet()?;
                for to in 0..n {
                    let mut back = vec![0; 50];
                    clone.get(to, 0, &mut back)?;
                    assert_eq!(back, marks(0, to, 50));
                }
            }
            job.barrier()?;
            for other in &others {
                assert_eq!(other.to_vec(), [0; 50]);
            }
            drop(clone);
            job.window::<u64>(50)?.free()?;
            job.barrier()
        });
    }
}

fn every_alignment(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let _odd = job.window::<u8>(3)?;
            let words = job.window::<u64>(1)?;
            let _odd = job.window::<[u8; 5]>(1)?;
            let wide = job.window::<u128>(1)?;
            let bytes = job.window::<u8>(8)?;
            assert!(words.local_ptr().is_aligned() && wide.local_ptr().is_aligned());
            // Any window has words of any size.
            bytes.remote_word::<u64>(1, 0)?.store(1);
            wide.remote_word::<f64>(1, 8)?.store(1.0);
            job.barrier()
        });
    }
}

/// All PEs get an error, and nothing has changed.
fn too_large(setup: Setup) {
    for run in setup.runs(&[1, 3]) {
        run.job(|job| {
            let kept = job.window::<u64>(10)?;
            kept.fill(0..10, 5);
            for len in
                [usize::MAX, usize::MAX / 8, usize::MAX / 8 + 1, usize::MAX / 16, 1 << 57, 1 << 50]
            {
                let refused = job.window::<u64>(len).map(drop);
                assert!(
                    matches!(refused, Err(Error::Overflow { .. } | Error::OutOfMemory { .. })),
                    "{len}: {refused:?}"
                );
                let refused =
                    job.restricted::<u64>(len, |_, _| memonet_core::Access::Read).map(drop);
                assert!(refused.is_err(), "{len}");
            }
            let w = job.window::<u64>(10)?;
            assert_eq!((kept.to_vec(), w.to_vec()), (vec![5; 10], vec![0; 10]));
            job.barrier()
        });
    }
}

fn different_requests(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let odd = job.npes() - 1;
            let mine = job.pe() == odd;
            let unequal = |result: Result<Window<u64>>, what: &str| match result.map(drop) {
                Err(Error::Unequal { pe, .. }) => {
                    assert!(mine && pe != odd || !mine && pe == odd, "{what}: PE {pe}")
                }
                other => panic!("{what}: {other:?}"),
            };
            let kept = job.window::<u64>(3)?;
            unequal(job.window(if mine { 5 } else { 6 }), "length");
            unequal(job.window(if mine { 0 } else { 6 }), "nothing");
            let access =
                if mine { memonet_core::Access::Read } else { memonet_core::Access::ReadWrite };
            unequal(job.window_with(6, WindowOptions::new().access(access)), "access");
            unequal(
                if mine {
                    job.restricted(6, |_, _| memonet_core::Access::ReadWrite)
                } else {
                    job.window(6)
                },
                "a restricted window",
            );
            unequal(
                job.restricted(6, |home, holder| {
                    if mine && (home, holder) == (0, 1) {
                        memonet_core::Access::None
                    } else {
                        memonet_core::Access::Read
                    }
                }),
                "rights",
            );
            // Another kind of call.
            let spare = kept.clone();
            let refused = if mine { spare.free() } else { job.window::<u64>(6).map(drop) };
            assert!(matches!(refused, Err(Error::Unequal { .. })), "{refused:?}");
            // Nothing has changed at any PE.
            kept.put((job.pe() + 1) % job.npes(), 0, &[1, 2, 3])?;
            let w = job.window::<u64>(3)?;
            assert_eq!((kept.to_vec(), w.to_vec()), (vec![1, 2, 3], vec![0; 3]));
            job.barrier()
        });
    }
}

fn different_windows_are_not_freed(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let (a, b) = (job.window::<u64>(4)?, job.window::<u64>(4)?);
            let (keep_a, keep_b) = (a.clone(), b.clone());
            let refused = if job.pe() == 0 { a.free() } else { b.free() };
            assert!(matches!(refused, Err(Error::Unequal { .. })), "{refused:?}");
            let next = (job.pe() + 1) % job.npes();
            keep_a.put(next, 0, &[1; 4])?;
            keep_b.put(next, 0, &[2; 4])?;
            let new = job.window::<u64>(4)?;
            assert_eq!([keep_a.to_vec(), keep_b.to_vec(), new.to_vec()], [[1; 4], [2; 4], [0; 4]]);
            job.barrier()
        });
    }
}

#[test]
fn too_many() {
    for run in NEAR.runs(&[2]) {
        run.job(|job| {
            let mut all = Vec::new();
            let limit = loop {
                match job.window::<u8>(all.len() % 3) {
                    Ok(w) => all.push(w),
                    Err(Error::TooMany { limit, .. }) => break limit,
                    Err(other) => return Err(other),
                }
                assert!(all.len() < 100_000);
            };
            assert!(all.len() <= limit && all.len() > limit - 8, "{} of {limit}", all.len());
            assert!(matches!(job.window::<u8>(1).map(drop), Err(Error::TooMany { .. })), "again");
            all.truncate(limit / 2);
            job.window::<u8>(1)?.free()?;
            job.barrier()
        });
    }
}

#[test]
fn populated() {
    const LEN: usize = 1 << 20;
    for run in NEAR.runs(&[2]) {
        run.job(|job| {
            let w = job.window_with::<u8>(LEN, WindowOptions::new().populate(true))?;
            assert_eq!(resident(w.local_ptr(), LEN), LEN / 4096);
            assert!(w.to_vec().iter().all(|&byte| byte == 0));
            job.barrier()
        });
    }
}

fn windows_outlive_job_handles(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let clone = job.clone();
            let w = clone.window::<u64>(2)?;
            let team = clone.team(&(0..n).collect::<Vec<_>>())?.unwrap();
            drop(clone);
            w.put((me + 1) % n, 0, &[mark(me, 0, 0)])?;
            team.barrier()?;
            assert_eq!(w.read(0), mark((me + n - 1) % n, 0, 0));
            w.free()?;
            team.barrier()
        });
    }
}

/// A window that a PE returned can still be read.
fn windows_outlive_the_job(setup: Setup) {
    for run in setup.many_runs(&[1, 3], 1) {
        let windows = run.results(|job| -> Result<Window<u64>> {
            let w = job.window::<u64>(8)?;
            w.put((job.pe() + 1) % job.npes(), 0, &marks(job.pe(), 0, 8))?;
            job.barrier()?;
            Ok(w)
        });
        let mut dice = Dice::from(run.seed);
        let mut windows: Vec<_> = windows.into_iter().map(Result::unwrap).enumerate().collect();
        while !windows.is_empty() {
            for (pe, w) in &windows {
                assert_eq!(w.to_vec(), marks((pe + run.npes - 1) % run.npes, 0, 8));
                if run.npes > 1 {
                    let waited = w.wait_until(0, memonet_core::Cmp::Eq, 0);
                    assert!(
                        matches!(waited, Err(Error::PeerFailed { .. })),
                        "nobody can ever write this word: {waited:?}"
                    );
                }
            }
            windows.swap_remove(dice.below(windows.len()));
        }
    }
}
