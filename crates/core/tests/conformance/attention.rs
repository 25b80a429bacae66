//! Attention: a front end learns what the waits of its PE are for, and interrupts them.

use crate::failure::{Tools, WAYS};
use crate::setup::{Meeting, Setup, eventually, nap};
use memonet_core::dsm::RwLock;
use memonet_core::unstable::wait::{Attention, Awaited};
use memonet_core::{Cmp, Error, Result, SignalOp};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

on_every_fabric!(
    [also on recorded, copying]
    every_wait_is_interrupted,
    an_interrupted_collective_ends_its_team,
    an_interrupted_allocation_ends_the_world,
    an_interrupted_phase_goes_on,
    a_place_in_a_queue_is_given_up,
    a_lock_passes_over_a_left_place,
    a_left_place_is_passed_over_at_the_end,
    a_left_place_keeps_its_window,
    a_hook_sees_what_the_wait_is_for,
    a_hook_may_let_the_wait_go_on,
    another_pe_calls;
    with threads of their own:
    sleepers_are_interrupted,
    one_of_two_threads_is_interrupted,
);

/// The arguments of a hook: kind, missing PEs, text.
type Seen = (Awaited, Vec<usize>, String);

fn is_interrupted<T>(ended: Result<T>) -> bool {
    matches!(ended, Err(Error::Interrupted { .. }))
}

/// Each call in a job of its own, in which one PE does not take part.
fn every_wait_is_interrupted(setup: Setup) {
    for run in setup.runs(&[3]) {
        for (what, way) in WAYS {
            if ["arrive and test", "trying a lock"].contains(&what) {
                continue;
            }
            let (idle, meeting) = (run.npes - 1, Meeting::new(run.npes));
            run.job(move |job| {
                let tools = Tools::new(job, idle)?;
                meeting.meet();
                if job.pe() != idle {
                    job.attention().call();
                    let ended = way(job, &tools);
                    assert!(is_interrupted(ended), "{what}");
                    job.attention().dismiss();
                }
                meeting.meet();
                Ok(())
            });
        }
    }
}

fn an_interrupted_collective_ends_its_team(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let all: Vec<usize> = (0..job.npes()).collect();
            let (one, other) = (job.team(&all)?.expect("a member"), job.team(&all)?);
            let (word, to) = (job.window::<u64>(1)?, job.window::<u64>(1)?);
            meeting.meet();
            if job.pe() == 0 {
                let attention = job.attention();
                attention.call();
                let (to, from) = (to.span(0..1)?, word.span(0..1)?);
                assert!(is_interrupted(one.all_reduce_into(memonet_core::Sum, to, from)));
                attention.dismiss();
                for again in [one.barrier(), one.all_reduce_into(memonet_core::Sum, to, from)] {
                    assert!(matches!(again, Err(Error::Misuse { .. })), "{again:?}");
                }
            }
            meeting.meet();
            // The other team still works.
            other.expect("a member").barrier()?;
            job.barrier()
        });
    }
}

/// Whoever goes on would meet the others in another call.
fn an_interrupted_allocation_ends_the_world(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            job.barrier()?;
            meeting.meet();
            if job.pe() == 0 {
                job.attention().call();
                assert!(is_interrupted(job.window::<u64>(8)));
                job.attention().dismiss();
                for again in [job.barrier(), job.window::<u64>(8).map(drop)] {
                    assert!(matches!(again, Err(Error::Misuse { .. })), "{again:?}");
                }
            }
            meeting.meet();
            Ok(())
        });
    }
}

fn an_interrupted_phase_goes_on(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let barrier = job.world().new_barrier()?;
            if job.pe() == 0 {
                barrier.step()?;
                job.attention().call();
                assert!(is_interrupted(barrier.wait()));
                job.attention().dismiss();
            }
            meeting.meet();
            if job.pe() != 0 {
                barrier.step()?;
            }
            barrier.wait()
        });
    }
}

fn a_place_in_a_queue_is_given_up(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let lock = RwLock::new(job, &5u64)?;
            let held = if job.pe() == 1 { Some(lock.write()?) } else { None };
            meeting.meet();
            if job.pe() == 0 {
                job.attention().call();
                assert!(is_interrupted(lock.write()));
                assert!(is_interrupted(lock.read()));
                job.attention().dismiss();
            }
            meeting.meet();
            drop(held);
            *lock.write()? += 1;
            job.barrier()?;
            assert_eq!(*lock.read()?, 5 + job.npes() as u64);
            Ok(())
        });
    }
}

