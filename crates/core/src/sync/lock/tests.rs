//! Unit tests of locks.

use super::*;
use crate::base::error::{Cause, Result};
use crate::far;
use crate::job::Job;
use std::sync::Barrier;
use std::time::Duration;

/// A call for attention stands while a PE hands over to one that has not linked itself yet.
#[test]
fn no_call_for_attention_ends_a_hand_over() {
    for settings in [None, Some("")] {
        let meeting = Barrier::new(2);
        let options = settings.map(far::options).unwrap_or_default();
        let job = Job::threads_with(&options, 2, |job| -> Result<()> {
            let words = job.window::<u64>(1)?;
            let offset = words.inner.heap_offset().expect("of the heap");
            job.barrier()?;
            let held = if job.pe() == 0 { Some(words.lock(0)?) } else { None };
            let held = held.as_ref().map(|lock| lock.lock()).transpose()?;
            meeting.wait();
            if job.pe() == 1 {
                assert_eq!(raw::swap_tail(&job.pe, offset)?, 1, "PE 0 is the last");
            }
            meeting.wait();
            if let Some(held) = held {
                job.attention().call();
                held.release()?;
                job.attention().dismiss();
            } else {
                // PE 0 waits for the link by then.
                std::thread::sleep(Duration::from_millis(20));
                raw::link(&job.pe, offset, 0);
                // Near, PE 0 may keep it for this PE.
                let queue = Queue::new(&job.pe, offset);
                let turn = || queue.read::<u8>(STATE) == HELD || queue.take_kept(0);
                queue.terms(|terms| wait::until(&job.pe, terms, || turn().then_some(())))?;
                queue.clear()?;
            }
            job.barrier()
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }
}

/// Threads of one PE get the lock in the order in which they came.
#[test]
fn threads_come_in_order() {
    const THREADS: usize = 6;
    Job::threads(2, |job| -> Result<()> {
        let lock = job.window::<u64>(1)?.lock(0)?;
        let order = Mutex::new(Vec::new());
        let held = lock.lock()?;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (lock, order) = (&lock, &order);
                scope.spawn(move || {
                    let held = lock.lock().unwrap();
                    order.lock().unwrap().push(thread);
                    drop(held);
                });
                while job.pe.layer::<LocalQueue>().lock().len() <= thread {
                    std::thread::yield_now();
                }
            }
            drop(held);
        });
        assert_eq!(order.into_inner().unwrap(), (0..THREADS).collect::<Vec<_>>());
        job.barrier()
    })
    .unwrap()
    .into_iter()
    .for_each(|result| result.unwrap());
}

/// While a near PE waits behind it, a PE has the lock for so many turns, and no more.
#[test]
fn who_waits_is_overtaken_by_a_bound() {
    Job::threads(2, |job| -> Result<()> {
        let offset = job.window::<u64>(1)?.inner.heap_offset().expect("of the heap");
        job.barrier()?;
        let mine = Queue::new(&job.pe, offset);
        if job.pe() == 0 {
            mine.set()?;
            // As PE 1 would, if it did not look.
            let theirs = mine.word(1, 0);
            assert_eq!(mine.tail().fetch_op(&job.pe, AtomicOp::Swap, 2u32)?, 1);
            mine.write(NEXT, 2u16);
            let has_it = || theirs.add(STATE as usize).load::<u8>(&job.pe).unwrap() == HELD;
            let mut turns = 1;
            mine.clear()?;
            while !has_it() {
                mine.set()?;
                turns += 1;
                mine.clear()?;
            }
            assert_eq!(turns, u32::from(RUN));
        }
        job.barrier()?;
        if job.pe() == 1 {
            mine.write(CLAIM, CLAIMED);
            mine.clear()?;
            assert!(mine.test()?, "it is free");
            mine.clear()?;
        }
        job.barrier()
    })
    .unwrap()
    .into_iter()
    .for_each(|result| result.unwrap());
}

/// Something has written to the word of a PE that holds the lock. The PE's next call does not
/// wait for its own claim.
#[test]
fn a_link_to_no_pe_ends_the_lock() {
    let job = Job::threads(2, |job| -> Result<()> {
        let words = job.window::<u64>(1)?;
        let offset = words.inner.heap_offset().expect("of the heap");
        job.barrier()?;
        if job.pe() == 0 {
            let queue = Queue::new(&job.pe, offset);
            queue.set()?;
            queue.write(NEXT, 99u16);
            for ended in [queue.clear(), queue.set(), queue.set()] {
                let ended = ended.expect_err("it is none").to_string();
                assert!(ended.contains("this is no lock"), "{ended}");
            }
        }
        job.barrier()
    });
    job.unwrap().into_iter().for_each(|result| result.unwrap());
}

/// The home does not answer any more, so nobody knows whether the PE has become the last.
#[test]
fn a_swap_without_an_answer_keeps_the_claim() {
    let meeting = Barrier::new(3);
    let job = Job::threads_with(&far::options(""), 3, |job| -> Result<()> {
        let words = job.window::<u64>(64)?;
        let first = words.inner.heap_offset().expect("of the heap");
        let at = |index: usize| Queue::new(&job.pe, first + 8 * index as u64);
        let lost: Vec<usize> = (0..64).filter(|&index| at(index).home() == 2).collect();
        job.barrier()?;
        // All have left the barrier, which a departure would end.
        meeting.wait();
        if job.pe() == 0 {
            use crate::base::status::State;
            job.pe.control().depart(2, State::Dead(Cause::Exit(1)));
            job.pe.progress();
            let (one, other) = (words.lock(lost[0])?, words.lock(lost[1])?);
            let ended = [one.lock().map(drop), other.try_lock().map(drop)];
            let claims = [0, 1].map(|index| at(lost[index]).read::<u8>(CLAIM));
            meeting.wait();
            let blames = |ended| matches!(ended, Err(Error::PeerFailed { pe: 2, .. }));
            assert!(ended.into_iter().all(blames));
            assert_eq!(claims, [CLAIMED; 2], "L10");
            return Ok(());
        }
        meeting.wait();
        Ok(())
    });
    job.unwrap().into_iter().for_each(|result| result.unwrap());
}

/// Neighbouring locks have different homes.
#[test]
fn homes_are_spread() {
    const NPES: usize = 7;
    let homes = Job::threads(NPES, |job| {
        let tails = (0..1000).map(|i| {
            let lock = Queue::new(&job.pe, job.pe.control().geometry().heap_offset + 8 * i);
            let Route::Near(tail) = lock.tail() else { unreachable!("all are near") };
            (0..NPES)
                .find(|&pe| matches!(lock.word(pe, TAIL), Route::Near(word) if word == tail))
                .unwrap()
        });
        tails.collect::<Vec<_>>()
    })
    .unwrap();
    assert!(homes.iter().all(|home| *home == homes[0]), "all PEs find the same");
    for pe in 0..NPES {
        let count = homes[0].iter().filter(|&&home| home == pe).count();
        assert!((1000 / NPES / 2..1000 / NPES * 2).contains(&count), "PE {pe}: {count}");
    }
}
