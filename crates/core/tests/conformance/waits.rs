//! Waits for words: every comparison; one, any, all and some of many words; ended by every kind of
//! write; awake and asleep.

use crate::setup::{ALL, FEW, LONG, Meeting, Setup, eventually};
use memonet_core::{Cmp, Error, Job, Result, SignalOp, Window, Word};
use std::sync::Arc;
use std::time::Duration;

on_every_fabric!(
    [also on recorded, streams_dealt]
    every_comparison,
    every_comparison_waits,
    every_type,
    every_kind_of_write_ends_a_wait,
    a_sleeper_sees_every_kind_of_write,
    any_gives_the_first,
    all_need_not_hold_at_once,
    some_gives_all_that_hold,
    of_none,
    of_pes_that_do_not_exist,
    beyond_the_end,
    deadlines,
    a_wait_can_go_on_after_its_deadline,
    the_longest_deadline,
    waiting_on_ones_own_store,
    many_to_one,
    ping_pong,
);

const EVERY: [Cmp; 6] = [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge];

fn holds(cmp: Cmp, word: i64, value: i64) -> bool {
    match cmp {
        Cmp::Eq => word == value,
        Cmp::Ne => word != value,
        Cmp::Lt => word < value,
        Cmp::Le => word <= value,
        Cmp::Gt => word > value,
        Cmp::Ge => word >= value,
    }
}

/// Such a wait is refused, also where its condition holds.
fn of_pes_that_do_not_exist(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let (w, n) = (job.window::<u64>(1)?, job.npes());
            for bad in [n, usize::MAX] {
                let pes = [0, bad];
                let wait = || w.wait().depends_on(&pes);
                for refused in [
                    wait().until(0, Cmp::Eq, 0).map(drop),
                    wait().any(&[0], Cmp::Eq, 0).map(drop),
                    wait().all(&[0], Cmp::Eq, 0),
                    wait().some(&[0], Cmp::Eq, 0).map(drop),
                ] {
                    assert!(
                        matches!(&refused, Err(Error::NoSuchPe { pe, npes, .. }) if (*pe, *npes) == (bad, n)),
                        "{refused:?}"
                    );
                }
            }
            Ok(())
        });
    }
}

/// A wait ends at once if its condition holds already, and only then.
fn every_comparison(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<i64>(1)?;
            for cmp in EVERY {
                for (word, value) in
                    [(-1, 0), (0, 0), (1, 0), (i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (5, 5)]
                {
                    w.write(0, word);
                    let expected = holds(cmp, word, value);
                    assert_eq!(cmp.holds(word, value), expected);
                    assert_eq!(w.test_until(0, cmp, value), expected, "{word} {cmp:?} {value}");
                    let brief = || w.wait().timeout(Duration::ZERO);
                    if expected {
                        assert_eq!(w.wait_until(0, cmp, value)?, word);
                        assert_eq!(brief().until(0, cmp, value)?, word);
                        assert_eq!(brief().any(&[0], cmp, value)?, 0);
                        assert_eq!(brief().some(&[0, 0], cmp, value)?, [0, 1]);
                        brief().all(&[0, 0], cmp, value)?;
                    } else {
                        assert!(matches!(brief().until(0, cmp, value), Err(Error::Timeout { .. })));
                        assert!(matches!(
                            brief().any(&[0], cmp, value),
                            Err(Error::Timeout { .. })
                        ));
                        assert!(matches!(
                            brief().some(&[0], cmp, value),
                            Err(Error::Timeout { .. })
                        ));
                        assert!(matches!(
                            brief().all(&[0], cmp, value),
                            Err(Error::Timeout { .. })
                        ));
                    }
                }
            }
            job.barrier()
        });
    }
}

