//! Barriers: no PE passes before all have arrived, for each form of barrier and many phases.

use crate::setup::{Meeting, Run, SLUGGISH, Setup, eventually, mark, sizes_here};
use memonet_core::{Algorithm, Barrier, Cmp, ENV_BARRIER, Error, Job, Result, SignalOp, Window};
use std::sync::Arc;
use std::time::Duration;

on_every_fabric!(
    [also on copying, streams_dealt]
    nobody_passes_too_early,
    nobody_passes_too_early_at_any_size,
    steps_lag_by_one,
    phases_only_grow,
    a_split_barrier_carries_data,
    the_last_one_is_waited_for,
    an_arrival_may_be_dropped,
    a_deadline_is_not_the_end,
    barriers_overlap,
    an_arrival_needs_no_further_calls,
    arriving_and_leaving,
    barriers_come_and_go,
    unfinished_phases_spare_new_barriers,
    the_algorithm_is_visible,
    ; with threads of their own:
    one_thread_at_a_time,
);

/// For waits that must end, in tests that fail quickly when they do not.
const SHORT: Duration = Duration::from_secs(8);

/// Passes one phase, by one of the calls that do so.
fn pass(barrier: &Barrier, way: usize, work: &mut impl FnMut()) -> Result<()> {
    match way {
        0 => barrier.arrive()?.wait()?,
        1 => {
            let arrival = barrier.arrive()?;
            work();
            while !arrival.test()? {
                work();
            }
        }
        2 => {
            let arrival = barrier.arrive()?;
            work();
            let _ = arrival.test()?;
            arrival.wait()?;
        }
        3 => {
            barrier.step()?;
            work();
            barrier.wait()?;
        }
        _ => {
            barrier.step()?;
            while !barrier.test()? {
                crate::setup::yield_now();
            }
        }
    }
    Ok(())
}

/// Every PE publishes its phase. None ever sees another more than one phase away.
pub fn keep_apart(
    run: Run,
    job: &Job,
    barrier: &Barrier,
    progress: &Window<u64>,
    members: &[usize],
    phases: u64,
) -> Result<()> {
    let mut dice = run.dice(job.pe());
    let start = progress.read(0);
    for phase in start + 1..=start + phases {
        dice.dawdle();
        progress.write(0, phase);
        let mut work = dice.clone();
        let way = dice.below(5);
        pass(barrier, way, &mut || work.dawdle())?;
        for &pe in members {
            let theirs = progress.remote(pe, 0)?.load()?;
            assert!(
                (phase..=phase + 1).contains(&theirs),
                "PE {} passed phase {phase} when PE {pe} was in {theirs} (way {way})",
                job.pe()
            );
        }
    }
    Ok(())
}

fn separation(runs: Vec<Run>, phases: u64) {
    for run in runs {
        run.job(move |job| {
            let progress = job.window::<u64>(1)?;
            let barrier = job.world().new_barrier()?;
            keep_apart(run, job, &barrier, &progress, job.world().members(), phases)?;
            // The team's own barrier, too.
            keep_apart(
                run,
                job,
                job.world().split_barrier(),
                &progress,
                job.world().members(),
                10,
            )?;
            job.barrier()
        });
    }
}

fn nobody_passes_too_early(setup: Setup) {
    separation(setup.runs(&sizes_here(&[2, 3, 5])), 40);
}

fn nobody_passes_too_early_at_any_size(setup: Setup) {
    separation(setup.runs(&sizes_here(&[1, 4, 7, 8, 9, 12, 16, 17])), 15);
}

/// After the k-th step, all PEs have made the one before.
fn steps_lag_by_one(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 3, 5, 8, 9, 17])) {
        run.job(move |job| {
            let mut dice = run.dice(job.pe());
            let w = job.window::<u64>(1)?;
            let barrier = job.world().new_barrier()?;
            for k in 1..=25 {
                dice.dawdle();
                w.write(0, k);
                match k % 2 {
                    0 => barrier.step()?,
                    _ => while !barrier.try_step()? {},
                }
                assert_eq!(barrier.phase(), k);
                for pe in 0..job.npes() {
                    let theirs = w.remote(pe, 0)?.load()?;
                    assert!(
                        (k - 1..=k + 2).contains(&theirs),
                        "PE {pe} at step {theirs}, this one at {k}"
                    );
                }
            }
            barrier.wait()?;
            for pe in 0..job.npes() {
                assert_eq!(w.remote(pe, 0)?.load()?, 25);
            }
            job.barrier()
        });
    }
}

