//! Locks: one holder at a time, in the order of arrival, and each sees what the last one wrote.

use crate::failure::{blames, with_a_death};
use crate::setup::{Dice, Meeting, Setup, eventually, marks, segment_of};
use memonet_core::{Access, Cause, Error, Job, Lock, Result, Window, WindowOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

on_every_fabric!(
    counters,
    the_next_holder_sees_what_the_last_wrote,
    trying,
    first_come_first_served,
    not_its_to_clear,
    where_no_lock_can_be,
    words_that_are_not_zero,
    a_holder_that_dies,
    a_holder_that_leaves,
    who_leaves_in_order_leaves_no_lock,
    ; with threads of their own:
    counters_of_all_threads,
    a_thread_holds_several,
    others_are_not_waited_for,
    threads_are_served_in_turn,
    a_waiter_that_dies,
);

const PES: [usize; 5] = [1, 2, 3, 5, 8];
/// Neighbouring words have different homes.
const LOCKS: usize = 8;

/// Locks, and for each a counter at a PE, which is not updated atomically.
struct Counters {
    locks: Window<u64>,
    counts: Window<u64>,
}

impl Counters {
    fn new(job: &Job) -> Result<Self> {
        Ok(Counters { locks: job.window(LOCKS)?, counts: job.window(LOCKS)? })
    }

    fn home(job: &Job, which: usize) -> usize {
        which * 3 % job.npes()
    }

    fn add_one(&self, job: &Job, which: usize) -> Result<()> {
        let home = Self::home(job, which);
        let seen = self.counts.get_one(home, which)?;
        self.counts.put_one(home, which, seen + 1)
    }

    fn add_many(&self, job: &Job, dice: &mut Dice, times: usize) -> Result<()> {
        for round in 0..times {
            // Most threads meet at one lock.
            let which = if dice.below(3) == 0 { dice.below(LOCKS) } else { 0 };
            let lock = self.locks.lock(which)?;
            let held = match dice.below(4) {
                0 => lock.try_lock()?,
                _ => None,
            };
            let held = match held {
                Some(held) => held,
                None => lock.lock()?,
            };
            self.add_one(job, which)?;
            dice.dawdle();
            if round % 2 == 0 {
                held.release()?;
            }
        }
        Ok(())
    }

    fn check(&self, job: &Job, total: usize) -> Result<()> {
        job.barrier()?;
        let counted = (0..LOCKS).map(|which| self.counts.get_one(Self::home(job, which), which));
        assert_eq!(counted.sum::<Result<u64>>()?, total as u64);
        assert_eq!(
            self.locks.to_vec(),
            [0; LOCKS],
            "what a lock leaves behind is what it began with"
        );
        job.barrier()
    }
}

fn counters(setup: Setup) {
    let times = if setup.is_near() { 300 } else { 25 };
    for run in setup.runs(&PES) {
        run.job(move |job| {
            let counters = Counters::new(job)?;
            counters.add_many(job, &mut run.dice(job.pe()), times)?;
            counters.check(job, job.npes() * times)
        });
    }
}

fn counters_of_all_threads(setup: Setup) {
    const THREADS: usize = 4;
    let times = if setup.is_near() { 100 } else { 12 };
    for run in setup.runs(&[1, 2, 3]) {
        run.job(move |job| {
            let counters = Counters::new(job)?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let counters = &counters;
                        scope.spawn(move || {
                            counters.add_many(
                                job,
                                &mut run.dice(job.pe() * THREADS + thread),
                                times,
                            )
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            counters.check(job, job.npes() * THREADS * times)
        });
    }
}

/// Locks are independent: a thread that holds some waits for others.
fn a_thread_holds_several(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(move |job| {
            let counters = &Counters::new(job)?;
            let take_all = move |mut dice: Dice| -> Result<()> {
                for _ in 0..10 {
                    let first = dice.below(LOCKS);
                    let locks: Vec<Lock> = (first..LOCKS)
                        .map(|which| counters.locks.lock(which))
                        .collect::<Result<_>>()?;
                    let held: Vec<_> =
                        locks.iter().map(|lock| lock.lock()).collect::<Result<_>>()?;
                    (first..LOCKS).try_for_each(|which| counters.add_one(job, which))?;
                    drop(held);
                }
                Ok(())
            };
            std::thread::scope(|scope| {
                let threads = [0, 1]
                    .map(|thread| scope.spawn(move || take_all(run.dice(2 * job.pe() + thread))));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            job.barrier()?;
            // The last lock was always among them.
            assert_eq!(
                counters.counts.get_one(Counters::home(job, LOCKS - 1), LOCKS - 1)?,
                job.npes() as u64 * 20
            );
            job.barrier()
        });
    }
}

/// Writes to several PEs, which only the release completes.
fn the_next_holder_sees_what_the_last_wrote(setup: Setup) {
    const LEN: usize = 40;
    let times = if setup.is_near() { 200 } else { 15 };
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let (locks, blocks, rounds) =
                (job.window::<u64>(2)?, job.window::<u64>(LEN)?, job.window::<u64>(1)?);
            let lock = locks.lock(1)?;
            for _ in 0..times {
                let held = lock.lock()?;
                let round = rounds.get_one(n - 1, 0)? as usize;
                for pe in 0..n {
                    let mut seen = [0; LEN];
                    blocks.get(pe, 0, &mut seen)?;
                    let expected = if round == 0 { vec![0; LEN] } else { marks(pe, round, LEN) };
                    assert_eq!(seen[..], expected, "at PE {pe} in round {round}");
                }
                for pe in 0..n {
                    let next = marks(pe, round + 1, LEN);
                    if pe == me {
                        blocks.write_from(0, &next);
                    } else {
                        blocks.put(pe, 0, &next[..LEN - 1])?;
                        blocks.remote(pe, LEN - 1)?.store(next[LEN - 1]);
                    }
                }
                rounds.put_one(n - 1, 0, round as u64 + 1)?;
                held.release()?;
            }
            job.barrier()?;
            assert_eq!(rounds.get_one(n - 1, 0)?, (n * times) as u64);
            job.barrier()
        });
    }
}

fn trying(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let w = job.window::<u64>(LOCKS)?;
            for holder in 0..job.npes() {
                for which in 0..LOCKS {
                    let lock = w.lock(which)?;
                    if job.pe() == holder {
                        let held = lock.try_lock()?.expect("it is free");
                        assert!(lock.try_lock()?.is_none(), "another thread might have asked");
                        job.barrier()?;
                        job.barrier()?;
                        held.release()?;
                        job.barrier()?;
                        job.barrier()?;
                        drop(lock.lock()?);
                    } else {
                        job.barrier()?;
                        assert!(lock.try_lock()?.is_none(), "PE {holder} has it");
                        job.barrier()?;
                        job.barrier()?;
                        job.barrier()?;
                    }
                    job.barrier()?;
                }
            }
            assert_eq!(w.to_vec(), [0; LOCKS]);
            job.barrier()
        });
    }
}

