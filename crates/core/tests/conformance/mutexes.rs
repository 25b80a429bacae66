//! Mutexes that own their data: one guard at a time, in the order of arrival, and each sees the
//! writes of all earlier ones.

use crate::failure::{blames, with_a_death};
use crate::setup::{Dice, Meeting, Run, Setup, eventually, nap};
use memonet_core::dsm::Mutex;
use memonet_core::{Cause, Error, Job, Result};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    counters,
    large_data_travel_in_parts,
    initial_data,
    trying,
    giving_up,
    who_gave_up_may_come_back,
    all_give_up_now_and_then,
    wrong_data,
    torn_only_after_a_death,
    a_holder_that_dies,
    an_owner_that_dies,
    a_holder_that_leaves,
    a_panic_with_a_guard,
    a_panic_elsewhere;
    with threads of their own: counters_of_all_threads, a_waiter_that_dies,
);
/// The data have two counts of their changes, and the PE of the last one.
type Count = [u64; 3];

fn add_one(job: &Job, count: &mut Count) {
    assert_eq!(count[0], count[2], "somebody else was in, or half of it came");
    count[0] += 1;
    count[1] = job.pe() as u64;
    count[2] += 1;
}

fn add_many(job: &Job, mutexes: &[Mutex<Count>], dice: &mut Dice, times: usize) -> Result<()> {
    for _ in 0..times {
        let mutex = &mutexes[if dice.below(3) == 0 { dice.below(mutexes.len()) } else { 0 }];
        let mut guard = loop {
            match dice.below(6) {
                0 => match mutex.try_lock()? {
                    Some(guard) => break guard,
                    None => continue,
                },
                1 => match mutex.lock_timeout(Duration::from_micros(dice.below(300) as u64)) {
                    Err(Error::Timeout { .. }) => continue,
                    guard => break guard?,
                },
                _ => break mutex.lock()?,
            }
        };
        match dice.below(4) {
            0 => assert_eq!(guard[0], guard[2]),
            _ => {
                add_one(job, &mut guard);
                dice.dawdle();
                continue;
            }
        }
        guard.release()?;
        add_one(job, &mut *mutex.lock()?);
    }
    Ok(())
}

fn check(job: &Job, mutexes: &[Mutex<Count>], total: usize) -> Result<()> {
    job.barrier()?;
    let mut sum = 0;
    for mutex in mutexes {
        sum += mutex.lock()?[0];
    }
    assert_eq!(sum, total as u64);
    job.barrier()
}

fn some_mutexes(job: &Job) -> Result<Vec<Mutex<Count>>> {
    (0..4).map(|_| Mutex::new(job, &[0; 3])).collect()
}

fn counters(setup: Setup) {
    let times = if setup.is_near() { 300 } else { 25 };
    for run in setup.runs(&[1, 2, 3, 5, 8]) {
        run.job(move |job| {
            let mutexes = some_mutexes(job)?;
            add_many(job, &mutexes, &mut run.dice(job.pe()), times)?;
            check(job, &mutexes, job.npes() * times)
        });
    }
}

