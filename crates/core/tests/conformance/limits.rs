//! Time limits: a call with a limit ends in time, however often it is woken and wherever it stands
//! in a queue, and nothing that it was about to get is lost.

use crate::failure::{blames, with_a_death};
use crate::ground::{SIMULATED, now};
use crate::multicast_ends::in_place;
use crate::setup::{FEW, LONG, Meeting, Run, Setup, eventually, nap};
use memonet_core::dsm::{Mutex, RwLock};
use memonet_core::{Access, Cause, Cmp, Error, Job, MulticastOptions, Result, SignalOp, Window};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    waits_for_words_that_are_woken,
    a_wait_for_a_barrier_that_is_woken,
    a_wait_for_the_end_of_rights_that_is_woken,
    locks_that_are_woken,
    a_writer_that_each_leaving_reader_wakes,
    a_queue_full_of_those_who_gave_up,
    a_full_queue_and_a_death,
    a_release_at_the_deadline,
    the_shortest_and_the_longest_limits,
    readers_that_die_give_a_slow_one_no_more_time,
    ; with threads of their own:
    more_threads_than_places,
);

/// The time limit of the calls here.
const LIMIT: Duration = Duration::from_millis(20);
/// Time from one wake-up to the next.
const INTERVAL: Duration = Duration::from_micros(2_500);
/// Number of wake-ups within twenty limits. Tests count them, because a busy machine delays them as
/// it delays the call.
const MOST_WAKES: usize = 20 * 8;
/// Time that a call may take beyond its limit in a simulation, for messages on a slow network.
const ROUND_TRIPS: Duration = Duration::from_millis(10);

/// Calls of one PE that must give up while another one wakes it.
#[derive(Default)]
struct Calls {
    ended: AtomicUsize,
}

impl Calls {
    /// Makes a call that must give up.
    #[track_caller]
    fn give_up<T>(&self, call: impl FnOnce() -> Result<T>) {
        let start = now();
        let ended = call().map(drop);
        let took = now() - start;
        self.ended.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(ended, Err(Error::Timeout { after, .. }) if after == LIMIT), "{ended:?}");
        assert!(took >= LIMIT, "given up before the deadline: {took:?}");
        assert!(!SIMULATED || took <= LIMIT + ROUND_TRIPS, "given up after {took:?}");
    }

    /// Wakes until so many calls have ended; fails if one of them does not end.
    fn wake(&self, calls: usize, mut wake: impl FnMut() -> Result<()>) -> Result<()> {
        let (mut ended, mut wakes) = (0, 0);
        while ended < calls {
            wake()?;
            nap(INTERVAL);
            wakes += 1;
            let now = self.ended.load(Ordering::Relaxed);
            if now != ended {
                (ended, wakes) = (now, 0);
            }
            assert!(
                wakes < MOST_WAKES,
                "call {ended} of {calls} still waits after {wakes} wake-ups"
            );
        }
        Ok(())
    }
}

/// Runs `f` with [`Calls`] that the PEs share.
fn calls(run: Run, f: impl Fn(&Job, &Calls) -> Result<()> + Send + Sync + 'static) {
    let calls = Calls::default();
    run.job(move |job| f(job, &calls));
}

/// A word that wakes PE 1.
struct Bell(Window<u64>);

impl Bell {
    fn new(job: &Job) -> Result<Self> {
        job.window(1).map(Bell)
    }

    fn ring(&self) -> Result<()> {
        self.0.signal(1, 0, SignalOp::Add, 1)
    }
}

fn waits_for_words_that_are_woken(setup: Setup) {
    for run in setup.runs(FEW) {
        calls(run, |job, calls| {
            let w = job.window::<u64>(3)?;
            if job.pe() == 1 {
                let wait = || w.wait().timeout(LIMIT);
                calls.give_up(|| wait().until(0, Cmp::Ne, 0));
                calls.give_up(|| wait().any(&[0, 1], Cmp::Ne, 0));
                calls.give_up(|| wait().all(&[2, 0], Cmp::Ne, 0));
                calls.give_up(|| wait().some(&[0, 1], Cmp::Ne, 0));
                calls.give_up(|| wait().depends_on(&[0]).until(0, Cmp::Ne, 0));
            } else if job.pe() == 0 {
                let mut times = 0;
                calls.wake(5, || {
                    times += 1;
                    w.remote(1, 2)?.store(times);
                    w.signal(1, 2, SignalOp::Add, 1)
                })?;
            }
            job.barrier()
        });
    }
}

