//! Regions: an acquire sees all earlier releases, whatever other PEs write beside them.

use crate::failure::{blames, with_a_death};
use crate::setup::{Dice, Meeting, Run, Setup};
use memonet_core::dsm::{Mutex, Placement, Region, RegionOptions};
use memonet_core::{Cause, Error, Job, Result};
use std::sync::Arc;

on_every_fabric!(
    [also on recorded]
    programs_without_races,
    a_lock_orders,
    false_sharing,
    elements_of_all_sizes,
    ranges,
    pages_that_cannot_be,
    first_touch,
    what_is_known_is_not_fetched,
    races_are_named,
    no_race_is_named_where_there_is_none,
    a_death;
    with threads of their own: programs_of_threads,
);

const ALL: [Placement; 3] = [Placement::Block, Placement::Cyclic, Placement::FirstTouch];

fn options(dice: &mut Dice) -> RegionOptions {
    let checked = dice.below(4) == 0;
    RegionOptions::new()
        .page([64, 256, 4096][dice.below(3)])
        .placement(ALL[dice.below(3)])
        .checked(checked)
}

/// Writers and values of a phase: each element has at most one writer, and each PE's elements are
/// all over the region.
fn plan(run: &Run, phase: usize, len: usize) -> Vec<Option<(usize, u64)>> {
    let mut dice = Dice::from(run.seed << 32 ^ phase as u64);
    let grain = 1 + dice.below(40);
    let mut writer = None;
    (0..len)
        .map(|index| {
            if index % grain == 0 {
                writer = (dice.below(3) > 0).then(|| dice.below(run.npes));
            }
            Some((writer?, dice.roll())).filter(|_| dice.below(4) > 0)
        })
        .collect()
}

/// Random programs whose phases are divided by barriers, against their sequential run.
fn programs_without_races(setup: Setup) {
    let phases = if setup.is_near() { 30 } else { 12 };
    for run in setup.many_runs(&[1, 2, 3, 5], 4) {
        run.job(move |job| {
            let mut shared = run.shared_dice();
            let len = 1 + shared.below(3000);
            let region = Region::<u64>::with(job, len, options(&mut shared))?;
            let mut oracle = vec![0; len];
            let mut dice = run.dice(job.pe());
            for phase in 0..phases {
                let plan = plan(&run, phase, len);
                // No PE writes what others read.
                let stable: Vec<usize> = (0..len).filter(|&index| plan[index].is_none()).collect();
                for _ in 0..5 {
                    if let Some(&at) = stable.get(dice.below(stable.len().max(1))) {
                        assert_eq!(
                            region.read(at..at + 1)?.get(at),
                            oracle[at],
                            "element {at}, phase {phase}"
                        );
                    }
                }
                let mut index = 0;
                while index < len {
                    let end = (index + 1 + dice.below(200)).min(len);
                    let mut part = region.write(index..end)?;
                    for at in index..end {
                        if let Some((writer, value)) = plan[at]
                            && writer == job.pe()
                        {
                            assert_eq!(part.get(at), oracle[at]);
                            part.set(at, value);
                        }
                    }
                    drop(part);
                    if dice.below(6) == 0 {
                        // Calls in between are always allowed.
                        if dice.below(2) == 0 { region.release()? } else { region.acquire()? }
                    }
                    index = end;
                }
                region.barrier()?;
                plan.iter()
                    .zip(&mut oracle)
                    .for_each(|(plan, value)| *value = plan.map_or(*value, |(_, new)| new));
                if dice.below(3) == 0 {
                    assert!(region.read(0..len)?.to_vec() == oracle, "phase {phase}");
                }
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn programs_of_threads(setup: Setup) {
    const THREADS: usize = 3;
    for run in setup.runs(&[1, 2, 3]) {
        run.job(move |job| {
            let len = 1000;
            let region = Region::<u32>::with(job, len, RegionOptions::new().page(256))?;
            let parts = job.npes() * THREADS;
            for phase in 1..10u32 {
                std::thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let region = &region;
                        scope.spawn(move || {
                            let mine = (job.pe() * THREADS + thread..len).step_by(parts);
                            let mut part = region.write(0..len).unwrap();
                            for at in mine {
                                assert_eq!(
                                    part.get(at),
                                    if phase == 1 { 0 } else { at as u32 * (phase - 1) }
                                );
                                part.set(at, at as u32 * phase);
                                if at % 7 == 0 {
                                    // While other guards are held.
                                    region.release().unwrap();
                                }
                            }
                        });
                    }
                });
                region.barrier()?;
                let all = region.read(0..len)?.to_vec();
                assert!(
                    all.iter().enumerate().all(|(at, &value)| value == at as u32 * phase),
                    "phase {phase}"
                );
                job.barrier()?;
            }
            Ok(())
        });
    }
}

/// Without barriers: a mutex orders the next PE's acquire after the last PE's release.
fn a_lock_orders(setup: Setup) {
    let times = if setup.is_near() { 100 } else { 15 };
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let region = Region::<u64>::with(job, 100, options(&mut run.shared_dice()))?;
            let order = Mutex::new(job, &0u64)?;
            let mut dice = run.dice(job.pe());
            for _ in 0..times {
                let mut turn = order.lock()?;
                region.acquire()?;
                let mut all = region.write(0..100)?;
                assert_eq!((0..100).map(|at| all.get(at)).sum::<u64>(), *turn, "one for each turn");
                let at = dice.below(100);
                let seen = all.get(at);
                all.set(at, seen + 1);
                drop(all);
                region.release()?;
                *turn += 1;
            }
            job.barrier()?;
            region.acquire()?;
            assert_eq!(
                region.read(0..100)?.to_vec().iter().sum::<u64>(),
                (times * job.npes()) as u64
            );
            job.barrier()
        });
    }
}

