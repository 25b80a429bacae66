//! Locks for readers and writers: writers alone, readers together, and none overtakes.

use crate::failure::{blames, with_a_death};
use crate::setup::{Dice, Meeting, Setup, eventually, nap};
use memonet_core::dsm::RwLock;
use memonet_core::{Cause, Error, Job, Result};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    readers_and_writers,
    large_data,
    a_writer_is_not_overtaken,
    trying,
    giving_up,
    readers_fetch_what_is_new,
    a_writer_that_dies,
    a_reader_that_dies,
    a_reader_that_leaves,
    a_panic_with_a_guard;
    with threads of their own: threads_of_all_pes, readers_are_in_together,
);

const LEN: usize = 70;

fn look(data: &[u64]) {
    assert!(data.iter().all(|&word| word == data[0]), "half of it is old");
}

fn use_many(lock: &RwLock<[u64]>, dice: &mut Dice, times: usize) -> Result<usize> {
    let mut written = 0;
    for _ in 0..times {
        let patience = Duration::from_micros(dice.below(200) as u64);
        let reading = dice.below(3) > 0;
        if reading {
            let guard = match dice.below(5) {
                0 => lock.try_read().transpose(),
                1 => Some(lock.read_timeout(patience)),
                _ => Some(lock.read()),
            };
            match guard {
                None | Some(Err(Error::Timeout { .. })) => continue,
                Some(guard) => {
                    let guard = guard?;
                    look(&guard);
                    dice.dawdle();
                    look(&guard);
                }
            }
        } else {
            let guard = match dice.below(5) {
                0 => lock.try_write().transpose(),
                1 => Some(lock.write_timeout(patience)),
                _ => Some(lock.write()),
            };
            match guard {
                None | Some(Err(Error::Timeout { .. })) => continue,
                Some(guard) => {
                    let mut guard = guard?;
                    look(&guard);
                    for word in guard.iter_mut() {
                        *word += 1;
                    }
                    written += 1;
                    dice.dawdle();
                }
            }
        }
    }
    Ok(written)
}

fn check(job: &Job, lock: &RwLock<[u64]>, written: usize) -> Result<()> {
    let sum = job.window::<u64>(1)?;
    sum.remote(0, 0)?.add(written as u64)?;
    job.barrier()?;
    assert_eq!(lock.read()?[LEN - 1], sum.get_one(0, 0)?);
    job.barrier()
}

fn readers_and_writers(setup: Setup) {
    let times = if setup.is_near() { 300 } else { 25 };
    for run in setup.runs(&[1, 2, 3, 5, 8]) {
        run.job(move |job| {
            let lock = RwLock::<[u64]>::new(job, &[0; LEN])?;
            let written = use_many(&lock, &mut run.dice(job.pe()), times)?;
            check(job, &lock, written)
        });
    }
}

fn threads_of_all_pes(setup: Setup) {
    const THREADS: usize = 4;
    let times = if setup.is_near() { 100 } else { 12 };
    for run in setup.runs(&[1, 2, 3]) {
        run.job(move |job| {
            let lock = RwLock::<[u64]>::with_shadow(job, &[0; LEN])?;
            let written = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let lock = &lock;
                        scope.spawn(move || {
                            use_many(lock, &mut run.dice(job.pe() * THREADS + thread), times)
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<Result<usize>>()
            })?;
            check(job, &lock, written)
        });
    }
}

/// Each writer changes a few elements; all PEs see the changes.
fn large_data(setup: Setup) {
    let times = if setup.is_near() { 40 } else { 12 };
    for run in setup.runs(&[1, 2, 3, 5]) {
        for len in [1, 60, 9000] {
            run.job(move |job| {
                let lock = RwLock::<[u32]>::new(job, &vec![0; len + 1])?;
                let mut dice = run.dice(job.pe());
                let changes = |turn: u32| {
                    let mut dice = Dice::from(u64::from(turn) << 20 | run.seed);
                    (0..3).map(move |_| (1 + dice.below(len), dice.roll() as u32))
                };
                let mut model = vec![0; len + 1];
                let mut follow = |data: &[u32]| {
                    for turn in model[0]..data[0] {
                        changes(turn).for_each(|(at, value)| model[at] = value);
                    }
                    model[0] = data[0];
                    assert!(data == &model[..], "{len} elements, turn {}", data[0]);
                };
                for _ in 0..times {
                    if dice.below(2) == 0 {
                        follow(&lock.read()?);
                    } else {
                        let mut guard = lock.write()?;
                        follow(&guard);
                        changes(guard[0]).for_each(|(at, value)| guard[at] = value);
                        guard[0] += 1;
                    }
                }
                job.barrier()?;
                follow(&lock.read()?);
                job.barrier()
            });
        }
    }
}