fn a_wait_for_a_barrier_that_is_woken(setup: Setup) {
    for run in setup.runs(FEW) {
        calls(run, |job, calls| {
            let bell = Bell::new(job)?;
            let barrier = job.world().split_barrier();
            if job.pe() == 1 {
                drop(barrier.arrive()?);
                (0..3).for_each(|_| calls.give_up(|| barrier.wait_timeout(LIMIT)));
            } else {
                if job.pe() == 0 {
                    calls.wake(3, || bell.ring())?;
                }
                drop(barrier.arrive()?);
            }
            barrier.wait_timeout(LONG)
        });
    }
}

fn a_wait_for_the_end_of_rights_that_is_woken(setup: Setup) {
    for run in setup.runs(FEW) {
        calls(run, |job, calls| {
            let bell = Bell::new(job)?;
            let w = job.restricted::<u64>(2, |_, _| Access::ReadWrite)?;
            if job.pe() == 0 {
                let held = w.remote(1, 0)?;
                job.barrier()?;
                calls.wake(2, || {
                    // Another call, whose end wakes too. PE 1 may have ended all of its calls, and
                    // revoked the right.
                    match w.remote(1, 1) {
                        Ok(_) | Err(Error::Revoked { .. }) => bell.ring(),
                        Err(error) => Err(error),
                    }
                })?;
                drop(held);
            } else {
                job.barrier()?;
            }
            if job.pe() == 1 {
                (0..2).for_each(|_| calls.give_up(|| w.revoke_wait(Some(LIMIT))));
                w.revoke()?;
                w.revoke_wait(Some(LONG))?;
            }
            job.barrier()
        });
    }
}

fn locks_that_are_woken(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        calls(run, |job, calls| {
            let bell = Bell::new(job)?;
            let mutex = Mutex::new(job, &0u64)?;
            let shadowed = Mutex::with_shadow(job, &0u64)?;
            let table = RwLock::new(job, &0u64)?;
            let held = match job.pe() {
                0 => Some((mutex.lock()?, shadowed.lock()?, table.write()?)),
                _ => None,
            };
            job.barrier()?;
            match job.pe() {
                0 => calls.wake(8, || bell.ring())?,
                1 => {
                    for _ in 0..2 {
                        calls.give_up(|| mutex.lock_timeout(LIMIT));
                        calls.give_up(|| shadowed.lock_timeout(LIMIT));
                        calls.give_up(|| table.write_timeout(LIMIT));
                        calls.give_up(|| table.read_timeout(LIMIT));
                    }
                }
                // Other PEs come and go behind it.
                _ => {
                    while calls.ended.load(Ordering::Relaxed) < 8 {
                        assert!(mutex.lock_timeout(INTERVAL).is_err());
                        assert!(shadowed.lock_timeout(INTERVAL).is_err());
                        assert!(table.read_timeout(INTERVAL).is_err());
                        assert!(mutex.try_lock()?.is_none());
                    }
                }
            }
            job.barrier()?;
            drop(held);
            // No place in a queue is left over.
            *mutex.lock_timeout(LONG)? += 1;
            *shadowed.lock_timeout(LONG)? += 1;
            *table.write_timeout(LONG)? += 1;
            job.barrier()?;
            let npes = job.npes() as u64;
            assert_eq!((*mutex.lock()?, *shadowed.lock()?, *table.read()?), (npes, npes, npes));
            job.barrier()
        });
    }
}

/// Each reader that leaves wakes the writer that waits for all of them.
fn a_writer_that_each_leaving_reader_wakes(setup: Setup) {
    for run in setup.runs(FEW) {
        calls(run, |job, calls| {
            let table = RwLock::new(job, &0u64)?;
            let mut readers = Vec::new();
            if job.pe() == 0 {
                for _ in 0..MOST_WAKES {
                    readers.push(table.read()?);
                }
            }
            job.barrier()?;
            match job.pe() {
                0 => calls.wake(1, || readers.pop().expect("one for each wake-up").release())?,
                1 => calls.give_up(|| table.write_timeout(LIMIT)),
                _ => {}
            }
            drop(readers);
            *table.write_timeout(LONG)? += 1;
            job.barrier()?;
            assert_eq!(*table.read()?, job.npes() as u64);
            job.barrier()
        });
    }
}