fn counters_of_all_threads(setup: Setup) {
    const THREADS: usize = 4;
    let times = if setup.is_near() { 100 } else { 12 };
    for run in setup.runs(&[1, 2, 3]) {
        run.job(move |job| {
            let mutexes = some_mutexes(job)?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let mutexes = &mutexes;
                        scope.spawn(move || {
                            add_many(
                                job,
                                mutexes,
                                &mut run.dice(job.pe() * THREADS + thread),
                                times,
                            )
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
            check(job, &mutexes, job.npes() * THREADS * times)
        });
    }
}

/// Slices of all sizes. Each turn changes a few elements, in the slice and in a model.
fn large_data_travel_in_parts(setup: Setup) {
    let times = if setup.is_near() { 40 } else { 10 };
    for run in setup.runs(&[1, 2, 3, 5]) {
        for len in [1, 7, 64, 700, 9000] {
            run.job(move |job| {
                let mutex = Mutex::<[u32]>::new(job, &vec![7; len + 1])?;
                let mut dice = run.dice(job.pe());
                // The first element counts turns. All earlier changes follow from it.
                let changes = |turn: u32| {
                    let mut dice = Dice::from(u64::from(turn) << 20 | run.seed);
                    (0..3).map(move |_| (1 + dice.below(len), dice.roll() as u32))
                };
                let mut seen = (7, vec![7; len + 1]);
                for _ in 0..times {
                    let mut guard = mutex.lock()?;
                    for turn in seen.0..guard[0] {
                        changes(turn).for_each(|(at, value)| seen.1[at] = value);
                    }
                    seen = (guard[0], seen.1);
                    assert!(guard[1..] == seen.1[1..], "{len} elements, turn {}", seen.0);
                    changes(seen.0).for_each(|(at, value)| guard[at] = value);
                    guard[0] += 1;
                    drop(guard);
                    dice.dawdle();
                }
                job.barrier()?;
                assert_eq!(mutex.lock()?[0] as usize, 7 + times * job.npes());
                job.barrier()
            });
        }
    }
}

fn initial_data(setup: Setup) {
    #[derive(
        Clone, Copy, PartialEq, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
    )]
    #[repr(C, align(16))]
    struct Wide([u64; 2]);
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let (byte, wide) = (Mutex::new(job, &9u8)?, Mutex::new(job, &Wide([1, 2]))?);
            let slice = Mutex::<[Wide]>::with_shadow(job, &[Wide([3, 4]); 5])?;
            for _ in 0..2 {
                assert_eq!(*byte.lock()?, 9);
                assert_eq!(*wide.lock()?, Wide([1, 2]));
                assert_eq!(slice.lock()?[..], [Wide([3, 4]); 5]);
            }
            job.barrier()
        });
    }
}