/// Whether `pe` is the last in the queue for the lock in word `index`: its number is in the lower
/// half of the home's word.
fn is_last(job: &Job, w: &Window<u64>, index: usize, pe: usize) -> bool {
    (0..job.npes())
        .any(|home| w.get_one(home, index).is_ok_and(|word| word as u32 == pe as u32 + 1))
}

fn first_come_first_served(setup: Setup) {
    for run in setup.runs(&[3, 5, 8]) {
        let order: Arc<Mutex<Vec<usize>>> = Arc::default();
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(LOCKS)?;
            for which in 0..LOCKS {
                let lock = w.lock(which)?;
                // PE `which` first, then the others by number.
                let place = (me + n - which % n) % n;
                if place > 0 {
                    let before = (me + n - 1) % n;
                    eventually("the one before is in the queue", || {
                        is_last(job, &w, which, before)
                    });
                }
                let held = lock.lock()?;
                order.lock().unwrap().push(place);
                if place == 0 {
                    eventually("all wait", || is_last(job, &w, which, (me + n - 1) % n));
                    // Later PEs must not overtake, however long this takes.
                    crate::setup::nap(Duration::from_micros(300));
                }
                held.release()?;
                job.barrier()?;
                if me == 0 {
                    let order = std::mem::take(&mut *order.lock().unwrap());
                    assert_eq!(order, (0..n).collect::<Vec<_>>());
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// A PE whose threads always want the lock does not keep it from other PEs, nor a thread from other
/// threads.
fn threads_are_served_in_turn(setup: Setup) {
    const THREADS: usize = 3;
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            let lock = w.lock(0)?;
            let turns: [AtomicUsize; THREADS] = Default::default();
            let done = |turns: &[AtomicUsize]| {
                turns.iter().all(|turns| turns.load(Ordering::Relaxed) >= 20)
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = turns
                    .iter()
                    .map(|own| {
                        let (lock, turns) = (&lock, &turns);
                        scope.spawn(move || -> Result<()> {
                            // Goes on until the others have had their turns.
                            while !done(turns) {
                                let held = lock.lock()?;
                                own.fetch_add(1, Ordering::Relaxed);
                                held.release()?;
                            }
                            Ok(())
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            job.barrier()
        });
    }
}

fn not_its_to_clear(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let (offset, segment) = (job.allocate(64, 64, true)? + 16, segment_of(job));
            let refused = |result: Result<()>| {
                assert!(matches!(result, Err(Error::Misuse { .. })), "{result:?}")
            };
            refused(segment.lock_clear(offset));
            job.barrier()?;
            if job.pe() == 0 {
                segment.lock_set(offset)?;
            }
            job.barrier()?;
            if job.pe() != 0 {
                refused(segment.lock_clear(offset));
            }
            job.barrier()?;
            if job.pe() == 0 {
                segment.lock_clear(offset)?;
                refused(segment.lock_clear(offset));
            }
            job.barrier()?;
            segment.lock_set(offset)?;
            segment.lock_clear(offset)?;
            refused(segment.lock_clear(offset));
            job.barrier()
        });
    }
}

fn where_no_lock_can_be(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let segment = segment_of(job);
            let (heap, end) = (segment.heap(), segment.size() as u64);
            for bad in [
                0,
                8,
                heap.start - 8,
                heap.start + 4,
                heap.start + 1,
                end,
                end - 4,
                u64::MAX,
                u64::MAX - 7,
            ] {
                for result in [
                    segment.lock_set(bad),
                    segment.lock_test(bad).map(drop),
                    segment.lock_clear(bad),
                ] {
                    assert!(matches!(result, Err(Error::Misuse { .. })), "{bad:#x}: {result:?}");
                }
            }
            let w = job.window::<u64>(3)?;
            assert!(matches!(w.lock(3).map(drop), Err(Error::OutOfBounds { .. })));
            assert!(w.lock(usize::MAX).is_err());
            let restricted = job.restricted::<u64>(1, |_, _| Access::ReadWrite)?;
            assert!(matches!(restricted.lock(0).map(drop), Err(Error::Misuse { .. })));
            for access in [Access::None, Access::Read, Access::Write] {
                let w = job.window_with::<u64>(1, WindowOptions::new().access(access))?;
                assert_eq!(w.lock(0).is_ok(), job.npes() == 1, "{access:?}");
            }
            job.barrier()
        });
    }
}

