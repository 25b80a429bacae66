//! One PE asks for something else than the others, or for what cannot be: all get an error, nobody waits, and the job goes on.

use crate::setup::{Meeting, Setup};
use memonet_core::dsm::{Mutex, Placement, Region, RegionOptions, RwLock};
use memonet_core::{Access, Error, Job, Result};
use std::sync::Arc;

on_every_fabric!(
    lists_that_contradict,
    one_names_a_stranger,
    one_asks_for_the_impossible,
    one_asks_alone,
    a_late_arrival_at_a_dropped_barrier,
    shared_objects_that_contradict,
);

/// The job still does what it can do collectively.
fn goes_on(job: &Job) -> Result<()> {
    let all: Vec<usize> = (0..job.npes()).collect();
    job.team(&all)?.expect("all are in it").barrier()?;
    let w = job.window::<u64>(job.npes())?;
    for pe in all {
        w.put_one(pe, job.pe(), 7)?;
    }
    job.barrier()?;
    assert_eq!(w.to_vec(), vec![7; job.npes()]);
    job.barrier()
}

fn lists_that_contradict(setup: Setup) {
    let cases: [[&[usize]; 3]; 4] = [
        [&[0, 1, 2], &[0, 1], &[2]],
        [&[0, 1], &[0], &[2]],
        [&[0, 2], &[1, 2], &[0, 2]],
        [&[0, 1], &[1, 0], &[]],
    ];
    for run in setup.runs(&[3]) {
        for case in cases {
            run.job(move |job| {
                let refused = job.team(case[job.pe()]).map(drop);
                assert!(
                    matches!(refused, Err(Error::Unequal { .. })),
                    "{case:?}, PE {}: {refused:?}",
                    job.pe()
                );
                goes_on(job)
            });
        }
    }
}

/// Whoever was believed, data would be lost later without a word.
fn shared_objects_that_contradict(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let odd = job.pe() == 1;
            let refused = |made: Result<()>| match made {
                Err(Error::Unequal { theirs, .. }) => assert!(theirs.contains("mutex, reader-writer lock or region"), "{theirs}"),
                other => panic!("{other:?}"),
            };
            let region = |options| refused(Region::<u64>::with(job, 100, options).map(drop));
            region(RegionOptions::new().page(if odd { 64 } else { 128 }));
            region(RegionOptions::new().placement(if odd { Placement::Cyclic } else { Placement::Block }));
            region(RegionOptions::new().checked(odd));
            refused(Region::<u64>::new(job, if odd { 99 } else { 100 }).map(drop));
            refused(if odd {
                Region::<u32>::new(job, 200).map(drop)
            } else {
                Region::<u64>::new(job, 100).map(drop)
            });
            refused(Mutex::<[u8]>::new(job, &[0; 100][usize::from(odd)..]).map(drop));
            refused(if odd {
                Mutex::new(job, &0u64).map(drop)
            } else {
                RwLock::new(job, &0u64).map(drop)
            });
            refused(if odd {
                Mutex::new(job, &0u64).map(drop)
            } else {
                Mutex::with_shadow(job, &0u64).map(drop)
            });
            refused(if odd {
                Mutex::new(job, &0u64).map(drop)
            } else {
                Region::<u64>::new(job, 1).map(drop)
            });
            // What cannot be at one alone.
            let page = if odd { 1 } else { 64 };
            match Region::<u64>::with(job, 100, RegionOptions::new().page(page)).map(drop) {
                Err(Error::Misuse(_)) if odd => {}
                Err(Error::Unequal { .. }) if !odd => {}
                other => panic!("{other:?}"),
            }
            match if odd {
                Mutex::new(job, &()).map(drop)
            } else {
                Mutex::new(job, &0u64).map(drop)
            } {
                Err(Error::Misuse(_)) if odd => {}
                Err(Error::Unequal { .. }) if !odd => {}
                other => panic!("{other:?}"),
            }
            goes_on(job)
        });
    }
}

fn one_names_a_stranger(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        for bad in [&[0, 99][..], &[0, 1, 0]] {
            run.job(move |job| {
                let result = job.team(if job.pe() == 1 { bad } else { &[0, 1] }).map(drop);
                match (job.pe(), bad.len(), result) {
                    (1, 2, Err(Error::NoSuchPe { pe: 99, .. })) | (1, 3, Err(Error::Misuse(_))) => {}
                    (0 | 2, _, Err(Error::Unequal { .. })) => {}
                    other => panic!("{other:?}"),
                }
                goes_on(job)
            });
        }
    }
}

fn one_asks_for_the_impossible(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let asks: [fn(&Job, usize) -> Result<()>; 2] = [
                |job, len| job.window::<u64>(len).map(drop),
                |job, len| job.restricted::<u64>(len, |_, _| Access::ReadWrite).map(drop),
            ];
            for ask in asks {
                // One, then all.
                let result = ask(job, if job.pe() == 0 { usize::MAX } else { 5 });
                match (job.pe(), result) {
                    (0, Err(Error::Overflow { .. })) | (1.., Err(Error::Unequal { .. })) => {}
                    other => panic!("{other:?}"),
                }
                assert!(matches!(ask(job, usize::MAX), Err(Error::Overflow { .. })));
                goes_on(job)?;
            }
            Ok(())
        });
    }
}

/// What the others, who are in a barrier, have asked for before is no answer: neither told as theirs, nor agreed with.
fn one_asks_alone(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let asks: [fn(&Job) -> Result<()>; 3] = [
                |job| job.allocate(80, 8, false).map(drop),
                |job| job.window::<u64>(5).map(drop),
                |job| job.restricted::<u64>(5, |_, _| Access::ReadWrite).map(drop),
            ];
            for ask in asks {
                ask(job)?;
                if job.pe() == 0 {
                    match ask(job) {
                        Err(Error::Unequal { pe: 1, theirs, .. }) => assert!(theirs.contains("another collective call"), "{theirs}"),
                        other => panic!("{other:?}"),
                    }
                } else {
                    // In place of the comparison, and of the end of the call.
                    job.barrier()?;
                    job.barrier()?;
                }
                goes_on(job)?;
            }
            Ok(())
        });
    }
}

/// It must not count in a barrier that has taken the place of the dropped one.
fn a_late_arrival_at_a_dropped_barrier(setup: Setup) {
    for run in setup.runs(&[3]) {
        let meeting = Arc::new(Meeting::new(3));
        run.job(move |job| {
            let dropped = job.world().new_barrier()?;
            let pair = job.team(&[0, 1])?;
            let Some(pair) = pair else {
                meeting.meet();
                drop(dropped.arrive()?);
                job.quiet()?;
                meeting.meet();
                meeting.meet();
                return Ok(());
            };
            drop(dropped.arrive()?);
            drop(dropped);
            // All places that there are.
            let mut barriers = Vec::new();
            while let Ok(barrier) = pair.new_barrier() {
                barriers.push(barrier);
            }
            assert!(barriers.len() > 100);
            meeting.meet();
            meeting.meet();
            if job.pe() == 0 {
                for barrier in &barriers {
                    assert!(!barrier.arrive()?.test()?, "complete without PE 1");
                }
            }
            meeting.meet();
            if job.pe() == 1 {
                barriers.iter().try_for_each(|barrier| barrier.arrive().map(drop))?;
            }
            barriers.iter().try_for_each(|barrier| barrier.wait())
        });
    }
}
