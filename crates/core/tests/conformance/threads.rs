//! Several threads of one PE at once: any of them may make any call.

use crate::setup::{FEW, LONG, Setup, eventually, mark};
use memonet_core::{Cmp, Job, Result, SignalOp, Window};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    ; with threads of their own:
    atomics_from_all_threads,
    each_thread_waits_for_its_word,
    all_threads_wait_for_one_word,
    one_thread_wakes_another,
    a_barrier_for_each_thread,
    barriers_made_at_once,
    teams_made_at_once_of_what_was_dropped,
    writes_and_quiet_at_once,
    a_quiet_beside_another,
    remotes_come_and_go_beside_collective_calls,
    last_handles_go_in_other_threads,
);

const THREADS: usize = 4;

/// Runs `f` in several threads of this PE.
fn threads(f: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..THREADS)
            .map(|thread| {
                let f = &f;
                scope.spawn(move || f(thread))
            })
            .collect();
        all.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn atomics_from_all_threads(setup: Setup) {
    for run in setup.runs(&[1, 2, 5]) {
        run.job(|job| {
            let n = job.npes();
            let w = job.window::<u64>(2)?;
            let shared = w.remote(0, 0)?;
            threads(|thread| {
                for _ in 0..50 {
                    shared.fetch_add(1)?;
                    w.signal(n - 1, 1, SignalOp::Add, thread as u64)?;
                }
                Ok(())
            })?;
            job.barrier()?;
            assert_eq!(shared.load()?, (n * THREADS * 50) as u64);
            assert_eq!(w.remote(n - 1, 1)?.load()?, (n * 50 * 6) as u64);
            job.barrier()
        });
    }
}

fn each_thread_waits_for_its_word(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(THREADS)?;
            let mut dice = run.dice(0);
            for round in 1..=6 {
                if me == 0 {
                    let mut left: Vec<usize> = (0..THREADS).collect();
                    while !left.is_empty() {
                        // Sometimes long enough for the other threads to fall asleep.
                        crate::setup::nap(Duration::from_millis(dice.below(4) as u64));
                        let word = left.swap_remove(dice.below(left.len()));
                        for to in 1..n {
                            if dice.below(2) == 0 {
                                w.signal(to, word, SignalOp::Set, round)?;
                            } else {
                                w.remote(to, word)?.store(round);
                            }
                        }
                    }
                } else {
                    threads(|thread| {
                        w.wait().timeout(LONG).until(thread, Cmp::Eq, round).map(drop)
                    })?;
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn all_threads_wait_for_one_word(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let w = job.window::<u32>(1)?;
            for round in 1..=5 {
                if job.pe() == 0 {
                    crate::setup::nap(Duration::from_millis(3));
                    for to in 1..job.npes() {
                        w.remote(to, 0)?.set(round)?;
                    }
                } else {
                    threads(|_| w.wait().timeout(LONG).until(0, Cmp::Ge, round).map(drop))?;
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// Threads communicate through memonet, although they share all memory.
fn one_thread_wakes_another(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let me = job.pe();
            let w = job.window::<u64>(THREADS)?;
            let laps = 20;
            threads(|thread| {
                for lap in 1..=laps {
                    if thread > 0 || lap > 1 {
                        w.wait().timeout(LONG).until(
                            thread,
                            Cmp::Ge,
                            if thread > 0 { lap } else { lap - 1 },
                        )?;
                    }
                    w.remote(me, (thread + 1) % THREADS)?.store(lap);
                }
                Ok(())
            })?;
            job.barrier()?;
            assert_eq!(w.to_vec(), [laps; THREADS]);
            job.barrier()
        });
    }
}

/// The k-th threads of all PEs meet at the k-th barrier, while other threads meet at theirs.
fn a_barrier_for_each_thread(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let w = job.window::<u64>(THREADS)?;
            let barriers =
                (0..THREADS).map(|_| job.world().new_barrier()).collect::<Result<Vec<_>>>()?;
            threads(|thread| {
                for phase in 1..=25 {
                    w.write(thread, phase);
                    barriers[thread].arrive()?.wait()?;
                    for pe in 0..job.npes() {
                        let theirs = w.remote(pe, thread)?.load()?;
                        assert!(
                            (phase..=phase + 1).contains(&theirs),
                            "PE {pe} in {theirs}, this one in {phase}"
                        );
                    }
                }
                Ok(())
            })?;
            job.barrier()
        });
    }
}

/// Collective calls of a team are in order; several threads may make those of several teams at
/// once.
fn barriers_made_at_once(setup: Setup) {
    for run in setup.many_runs(&[1, 2, 3], 1) {
        run.job(|job| {
            let w = job.window::<u64>(THREADS)?;
            let teams = (0..THREADS)
                .map(|_| job.team(job.world().members()))
                .collect::<Result<Vec<_>>>()?;
            threads(|thread| {
                let team = teams[thread].as_ref().expect("all are in it");
                let mut phase = 0;
                for _ in 0..12 {
                    let barrier = team.new_barrier()?;
                    for _ in 0..3 {
                        phase += 1;
                        w.write(thread, phase);
                        drop(barrier.arrive()?);
                        barrier.wait_timeout(LONG)?;
                        for pe in 0..job.npes() {
                            let theirs = w.remote(pe, thread)?.load()?;
                            assert!(
                                (phase..=phase + 1).contains(&theirs),
                                "PE {pe} in {theirs}, this one in {phase}"
                            );
                        }
                    }
                }
                Ok(())
            })?;
            job.barrier()
        });
    }
}

