//! Transfers: prepared once, started many times, and complete when they say so.

use crate::setup::{ALL, FEW, Meeting, Run, SLUGGISH, Setup, eventually, marks};
use memonet_core::{Cmp, Error, Result, SignalOp};
use std::sync::Arc;

on_every_fabric!(
    [also on recorded]
    started_again_and_again,
    complete_means_visible,
    quiet_completes_transfers_too,
    many_at_once,
    with_a_signal,
    a_second_start_is_refused,
    a_late_signal_is_refused,
    transfers_keep_their_windows,
    within_one_part,
    ; with threads of their own:
    from_another_thread,
);

const ROUNDS: usize = 30;

fn started_again_and_again(setup: Setup) {
    for run in setup.runs(ALL) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (source, target) = (job.window::<u64>(20)?, job.window::<u64>(40)?);
            let mut transfer = target.prepare((me + 1) % n, 7, &source, 3..15)?;
            for round in 0..if n < 9 { ROUNDS } else { 5 } {
                source.write_from(0, &marks(me, round, 20));
                transfer.start()?;
                transfer.wait()?;
                // The source may be reused at once.
                source.fill(0..20, 0);
                job.barrier()?;
                let mut expected = vec![0; 40];
                expected[7..19].copy_from_slice(&marks((me + n - 1) % n, round, 20)[3..15]);
                assert_eq!(target.to_vec(), expected, "round {round}");
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// A PE that learns of completion by other means finds the block there.
fn complete_means_visible(setup: Setup) {
    for run in setup.runs(FEW) {
        let meeting = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            let (source, target) = (job.window::<u64>(50)?, job.window::<u64>(50)?);
            let mut transfer = target.prepare(1, 0, &source, 0..50)?;
            assert!(transfer.test()?, "before any start");
            transfer.wait()?;
            for round in 0..ROUNDS {
                if job.pe() == 0 {
                    source.write_from(0, &marks(0, round, 50));
                    transfer.start()?;
                    if round % 2 == 0 {
                        eventually("the transfer", || transfer.test().unwrap());
                    } else {
                        transfer.wait()?;
                    }
                    assert!(transfer.test()?);
                }
                meeting.meet();
                if job.pe() == 1 {
                    assert_eq!(target.to_vec(), marks(0, round, 50), "round {round}");
                }
                meeting.meet();
            }
            job.barrier()
        });
    }
}

fn quiet_completes_transfers_too(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (source, target) = (job.window::<u64>(50)?, job.window::<u64>(50)?);
            if job.pe() == 0 {
                let mut transfer = target.prepare(1, 0, &source, 0..50)?;
                for round in 0..5 {
                    source.write_from(0, &marks(0, round, 50));
                    transfer.start()?;
                    job.quiet()?;
                    let mut back = vec![0; 50];
                    target.get(1, 0, &mut back)?;
                    assert_eq!(back, marks(0, round, 50));
                    assert!(transfer.test()?);
                }
            }
            job.barrier()
        });
    }
}

fn many_at_once(setup: Setup) {
    for run in setup.runs(&[2, 5, 9]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (source, target) = (job.window::<u64>(10 * n)?, job.window::<u64>(10 * n)?);
            let mut transfers = (0..n)
                .map(|to| target.prepare(to, 10 * me, &source, 10 * to..10 * to + 10))
                .collect::<Result<Vec<_>>>()?;
            for round in 0..6 {
                source.write_from(0, &marks(me, round, 10 * n));
                transfers.iter_mut().try_for_each(|t| t.start())?;
                transfers.iter_mut().rev().try_for_each(|t| t.wait())?;
                job.barrier()?;
                for from in 0..n {
                    let mut seen = vec![0; 10];
                    target.read_into(10 * from, &mut seen);
                    assert_eq!(seen, marks(from, round, 10 * n)[10 * me..10 * me + 10]);
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// A ring of PEs without barriers.
fn with_a_signal(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (right, left) = ((me + 1) % n, (me + n - 1) % n);
            let [source, target, signals] = [16, 16, 3].map(|len| job.window::<u64>(len));
            let (source, target, signals) = (source?, target?, signals?);
            let mut transfer = target.prepare(right, 0, &source, 0..16)?.with_signal(
                &signals,
                1,
                SignalOp::Add,
                3,
            )?;
            for round in 1..=ROUNDS {
                source.write_from(0, &marks(me, round, 16));
                transfer.start()?;
                signals.wait_until(1, Cmp::Eq, 3 * round as u64)?;
                assert_eq!(target.to_vec(), marks(left, round, 16), "round {round}");
                signals.signal(left, 2, SignalOp::Add, 1)?;
                signals.wait_until(2, Cmp::Eq, round as u64)?;
                transfer.wait()?;
            }
            assert_eq!(signals.read(0), 0);
            job.barrier()
        });
    }
}

/// While a start is under way, there is nothing else to prepare.
fn a_late_signal_is_refused(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (source, target) = (job.window::<u64>(4)?, job.window::<u64>(5)?);
            if job.pe() == 0 {
                let mut transfer = target.prepare(1, 0, &source, 0..4)?;
                transfer.start()?;
                let signalled = transfer.with_signal(&target, 4, SignalOp::Add, 1);
                match signalled {
                    Ok(_) => assert!(job.is_near(1), "a near start is over at once"),
                    Err(error) => assert!(matches!(error, Error::Misuse { .. }), "{error}"),
                }
            }
            job.barrier()
        });
    }
}

