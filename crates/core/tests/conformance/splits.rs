//! Teams by rule, against the rule applied to a list.

use crate::setup::{Setup, sizes_here};
use memonet_core::{Barrier, Error, Job, Result, Sum, Team};

on_every_fabric!(
    [also on copying, streams_dealt]
    every_k_th,
    rows_and_columns,
    nodes,
    colors,
    splits_of_splits,
    translations,
    one_asks_for_what_cannot_be,
    different_splits,
    neither_row_nor_column,
    right_and_wrong_in_any_order,
);

/// The members that a triple names, if it names a team.
fn model(parent: &[usize], start: usize, stride: isize, size: usize) -> Option<Vec<usize>> {
    let ranks: Vec<isize> = (0..size as isize).map(|i| start as isize + stride * i).collect();
    let inside = ranks.iter().all(|&rank| (0..parent.len() as isize).contains(&rank));
    let right = size > 0 && inside && (stride != 0 || size == 1);
    right.then(|| ranks.iter().map(|&rank| parent[rank as usize]).collect())
}

/// Checks that the team has these members, and that its barrier works.
fn check(job: &Job, team: &Team, members: &[usize]) -> Result<()> {
    assert_eq!(team.members(), members);
    assert_eq!(members[team.rank()], job.pe());
    team.barrier()
}

fn check_strided(job: &Job, parent: &Team, start: usize, stride: isize, size: usize) -> Result<()> {
    let made = parent.split_strided(start, stride, size);
    match (model(parent.members(), start, stride, size), made) {
        (Some(members), Ok(Some(team))) => check(job, &team, &members),
        (Some(members), Ok(None)) => {
            assert!(!members.contains(&job.pe()), "{members:?} without PE {}", job.pe());
            Ok(())
        }
        (None, Err(Error::Misuse { .. } | Error::NoSuchPe { .. })) => Ok(()),
        (model, made) => panic!(
            "{start}, {stride}, {size}: {:?} instead of {model:?}",
            made.map(|team| team.is_some())
        ),
    }
}

/// Members of one node are a team, in the order of their team, whichever that is.
fn nodes(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 5]), 1) {
        run.job(|job| {
            let backwards: Vec<usize> = (0..job.npes()).rev().collect();
            let backwards = job.team(&backwards)?.expect("a team of all");
            for parent in [job.world(), &backwards] {
                let is_here = |&&pe: &&usize| pe == job.pe() || job.is_near(pe);
                let members: Vec<usize> =
                    parent.members().iter().filter(is_here).copied().collect();
                check(job, &parent.split_by_node()?, &members)?;
            }
            Ok(())
        });
    }
}

/// Members of one color are a team, by key and then by rank; members without one are in none.
fn colors(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 5]), 1) {
        run.job(|job| {
            let n = job.npes();
            let color_of = |rank: usize| (rank % 4 != 3).then_some(u64::MAX - rank as u64 % 2);
            let keys: [fn(usize) -> i64; 3] =
                [|_| 0, |rank| -(rank as i64), |rank| if rank < 2 { i64::MIN } else { 1 }];
            for key_of in keys {
                let backwards = job.world().split(Some(7), -(job.pe() as i64))?;
                for parent in [job.world(), &backwards.expect("all have one color")] {
                    let color = color_of(parent.rank());
                    let team = parent.split(color, key_of(parent.rank()))?;
                    assert_eq!(team.is_some(), color.is_some());
                    let Some(team) = team else { continue };
                    let mut ranks: Vec<usize> = (0..n).filter(|&r| color_of(r) == color).collect();
                    ranks.sort_by_key(|&rank| (key_of(rank), rank));
                    let members: Vec<usize> = ranks.iter().map(|&r| parent.members()[r]).collect();
                    check(job, &team, &members)?;
                }
            }
            assert!(job.world().split(None, 0)?.is_none());
            job.barrier()
        });
    }
}