/// All slots have been used, and all are dropped: each thread finds one.
fn teams_made_at_once_of_what_was_dropped(setup: Setup) {
    for run in setup.many_runs(&[1], 1) {
        run.job(|job| {
            let begin = std::sync::Barrier::new(THREADS);
            for _ in 0..10 {
                let all: Vec<_> = std::iter::from_fn(|| job.team_among(&[job.pe()]).ok()).collect();
                assert!(all.len() > 100, "{}", all.len());
                drop(all);
                threads(|_| {
                    begin.wait();
                    job.team_among(&[job.pe()])?.barrier()
                })?;
            }
            Ok(())
        });
    }
}

fn writes_and_quiet_at_once(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let to = (me + 1) % n;
            let w = job.window::<u64>(THREADS * 8)?;
            threads(|thread| {
                for round in 0..30 {
                    let index = thread * 8 + round % 8;
                    w.put_one(to, index, mark(me, index, round))?;
                    if thread == 0 {
                        job.fence()?;
                    }
                    job.quiet()?;
                    // A thread's quiet covers its own writes, whatever other threads do.
                    assert_eq!(w.get_one(to, index)?, mark(me, index, round));
                }
                Ok(())
            })?;
            job.barrier()
        });
    }
}

/// A quiet completes what any thread of the PE has written, also while another one waits for that.
fn a_quiet_beside_another(setup: Setup) {
    const LEN: usize = 256 << 10;
    for run in setup.runs(&[2]) {
        run.job(|job| {
            let (source, target) = (job.window::<u64>(LEN)?, job.window::<u64>(LEN)?);
            for round in 1..if job.pe() == 0 { 10 } else { 0 } {
                source.fill(0..LEN, round);
                let is_written = AtomicBool::new(false);
                std::thread::scope(|scope| -> Result<()> {
                    let other = scope.spawn(|| {
                        eventually("the other's put", || is_written.load(Ordering::Acquire));
                        job.quiet()?;
                        // So the source may be changed.
                        source.fill(0..LEN, 0);
                        Ok(())
                    });
                    target.put_nbi(1, 0, &source, 0..LEN)?;
                    is_written.store(true, Ordering::Release);
                    job.quiet()?;
                    other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })?;
                let mut copy = vec![0; LEN];
                target.get(1, 0, &mut copy)?;
                assert!(copy.iter().all(|&word| word == round), "round {round}");
            }
            job.barrier()
        });
    }
}

fn remotes_come_and_go_beside_collective_calls(setup: Setup) {
    fn churn(job: &Job, kept: &Window<u64>, stop: &AtomicBool) -> Result<()> {
        let mut sum = 0;
        while !stop.load(Ordering::Relaxed) {
            let remote = kept.clone().remote((job.pe() + 1) % job.npes(), 0)?;
            remote.add(1)?;
            sum += 1;
            crate::setup::yield_now();
        }
        kept.remote(0, 1)?.add(sum)
    }
    for run in setup.runs(FEW) {
        run.job(|job| {
            let kept = job.window::<u64>(2)?;
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| -> Result<()> {
                let churning: Vec<_> =
                    (0..2).map(|_| scope.spawn(|| churn(job, &kept, &stop))).collect();
                let collective = (|| {
                    for len in 0..25 {
                        let w = job.window::<u64>(len)?;
                        job.team(job.world().members())?.unwrap().barrier()?;
                        assert_eq!(w.to_vec(), vec![0; len]);
                        w.fill(0..len, 9);
                    }
                    Ok(())
                })();
                stop.store(true, Ordering::Relaxed);
                churning.into_iter().try_for_each(|thread| thread.join().unwrap())?;
                collective
            })?;
            job.barrier()?;
            let here = kept.remote(job.pe(), 0)?.fetch()?;
            let totals = job.window::<u64>(1)?;
            totals.remote(0, 0)?.add(here)?;
            job.barrier()?;
            if job.pe() == 0 {
                assert_eq!(totals.read(0), kept.read(1), "each was counted once");
            }
            job.barrier()
        });
    }
}

/// Another thread may drop a window last.
fn last_handles_go_in_other_threads(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            std::thread::scope(|scope| -> Result<()> {
                for round in 0..20 {
                    let w = job.window::<u64>(100)?;
                    assert_eq!(w.to_vec(), [0; 100], "round {round}");
                    job.barrier()?;
                    let (me, n) = (job.pe(), job.npes());
                    scope.spawn(move || {
                        w.put((me + 1) % n, 0, &[round; 100]).unwrap();
                        w.remote((me + 1) % n, 0).unwrap().store(round);
                        eventually("something arrives", || w.read(99) == round || n == 1);
                    });
                }
                Ok(())
            })?;
            job.barrier()
        });
    }
}