fn readers_are_in_together(setup: Setup) {
    for run in setup.runs(&[1, 2, 5]) {
        let inside = Arc::new(Meeting::new(2 * run.npes));
        run.job(move |job| {
            let lock = RwLock::new(job, &5u64)?;
            for _ in 0..3 {
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            let guard = lock.read().unwrap();
                            inside.meet();
                            assert_eq!(*guard, 5);
                        });
                    }
                });
            }
            job.barrier()
        });
    }
}

/// A writer that waits for a reader lets no later reader pass, and enters when the reader leaves.
fn a_writer_is_not_overtaken(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let order = Arc::new(AtomicUsize::new(0));
        let stands = Arc::new(AtomicBool::new(false));
        run.job(move |job| {
            let lock = RwLock::new(job, &0u64)?;
            let guard = if job.pe() == 0 { Some(lock.read()?) } else { None };
            job.barrier()?;
            if job.pe() == 1 {
                let mut guard = lock.write()?;
                *guard += 1;
                assert_eq!(order.fetch_add(1, Ordering::SeqCst), 0, "the first of those who wait");
            } else if job.pe() > 1 {
                eventually("the writer stands there", || stands.load(Ordering::SeqCst));
                let guard = lock.read()?;
                assert_eq!(*guard, 1);
                assert!(order.fetch_add(1, Ordering::SeqCst) > 0);
            } else {
                // No other PE enters meanwhile, so only the writer can be in the way.
                eventually("the writer stands there", || lock.try_read().unwrap().is_none());
                stands.store(true, Ordering::SeqCst);
                nap(Duration::from_millis(1));
                drop(guard);
            }
            job.barrier()
        });
    }
}