/// All PEs write all pages all the time, each its own bytes.
fn false_sharing(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let (len, n) = (3000, job.npes());
            let region = Region::<u8>::with(job, len, RegionOptions::new().page(1024))?;
            for phase in 1..8u8 {
                let mut all = region.write(0..len)?;
                (job.pe()..len)
                    .step_by(n)
                    .for_each(|at| all.set(at, phase.wrapping_mul(at as u8 | 1)));
                drop(all);
                region.barrier()?;
                let all = region.read(0..len)?.to_vec();
                assert!(
                    all.iter()
                        .enumerate()
                        .all(|(at, &value)| value == phase.wrapping_mul(at as u8 | 1))
                );
                job.barrier()?;
            }
            Ok(())
        });
    }
}

fn elements_of_all_sizes(setup: Setup) {
    #[derive(
        Clone, Copy, PartialEq, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
    )]
    #[repr(C)]
    struct Body {
        place: [f64; 3],
        mass: f64,
    }
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let bodies = Region::<Body>::with(
                job,
                100,
                RegionOptions::new().placement(Placement::Cyclic).page(256),
            )?;
            let triples = Region::<[u8; 3]>::with(job, 100, RegionOptions::new().page(192))?;
            let body = |at: usize| Body { place: [at as f64; 3], mass: 1.0 };
            for at in (0..100).filter(|at| at % job.npes() == job.pe()) {
                bodies.write(at..at + 1)?.set(at, body(at));
                triples.write(at..at + 1)?.set(at, [at as u8, 1, 2]);
            }
            bodies.barrier()?;
            triples.barrier()?;
            let (bodies, triples) = (bodies.read(0..100)?, triples.read(0..100)?);
            for at in 0..100 {
                assert_eq!(bodies.get(at), body(at));
                assert_eq!(triples.get(at), [at as u8, 1, 2]);
            }
            job.barrier()
        });
    }
}

fn ranges(setup: Setup) {
    for run in setup.runs(&[1, 3]) {
        for placement in ALL {
            run.job(move |job| {
                let region = Region::<u16>::with(
                    job,
                    500,
                    RegionOptions::new().page(128).placement(placement),
                )?;
                assert_eq!(region.len(), 500);
                let told = region.read(7..501).map(drop).unwrap_err().to_string();
                let expected = "elements 7..7+494 are not all among the 500 that there are (PE ";
                assert!(told.starts_with(expected), "{told}");
                assert!(matches!(
                    region.write(499..usize::MAX).map(drop),
                    Err(Error::OutOfBounds { .. })
                ));
                #[allow(clippy::reversed_empty_ranges, reason = "it is refused")]
                let backwards = 5..4;
                assert!(matches!(region.read(backwards).map(drop), Err(Error::Misuse { .. })));
                assert!(region.read(500..500)?.to_vec().is_empty());
                if job.pe() == 0 {
                    let values: Vec<u16> = (0..400).collect();
                    let mut part = region.write(50..450)?;
                    part.write_from(50, &values);
                    let mut seen = [0; 300];
                    part.read_into(99, &mut seen);
                    assert_eq!(seen[..], values[49..349]);
                }
                region.barrier()?;
                let part = region.read(40..460)?;
                assert_eq!(part.range(), 40..460);
                assert!(
                    (50..450).all(|at| part.get(at) == at as u16 - 50)
                        && part.get(40) == 0
                        && part.get(459) == 0
                );
                for outside in [39, 460] {
                    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        part.get(outside)
                    }));
                    assert!(panic.is_err());
                    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        part.read_into(outside, &mut [0])
                    }));
                    assert!(panic.is_err());
                }
                job.barrier()
            });
        }
    }
}

fn pages_that_cannot_be(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            for page in [0, 1, 63, 100] {
                let made = Region::<u64>::with(job, 10, RegionOptions::new().page(page));
                assert!(matches!(made.map(drop), Err(Error::Misuse { .. })), "{page}");
            }
            let made = Region::<[u8; 5]>::with(job, 10, RegionOptions::new().page(64));
            assert!(matches!(made.map(drop), Err(Error::Misuse { .. })));
            // With the words of each page, more than the address space.
            let page = (usize::MAX / 16).next_multiple_of(64);
            let made = Region::<u8>::with(
                job,
                3 * page / 2,
                RegionOptions::new().page(page).checked(true),
            );
            assert!(matches!(made.map(drop), Err(Error::Overflow { .. })));
            Region::<u64>::new(job, 0)?.barrier()?;
            job.barrier()
        });
    }
}

