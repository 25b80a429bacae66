//! Events: waits with a descriptor, which a thread of the library makes.

use crate::setup::{LONG, Setup, within};
use memonet_core::{Cause, Cmp, Error, Event, Job, Result, SignalOp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    ; with threads of their own:
    to_and_fro,
    stores_are_seen,
    many_at_once,
    armed_again_while_it_waits,
    a_time_limit_ends_a_wait,
    dropped_and_forgotten,
    a_pe_that_has_left,
    beside_waits_of_the_program,
);

/// Whether a descriptor is readable within this time.
fn is_readable(event: &impl AsFd, time: Duration) -> bool {
    let time = Timespec::try_from(time).unwrap();
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&time)).unwrap() == 1
}

/// Waits for an event as an event loop does.
fn ended(event: &Event<u64>) -> Result<u64> {
    assert!(is_readable(event, LONG), "it ends");
    Ok(event.result()?.expect("a readable event has ended"))
}

fn to_and_fro(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(move |job| {
            let (words, other) = (job.window::<u64>(1)?, 1 - job.pe());
            let mut event = words.event(0, Cmp::Ge, 1)?;
            for round in 1..=if setup.is_near() { 300 } else { 30 } {
                if round > 1 {
                    event.arm(Cmp::Ge, round)?;
                }
                if job.pe() == 0 {
                    words.signal(other, 0, SignalOp::Set, round)?;
                    assert_eq!(ended(&event)?, round);
                } else {
                    assert_eq!(ended(&event)?, round);
                    assert_eq!(event.result()?, Some(round), "as often as one asks");
                    words.signal(other, 0, SignalOp::Set, round)?;
                }
            }
            job.barrier()
        });
    }
}

/// A store wakes nobody: the thread polls.
fn stores_are_seen(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let words = job.window::<u64>(4)?;
            if job.pe() > 0 {
                let event = words.event(job.pe(), Cmp::Ne, 0)?;
                assert_eq!(event.result()?, None);
                assert!(!is_readable(&event, Duration::ZERO));
                job.barrier()?;
                assert_eq!(ended(&event)?, job.pe() as u64);
                return job.barrier();
            }
            job.barrier()?;
            for pe in 1..job.npes() {
                words.remote(pe, pe)?.store(pe as u64);
            }
            job.quiet()?;
            job.barrier()
        });
    }
}

/// The limit is that of one wait, and of one that has not ended.
fn a_time_limit_ends_a_wait(setup: Setup) {
    let is_late = |event: &Event<u64>| {
        assert!(is_readable(event, LONG), "it ends");
        matches!(event.result(), Err(Error::Timeout { .. }))
    };
    for run in setup.runs(&[1, 2]) {
        run.job(move |job| {
            let words = job.window::<u64>(1)?;
            let mut event = words.event(0, Cmp::Ge, 1)?;
            for after in [Duration::from_millis(1), Duration::from_millis(20), Duration::ZERO] {
                assert_eq!(event.result()?, None, "no limit so far");
                event.timeout(LONG * 10)?;
                assert!(!is_readable(&event, Duration::ZERO));
                event.timeout(after)?;
                assert!(is_late(&event));
                event.arm(Cmp::Ge, 1)?;
            }
            for never in [Duration::MAX, LONG * 10] {
                event.timeout(never)?;
                assert!(!is_readable(&event, Duration::from_millis(10)));
            }
            job.barrier()?;
            words.signal((job.pe() + 1) % job.npes(), 0, SignalOp::Set, 1)?;
            assert_eq!(ended(&event)?, 1);
            event.timeout(Duration::ZERO)?;
            assert_eq!(ended(&event)?, 1, "a wait that has ended stays as it is");
            job.barrier()
        });
    }
}

fn many_at_once(setup: Setup) {
    const MANY: usize = 40;
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (words, other) = (job.window::<u64>(MANY)?, 1 - job.pe());
            let events: Result<Vec<_>> =
                (0..MANY).map(|index| words.event(index, Cmp::Ne, 0)).collect();
            let (events, mut dice) = (events?, crate::setup::Dice::from(7));
            let mut left: Vec<usize> = (0..MANY).collect();
            while !left.is_empty() {
                let index = left.swap_remove(dice.below(left.len()));
                words.signal(other, index, SignalOp::Set, index as u64 + 1)?;
                assert_eq!(ended(&events[index])?, index as u64 + 1);
                // The peer may end one between two looks; none that has ended goes back.
                for event in left.iter().map(|&index| &events[index]) {
                    let before = is_readable(event, Duration::ZERO);
                    let has_ended = event.result()?.is_some();
                    let after = is_readable(event, Duration::ZERO);
                    assert!(before <= has_ended && has_ended <= after);
                }
            }
            job.barrier()
        });
    }
}

