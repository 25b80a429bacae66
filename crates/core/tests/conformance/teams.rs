//! Teams: any subset, in any order, overlapping in any way, each with its own barrier.

use crate::barriers::keep_apart;
use crate::setup::{Dice, Meeting, Setup, sizes_here};
use memonet_core::{Cmp, Error, Job, SignalOp, Team};
use std::sync::Arc;

on_every_fabric!(
    [also on copying, streams_dealt]
    members_compare_their_calls,
    the_world,
    random_subsets,
    disjoint_teams_in_one_call,
    overlapping_teams,
    waits_in_any_order,
    a_team_of_a_team,
    outsiders_are_not_waited_for,
    teams_come_and_go,
    dropped_in_any_order,
    the_late_find_what_they_wait_for,
    teams_that_shrink,
    wrong_members,
    different_lists,
    nobody,
    too_many,
);

/// Some of `pes`, in some order.
fn some(dice: &mut Dice, pes: &[usize]) -> Vec<usize> {
    let mut left = pes.to_vec();
    (0..1 + dice.below(pes.len())).map(|_| left.swap_remove(dice.below(left.len()))).collect()
}

pub fn check(team: &Team, job: &Job, members: &[usize]) {
    assert_eq!(team.members(), members);
    assert_eq!(team.len(), members.len());
    assert_eq!(members[team.rank()], job.pe());
}

fn the_world(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 3, 9])) {
        run.job(|job| {
            check(job.world(), job, &(0..job.npes()).collect::<Vec<_>>());
            let same = job.team(job.world().members())?.unwrap();
            check(&same, job, job.world().members());
            same.barrier()?;
            job.world().barrier()
        });
    }
}

fn random_subsets(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3, 5, 8, 9])) {
        run.job(move |job| {
            let mut dice = run.shared_dice();
            let progress = job.window::<u64>(1)?;
            for _ in 0..8 {
                let members = some(&mut dice, job.world().members());
                let team = job.team(&members)?;
                assert_eq!(team.is_some(), members.contains(&job.pe()));
                if let Some(team) = team {
                    check(&team, job, &members);
                    progress.write(0, 0);
                    team.barrier()?;
                    keep_apart(run, job, team.split_barrier(), &progress, &members, 6)?;
                    team.barrier()?;
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn disjoint_teams_in_one_call(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3, 5, 9])) {
        run.job(move |job| {
            let progress = job.window::<u64>(1)?;
            for parts in 1..=3 {
                let members: Vec<usize> =
                    (0..job.npes()).rev().filter(|pe| pe % parts == job.pe() % parts).collect();
                let team = job.team(&members)?.unwrap();
                check(&team, job, &members);
                progress.write(0, 0);
                team.barrier()?;
                keep_apart(run, job, team.split_barrier(), &progress, &members, 10)?;
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// Every pair of neighbours on a ring of PEs is a team. Each PE is in two, which run at once.
fn overlapping_teams(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 5, 8])) {
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let mut dice = run.dice(me);
            let w = job.window::<u64>(1)?;
            let mut mine = Vec::new();
            for left in 0..n {
                mine.extend(job.team(&[left, (left + 1) % n])?);
            }
            assert_eq!(mine.len(), 2);
            for phase in 1..=25 {
                w.write(0, phase);
                let (a, b) = (dice.below(2), dice.below(2));
                let arrivals =
                    [mine[a].split_barrier().arrive()?, mine[1 - a].split_barrier().arrive()?];
                dice.dawdle();
                for i in [b, 1 - b] {
                    let team = &mine[if i == 0 { a } else { 1 - a }];
                    while !arrivals[i].test()? {
                        dice.dawdle();
                    }
                    for &pe in team.members() {
                        let theirs = w.remote(pe, 0)?.load()?;
                        assert!((phase..=phase + 1).contains(&theirs));
                    }
                }
            }
            job.barrier()
        });
    }
}

/// Each PE is in two barriers for which other PEs wait in the other order: a barrier must proceed
/// although some members do not wait for it yet.
fn waits_in_any_order(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 4, 6])) {
        run.job(move |job| {
            let (me, n) = (job.pe(), job.npes());
            let arrived = job.window::<u64>(1)?;
            let size = 2.max(n - 2);
            let mut mine = Vec::new();
            for first in 0..n {
                let members: Vec<usize> = (0..size).map(|i| (first + i) % n).collect();
                mine.extend(job.team(&members)?);
            }
            // Each PE is first in one team, and waits for that one last.
            mine.sort_by_key(|team| team.rank());
            for phase in 1..=5u64 {
                let mut arrivals = Vec::new();
                for (i, team) in mine.iter().enumerate() {
                    arrivals.push(team.split_barrier().arrive()?);
                    // None can have been complete before its root arrived.
                    for pe in 0..n {
                        arrived.signal(pe, 0, SignalOp::Add, 1)?;
                    }
                    arrived.wait_until(
                        0,
                        Cmp::Ge,
                        ((phase - 1) * mine.len() as u64 + i as u64 + 1) * n as u64,
                    )?;
                }
                let mut order: Vec<usize> = (0..mine.len()).rev().collect();
                if phase % 2 == 0 {
                    let by = me % order.len();
                    order.rotate_left(by);
                }
                for i in order {
                    while !arrivals[i].test()? {
                        crate::setup::yield_now();
                    }
                }
            }
            job.barrier()
        });
    }
}