/// The PE that asks first for a page is its home, and then gets nothing for it from other PEs.
fn first_touch(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let (n, me) = (job.npes(), job.pe());
            let region = Region::<u64>::with(
                job,
                8 * 10 * n,
                RegionOptions::new().page(64).placement(Placement::FirstTouch),
            )?;
            for phase in 1..4 {
                // Every n-th page.
                for page in (me..10 * n).step_by(n) {
                    let mut part = region.write(8 * page..8 * page + 8)?;
                    (8 * page..8 * page + 8).for_each(|at| part.set(at, phase * at as u64));
                }
                assert_eq!(region.stats().handovers, 0);
                job.barrier()?;
            }
            region.barrier()?;
            assert!(
                region
                    .read(0..80 * n)?
                    .to_vec()
                    .iter()
                    .enumerate()
                    .all(|(at, &value)| value == 3 * at as u64)
            );
            job.barrier()
        });
    }
}

fn what_is_known_is_not_fetched(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(move |job| {
            let region = Region::<u64>::new(job, 10 * 512)?;
            let n = job.npes();
            region.read(0..5120)?.to_vec();
            region.barrier()?;
            let before = region.stats();
            region.read(0..5120)?.to_vec();
            let same = region.stats();
            assert_eq!(
                (same.hits - before.hits, same.handovers),
                (10, before.handovers),
                "nothing has changed"
            );
            assert!(same.bytes - before.bytes <= 80, "versions alone");
            job.barrier()?;
            if job.pe() == n - 1 {
                region.write(5..6)?.set(5, 1);
            }
            region.barrier()?;
            assert_eq!(region.read(0..5120)?.get(5), 1);
            let after = region.stats();
            // The home has the page, and the copy of its writer is up to date.
            let one =
                u64::from(!setup.is_near() && !matches!(job.pe(), pe if pe == 0 || pe == n - 1));
            assert_eq!(after.handovers - same.handovers, one, "one page has");
            job.barrier()
        });
    }
}

fn checked() -> RegionOptions {
    RegionOptions::new().page(128).checked(true)
}

fn races_are_named(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        for placement in ALL {
            let meeting = Arc::new(Meeting::new(run.npes));
            run.job(move |job| {
                let region = Region::<u32>::with(job, 300, checked().placement(placement))?;
                let (first, second) = (job.npes() - 1, 0);
                for round in 1..4 {
                    for pe in [first, second] {
                        if job.pe() == pe {
                            let mut all = region.write(0..300)?;
                            all.set(77, 1000 * round + pe as u32 + 1);
                            all.set(100 + pe, round);
                            drop(all);
                            match region.release() {
                                Ok(()) => assert_eq!(pe, first),
                                Err(Error::DataRace { element, first: a, second: b, .. }) => {
                                    assert_eq!((pe, element, a, b), (second, 77, first, second));
                                }
                                Err(error) => return Err(error),
                            }
                        }
                        meeting.meet();
                    }
                    region.barrier()?;
                    let all = region.read(0..300)?;
                    assert_eq!((all.get(100), all.get(100 + first)), (round, round));
                    assert_eq!(all.get(77) / 1000, round);
                    job.barrier()?;
                }
                Ok(())
            });
        }
    }
}

fn no_race_is_named_where_there_is_none(setup: Setup) {
    let times = if setup.is_near() { 40 } else { 8 };
    for run in setup.runs(&[2, 3]) {
        run.job(move |job| {
            let region = Region::<u32>::with(job, 100, checked())?;
            let order = Mutex::new(job, &0u32)?;
            for _ in 0..times {
                let turn = order.lock()?;
                region.acquire()?;
                let mut all = region.write(0..100)?;
                let seen = all.get(50);
                all.set(50, seen + 1);
                drop(all);
                region.release()?;
                drop(turn);
                // The neighbouring elements belong to one PE each.
                let mut all = region.write(0..100)?;
                let seen = all.get(job.pe());
                all.set(job.pe(), seen + 1);
            }
            region.barrier()?;
            let all = region.read(0..100)?;
            assert_eq!(
                (all.get(50), all.get(job.pe())),
                ((times * job.npes()) as u32, times as u32)
            );
            job.barrier()
        });
    }
}

fn a_death(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let (victim, meeting) = (run.npes - 1, Meeting::new(run.npes - 1));
        let prepare = |job: &Job| -> Result<Region<u64>> {
            let region = Region::new(job, 2000)?;
            region.write(0..2000)?.set(job.pe(), 5);
            region.barrier()?;
            Ok(region)
        };
        with_a_death(
            run,
            victim,
            prepare,
            |_, _| Ok(()),
            move |_, region| {
                blames(region.barrier(), victim, Cause::Panic, "a barrier");
                region.write(0..1)?.set(0, 6);
                region.release()?;
                meeting.meet();
                Ok(())
            },
        );
    }
}