/// Arbitrary words as locks: an error, or a lock, but no damage elsewhere, and no endless wait.
fn words_that_are_not_zero(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            let lock = w.lock(0)?;
            let too_many = job.npes() as u64 + 1;
            for garbage in [u64::MAX, too_many, u64::from(u32::MAX), 0x7700_0000_0000_0000, 1 << 31]
            {
                w.write(0, garbage);
                job.barrier()?;
                for _ in 0..2 {
                    assert!(
                        matches!(lock.lock().map(drop), Err(Error::Misuse { .. })),
                        "{garbage:#x}"
                    );
                    assert!(!matches!(lock.try_lock(), Ok(Some(_))), "{garbage:#x}");
                }
                job.barrier()?;
            }
            // A successor that does not exist.
            w.write(0, 0);
            job.barrier()?;
            if job.pe() == 0 {
                let held = lock.lock()?;
                w.remote_word::<u16>(0, 4)?.store(u16::MAX);
                job.quiet()?;
                assert!(matches!(held.release(), Err(Error::Misuse { .. })));
            }
            job.barrier()
        });
    }
}

fn a_holder_that_dies(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        for victim in [0, run.npes - 1] {
            let meeting = Meeting::new(run.npes - 1);
            with_a_death(
                run,
                victim,
                move |job| {
                    let w = job.window::<u64>(1)?;
                    if job.pe() == victim {
                        std::mem::forget(w.lock(0)?.lock()?);
                    }
                    Ok(w)
                },
                // Some wait by now, some are asleep.
                |_, _| {
                    crate::setup::nap(Duration::from_millis(3));
                    Ok(())
                },
                move |_, w| {
                    let lock = w.lock(0)?;
                    blames(lock.lock().map(drop), victim, Cause::Panic, "a lock");
                    // Once more: a failed call leaves nothing that hangs.
                    blames(lock.lock().map(drop), victim, Cause::Panic, "a lock, again");
                    blames(try_for_ever(&lock), victim, Cause::Panic, "trying");
                    meeting.meet();
                    Ok(())
                },
            );
        }
    }
}

