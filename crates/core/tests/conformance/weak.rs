//! Programs that rely on more order than they ask for. The reordering fabric must break each of
//! them: otherwise a test that passes on it would prove nothing.

use crate::setup::{Meeting, Run, SHUFFLED, SHUFFLED_SLOWLY, Setup};
use memonet_core::{Cmp, Job, Result, SignalOp, Window};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ROUNDS: u64 = 60;
const SEEDS: u64 = 8;

type Send = fn(&Job, &Window<u64>, &Window<u64>, u64) -> Result<()>;

/// Counts how often PE 1, having seen the flag of a round, does not see its data.
fn surprises(setup: Setup, seed: u64, send: Send) -> usize {
    let total = Arc::new(AtomicUsize::new(0));
    let (count, looked) = (total.clone(), Meeting::new(2));
    let run = Run { npes: 2, setup, seed };
    run.job(move |job| {
        let (data, flag) = (job.window::<u64>(1)?, job.window::<u64>(1)?);
        for round in 1..=ROUNDS {
            if job.pe() == 0 {
                send(job, &data, &flag, round)?;
            } else {
                flag.wait_until(0, Cmp::Eq, round)?;
                if data.read(0) != round {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            // The sender's next call would complete its writes.
            looked.meet();
            job.barrier()?;
            assert_eq!(data.remote(1, 0)?.load()?, round, "late, but not lost");
            job.barrier()?;
        }
        Ok(())
    });
    total.load(Ordering::Relaxed)
}

/// The mistake shows; on a busy machine perhaps only with the slow fabric.
fn caught(send: Send) {
    let mut runs = [SHUFFLED, SHUFFLED_SLOWLY]
        .into_iter()
        .flat_map(|setup| (0..SEEDS).map(move |seed| (setup, seed)));
    assert!(runs.any(|(setup, seed)| surprises(setup, seed, send) > 0));
}

#[test]
fn two_stores_without_a_fence() {
    caught(|_, data, flag, round| {
        data.remote(1, 0)?.store(round);
        flag.remote(1, 0)?.store(round);
        Ok(())
    });
}

#[test]
fn a_put_and_a_signal_without_a_fence() {
    caught(|_, data, flag, round| {
        data.put(1, 0, &[round])?;
        flag.signal(1, 0, SignalOp::Set, round)
    });
}

#[test]
fn a_store_and_an_atomic_without_a_fence() {
    caught(|_, data, flag, round| {
        data.remote(1, 0)?.store(round);
        flag.remote(1, 0)?.add(1)
    });
}

#[test]
fn a_fence_on_the_wrong_side() {
    caught(|job, data, flag, round| {
        job.fence()?;
        data.remote(1, 0)?.store(round);
        flag.signal(1, 0, SignalOp::Set, round)
    });
}

/// The control: the program with its fence.
#[test]
fn never_with_a_fence() {
    for seed in 0..SEEDS {
        let seen = surprises(SHUFFLED, seed, |job, data, flag, round| {
            data.remote(1, 0)?.store(round);
            job.fence()?;
            flag.remote(1, 0)?.store(round);
            Ok(())
        });
        assert_eq!(seen, 0);
    }
}

/// A signal orders only the data of its own call.
#[test]
fn an_earlier_put_and_the_signal_of_another() {
    caught(|_, data, flag, round| {
        data.put(1, 0, &[round])?;
        data.put_signal(1, 0, &[], flag, 0, SignalOp::Set, round)
    });
}

/// A get may overtake an earlier store of its PE.
#[test]
fn a_get_after_a_store_without_quiet() {
    let seen: usize = (0..SEEDS)
        .flat_map(|seed| {
            let run = Run { npes: 2, setup: SHUFFLED, seed };
            run.results(|job| -> usize {
                let w = job.window::<u64>(1).unwrap();
                let mut old = 0;
                if job.pe() == 0 {
                    for round in 1..=ROUNDS {
                        w.remote(1, 0).unwrap().store(round);
                        old += usize::from(w.get_one(1, 0).unwrap() != round);
                    }
                }
                job.barrier().unwrap();
                old
            })
        })
        .sum();
    assert_ne!(seen, 0);
}

type Begin = fn(&Window<u64>, &Window<u64>) -> Result<()>;

/// Changes the source too early: `begin` puts from the second window into the first one at PE 1.
fn source_changed_before_quiet(begin: Begin) {
    let total = Arc::new(AtomicUsize::new(0));
    for seed in 0..SEEDS {
        let (count, meeting) = (total.clone(), Arc::new(Meeting::new(2)));
        let run = Run { npes: 2, setup: SHUFFLED, seed };
        run.job(move |job| {
            let (target, source) = (job.window::<u64>(2)?, job.window::<u64>(1)?);
            for round in 1..=ROUNDS {
                if job.pe() == 0 {
                    source.write(0, round);
                    begin(&target, &source)?;
                    source.write(0, u64::MAX);
                    job.quiet()?;
                }
                meeting.meet();
                if job.pe() == 1 && target.read(0) == u64::MAX {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                meeting.meet();
            }
            job.barrier()
        });
    }
    assert_ne!(total.load(Ordering::Relaxed), 0);
}

#[test]
fn a_source_changed_before_quiet() {
    source_changed_before_quiet(|target, source| target.put_nbi(1, 0, source, 0..1));
}

#[test]
fn the_source_of_a_transfer_with_a_signal_changed_before_it_is_complete() {
    source_changed_before_quiet(|target, source| {
        let transfer = target.prepare(1, 0, source, 0..1)?;
        transfer.with_signal(target, 1, SignalOp::Add, 1)?.start()
    });
}