/// Counting up, then down: each comparison ends at the first value for which it holds, or later.
fn every_comparison_waits(setup: Setup) {
    const TURN: i64 = 40;
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (w, seen) = (job.window::<i64>(1)?, job.window::<u64>(1)?);
            for (round, cmp) in EVERY.into_iter().enumerate() {
                let down = matches!(cmp, Cmp::Lt | Cmp::Le);
                let start = if down { TURN } else { 0 };
                w.write(0, start);
                job.barrier()?;
                let value = match cmp {
                    Cmp::Ne => start,
                    _ => 20,
                };
                if job.pe() == 0 {
                    for i in 1..=TURN {
                        let next = if down { TURN - i } else { i };
                        w.remote(1, 0)?.store(next);
                        if cmp == Cmp::Eq && next == value {
                            // Equality does not last: the other PE must have seen it.
                            seen.wait_until(0, Cmp::Ge, round as u64 + 1)?;
                        }
                        job.fence()?;
                    }
                } else if job.pe() == 1 {
                    let word = w.wait_until(0, cmp, value)?;
                    assert!(holds(cmp, word, value), "{word} {cmp:?} {value}");
                    seen.signal(0, 0, SignalOp::Set, round as u64 + 1)?;
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn every_type(setup: Setup) {
    fn one<T: Word>(job: &Job, low: T, high: T) -> Result<()> {
        let w = job.window::<T>(3)?;
        w.fill(0..3, low);
        job.barrier()?;
        if job.pe() == 0 {
            w.remote(1, 1)?.store(high);
        } else if job.pe() == 1 {
            assert_eq!(w.wait().timeout(LONG).until(1, Cmp::Gt, low)?, high);
            assert!(
                w.test_until(1, Cmp::Ge, high)
                    && w.test_until(0, Cmp::Lt, high)
                    && w.test_until(1, Cmp::Ne, low)
            );
            assert_eq!(w.test_any(&[0, 1, 2], Cmp::Eq, high), Some(1));
        }
        job.barrier()
    }
    for run in setup.runs(FEW) {
        run.job(|job| {
            one::<u8>(job, 1, u8::MAX)?;
            one::<i8>(job, i8::MIN, -1)?;
            one::<u16>(job, 0x00FF, 0x0100)?;
            one::<i16>(job, -256, 255)?;
            one::<u32>(job, 0xFFFF, 0x1_0000)?;
            one::<i32>(job, i32::MIN, i32::MAX)?;
            one::<u64>(job, u32::MAX.into(), 1 << 32)?;
            one::<i64>(job, i64::MIN, 0)?;
            one::<usize>(job, 0, usize::MAX)?;
            one::<isize>(job, isize::MIN, isize::MAX)?;
            one::<f32>(job, f32::NEG_INFINITY, -0.5)?;
            one::<f64>(job, -1e300, 1e-300)
        });
    }
}

/// The ways to write 1 into word 0 of PE 1.
type Way = fn(&Job, &Window<u64>) -> Result<()>;
const WAYS: [Way; 10] = [
    |_, w| w.remote(1, 0).map(|r| r.store(1)),
    |_, w| w.put(1, 0, &[1]),
    |_, w| w.remote(1, 0)?.add(1),
    |_, w| w.remote(1, 0)?.set(1),
    |_, w| w.remote(1, 0)?.compare_swap(0, 1).map(drop),
    |_, w| w.signal(1, 0, SignalOp::Set, 1),
    |_, w| w.signal(1, 0, SignalOp::Add, 1),
    |_, w| w.put_signal(1, 1, &[9], w, 0, SignalOp::Set, 1),
    |_, w| w.put_strided(1, 0, 2, &[1, 1], 1, 2),
    |_, w| w.put_indexed(1, &[0], &[1]),
];

fn every_kind_of_write_ends_a_wait(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<u64>(3)?;
            for (i, way) in WAYS.into_iter().enumerate() {
                if job.pe() == 0 {
                    way(job, &w)?;
                } else if job.pe() == 1 {
                    let seen = w.wait().timeout(LONG).until(0, Cmp::Ne, 0);
                    assert!(matches!(seen, Ok(1)), "way {i}: {seen:?}");
                }
                job.barrier()?;
                w.fill(0..3, 0);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// Each write wakes a PE that is asleep by then; its writer makes no further call.
fn a_sleeper_sees_every_kind_of_write(setup: Setup) {
    for run in setup.runs(&[2]) {
        let meeting = Arc::new(Meeting::new(2));
        run.job(move |job| {
            let w = job.window::<u64>(3)?;
            for (i, way) in WAYS.into_iter().enumerate() {
                meeting.meet();
                if job.pe() == 0 {
                    crate::setup::nap(Duration::from_millis(15));
                    way(job, &w)?;
                } else {
                    let seen = w.wait().timeout(LONG).until(0, Cmp::Ne, 0);
                    assert!(matches!(seen, Ok(1)), "way {i}: {seen:?}");
                }
                // No call of memonet, which might wake the other PE.
                meeting.meet();
                job.barrier()?;
                w.fill(0..3, 0);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn any_gives_the_first(setup: Setup) {
    for run in setup.runs(&[2, 5]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u32>(n)?;
            // Each PE in turn writes its own word. Results are places in the list, not elements.
            let list: Vec<usize> = (0..n).rev().collect();
            for writer in 0..n {
                if me == writer {
                    for to in 0..n {
                        w.remote(to, writer)?.store(1);
                    }
                }
                assert_eq!(list[w.wait_until_any(&list, Cmp::Eq, 1)?], writer);
                job.barrier()?;
                assert_eq!(w.test_any(&list, Cmp::Eq, 1), Some(n - 1 - writer));
                w.write(writer, 2);
                assert_eq!(w.test_any(&list, Cmp::Eq, 1), None);
                job.barrier()?;
            }
            assert_eq!(w.wait_until_any(&list, Cmp::Eq, 2)?, 0, "the lowest of several");
            job.barrier()
        });
    }
}

/// A value that was seen counts even if it has changed since.
fn all_need_not_hold_at_once(setup: Setup) {
    for run in setup.runs(FEW) {
        let meeting = Arc::new(Meeting::new(2));
        run.job(move |job| {
            let w = job.window::<u64>(2)?;
            if job.pe() == 0 {
                for i in 0..2 {
                    meeting.meet();
                    w.signal(1, i, SignalOp::Set, 1)?;
                    job.quiet()?;
                    meeting.meet();
                }
            } else if job.pe() == 1 {
                assert!(!w.test_all(&[0, 1], Cmp::Eq, 1));
                meeting.meet();
                meeting.meet();
                assert_eq!(w.test_some(&[1, 0, 1], Cmp::Eq, 1), [1]);
                assert!(!w.test_all(&[0, 1], Cmp::Eq, 1));
                meeting.meet();
                meeting.meet();
                assert!(w.test_all(&[0, 1], Cmp::Eq, 1));
                w.wait_until_all(&[1, 0], Cmp::Eq, 1)?;
                w.wait_until_all(&[1, 1, 0], Cmp::Ge, 1)?;
            }
            job.barrier()?;
            // One by one, by several PEs.
            let everybody = job.window::<u16>(job.npes())?;
            for to in 0..job.npes() {
                everybody.remote(to, job.pe())?.store(3);
            }
            everybody.wait_until_all(&(0..job.npes()).collect::<Vec<_>>(), Cmp::Eq, 3)?;
            job.barrier()
        });
    }
}

fn some_gives_all_that_hold(setup: Setup) {
    for run in setup.runs(&[2, 3, 9]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(n)?;
            for to in 0..n {
                w.remote(to, me)?.store(1);
            }
            let list: Vec<usize> = (0..n).collect();
            let mut left: Vec<usize> = list.clone();
            while !left.is_empty() {
                let places = w.wait_until_some(&left, Cmp::Eq, 1)?;
                assert!(
                    !places.is_empty()
                        && places.is_sorted()
                        && places.iter().all(|&p| p < left.len())
                );
                for place in places.into_iter().rev() {
                    assert_eq!(w.read(left.remove(place)), 1);
                }
            }
            job.barrier()?;
            assert_eq!(w.wait_until_some(&list, Cmp::Eq, 1)?, list);
            assert_eq!(w.test_some(&list, Cmp::Ge, 1), list);
            assert!(w.test_some(&list, Cmp::Ge, 2).is_empty());
            job.barrier()
        });
    }
}

fn of_none(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<u8>(1)?;
            assert!(matches!(w.wait_until_any(&[], Cmp::Eq, 0), Err(Error::Misuse { .. })));
            assert!(matches!(w.wait_until_some(&[], Cmp::Eq, 0), Err(Error::Misuse { .. })));
            w.wait_until_all(&[], Cmp::Eq, 9)?;
            assert_eq!(w.test_any(&[], Cmp::Eq, 0), None);
            assert!(w.test_some(&[], Cmp::Eq, 0).is_empty());
            assert!(w.test_all(&[], Cmp::Eq, 9));
            job.barrier()
        });
    }
}

fn beyond_the_end(setup: Setup) {
    for run in setup.runs(&[1]) {
        run.job(|job| {
            let w = job.window::<u32>(4)?;
            let calls: [fn(&Window<u32>); 8] = [
                |w| drop(w.wait_until(4, Cmp::Eq, 0)),
                |w| drop(w.wait_until(usize::MAX, Cmp::Eq, 0)),
                |w| drop(w.wait_until_any(&[4, 0], Cmp::Eq, 0)),
                |w| drop(w.wait_until_all(&[0, 4], Cmp::Eq, 0)),
                |w| drop(w.wait_until_some(&[4], Cmp::Eq, 0)),
                |w| assert!(w.test_until(4, Cmp::Eq, 0)),
                |w| assert!(w.test_all(&[0, usize::MAX / 4 + 1], Cmp::Eq, 0)),
                |w| drop(w.wait().timeout(Duration::ZERO).until(4, Cmp::Eq, 0)),
            ];
            for (i, call) in calls.into_iter().enumerate() {
                let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(&w)));
                assert!(panic.is_err(), "call {i} is out of range");
            }
            job.barrier()
        });
    }
}

fn deadlines(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<u64>(2)?;
            for millis in [0, 1, 7] {
                let timeout = Duration::from_millis(millis);
                let start = crate::ground::now();
                for error in [
                    w.wait().timeout(timeout).until(0, Cmp::Ne, 0).map(drop),
                    w.wait().timeout(timeout).any(&[0, 1], Cmp::Ne, 0).map(drop),
                    w.wait().timeout(timeout).all(&[0, 1], Cmp::Ne, 0),
                    w.wait().timeout(timeout).some(&[0, 1], Cmp::Ne, 0).map(drop),
                ] {
                    assert!(
                        matches!(error, Err(Error::Timeout { after, .. }) if after == timeout),
                        "{error:?}"
                    );
                }
                assert!(
                    crate::ground::now() - start >= 4 * timeout,
                    "given up before the deadline"
                );
            }
            job.barrier()
        });
    }
}