/// A fabric may complete a start at any moment; a refused start changes nothing.
fn a_second_start_is_refused(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let [source, target, signals] = [4, 4, 1].map(|len| job.window::<u64>(len));
            let (source, target, signals) = (source?, target?, signals?);
            if job.pe() == 0 {
                source.write_from(0, &[1, 2, 3, 4]);
                let mut transfer = target.prepare(1, 0, &source, 0..4)?.with_signal(
                    &signals,
                    0,
                    SignalOp::Add,
                    1,
                )?;
                let mut started = 0;
                for _ in 0..10 {
                    match transfer.start() {
                        Ok(()) => started += 1,
                        Err(Error::Misuse { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
                assert!(started > 0);
                transfer.wait()?;
                job.quiet()?;
                assert_eq!(signals.remote(1, 0)?.load()?, started);
                transfer.start()?;
                transfer.wait()?;
                assert_eq!(signals.remote(1, 0)?.fetch()?, started + 1);
            }
            job.barrier()?;
            if job.pe() == 1 {
                assert_eq!(target.to_vec(), [1, 2, 3, 4]);
            }
            job.barrier()
        });
    }
}

/// New windows do not get memory that a prepared transfer still reads or writes.
fn transfers_keep_their_windows(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let [source, target, signals] = [30, 30, 1].map(|len| job.window::<u64>(len));
            let (source, target, signals) = (source?, target?, signals?);
            source.write_from(0, &marks(me, 1, 30));
            let mut transfer = target.prepare((me + 1) % n, 0, &source, 0..30)?.with_signal(
                &signals,
                0,
                SignalOp::Set,
                9,
            )?;
            // One PE still reads the target.
            let looking = (me == 0).then(|| target.clone());
            drop((source, target, signals));
            let others = (0..4).map(|_| job.window::<u64>(30)).collect::<Result<Vec<_>>>()?;
            others.iter().for_each(|w| w.fill(0..30, 6));
            job.barrier()?;
            transfer.start()?;
            transfer.wait()?;
            job.barrier()?;
            for other in &others {
                assert_eq!(other.to_vec(), [6; 30]);
            }
            if let Some(target) = looking {
                assert_eq!(target.to_vec(), marks(n - 1, 1, 30), "the source was kept, too");
            }
            // The start is under way when its handle is dropped.
            transfer.start()?;
            drop(transfer);
            let new = job.window::<u64>(30)?;
            job.barrier()?;
            assert_eq!(new.to_vec(), [0; 30]);
            job.barrier()
        });
    }
}

fn from_another_thread(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let (source, target) = (job.window::<u64>(40)?, job.window::<u64>(40)?);
            source.write_from(0, &marks(me, 0, 40));
            std::thread::scope(|scope| {
                for part in 0..4 {
                    let range = part * 10..part * 10 + 10;
                    let mut transfer = target.prepare((me + 1) % n, range.start, &source, range)?;
                    scope.spawn(move || {
                        for _ in 0..5 {
                            transfer.start().unwrap();
                            transfer.wait().unwrap();
                        }
                    });
                }
                Ok::<(), Error>(())
            })?;
            job.barrier()?;
            assert_eq!(target.to_vec(), marks((me + n - 1) % n, 0, 40));
            job.barrier()
        });
    }
}

fn within_one_part(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let w = job.window::<u32>(6)?;
            let mut transfer = w.prepare(job.pe(), 3, &w, 0..3)?;
            for round in 1..5 {
                w.write_from(0, &[round, 2 * round, 3 * round]);
                transfer.start()?;
                transfer.wait()?;
                assert_eq!(w.to_vec(), [round, 2 * round, 3 * round, round, 2 * round, 3 * round]);
            }
            job.barrier()
        });
    }
}

/// On a fabric that can tell transfers apart, while other operations are always under way.
#[test]
fn a_transfer_is_complete_before_all_are() {
    let run = Run { npes: 2, setup: SLUGGISH, seed: 1 };
    run.job(|job| {
        let (source, target) = (job.window::<u64>(2)?, job.window::<u64>(2)?);
        if job.pe() == 0 {
            let mut transfer = target.prepare(1, 0, &source, 0..1)?;
            let other = || target.put_nbi(1, 1, &source, 1..2);
            let mut left = 0;
            for _ in 0..10 {
                transfer.start()?;
                eventually("the transfer", || {
                    // Of so many, one is under way for nearly the longest time.
                    (0..50).for_each(|_| other().unwrap());
                    transfer.test().unwrap()
                });
                left += usize::from(!job.is_quiet()?);
            }
            assert_ne!(left, 0, "that a transfer is complete does not mean that all are");
            let mut left = 0;
            for round in 1..=50 {
                source.write(0, round);
                other()?;
                transfer.start()?;
                transfer.wait()?;
                left += usize::from(!job.is_quiet()?);
                assert_eq!(target.get_one(1, 0)?, round);
            }
            assert_ne!(left, 0, "to wait for a transfer is not to wait for all");
        }
        job.barrier()
    });
}