/// More calls than a queue has places.
const CROWD: usize = 150;
/// The limit of a call that gives up at once.
const MOMENT: Duration = Duration::from_micros(1);

/// A call that gives up leaves its place in the queue to be passed over. Where all places are such,
/// further calls still give up in time.
fn a_queue_full_of_those_who_gave_up(setup: Setup) {
    for run in setup.runs(FEW) {
        calls(run, |job, calls| {
            let mutex = Mutex::new(job, &0u64)?;
            let shadowed = Mutex::with_shadow(job, &0u64)?;
            let table = RwLock::new(job, &0u64)?;
            let held = match job.pe() {
                0 => Some((mutex.lock()?, shadowed.lock()?, table.write()?)),
                _ => None,
            };
            job.barrier()?;
            if job.pe() == 1 {
                for _ in 0..CROWD {
                    gives_up(mutex.lock_timeout(MOMENT));
                    gives_up(shadowed.lock_timeout(MOMENT));
                    gives_up(table.read_timeout(MOMENT));
                    gives_up(table.write_timeout(MOMENT));
                }
                calls.give_up(|| mutex.lock_timeout(LIMIT));
                calls.give_up(|| shadowed.lock_timeout(LIMIT));
                calls.give_up(|| table.read_timeout(LIMIT));
            }
            if job.pe() == 0 {
                eventually("all calls have given up", || calls.ended.load(Ordering::Relaxed) == 3);
                // Other PEs wait already, with a limit and without.
                nap(INTERVAL);
                drop(held);
            }
            if job.pe() == 1 {
                *mutex.lock_timeout(LONG)? += 1;
                *shadowed.lock_timeout(LONG)? += 1;
                *table.write_timeout(LONG)? += 1;
            } else {
                *mutex.lock()? += 1;
                *shadowed.lock()? += 1;
                *table.write()? += 1;
            }
            job.barrier()?;
            let npes = job.npes() as u64;
            assert_eq!((*mutex.lock()?, *shadowed.lock()?, *table.read()?), (npes, npes, npes));
            job.barrier()
        });
    }
}

#[track_caller]
fn gives_up<T>(result: Result<T>) {
    let result = result.map(drop);
    assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}");
}

/// The holder dies: calls with a limit end with that error, even where the queue has no place for
/// them.
fn a_full_queue_and_a_death(setup: Setup) {
    for run in setup.runs(FEW) {
        let (held, full) = (Arc::new(Meeting::new(run.npes)), Arc::new(Meeting::new(run.npes)));
        let (is_held, is_full) = (held.clone(), full.clone());
        with_a_death(
            run,
            0,
            |job| {
                Ok((
                    Mutex::new(job, &0u64)?,
                    Mutex::with_shadow(job, &0u64)?,
                    RwLock::new(job, &0u64)?,
                ))
            },
            move |_, (mutex, shadowed, table)| {
                std::mem::forget((mutex.lock()?, shadowed.lock()?, table.write()?));
                held.meet();
                full.meet();
                // The other PEs wait by now.
                nap(INTERVAL);
                std::mem::forget((mutex, shadowed, table));
                Ok(())
            },
            move |_, (mutex, shadowed, table)| {
                is_held.meet();
                for _ in 0..CROWD {
                    gives_up(mutex.lock_timeout(MOMENT));
                    gives_up(shadowed.lock_timeout(MOMENT));
                    gives_up(table.read_timeout(MOMENT));
                }
                is_full.meet();
                blames(mutex.lock_timeout(LONG), 0, Cause::Panic, "a mutex");
                blames(shadowed.lock_timeout(LONG), 0, Cause::Panic, "one with a shadow");
                blames(table.read_timeout(LONG), 0, Cause::Panic, "a reader");
                blames(table.write_timeout(LONG), 0, Cause::Panic, "a writer");
                Ok(())
            },
        );
    }
}