/// The lock comes to the place while its PE waits for something else.
fn a_lock_passes_over_a_left_place(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let words = job.window::<u64>(2)?;
            let lock = words.lock(0)?;
            let mut held = if job.pe() == 1 { Some(lock.lock()?) } else { None };
            meeting.meet();
            if job.pe() == 0 {
                job.attention().call();
                assert!(is_interrupted(lock.lock()));
                job.attention().dismiss();
            }
            meeting.meet();
            if job.pe() > 0 {
                drop(held.take());
                for _ in 0..3 {
                    let held = lock.lock()?;
                    let seen = words.get_one(0, 1)?;
                    words.put_one(0, 1, seen + 1)?;
                    held.release()?;
                }
            }
            job.barrier()?;
            assert_eq!(words.get_one(0, 1)?, 3 * (job.npes() as u64 - 1));
            // The PE that was interrupted may stand in the queue again.
            drop(lock.lock()?);
            job.barrier()
        });
    }
}

/// A PE that leaves the job stays until it has passed the lock on.
fn a_left_place_is_passed_over_at_the_end(setup: Setup) {
    for run in setup.runs(&[3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let words = job.window::<u64>(1)?;
            let lock = words.lock(0)?;
            let held = if job.pe() == 1 { Some(lock.lock()?) } else { None };
            meeting.meet();
            if job.pe() == 0 {
                job.attention().call();
                assert!(is_interrupted(lock.lock()));
                job.attention().dismiss();
            }
            meeting.meet();
            match job.pe() {
                0 => return Ok(()),
                1 => nap(Duration::from_millis(20)),
                _ => {}
            }
            drop(held);
            drop(lock.lock()?);
            Ok(())
        });
    }
}

/// Nothing else gets the memory of a lock in whose queue a PE stands.
fn a_left_place_keeps_its_window(setup: Setup) {
    for run in setup.runs(&[2]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let words = job.window::<u64>(2)?;
            let lock = words.lock(0)?;
            if job.pe() == 1 {
                std::mem::forget(lock.lock()?);
            }
            meeting.meet();
            if job.pe() == 0 {
                job.attention().call();
                assert!(is_interrupted(lock.lock()));
                job.attention().dismiss();
            }
            drop(lock);
            words.free()?;
            let others = job.window::<u64>(2)?;
            others.fill(0..2, u64::MAX);
            job.barrier()?;
            if job.pe() == 1 {
                nap(Duration::from_millis(20));
            }
            job.barrier()?;
            assert_eq!(others.to_vec(), [u64::MAX; 2]);
            job.barrier()
        });
    }
}

fn a_hook_sees_what_the_wait_is_for(setup: Setup) {
    for run in setup.runs(&[3]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let words = job.window::<u64>(2)?;
            let (lock, barrier) = (words.lock(1)?, job.world().new_barrier()?);
            if job.pe() == 2 {
                std::mem::forget(lock.lock()?);
                barrier.step()?;
            }
            job.barrier()?;
            if job.pe() == 0 {
                let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
                let sees = seen.clone();
                job.attention().set_hook(move |waiting| {
                    let all = (waiting.what(), waiting.missing(), waiting.to_string());
                    sees.lock().unwrap().push(all);
                    ControlFlow::Break(())
                });
                job.attention().call();
                assert!(is_interrupted(words.wait_until(0, Cmp::Ne, 0)));
                assert!(is_interrupted(words.wait().depends_on(&[1, 0]).until(0, Cmp::Ne, 0)));
                barrier.step()?;
                assert!(is_interrupted(barrier.wait()));
                assert!(is_interrupted(lock.lock()));
                job.attention().dismiss();
                let expected = [
                    (Awaited::Word, vec![], "a word that any PE may write"),
                    (Awaited::WordOf, vec![1], "a word that some PEs may write (writers: PE 1)"),
                    (Awaited::Barrier, vec![1], "a barrier (missing: PE 1)"),
                    (Awaited::Lock, vec![2], "a lock (in its queue: PE 2)"),
                ];
                let expected = expected.map(|(what, pes, text)| (what, pes, text.to_string()));
                assert_eq!(*seen.lock().unwrap(), expected);
            }
            meeting.meet();
            Ok(())
        });
    }
}