fn a_wait_can_go_on_after_its_deadline(setup: Setup) {
    for run in setup.runs(&[2]) {
        let meeting = Arc::new(Meeting::new(2));
        run.job(move |job| {
            let w = job.window::<u64>(1)?;
            if job.pe() == 1 {
                for _ in 0..3 {
                    let late = w.wait().timeout(Duration::from_millis(2)).until(0, Cmp::Eq, 1);
                    assert!(matches!(late, Err(Error::Timeout { .. })));
                }
                meeting.meet();
                assert_eq!(w.wait().timeout(LONG).until(0, Cmp::Eq, 1)?, 1);
            } else {
                meeting.meet();
                w.remote(1, 0)?.store(1);
            }
            job.barrier()
        });
    }
}

/// Deadlines that no clock can show.
fn the_longest_deadline(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            if job.pe() == 0 {
                crate::setup::nap(Duration::from_millis(10));
                w.remote(1, 0)?.store(1);
            } else {
                w.wait().timeout(Duration::MAX).until(0, Cmp::Eq, 1)?;
            }
            drop(job.world().split_barrier().arrive()?);
            job.world().split_barrier().wait_timeout(Duration::MAX)
        });
    }
}

fn waiting_on_ones_own_store(setup: Setup) {
    for run in setup.runs(&[1, 3]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.window::<u64>(4)?;
            w.remote(me, 0)?.store(1);
            w.wait_until(0, Cmp::Eq, 1)?;
            w.signal(me, 1, SignalOp::Add, 2)?;
            w.wait_until(1, Cmp::Eq, 2)?;
            w.put_signal(me, 2, &[3], &w, 3, SignalOp::Set, 4)?;
            w.wait_until(3, Cmp::Eq, 4)?;
            assert_eq!(w.read(2), 3);
            job.barrier()
        });
    }
}

fn many_to_one(setup: Setup) {
    for run in setup.runs(ALL) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u32>(n)?;
            for round in 1..=5 {
                w.remote(0, me)?.store(round);
                if me == 0 {
                    w.wait_until_all(&(0..n).collect::<Vec<_>>(), Cmp::Ge, round)?;
                    for to in 1..n {
                        w.remote(to, 0)?.store(round);
                    }
                } else {
                    w.wait_until(0, Cmp::Ge, round)?;
                }
            }
            job.barrier()
        });
    }
}

fn ping_pong(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.window::<u64>(1)?;
            let there = w.remote(1 - me, 0)?;
            for round in 1..=200 {
                if me == 0 {
                    there.store(round);
                    w.wait_until(0, Cmp::Eq, round)?;
                } else {
                    w.wait_until(0, Cmp::Eq, round)?;
                    there.store(round);
                }
            }
            eventually("the last word", || w.test_until(0, Cmp::Eq, 200));
            job.barrier()
        });
    }
}