/// The lock is released around the deadline: the call gets it, or another one does.
fn a_release_at_the_deadline(setup: Setup) {
    const LIMIT: Duration = Duration::from_micros(300);
    for run in setup.runs(FEW) {
        let meeting = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            let mutex = Mutex::new(job, &0u64)?;
            let shadowed = Mutex::with_shadow(job, &0u64)?;
            let table = RwLock::new(job, &0u64)?;
            let (mut dice, mut entered) = (run.dice(job.pe()), 0);
            let rounds = 40;
            for _ in 0..rounds {
                let held = match job.pe() {
                    0 => Some((mutex.lock()?, shadowed.lock()?, table.write()?)),
                    _ => None,
                };
                meeting.meet();
                if let Some((one, two, three)) = held {
                    nap(Duration::from_micros(250 + dice.below(100) as u64));
                    drop(one);
                    nap(Duration::from_micros(250 + dice.below(100) as u64));
                    drop(two);
                    nap(Duration::from_micros(250 + dice.below(100) as u64));
                    drop(three);
                } else {
                    for mut guard in [mutex.lock_timeout(LIMIT), shadowed.lock_timeout(LIMIT)]
                        .into_iter()
                        .flatten()
                    {
                        *guard += 1;
                        entered += 1;
                    }
                    if let Ok(mut guard) = table.write_timeout(LIMIT) {
                        *guard += 1;
                        entered += 1;
                    }
                }
                meeting.meet();
                // The lock is free, or its holder knows that it holds it.
                drop((
                    mutex.lock_timeout(LONG)?,
                    shadowed.lock_timeout(LONG)?,
                    table.write_timeout(LONG)?,
                ));
                meeting.meet();
            }
            let all = job.window::<u64>(1)?;
            all.remote(0, 0)?.add(entered)?;
            job.barrier()?;
            let sum = *mutex.lock()? + *shadowed.lock()? + *table.read()?;
            assert_eq!(sum, all.get_one(0, 0)?);
            job.barrier()
        });
    }
}

/// Limits of no time, of the least, and of more than a clock can show.
fn the_shortest_and_the_longest_limits(setup: Setup) {
    const SHORT: [Duration; 2] = [Duration::ZERO, Duration::from_nanos(1)];
    const ENDLESS: [Duration; 5] = [
        Duration::from_secs(365 * 86_400),
        Duration::from_nanos(i64::MAX as u64),
        Duration::from_nanos(u64::MAX),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ];
    for run in setup.runs(&[2]) {
        let meeting = Meeting::new(2);
        run.job(move |job| {
            let w = job.window::<u64>(1)?;
            let rights = job.restricted::<u64>(1, |_, _| Access::ReadWrite)?;
            let mutex = Mutex::new(job, &0u64)?;
            let shadowed = Mutex::with_shadow(job, &0u64)?;
            let table = RwLock::new(job, &0u64)?;
            let barrier = job.world().split_barrier();
            if job.pe() == 0 {
                for _ in ENDLESS {
                    let held =
                        (mutex.lock()?, shadowed.lock()?, table.write()?, rights.remote(1, 0)?);
                    meeting.meet();
                    // It has tried, and waits.
                    meeting.meet();
                    nap(INTERVAL);
                    w.remote(1, 0)?.store(1);
                    nap(INTERVAL);
                    drop(held);
                    drop(barrier.arrive()?);
                    meeting.meet();
                }
                return barrier.wait();
            }
            for endless in ENDLESS {
                meeting.meet();
                drop(barrier.arrive()?);
                for short in SHORT {
                    let gives_up = |result: Result<()>| {
                        assert!(
                            matches!(result, Err(Error::Timeout { after, .. }) if after == short)
                        )
                    };
                    gives_up(w.wait().timeout(short).until(0, Cmp::Eq, 1).map(drop));
                    gives_up(barrier.wait_timeout(short));
                    gives_up(rights.revoke_wait(Some(short)));
                    gives_up(mutex.lock_timeout(short).map(drop));
                    gives_up(shadowed.lock_timeout(short).map(drop));
                    gives_up(table.read_timeout(short).map(drop));
                    gives_up(table.write_timeout(short).map(drop));
                }
                meeting.meet();
                w.wait().timeout(endless).until(0, Cmp::Eq, 1)?;
                rights.revoke_wait(Some(endless))?;
                drop(mutex.lock_timeout(endless)?);
                drop(shadowed.lock_timeout(endless)?);
                drop(table.read_timeout(endless)?);
                drop(table.write_timeout(endless)?);
                barrier.wait_timeout(endless)?;
                // What is there already needs no time.
                for short in SHORT {
                    w.wait().timeout(short).until(0, Cmp::Eq, 1)?;
                    barrier.wait_timeout(short)?;
                }
                w.write(0, 0);
                meeting.meet();
            }
            Ok(())
        });
    }
}