fn trying(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let mutex = Mutex::new(job, &0u64)?;
            for holder in 0..job.npes() {
                if job.pe() == holder {
                    let guard = mutex.lock()?;
                    assert!(mutex.try_lock()?.is_none(), "another thread might have asked");
                    job.barrier()?;
                    job.barrier()?;
                    drop(guard);
                } else {
                    job.barrier()?;
                    assert!(mutex.try_lock()?.is_none(), "PE {holder} has it");
                    job.barrier()?;
                }
                // Every PE that tries again gets it.
                let mut guard = loop {
                    if let Some(guard) = mutex.try_lock()? {
                        break guard;
                    }
                };
                *guard += 1;
                drop(guard);
                job.barrier()?;
                assert_eq!(*mutex.lock()?, (job.npes() * (holder + 1)) as u64);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn times_out<T>(result: Result<T>) {
    assert!(matches!(result.map(drop), Err(Error::Timeout { .. })), "it is held");
}

fn giving_up(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let mutex = Mutex::new(job, &0usize)?;
            for holder in 0..job.npes() {
                let guard = if job.pe() == holder { Some(mutex.lock()?) } else { None };
                job.barrier()?;
                if guard.is_none() {
                    for _ in 0..3 {
                        times_out(mutex.lock_timeout(Duration::from_micros(200)));
                    }
                }
                job.barrier()?;
                drop(guard);
                // No place in the queue is left over.
                *mutex.lock_timeout(Duration::from_secs(30))? += 1;
                job.barrier()?;
                assert_eq!(*mutex.lock()?, (holder + 1) * job.npes());
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// A PE between two waiters gives up: the later one still gets its turn.
fn who_gave_up_may_come_back(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let done = Arc::new(AtomicUsize::new(0));
        run.job(move |job| {
            let (me, last) = (job.pe(), job.npes() - 1);
            let mutex = Mutex::new(job, &0usize)?;
            let guard = if me == 0 { Some(mutex.lock()?) } else { None };
            job.barrier()?;
            if me > 0 && me < last {
                times_out(mutex.lock_timeout(Duration::from_micros(100)));
            }
            job.barrier()?;
            if me == last {
                // These wait behind PEs that gave up, some of which never come back.
                *mutex.lock()? += 1;
                done.fetch_add(1, Ordering::Relaxed);
            } else {
                if me == 0 {
                    nap(Duration::from_millis(2));
                }
                drop(guard);
                let before = done.load(Ordering::Relaxed);
                eventually("the last one has it", || {
                    done.load(Ordering::Relaxed) > before || done.load(Ordering::Relaxed) > 0
                });
            }
            job.barrier()?;
            if me % 2 == 1 {
                *mutex.lock()? += 1;
            }
            job.barrier()?;
            assert_eq!(*mutex.lock()?, 1 + job.npes() / 2);
            job.barrier()
        });
    }
}

fn all_give_up_now_and_then(setup: Setup) {
    let times = if setup.is_near() { 300 } else { 30 };
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let mutex = Mutex::<[u64]>::new(job, &[0; 100])?;
            let mut dice = run.dice(job.pe());
            let mut entered = 0;
            for _ in 0..times {
                match mutex.lock_timeout(Duration::from_micros(dice.below(60) as u64)) {
                    Ok(mut guard) => {
                        assert!(guard[1..] == vec![guard[0]; 99]);
                        guard.iter_mut().for_each(|word| *word += 1);
                        entered += 1;
                        dice.dawdle();
                    }
                    Err(Error::Timeout { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let w = job.window::<u64>(1)?;
            w.remote(0, 0)?.add(entered)?;
            job.barrier()?;
            assert_eq!(mutex.lock()?[99], w.get_one(0, 0)?);
            job.barrier()
        });
    }
}

fn wrong_data(setup: Setup) {
    #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
    #[repr(C, align(256))]
    struct Aligned([u64; 32]);
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            assert!(matches!(Mutex::new(job, &()).map(drop), Err(Error::Misuse { .. })));
            assert!(matches!(
                Mutex::new(job, &Aligned([0; 32])).map(drop),
                Err(Error::Misuse { .. })
            ));
            let empty = Mutex::<[u64]>::new(job, &[])?;
            assert!(empty.lock()?.is_empty());
            job.barrier()
        });
    }
}

fn torn_only_after_a_death(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        let all = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            for shadow in [false, true] {
                let make = || {
                    if shadow { Mutex::with_shadow(job, &1u64) } else { Mutex::new(job, &1u64) }
                };
                let (one, two) = (make()?, make()?);
                *one.lock()? += 1;
                assert!(matches!(one.into_torn(), Err(Error::Misuse { .. })));
                assert!(matches!(two.into_released(), Err(Error::Misuse { .. })));
                all.meet();
            }
            Ok(())
        });
    }
}

const LEN: usize = 200;

fn a_holder_that_dies(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        for (victim, shadow) in [(0, false), (run.npes - 1, false), (run.npes - 1, true)] {
            let (half, meeting) = (Arc::new(Meeting::new(run.npes)), Meeting::new(run.npes - 1));
            let changed = half.clone();
            with_a_death(
                run,
                victim,
                move |job| {
                    let make =
                        if shadow { Mutex::<[u64]>::with_shadow } else { Mutex::<[u64]>::new };
                    let mutex = make(job, &[1; LEN])?;
                    // All PEs have seen the data; the last version is that of the victim's
                    // predecessor.
                    for pe in 0..job.npes() {
                        if (pe + victim + 1) % job.npes() == job.pe() {
                            mutex.lock()?.iter_mut().for_each(|word| *word += 1);
                        }
                        job.barrier()?;
                    }
                    Ok(std::sync::Mutex::new(Some(mutex)))
                },
                move |_, mutex| {
                    let mutex = mutex.into_inner().unwrap().unwrap();
                    // It dies as the holder, with half changed data.
                    let mut guard = mutex.lock()?;
                    guard[..LEN / 2].fill(9);
                    std::mem::forget(guard);
                    half.meet();
                    std::mem::forget(mutex);
                    Ok(())
                },
                move |job, mutex| {
                    let mutex = mutex.lock().unwrap().take().unwrap();
                    changed.meet();
                    blames(mutex.lock().map(drop), victim, Cause::Panic, "its data");
                    blames(
                        mutex.lock_timeout(Duration::from_secs(20)).map(drop),
                        victim,
                        Cause::Panic,
                        "in time",
                    );
                    let tried = std::iter::repeat_with(|| mutex.try_lock())
                        .find(|tried| !matches!(tried, Ok(None)));
                    blames(tried.unwrap(), victim, Cause::Panic, "trying");
                    rescues(run, shadow, victim, job, mutex)?;
                    meeting.meet();
                    Ok(())
                },
            );
        }
    }
}