pub fn try_for_ever(lock: &Lock) -> Result<()> {
    while lock.try_lock()?.is_none() {
        crate::setup::yield_now();
    }
    Ok(())
}

/// The dead PE stands between the holder and another.
fn a_waiter_that_dies(setup: Setup) {
    for run in setup.runs(&[3, 4]) {
        let (victim, last) = (1, 2);
        let (meeting, heard) = (Meeting::new(run.npes - 1), Arc::new(AtomicUsize::new(0)));
        let hears = heard.clone();
        with_a_death(
            run,
            victim,
            move |job| {
                let w = job.window::<u64>(1)?;
                let lock = w.lock(0)?;
                if job.pe() == 0 {
                    std::mem::forget(lock.lock()?);
                }
                job.barrier()?;
                // Another thread waits, so that this one can die.
                for pe in [victim, last] {
                    if job.pe() == pe {
                        let (lock, hears) = (lock.clone(), hears.clone());
                        std::thread::spawn(move || {
                            blames(
                                lock.lock().map(drop),
                                victim,
                                Cause::Panic,
                                "a place in the queue",
                            );
                            hears.fetch_add(1, Ordering::Relaxed);
                        });
                        eventually("it is in the queue", || is_last(job, &w, 0, pe));
                    }
                    job.barrier()?;
                }
                Ok(lock)
            },
            |_, _| Ok(()),
            move |_, lock| {
                blames(lock.lock().map(drop), victim, Cause::Panic, "a lock");
                blames(try_for_ever(lock), victim, Cause::Panic, "trying");
                meeting.meet();
                Ok(())
            },
        );
        eventually("both hear of it", || heard.load(Ordering::Relaxed) == 2);
    }
}

fn a_holder_that_leaves(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        let (all, waited) = (Meeting::new(run.npes), Meeting::new(run.npes - 1));
        run.job(move |job| {
            let w = job.window::<u64>(1)?;
            let lock = w.lock(0)?;
            if job.pe() == 0 {
                std::mem::forget(lock.lock()?);
            }
            all.meet();
            if job.pe() > 0 {
                blames(lock.lock().map(drop), 0, Cause::Finalized, "a lock");
                blames(lock.lock().map(drop), 0, Cause::Finalized, "a lock, again");
                blames(try_for_ever(&lock), 0, Cause::Finalized, "trying");
                waited.meet();
            }
            Ok(())
        });
    }
}

/// Other PEs go on with the lock of a PE that has left in order.
fn who_leaves_in_order_leaves_no_lock(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        run.job(move |job| {
            let counters = Counters::new(job)?;
            counters.add_many(job, &mut run.dice(job.pe()), 3 * job.pe())
        });
    }
}

/// A thread that holds a lock does not keep other threads from other locks, even those of its PE.
fn others_are_not_waited_for(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<u64>(LOCKS)?;
            let first = w.lock(0)?;
            let held = first.lock()?;
            let take_the_others =
                || (1..LOCKS).try_for_each(|which| w.lock(which)?.lock()?.release());
            std::thread::scope(|scope| scope.spawn(take_the_others).join().unwrap())?;
            take_the_others()?;
            held.release()?;
            job.barrier()
        });
    }
}