/// A writer waits for a slow reader. Deaths of other readers do not restart its time.
fn readers_that_die_give_a_slow_one_no_more_time(setup: Setup) {
    const SLOW: usize = 1;
    const VICTIM: usize = 2;
    for run in setup.runs(&[3]) {
        let (full, done) = (Arc::new(Meeting::new(2)), Meeting::new(2));
        let is_full = full.clone();
        with_a_death(
            run,
            VICTIM,
            |job| {
                let options =
                    MulticastOptions::new().capacity(4096).survive_readers(true).drop_slow(LIMIT);
                Ok(std::sync::Mutex::new(Some(job.multicast::<u64>(
                    0,
                    &[SLOW, VICTIM],
                    options,
                )?)))
            },
            move |_, channel| {
                full.meet();
                nap(LIMIT * 9 / 10);
                // These PEs are threads. In place, a thread may still read by a dead PE's end.
                if !in_place(channel.lock().unwrap().as_ref().unwrap()) {
                    std::mem::forget(channel);
                }
                Ok(())
            },
            move |job, channel| {
                let mut slot = channel.lock().unwrap();
                let channel = slot.as_mut().unwrap();
                if job.pe() == 0 {
                    while let Some(claim) = channel.try_claim(20)? {
                        claim.commit()?;
                    }
                    is_full.meet();
                    let start = now();
                    channel.publish(&[8; 20])?;
                    let took = now() - start;
                    assert!(!SIMULATED || took <= LIMIT + ROUND_TRIPS, "it waited for {took:?}");
                    assert!(channel.dropped().contains(&SLOW), "{:?}", channel.dropped());
                }
                done.meet();
                *slot = None;
                Ok(())
            },
        );
    }
}

/// More threads of one PE than the queue has places: all give up in time, and all get their turn in
/// the end.
fn more_threads_than_places(setup: Setup) {
    // There, each message wakes all threads of a PE: dozens of them get nowhere.
    if setup.is_libfabric() {
        return;
    }
    for run in setup.many_runs(&[2], 1) {
        calls(run, |job, calls| {
            let mutex = Mutex::new(job, &0u64)?;
            let shadowed = Mutex::with_shadow(job, &0u64)?;
            let table = RwLock::new(job, &0u64)?;
            let held = match job.pe() {
                0 => Some((mutex.lock()?, shadowed.lock()?, table.write()?)),
                _ => None,
            };
            job.barrier()?;
            if job.pe() == 0 {
                eventually("all threads have given up", || {
                    calls.ended.load(Ordering::Relaxed) == 3 * CROWD
                });
                drop(held);
            } else {
                std::thread::scope(|scope| {
                    for _ in 0..CROWD {
                        scope.spawn(|| {
                            calls.give_up(|| mutex.lock_timeout(LIMIT));
                            calls.give_up(|| shadowed.lock_timeout(LIMIT));
                            calls.give_up(|| table.read_timeout(LIMIT));
                            *mutex.lock_timeout(LONG).expect("its turn") += 1;
                            *shadowed.lock_timeout(LONG).expect("its turn") += 1;
                            *table.write_timeout(LONG).expect("its turn") += 1;
                        });
                    }
                });
            }
            job.barrier()?;
            let all = CROWD as u64;
            assert_eq!((*mutex.lock()?, *shadowed.lock()?, *table.read()?), (all, all, all));
            job.barrier()
        });
    }
}