fn a_hook_may_let_the_wait_go_on(setup: Setup) {
    for run in setup.runs(&[2]) {
        let asked = Arc::new(AtomicUsize::new(0));
        run.job(move |job| {
            let word = job.window::<u64>(1)?;
            if job.pe() == 0 {
                let asks = asked.clone();
                job.attention().set_hook(move |waiting| {
                    waiting.dismiss();
                    asks.fetch_add(1, Ordering::SeqCst);
                    ControlFlow::Continue(())
                });
                job.attention().call();
                assert_eq!(word.wait_until(0, Cmp::Ne, 0)?, 7);
            } else {
                eventually("the hook runs", || asked.load(Ordering::SeqCst) > 0);
                word.signal(0, 0, SignalOp::Set, 7)?;
            }
            job.barrier()?;
            assert_eq!(asked.load(Ordering::SeqCst), 1, "it has dismissed the call");
            Ok(())
        });
    }
}

/// In virtual time a parked PE checks when its machine wakes it: here, for another word.
fn another_pe_calls(setup: Setup) {
    for run in setup.runs(&[2]) {
        let calls: Arc<Mutex<Option<Attention>>> = Arc::default();
        run.job(move |job| {
            let words = job.window::<u64>(2)?;
            if job.pe() == 0 {
                *calls.lock().unwrap() = Some(job.attention());
                assert!(is_interrupted(words.wait_until(0, Cmp::Ne, 0)));
                job.attention().dismiss();
            } else {
                eventually("its handle is here", || calls.lock().unwrap().is_some());
                nap(Duration::from_millis(30));
                calls.lock().unwrap().take().expect("it is here").call();
                words.signal(0, 1, SignalOp::Set, 1)?;
            }
            job.barrier()
        });
    }
}

/// Sleepers on a PE's own doorbell, and on a bell of a barrier.
fn sleepers_are_interrupted(setup: Setup) {
    for run in setup.runs(&[2, 9]) {
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let (word, barrier) = (job.window::<u64>(1)?, job.world().new_barrier()?);
            if job.pe() != 1 {
                let waits: [&dyn Fn() -> Result<()>; 2] =
                    [&|| word.wait_until(0, Cmp::Ne, 0).map(drop), &|| {
                        barrier.step().and_then(|()| barrier.wait())
                    }];
                for wait in waits {
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            std::thread::sleep(Duration::from_millis(100));
                            job.attention().call();
                        });
                        assert!(is_interrupted(wait()));
                    });
                    job.attention().dismiss();
                }
            }
            meeting.meet();
            Ok(())
        });
    }
}

fn one_of_two_threads_is_interrupted(setup: Setup) {
    for run in setup.runs(&[1]) {
        run.job(|job| {
            let words = job.window::<u64>(2)?;
            let ends: Arc<Mutex<Option<ThreadId>>> = Arc::default();
            let (end, asked) = (ends.clone(), Arc::new(AtomicUsize::new(0)));
            let asks = asked.clone();
            job.attention().set_hook(move |_| {
                if *end.lock().unwrap() == Some(std::thread::current().id()) {
                    return ControlFlow::Break(());
                }
                asks.fetch_add(1, Ordering::SeqCst);
                ControlFlow::Continue(())
            });
            std::thread::scope(|scope| {
                let goes_on = scope.spawn(|| words.wait_until(0, Cmp::Ne, 0));
                let ended = scope.spawn(|| {
                    *ends.lock().unwrap() = Some(std::thread::current().id());
                    words.wait_until(1, Cmp::Ne, 0)
                });
                std::thread::sleep(Duration::from_millis(20));
                job.attention().call();
                assert!(is_interrupted(ended.join().unwrap()));
                eventually("the other is asked", || asked.load(Ordering::SeqCst) > 0);
                job.attention().dismiss();
                words.signal(0, 0, SignalOp::Set, 3).unwrap();
                assert_eq!(goes_on.join().unwrap().unwrap(), 3);
            });
            Ok(())
        });
    }
}