fn armed_again_while_it_waits(setup: Setup) {
    for run in setup.runs(&[1]) {
        run.job(|job| {
            let words = job.window::<u64>(1)?;
            let mut event = words.event(0, Cmp::Eq, 5)?;
            words.write(0, 4);
            event.arm(Cmp::Eq, 4)?;
            assert_eq!(event.result()?, Some(4), "it held before it was armed");
            assert!(is_readable(&event, Duration::ZERO));
            event.arm(Cmp::Eq, 6)?;
            assert!(!is_readable(&event, Duration::from_millis(20)) && event.result()?.is_none());
            words.write(0, 6);
            assert_eq!(ended(&event)?, 6);
            words.write(0, 7);
            assert_eq!(event.result()?, Some(6), "the value with which it ended");
            assert!(matches!(words.event(1, Cmp::Eq, 0), Err(Error::OutOfBounds { .. })));
            Ok(())
        });
    }
}

/// The thread ends with the last event, and another one begins with the next.
fn dropped_and_forgotten(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (words, other) = (job.window::<u64>(3)?, 1 - job.pe());
            for round in 1..20 {
                drop(words.event(0, Cmp::Eq, round)?);
                let (waits, dropped) =
                    (words.event(1, Cmp::Ge, round)?, words.event(2, Cmp::Eq, 99)?);
                // Signals that set could overtake each other.
                words.signal(other, 1, SignalOp::Add, 1)?;
                assert!(ended(&waits)? >= round);
                drop(dropped);
            }
            std::mem::forget(words.event(0, Cmp::Eq, 99)?);
            job.barrier()
        });
    }
}

fn a_pe_that_has_left(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let words = job.window::<u64>(2)?;
            job.barrier()?;
            if job.pe() == 1 {
                return Ok(());
            }
            let mut event = words.event(0, Cmp::Ne, 0)?;
            assert!(is_readable(&event, LONG), "it ends");
            let failed = event.result();
            let left = |cause| matches!(cause, Cause::Finalized);
            assert!(
                matches!(&failed, Err(Error::PeerFailed { pe: 1, cause, .. }) if left(*cause)),
                "{failed:?}"
            );
            assert!(matches!(event.result(), Err(Error::Misuse { .. })), "said once");
            event.arm(Cmp::Ne, 0)?;
            assert!(is_readable(&event, LONG) && event.result().is_err(), "nobody is left");
            words.write(0, 3);
            event.arm(Cmp::Ne, 0)?;
            assert_eq!(event.result()?, Some(3), "what is there already needs nobody");
            Ok(())
        });
    }
}

/// The program waits, meets and writes while its events wait for other words.
fn beside_waits_of_the_program(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let (words, next) = (job.window::<u64>(2)?, (job.pe() + 1) % job.npes());
            let mut event = words.event(0, Cmp::Ge, 1)?;
            for round in 1..=30 {
                words.put_signal(next, 1, &[round], &words, 0, SignalOp::Add, 1)?;
                assert_eq!(job.world().all_reduce(memonet_core::Max, round)?, round);
                words.wait_until(1, Cmp::Ge, round)?;
                assert!(ended(&event)? >= round);
                job.barrier()?;
                event.arm(Cmp::Ge, round + 1)?;
            }
            job.barrier()
        });
    }
}

/// A job ends while events wait: those that are left fail, and the thread ends.
#[test]
fn the_end_of_the_job() {
    within("events at the end of a job", || {
        let events = Job::threads(1, |job| job.window::<u64>(1)?.event(0, Cmp::Ne, 0));
        let event = events.unwrap().pop().unwrap().unwrap();
        assert!(is_readable(&event, LONG), "it ends");
        assert!(matches!(event.result(), Err(Error::PeerFailed { pe: 0, .. })));
    });
}

/// A PE dies: its peers' events name it.
#[test]
fn a_pe_that_panics() {
    let (sender, results) = std::sync::mpsc::channel();
    let ends = std::panic::catch_unwind(move || {
        Job::threads(2, move |job| {
            let words = job.window::<u64>(1).unwrap();
            job.barrier().unwrap();
            assert!(job.pe() == 0, "PE 1 dies");
            let event = words.event(0, Cmp::Ne, 0).unwrap();
            assert!(is_readable(&event, LONG), "it ends");
            sender.send(event.result()).unwrap();
        })
    });
    assert!(ends.is_err(), "the panic of PE 1 is the job's");
    let result = results.recv().unwrap();
    assert!(
        matches!(result, Err(Error::PeerFailed { pe: 1, cause: Cause::Panic, .. })),
        "{result:?}"
    );
}