/// Each PE takes the data of a dead holder out of the mutex, in one of the two ways.
fn rescues(run: Run, shadow: bool, victim: usize, job: &Job, mutex: Mutex<[u64]>) -> Result<()> {
    let last = 1 + job.npes() as u64;
    let keeps_the_dead = run.setup.reads_the_dead();
    // All of a version: the last one, or the last that the living have.
    let whole = |data: Vec<u64>| {
        let right = |version| data == vec![version; LEN];
        let older = !keeps_the_dead && !shadow && right(last - 1);
        assert!(right(last) || older, "{data:?}, not {last}");
    };
    match (run.is_near(), shadow, job.pe() % 2) {
        (true, false, 0) => {
            blames(mutex.into_released().map(drop), victim, Cause::Panic, "what was released");
        }
        (true, false, _) => {
            let data = mutex.into_torn()?;
            assert_eq!((data[0], data[LEN - 1]), (9, last), "as it was left");
        }
        (true, true, _) => whole(mutex.into_torn()?),
        (false, _, odd) => {
            match if odd == 1 { mutex.into_torn() } else { mutex.into_released() } {
                // With a shadow, the home may be the PE that died.
                Err(error) if !keeps_the_dead && shadow => {
                    blames::<()>(Err(error), victim, Cause::Panic, "the home");
                }
                data => whole(data?),
            }
        }
    }
    Ok(())
}

fn a_waiter_that_dies(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let (victim, meeting) = (1, Meeting::new(run.npes - 1));
        let waits = Arc::new(AtomicUsize::new(0));
        with_a_death(
            run,
            victim,
            move |job| {
                let mutex = Arc::new(Mutex::<[u64]>::new(job, &[5; LEN])?);
                let held = mutex.clone();
                let guard = if job.pe() == 0 { Some(held.lock()?) } else { None };
                job.barrier()?;
                if job.pe() == victim {
                    // Another thread waits, so that this one can die.
                    let (mutex, waits) = (mutex.clone(), waits.clone());
                    std::thread::spawn(move || {
                        waits.fetch_add(1, Ordering::Relaxed);
                        blames(
                            mutex.lock().map(drop),
                            victim,
                            Cause::Panic,
                            "a place in the queue",
                        );
                    });
                }
                eventually("it waits", || waits.load(Ordering::Relaxed) > 0);
                nap(Duration::from_millis(2));
                job.barrier()?;
                if let Some(mut guard) = guard {
                    guard.fill(6);
                    std::mem::forget(guard);
                }
                Ok(mutex)
            },
            |_, _| Ok(()),
            move |job, mutex| {
                if job.pe() > 0 {
                    blames(mutex.lock().map(drop), victim, Cause::Panic, "behind it");
                }
                meeting.meet();
                Ok(())
            },
        );
    }
}