fn every_k_th(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 5]), 1) {
        run.job(|job| {
            let n = job.npes();
            for start in 0..n + 1 {
                for stride in -3..=3 {
                    for size in 0..n + 1 {
                        check_strided(job, job.world(), start, stride, size)?;
                    }
                }
            }
            for (start, stride, size) in [
                (usize::MAX, 1, 1),
                (0, isize::MIN, 2),
                (0, isize::MAX, usize::MAX),
                (0, 0, usize::MAX),
                (usize::MAX, isize::MIN, usize::MAX),
                (1, -1, usize::MAX),
            ] {
                let refused = job.world().split_strided(start, stride, size).map(drop);
                assert!(
                    matches!(refused, Err(Error::Misuse { .. } | Error::NoSuchPe { .. })),
                    "{refused:?}"
                );
            }
            // With one member, any stride is allowed.
            assert_eq!(job.world().split_strided(0, isize::MAX, 1)?.is_some(), job.pe() == 0);
            job.barrier()
        });
    }
}

fn check_2d(job: &Job, parent: &Team, xrange: usize) -> Result<(Team, Team)> {
    let (row, column) = parent.split_2d(xrange)?;
    let width = xrange.min(parent.len());
    let (x, y) = (parent.rank() % width, parent.rank() / width);
    let at = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> {
        let ranks = (0..parent.len()).filter(|&rank| keep(rank));
        ranks.map(|rank| parent.members()[rank]).collect()
    };
    check(job, &row, &at(&|rank| rank / width == y))?;
    check(job, &column, &at(&|rank| rank % width == x))?;
    assert_eq!((row.rank(), column.rank()), (x, y));
    Ok((row, column))
}

fn rows_and_columns(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 2, 5, 8, 10]), 1) {
        run.job(|job| {
            let w = job.window::<u64>(2)?;
            let (to, from) = (w.span(0..1)?, w.span(1..2)?);
            for xrange in (1..job.npes() + 2).chain([usize::MAX]) {
                let (row, column) = check_2d(job, job.world(), xrange)?;
                // Both teams work at once.
                w.write(1, job.pe() as u64);
                row.all_reduce_into(Sum, to, from)?;
                assert_eq!(w.read(0), row.members().iter().sum::<usize>() as u64);
                column.all_reduce_into(Sum, to, from)?;
                assert_eq!(w.read(0), column.members().iter().sum::<usize>() as u64);
            }
            assert!(matches!(job.world().split_2d(0).map(drop), Err(Error::Misuse { .. })));
            job.barrier()
        });
    }
}

fn splits_of_splits(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[8, 9]), 1) {
        run.job(|job| {
            let n = job.npes();
            let Some(backwards) = job.world().split_strided(n - 1, -1, n - 1)? else {
                assert_eq!(job.pe(), 0);
                return job.barrier();
            };
            for (start, stride, size) in [(0, 2, 3), (6, -3, 3), (1, 5, 2), (3, 0, 1), (4, 2, 3)] {
                check_strided(job, &backwards, start, stride, size)?;
            }
            let (plane, line) = check_2d(job, &backwards, 4)?;
            check_2d(job, &plane, 2)?;
            check_2d(job, &line, 1)?;
            job.barrier()
        });
    }
}

fn translations(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[1, 6]), 1) {
        run.job(|job| {
            let world = job.world();
            let (row, column) = world.split_2d(4)?;
            let turned = job
                .team(&world.members().iter().rev().copied().collect::<Vec<_>>())?
                .expect("all are in it");
            let teams = [world, &row, &column, &turned];
            for from in teams {
                for to in teams {
                    for rank in 0..from.len() + 2 {
                        let pe = from.members().get(rank);
                        let expected = to.members().iter().position(|member| Some(member) == pe);
                        assert_eq!(from.translate(rank, to), expected);
                    }
                    assert_eq!(from.translate(usize::MAX, to), None);
                }
                assert_eq!(from.translate(from.rank(), world), Some(job.pe()));
            }
            job.barrier()
        });
    }
}