fn trying(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let lock = RwLock::new(job, &0u64)?;
            for holder in 0..job.npes() {
                let write = if job.pe() == holder { Some(lock.write()?) } else { None };
                job.barrier()?;
                assert!(lock.try_read()?.is_none() && lock.try_write()?.is_none());
                job.barrier()?;
                drop(write);
                job.barrier()?;
                let read = lock.read()?;
                job.barrier()?;
                assert!(lock.try_write()?.is_none());
                // Unless another PE is just entering.
                eventually("it is only read", || lock.try_read().unwrap().is_some());
                job.barrier()?;
                drop(read);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn giving_up(setup: Setup) {
    let soon = Duration::from_micros(100);
    let times_out =
        |result: Result<()>| assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let lock = RwLock::new(job, &0usize)?;
            for holder in 0..job.npes() {
                let write = if job.pe() == holder { Some(lock.write()?) } else { None };
                job.barrier()?;
                if write.is_none() {
                    times_out(lock.read_timeout(soon).map(drop));
                    times_out(lock.write_timeout(soon).map(drop));
                }
                job.barrier()?;
                drop(write);
                job.barrier()?;
                let read = lock.read_timeout(Duration::from_secs(30))?;
                job.barrier()?;
                times_out(lock.write_timeout(soon).map(drop));
                job.barrier()?;
                drop(read);
                *lock.write()? += 1;
                job.barrier()?;
                assert_eq!(*lock.read()?, (holder + 1) * job.npes());
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn readers_fetch_what_is_new(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(move |job| {
            const BIG: usize = 64 << 10;
            let lock = RwLock::<[u8]>::new(job, &vec![0; BIG])?;
            drop(lock.read()?);
            job.barrier()?;
            if job.pe() == 0 {
                lock.write()?[BIG / 2] = 1;
            }
            job.barrier()?;
            for _ in 0..3 {
                assert_eq!(lock.read()?[BIG / 2], 1);
            }
            let bytes = lock.stats().bytes;
            if run.is_near() {
                assert_eq!(bytes, 0);
            } else {
                assert!(bytes > 0 && bytes < BIG as u64 / 8, "{bytes} for one byte");
            }
            job.barrier()
        });
    }
}

fn a_writer_that_dies(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        for shadow in [false, true] {
            let (half, meeting) = (Arc::new(Meeting::new(run.npes)), Meeting::new(run.npes - 1));
            let changed = half.clone();
            let victim = run.npes - 1;
            with_a_death(
                run,
                victim,
                move |job| {
                    let make =
                        if shadow { RwLock::<[u64]>::with_shadow } else { RwLock::<[u64]>::new };
                    let lock = make(job, &[1; LEN])?;
                    for pe in 0..job.npes() {
                        if pe == job.pe() {
                            lock.write()?.iter_mut().for_each(|word| *word += 1);
                        }
                        job.barrier()?;
                    }
                    Ok(std::sync::Mutex::new(Some(lock)))
                },
                move |_, lock| {
                    let lock = lock.into_inner().unwrap().unwrap();
                    let mut guard = lock.write()?;
                    guard[..LEN / 2].fill(9);
                    std::mem::forget(guard);
                    half.meet();
                    std::mem::forget(lock);
                    Ok(())
                },
                move |job, lock| {
                    let lock = lock.lock().unwrap().take().unwrap();
                    changed.meet();
                    blames(lock.read().map(drop), victim, Cause::Panic, "reading");
                    blames(lock.write().map(drop), victim, Cause::Panic, "writing");
                    blames(
                        lock.read_timeout(Duration::from_secs(20)).map(drop),
                        victim,
                        Cause::Panic,
                        "in time",
                    );
                    let whole = vec![1 + job.npes() as u64; LEN];
                    let released = lock.into_released();
                    match released {
                        Ok(data) => assert!(data == whole, "{data:?}"),
                        // Far, the memory of a dead home may be lost.
                        Err(error) => {
                            let lost = !setup.reads_the_dead();
                            assert!(run.is_near() && !shadow || lost);
                            blames::<()>(Err(error), victim, Cause::Panic, "what was released");
                        }
                    }
                    meeting.meet();
                    Ok(())
                },
            );
        }
    }
}

fn a_reader_that_dies(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let (victim, meeting, is_near) = (1, Meeting::new(run.npes - 1), run.is_near());
        with_a_death(
            run,
            victim,
            move |job| {
                let lock = RwLock::<[u64]>::new(job, &[1; LEN])?;
                if job.pe() == victim {
                    std::mem::forget(lock.read()?);
                }
                job.barrier()?;
                Ok(lock)
            },
            |_, lock| {
                std::mem::forget(lock);
                Ok(())
            },
            move |_, lock| {
                blames(lock.write().map(drop), victim, Cause::Panic, "writing");
                meeting.meet();
                // All writers have given up, so a reader need not wait. Far, the home may be gone.
                match lock.read().map(drop) {
                    Ok(()) => {}
                    failed if !is_near => blames(failed, victim, Cause::Panic, "reading"),
                    failed => failed?,
                }
                // A reader may not come in beside a writer that waits.
                meeting.meet();
                blames(lock.write().map(drop), victim, Cause::Panic, "writing again");
                meeting.meet();
                Ok(())
            },
        );
    }
}

fn a_reader_that_leaves(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let (all, waited) = (Meeting::new(run.npes), Meeting::new(run.npes - 1));
        run.job(move |job| {
            let lock = RwLock::new(job, &0u64)?;
            if job.pe() == 0 {
                std::mem::forget(lock.read()?);
            }
            all.meet();
            if job.pe() > 0 {
                blames(lock.write().map(drop), 0, Cause::Finalized, "writing");
                waited.meet();
            }
            Ok(())
        });
    }
}

fn a_panic_with_a_guard(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        let meetings = Arc::new([0; 2].map(|_| Meeting::new(run.npes)));
        run.job(move |job| {
            let (broken, kept) = (
                RwLock::<[u64]>::new(job, &[3; LEN])?,
                RwLock::<[u64]>::with_shadow(job, &[3; LEN])?,
            );
            let last = job.npes() - 1;
            if job.pe() == last {
                for lock in [&broken, &kept] {
                    let panics = |reads: bool| {
                        let panic = catch_unwind(AssertUnwindSafe(|| {
                            if reads {
                                let _guard = lock.read().unwrap();
                                resume_unwind(Box::new("reading"));
                            }
                            let mut guard = lock.write().unwrap();
                            guard[..9].fill(4);
                            resume_unwind(Box::new("writing"));
                        }));
                        assert!(panic.is_err());
                    };
                    panics(true);
                    drop(lock.write()?);
                    panics(false);
                }
            }
            meetings[0].meet();
            assert!(kept.read()?[..] == [3; LEN], "as it was released last");
            if run.is_near() {
                blames(broken.read().map(drop), last, Cause::Panic, "reading");
                blames(broken.write().map(drop), last, Cause::Panic, "writing");
                meetings[1].meet();
                assert_eq!(broken.into_torn()?[8..10], [4, 3]);
            } else {
                assert!(broken.read()?[..] == [3; LEN]);
            }
            job.barrier()
        });
    }
}