/// More phases than a byte counts.
fn phases_only_grow(setup: Setup) {
    const PHASES: u64 = 256 + 30;
    for run in setup.many_runs(&sizes_here(&[2, 8, 9]), 1) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            let barrier = job.world().new_barrier()?;
            assert_eq!(barrier.phase(), 0);
            let next = w.remote((job.pe() + 1) % job.npes(), 0)?;
            for phase in 1..=PHASES {
                w.write(0, phase);
                barrier.arrive()?.wait()?;
                let theirs = next.load()?;
                assert!(
                    (phase..=phase + 1).contains(&theirs),
                    "phase {phase}: the next PE is in {theirs}"
                );
            }
            assert_eq!(barrier.phase(), PHASES);
            job.barrier()
        });
    }
}

/// Writes before the arrival are visible after the wait. In between, a PE may do anything.
fn a_split_barrier_carries_data(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3, 8, 17])) {
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let mut dice = run.dice(me);
            let w = job.window::<u64>(2 * n)?;
            let barrier = job.world().new_barrier()?;
            for round in 0..8 {
                // One half is read while the other is written.
                let half = round % 2 * n;
                for step in 0..n {
                    let to = (me + step) % n;
                    w.put(to, half + me, &[mark(me, to, round)])?;
                }
                let arrival = barrier.arrive()?;
                dice.dawdle();
                arrival.wait()?;
                for from in 0..n {
                    assert_eq!(
                        w.read(half + from),
                        mark(from, me, round),
                        "round {round}, from PE {from}"
                    );
                }
            }
            job.barrier()
        });
    }
}

fn the_last_one_is_waited_for(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3, 5, 9])) {
        let meeting = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            let barrier = job.world().new_barrier()?;
            // Each PE arrives last once.
            for last in 0..job.npes() {
                let arrival = (job.pe() != last).then(|| barrier.arrive()).transpose()?;
                meeting.meet();
                if let Some(arrival) = &arrival {
                    for _ in 0..20 {
                        assert!(!arrival.test()?, "PE {last} has not arrived");
                    }
                    assert!(matches!(
                        barrier.wait_timeout(Duration::from_millis(1)),
                        Err(Error::Timeout { .. })
                    ));
                }
                meeting.meet();
                match arrival {
                    Some(arrival) => arrival.wait()?,
                    None => barrier.arrive()?.wait()?,
                }
                assert!(barrier.test()?);
            }
            job.barrier()
        });
    }
}

fn an_arrival_may_be_dropped(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 5])) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            let barrier = job.world().new_barrier()?;
            assert!(barrier.test()?, "no phase, no waiting");
            barrier.wait()?;
            for phase in 1..=20 {
                w.write(0, phase);
                drop(barrier.arrive()?);
                assert_eq!(barrier.phase(), phase);
                // The arrival waited for the previous phase.
                for pe in 0..job.npes() {
                    let theirs = w.remote(pe, 0)?.load()?;
                    assert!(theirs >= phase - 1, "PE {pe} in {theirs}, this one in {phase}");
                }
            }
            barrier.wait()?;
            barrier.wait()?;
            assert!(barrier.test()?);
            job.barrier()
        });
    }
}

fn a_deadline_is_not_the_end(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3])) {
        let meeting = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            let barrier = job.world().new_barrier()?;
            let timeout = Duration::from_millis(3);
            if job.pe() == 0 {
                meeting.meet();
                barrier.arrive()?.wait()?;
            } else {
                let arrival = barrier.arrive()?;
                for _ in 0..3 {
                    let late = barrier.wait_timeout(timeout);
                    assert!(
                        matches!(late, Err(Error::Timeout { after, .. }) if after == timeout),
                        "{late:?}"
                    );
                }
                meeting.meet();
                arrival.wait()?;
            }
            assert_eq!(barrier.phase(), 1);
            job.barrier()
        });
    }
}

/// Several barriers of one team are independent.
fn barriers_overlap(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3, 5])) {
        run.job(move |job| {
            let mut dice = run.dice(job.pe());
            let [a, b, c] = [
                job.world().new_barrier()?,
                job.world().new_barrier()?,
                job.world().new_barrier()?,
            ];
            for round in 0..20 {
                let (first, second) = (a.arrive()?, b.arrive()?);
                dice.dawdle();
                if round % 2 == 0 {
                    first.wait()?;
                    c.step()?;
                    second.wait()?;
                } else {
                    second.wait()?;
                    job.barrier()?;
                    first.wait()?;
                }
            }
            c.wait()?;
            assert_eq!((a.phase(), b.phase(), c.phase()), (20, 20, 10));
            job.barrier()
        });
    }
}

/// Slots are used again, by barriers that must start from nothing.
fn barriers_come_and_go(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3, 9])) {
        run.job(move |job| {
            let mut dice = run.dice(job.pe());
            let progress = job.window::<u64>(1)?;
            let mut kept = Vec::new();
            for round in 0..if job.npes() < 9 { 30 } else { 12 } {
                let barrier = job.world().new_barrier()?;
                assert_eq!(barrier.phase(), 0);
                let phases = 1 + round % 4;
                keep_apart(run, job, &barrier, &progress, job.world().members(), phases)?;
                if dice.below(2) == 0 {
                    // The last phase is complete, but its notifications may still be under way to
                    // other PEs.
                    drop(barrier);
                } else {
                    kept.push(barrier);
                }
                if kept.len() > 5 {
                    drop(kept.swap_remove(dice.below(5)));
                }
            }
            job.barrier()
        });
    }
}