/// A slow PE still waits in a team that the others have dropped. Their next team must not take its
/// slot.
fn the_late_find_what_they_wait_for(setup: Setup) {
    for run in setup.runs(&[3]) {
        run.job(move |job| {
            let go_on = job.window::<u64>(1)?;
            for round in 1..=5 {
                let team = job.team_among(&[1, 2, 0])?;
                let barrier = team.split_barrier();
                for _ in 0..4 {
                    barrier.arrive()?.wait()?;
                }
                let arrival = barrier.arrive()?;
                if job.pe() == 0 {
                    go_on.wait_until(0, Cmp::Ge, 2 * round)?;
                    arrival.wait()?;
                } else {
                    arrival.wait()?;
                    drop(team);
                    let next = job.team_among(&[1, 2])?;
                    next.barrier()?;
                    go_on.remote(0, 0)?.fetch_add(1)?;
                    next.barrier()?;
                }
            }
            job.barrier()
        });
    }
}

/// Each team is made from a parent that is dropped at once, by members that do not wait for PEs
/// outside of the new team.
fn teams_that_shrink(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 7])) {
        run.job(move |job| {
            for _ in 0..if setup.is_near() { 200 } else { 5 } {
                let mut team = job.team(job.world().members())?;
                while let Some(all) = team.take() {
                    if all.len() > 1 {
                        team = all.split_strided(1, 1, all.len() - 1)?;
                    }
                }
            }
            job.barrier()
        });
    }
}

fn a_team_of_a_team(setup: Setup) {
    for run in setup.runs(&sizes_here(&[5, 8])) {
        run.job(|job| {
            if let Some(outer) = job.team(&[4, 0, 2, 3])? {
                let inner = outer.team(&[3, 4])?;
                assert_eq!(inner.is_some(), [3, 4].contains(&job.pe()));
                if let Some(inner) = &inner {
                    check(inner, job, &[3, 4]);
                    for _ in 0..10 {
                        inner.barrier()?;
                    }
                    assert!(inner.team(&[job.pe()])?.is_some());
                }
                let refused = outer.team(&[0, 1]);
                assert!(
                    matches!(refused, Err(Error::NoSuchPe { pe: 1, .. })),
                    "PE 1 is not in the outer team"
                );
                outer.barrier()?;
            }
            job.barrier()
        });
    }
}

/// Teams work while other PEs do something else, or nothing.
fn outsiders_are_not_waited_for(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 5, 9])) {
        let meeting = Arc::new(Meeting::new(run.npes));
        run.job(move |job| {
            let inside = [job.npes() - 1, 1];
            let team = job.team(&inside)?;
            if let Some(team) = team {
                let barrier = team.new_barrier()?;
                for _ in 0..20 {
                    team.barrier()?;
                    barrier.arrive()?.wait()?;
                }
            }
            meeting.meet();
            job.barrier()
        });
    }
}

fn teams_come_and_go(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3]), 2) {
        run.job(move |job| {
            let mut dice = run.shared_dice();
            // More teams than there is room for at once.
            for _ in 0..300 {
                if let Some(team) = job.team(&some(&mut dice, job.world().members()))? {
                    team.barrier()?;
                }
            }
            job.barrier()
        });
    }
}