/// The PE that dies does not hold the lock, but had it last.
fn an_owner_that_dies(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let (victim, meeting) = (1, Meeting::new(run.npes - 1));
        with_a_death(
            run,
            victim,
            move |job| {
                let mutex = Mutex::<[u64]>::new(job, &[5; LEN])?;
                for pe in [0, victim] {
                    if job.pe() == pe {
                        mutex.lock()?.fill(6 + pe as u64);
                    }
                    job.barrier()?;
                }
                Ok(std::sync::Mutex::new(Some(mutex)))
            },
            |_, mutex| {
                std::mem::forget(mutex);
                Ok(())
            },
            move |_, mutex| {
                eventually("it is dead", || {
                    // Its version, or the last that the living have.
                    let right = |data: &[u64]| {
                        *data == [7; LEN] || !setup.reads_the_dead() && *data == [6; LEN]
                    };
                    let mut mutex = mutex.lock().unwrap();
                    match mutex.as_ref().unwrap().lock() {
                        Ok(guard) => assert!(right(&guard)),
                        // The mutex was released, but if the other survivor has it, this one would
                        // have to wait.
                        Err(error) => blames::<()>(
                            Err(error),
                            victim,
                            Cause::Panic,
                            "a lock that another has",
                        ),
                    }
                    nap(Duration::from_millis(1));
                    let data = match mutex.take().unwrap().into_released() {
                        Ok(data) => data,
                        Err(Error::Misuse { .. }) => return true,
                        // Far, if the dead PE is the home.
                        Err(error) => {
                            assert!(!run.is_near());
                            blames::<()>(Err(error), victim, Cause::Panic, "the home");
                            return true;
                        }
                    };
                    assert!(right(&data), "{data:?}");
                    true
                });
                meeting.meet();
                Ok(())
            },
        );
    }
}

fn a_holder_that_leaves(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let (all, waited) = (Meeting::new(run.npes), Meeting::new(run.npes - 1));
        run.job(move |job| {
            let mutex = Mutex::new(job, &0u64)?;
            if job.pe() == 0 {
                std::mem::forget(mutex.lock()?);
            }
            all.meet();
            if job.pe() > 0 {
                blames(mutex.lock().map(drop), 0, Cause::Finalized, "its data");
                blames(mutex.lock().map(drop), 0, Cause::Finalized, "its data, again");
                waited.meet();
            }
            Ok(())
        });
    }
}

fn a_panic_with_a_guard(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        let meetings = Arc::new([0; 3].map(|_| Meeting::new(run.npes)));
        run.job(move |job| {
            let (broken, kept) = (
                Mutex::<[u64]>::new(job, &[3; LEN])?,
                Mutex::<[u64]>::with_shadow(job, &[3; LEN])?,
            );
            let last = job.npes() - 1;
            if job.pe() == last {
                for mutex in [&broken, &kept] {
                    let panic = catch_unwind(AssertUnwindSafe(|| {
                        let mut guard = mutex.lock().unwrap();
                        guard[..9].fill(4);
                        resume_unwind(Box::new("with a guard"));
                    }));
                    assert!(panic.is_err());
                }
            }
            meetings[0].meet();
            assert!(kept.lock()?[..] == [3; LEN], "as it was released last");
            if run.is_near() {
                for _ in 0..2 {
                    blames(broken.lock().map(drop), last, Cause::Panic, "a lock");
                    blames(
                        broken.lock_timeout(Duration::from_secs(9)).map(drop),
                        last,
                        Cause::Panic,
                        "in time",
                    );
                }
                meetings[1].meet();
                assert_eq!(broken.into_torn()?[8..10], [4, 3]);
            } else {
                assert!(broken.lock()?[..] == [3; LEN], "nobody has seen what was half changed");
            }
            meetings[2].meet();
            Ok(())
        });
    }
}

/// A guard that is made and dropped while its thread panics for another reason works as usual.
fn a_panic_elsewhere(setup: Setup) {
    struct AddsOne<'a>(&'a Mutex<u64>);
    impl Drop for AddsOne<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let mutex = Mutex::new(job, &0u64)?;
            let panic = catch_unwind(AssertUnwindSafe(|| {
                let _adds = AddsOne(&mutex);
                resume_unwind(Box::new("elsewhere"));
            }));
            assert!(panic.is_err());
            job.barrier()?;
            assert_eq!(*mutex.lock()?, job.npes() as u64);
            job.barrier()
        });
    }
}