/// That PE gets the reason, the others get an error, and later calls work.
fn one_asks_for_what_cannot_be(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3, 5]), 1) {
        run.job(|job| {
            let (n, world) = (job.npes(), job.world());
            for wrong in [0, n - 1] {
                let ours = job.pe() == wrong;
                let asks: [&dyn Fn() -> Result<()>; 4] = [
                    &|| world.split_strided(0, if ours { -1 } else { 1 }, n).map(drop),
                    &|| world.split_strided(if ours { n } else { 0 }, 1, 1).map(drop),
                    &|| world.split_2d(if ours { 0 } else { 1 }).map(drop),
                    &|| job.team(if ours { &[0, 0] } else { &[0, 1] }).map(drop),
                ];
                for ask in asks {
                    match ask() {
                        Err(Error::Misuse { .. } | Error::NoSuchPe { .. }) if ours => {}
                        Err(Error::Unequal { pe, .. }) if !ours && pe == wrong => {}
                        other => panic!("PE {}, when PE {wrong} is wrong: {other:?}", job.pe()),
                    }
                    check_2d(job, world, 2)?;
                }
            }
            job.barrier()
        });
    }
}

fn different_splits(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3, 5]), 1) {
        run.job(|job| {
            let (me, n, world) = (job.pe(), job.npes(), job.world());
            let asks: [&dyn Fn() -> Result<()>; 5] = [
                &|| world.split_strided(0, 1, 1 + usize::from(me == n - 1)).map(drop),
                &|| world.split_strided(usize::from(me == 0), 1, 1).map(drop),
                &|| world.split_2d(1 + usize::from(me == 0)).map(drop),
                &|| match me {
                    0 => world.split_2d(2).map(drop),
                    _ => world.split_strided(0, 1, 2).map(drop),
                },
                &|| match me {
                    0 => job.team(world.members()).map(drop),
                    _ => world.split_strided(0, 1, n).map(drop),
                },
            ];
            for (i, ask) in asks.into_iter().enumerate() {
                let refused = ask();
                assert!(matches!(refused, Err(Error::Unequal { .. })), "{i}, PE {me}: {refused:?}");
                check_strided(job, world, n - 1, -1, n)?;
            }
            job.barrier()
        });
    }
}

/// There is room for one more team only.
fn neither_row_nor_column(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 4]), 1) {
        run.job(|job| {
            let mut barriers: Vec<Barrier> = Vec::new();
            while let Ok(barrier) = job.world().new_barrier() {
                barriers.push(barrier);
            }
            for room in [0, 1] {
                barriers.truncate(barriers.len() - room);
                for _ in 0..2 {
                    assert!(matches!(
                        job.world().split_2d(2).map(drop),
                        Err(Error::TooMany { .. })
                    ));
                }
            }
            // The place was not lost.
            drop(job.world().new_barrier()?);
            barriers.truncate(barriers.len() - 1);
            check_2d(job, job.world(), 2)?;
            job.barrier()
        });
    }
}

/// A refusal takes one barrier: the next call may begin while other PEs still read the refusal.
fn right_and_wrong_in_any_order(setup: Setup) {
    for run in setup.many_runs(&sizes_here(&[2, 3, 8]), 2) {
        run.job(move |job| {
            let (mut shared, mut own, n) = (run.shared_dice(), run.dice(job.pe()), job.npes());
            for round in 0..60 {
                let wrong = shared.below(3 * n);
                let stride = if job.pe() == wrong { 1 } else { -1 };
                own.dawdle();
                match (wrong < n, job.world().split_strided(n - 1, stride, n)) {
                    (false, Ok(Some(team))) => assert_eq!(team.rank(), n - 1 - job.pe()),
                    (true, Err(Error::NoSuchPe { .. })) if job.pe() == wrong => {}
                    (true, Err(Error::Unequal { pe, .. })) if pe == wrong => {}
                    (_, other) => panic!("round {round}, PE {wrong} wrong: {:?}", other.map(drop)),
                }
            }
            job.barrier()
        });
    }
}