fn dropped_in_any_order(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3, 5])) {
        run.job(move |job| {
            let (mut shared, mut own) = (run.shared_dice(), run.dice(job.pe()));
            let progress = job.window::<u64>(1)?;
            let mut mine: Vec<Team> = Vec::new();
            for _ in 0..25 {
                let members = some(&mut shared, job.world().members());
                if let Some(team) = job.team(&members)? {
                    mine.push(team);
                }
                while mine.len() > 4 || (!mine.is_empty() && own.below(3) == 0) {
                    drop(mine.swap_remove(own.below(mine.len())));
                }
                let team = job.team(&some(&mut shared, job.world().members()))?;
                if let Some(team) = team {
                    progress.write(0, 0);
                    team.barrier()?;
                    keep_apart(run, job, team.split_barrier(), &progress, team.members(), 2)?;
                    team.barrier()?;
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn wrong_members(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 3])) {
        run.job(|job| {
            let n = job.npes();
            for bad in [n, n + 1, 1 << 32, usize::MAX] {
                let refused = job.team(&[0, bad]);
                assert!(
                    matches!(&refused, Err(Error::NoSuchPe { pe, npes, .. }) if *pe == bad && *npes == n),
                    "{bad}: {:?}",
                    refused.err()
                );
            }
            assert!(job.team(&[0, 0]).is_err(), "a PE is not in a team twice");
            // Later calls work.
            job.team(job.world().members())?.unwrap().barrier()?;
            job.barrier()
        });
    }
}

fn different_lists(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3])) {
        run.job(|job| {
            for lists in
                [[&[0usize, 1, 2][..], &[0, 1], &[0, 1, 2]], [&[0, 1, 2], &[2, 1, 0], &[0, 1, 2]]]
            {
                let refused = job.team(lists[job.pe()]);
                assert!(
                    matches!(refused, Err(Error::Unequal { .. })),
                    "{lists:?}: {:?}",
                    refused.err()
                );
            }
            // PE 2 is in no list but its own.
            let lists = [&[0usize, 1][..], &[0, 1], &[2]];
            assert_eq!(job.team(lists[job.pe()])?.unwrap().len(), lists[job.pe()].len());
            job.barrier()
        });
    }
}

fn nobody(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 3])) {
        run.job(|job| {
            assert!(job.team(&[])?.is_none());
            // One PE alone, named by all PEs, or only by itself.
            assert_eq!(job.team(&[0])?.is_some(), job.pe() == 0);
            let alone = job.team(&[job.pe()])?.unwrap();
            for _ in 0..5 {
                alone.barrier()?;
                alone.new_barrier()?.step()?;
            }
            assert_eq!(job.team(if job.pe() == 0 { &[0] } else { &[] })?.is_some(), job.pe() == 0);
            job.barrier()
        });
    }
}

fn too_many(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2]), 1) {
        run.job(|job| {
            let mut barriers = Vec::new();
            let error = loop {
                match job.world().new_barrier() {
                    Ok(barrier) => barriers.push(barrier),
                    Err(error) => break error,
                }
                assert!(barriers.len() < 10_000);
            };
            assert!(
                matches!(error, Error::TooMany { limit, .. } if limit >= barriers.len()),
                "{error}"
            );
            assert!(barriers.len() > 100);
            assert!(matches!(job.team(&[0, 1]).map(drop), Err(Error::TooMany { .. })));
            // PE 0 and PE 1 have different slots free, but none in common.
            drop(barriers.swap_remove(job.pe()));
            assert!(matches!(job.world().new_barrier().map(drop), Err(Error::TooMany { .. })));
            barriers.pop();
            let barrier = job.world().new_barrier()?;
            barrier.arrive()?.wait()?;
            job.barrier()
        });
    }
}

/// All members get the error of a difference. The team works after errors and successes.
fn members_compare_their_calls(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 3, 5])) {
        run.job(move |job| {
            let (me, n) = (job.pe() as u64, job.npes());
            let unequal = |compared, theirs: &str| match compared {
                Err(
                    Error::Unequal { theirs: said, .. } | Error::OtherCall { theirs: said, .. },
                ) => {
                    assert!(said.contains(theirs), "{said}")
                }
                compared => assert!(n == 1 && compared.is_ok(), "{compared:?}"),
            };
            let members: Vec<usize> = (0..n).rev().collect();
            let Some(team) = job.team(&members)? else { unreachable!() };
            for team in [job.world(), &team] {
                team.compare("a call", &[("count", 7), ("root", 0)])?;
                unequal(team.compare("a call", &[("root", u64::from(me == 0))]), "root ");
                let (mine, theirs) =
                    if me == 0 { ("one call", "another") } else { ("another", "one call") };
                unequal(team.compare(mine, &[]), theirs);
                team.barrier()?;
                team.compare("a call", &[("count", 8)])?;
            }
            job.barrier()
        });
    }
}
