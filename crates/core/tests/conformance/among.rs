//! Teams without a parent: made by their members alone, also by several threads at once.

use crate::barriers::keep_apart;
use crate::failure::{blames, with_a_death};
use crate::setup::{Meeting, Setup, sizes_here};
use crate::teams::check;
use memonet_core::{Cause, Error};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_every_fabric!(
    [also on copying, streams_dealt]
    teams_without_a_parent,
    wrong_teams_without_a_parent,
    threads_in_a_circle,
    threads_at_random,
    two_threads_for_the_same,
    the_living_go_on,
);

/// Only members take part. Sets overlap, and follow each other without a barrier.
fn teams_without_a_parent(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 4, 9])) {
        run.job(move |job| {
            let n = job.npes();
            let progress = job.window::<u64>(1)?;
            let mut chance = run.shared_dice();
            let mut kept = Vec::new();
            for _ in 0..30 {
                let mut members: Vec<usize> = (0..n).filter(|_| chance.below(2) == 0).collect();
                if chance.below(2) == 0 {
                    members.reverse();
                }
                if members.contains(&job.pe()) {
                    let team = job.team_among(&members)?;
                    check(&team, job, &members);
                    kept.push(team);
                }
            }
            job.barrier()?;
            for team in &kept {
                team.barrier()?;
            }
            drop(kept);
            let everybody: Vec<usize> = (0..n).collect();
            keep_apart(
                run,
                job,
                job.team_among(&everybody)?.split_barrier(),
                &progress,
                &everybody,
                10,
            )?;
            job.barrier()
        });
    }
}

fn wrong_teams_without_a_parent(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3])) {
        run.job(move |job| {
            let me = job.pe();
            assert!(matches!(job.team_among(&[me, job.npes()]), Err(Error::NoSuchPe { .. })));
            assert!(matches!(job.team_among(&[me, me]), Err(Error::Misuse { .. })));
            assert!(matches!(job.team_among(&[(me + 1) % job.npes()]), Err(Error::Misuse { .. })));
            assert!(matches!(job.team_among(&[]), Err(Error::Misuse { .. })));
            if me < 2 {
                let unequal = job.team_among(&[me, 1 - me]);
                assert!(matches!(unequal, Err(Error::Unequal { call: "team_among", .. })));
                job.team_among(&[1, 0])?.barrier()?;
            }
            job.barrier()
        });
    }
}

/// Each PE makes a team with its right neighbour, and then in another thread one with its left
/// neighbour.
fn threads_in_a_circle(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 4])) {
        let calling = Meeting::new(run.npes);
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let make = |members: [usize; 2]| {
                let team = job.team_among(&members)?;
                check(&team, job, &members);
                team.barrier()
            };
            std::thread::scope(|scope| {
                let right = scope.spawn(|| make([me, (me + 1) % n]));
                // All have probably begun.
                calling.meet();
                std::thread::sleep(Duration::from_millis(20));
                make([(me + n - 1) % n, me])?;
                right.join().expect("no panic")
            })
        });
    }
}

/// Threads make different sets at once, in any order.
fn threads_at_random(setup: Setup) {
    const THREADS: usize = 4;
    for run in setup.runs(&sizes_here(&[3, 5])) {
        run.job(move |job| {
            let make = |thread: usize| {
                let mut chance = run.shared_dice();
                for _ in 0..thread {
                    chance.roll();
                }
                for _ in 0..if setup.is_near() { 40 } else { 8 } {
                    let set = chance.below((1 << job.npes()) / THREADS) * THREADS + thread;
                    let members: Vec<usize> =
                        (0..job.npes()).filter(|pe| set >> pe & 1 == 1).collect();
                    if members.contains(&job.pe()) {
                        let team = job.team_among(&members)?;
                        check(&team, job, &members);
                        team.barrier()?;
                    }
                }
                Ok(())
            };
            std::thread::scope(|scope| {
                let all: Vec<_> =
                    (0..THREADS).map(|thread| scope.spawn(move || make(thread))).collect();
                all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })
        });
    }
}

/// The other PE could not tell the two calls apart.
fn two_threads_for_the_same(setup: Setup) {
    for run in setup.runs(&[2]) {
        let refused = Meeting::new(2);
        run.job(move |job| {
            if job.pe() == 1 {
                refused.meet();
                return job.team_among(&[0, 1])?.barrier();
            }
            let told = AtomicUsize::new(0);
            let make = || match job.team_among(&[0, 1]) {
                Err(Error::Misuse { .. }) => {
                    told.fetch_add(1, Ordering::Relaxed);
                    refused.meet();
                    Ok(())
                }
                made => made?.barrier(),
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(make);
                make()?;
                other.join().expect("no panic")
            })?;
            assert_eq!(told.into_inner(), 1);
            Ok(())
        });
    }
}

/// A PE dies while the others make a team with it. What they have begun does not hinder teams
/// without it.
fn the_living_go_on(setup: Setup) {
    for run in setup.runs(&[3, 4]) {
        for before in 0..3 {
            let victim = (before + 2) % run.npes;
            let make =
                move |job: &memonet_core::Job| job.team_among(job.world().members()).map(drop);
            with_a_death(
                run,
                victim,
                move |job| {
                    (0..before).try_for_each(|_| make(job))?;
                    job.window::<u64>(1)
                },
                |_, _| Ok(()),
                move |job, progress| {
                    blames(make(job), victim, Cause::Panic, "a team with the dead");
                    let living: Vec<usize> = (0..job.npes()).filter(|&pe| pe != victim).collect();
                    for _ in 0..5 {
                        let team = job.team_among(&living)?;
                        check(&team, job, &living);
                        keep_apart(run, job, team.split_barrier(), progress, &living, 3)?;
                    }
                    Ok(())
                },
            );
        }
    }
}