/// A PE that has arrived at a passive barrier has done its part: others pass, whatever it waits
/// for.
fn an_arrival_needs_no_further_calls(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3, 5, 9]), 1) {
        for idle in [0, run.npes - 1] {
            run.job(move |job| {
                let (done, barrier) = (job.window::<u64>(1)?, job.world().new_barrier()?);
                if !barrier.algorithm().is_passive() {
                    return Ok(());
                }
                let arrival = barrier.arrive()?;
                if job.pe() == idle {
                    let others = job.npes() as u64 - 1;
                    done.wait().timeout(SHORT).until(0, Cmp::Eq, others)?;
                } else {
                    barrier.wait_timeout(SHORT)?;
                    done.signal(idle, 0, SignalOp::Add, 1)?;
                }
                arrival.wait()?;
                job.barrier()
            });
        }
    }
}

/// A PE may arrive and leave the job without waiting, and whether it keeps the barrier or drops it:
/// the others pass.
fn arriving_and_leaving(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3, 5, 9]), 1) {
        for hasty in [0, run.npes - 1] {
            for keeps in [false, true] {
                run.job(move |job| {
                    let own = job.world().new_barrier()?;
                    let barrier = if keeps { job.world().split_barrier() } else { &own };
                    if job.pe() != hasty {
                        crate::setup::nap(Duration::from_millis(2));
                    }
                    let _arrival = barrier.arrive()?;
                    if job.pe() != hasty {
                        let passed = barrier.wait_timeout(SHORT);
                        assert!(passed.is_ok(), "{} of {}: {passed:?}", job.pe(), run.npes);
                    }
                    Ok(())
                });
            }
        }
    }
}

/// A notification of an unfinished phase is still under way when its slot is used again, by a team
/// without its sender.
fn unfinished_phases_spare_new_barriers(setup: Setup) {
    let slow = if setup.is_near() { setup } else { SLUGGISH };
    for run in slow.runs(&sizes_here(&[3, 5])) {
        run.job(move |job| {
            let progress = job.window::<u64>(1)?;
            let pair = job.team(&[0, 1])?;
            let barrier = job.world().new_barrier()?;
            barrier.step()?;
            drop(barrier);
            if let Some(pair) = pair {
                for _ in 0..4 {
                    let barrier = pair.new_barrier()?;
                    keep_apart(run, job, &barrier, &progress, pair.members(), 3)?;
                }
            }
            job.barrier()
        });
    }
}

/// Two threads of one PE in one barrier would count as two PEs.
fn one_thread_at_a_time(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let barrier = job.world().new_barrier()?;
            if job.pe() == 0 {
                let arrival = barrier.arrive()?;
                std::thread::scope(|scope| {
                    // Repeats, because the check may miss two that come at one moment.
                    let waiting = scope.spawn(|| {
                        loop {
                            match barrier.wait_timeout(Duration::from_millis(50)) {
                                Err(Error::Misuse { .. }) => crate::setup::yield_now(),
                                Err(Error::Timeout { .. }) => {}
                                result => break result,
                            }
                        }
                    });
                    eventually("the other thread is in the barrier", || {
                        matches!(barrier.test(), Err(Error::Misuse { .. }))
                    });
                    // Makes PE 1 arrive. Both threads sleep on one doorbell now.
                    let _w = job.window::<u64>(1)?;
                    waiting.join().unwrap()
                })?;
                arrival.wait()?;
            } else {
                let _w = job.window::<u64>(1)?;
                barrier.arrive()?.wait()?;
            }
            job.barrier()
        });
    }
}

fn the_algorithm_is_visible(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 8, 9, 17])) {
        run.job(move |job| {
            let barrier = job.world().new_barrier()?;
            let names = [
                Algorithm::Everyone,
                Algorithm::Central,
                Algorithm::Tree,
                Algorithm::Dissemination,
                Algorithm::Nodes,
            ]
            .map(|a| a.to_string());
            assert_eq!(names, ["everyone", "central", "tree", "dissemination", "nodes"]);
            let name = barrier.algorithm().to_string();
            assert_eq!(job.world().split_barrier().algorithm(), barrier.algorithm());
            let wires = setup.name == "wires" && job.npes() > 1;
            match std::env::var(ENV_BARRIER) {
                Ok(forced) => assert_eq!(name, forced),
                Err(_) if wires => assert_eq!(barrier.algorithm(), Algorithm::Hardware),
                Err(_) => assert!(job.npes() <= 8 || barrier.algorithm() != Algorithm::Everyone),
            }
            job.barrier()
        });
    }
}
