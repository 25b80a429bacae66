//! One PE asks for something else than the others, or for something impossible: all get an error,
//! none waits, and the job goes on.

use crate::setup::{Meeting, Setup};
use memonet_core::dsm::{Mutex, Placement, Region, RegionOptions, RwLock};
use memonet_core::{Access, By, CollectiveAlgorithm, Error, Job, Result, Sum};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

on_every_fabric!(
    [also on copying]
    lists_that_contradict,
    one_names_a_stranger,
    one_asks_for_the_impossible,
    one_asks_alone,
    a_late_arrival_at_a_dropped_barrier,
    regions_that_contradict,
    locks_that_contradict,
    one_asks_for_an_impossible_object,
    a_request_counts_for_one_call,
    an_earlier_write_that_failed;
    with threads of their own:
    counts_of_another_collective,
    operators_that_panic,
);

/// Collective calls still work.
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

/// Checks the error of a request in which PE 1, the odd one, asks for `theirs`, and the others for
/// `ours`. Whichever PE the others followed, data would be lost later.
fn refused(job: &Job, [theirs, ours]: [&str; 2], made: Result<()>) {
    let error = made.expect_err("the odd PE asks for something else");
    let (pe, own, other) = match is_odd(job) {
        true => (0, theirs, ours),
        false => (1, ours, theirs),
    };
    let text = error.to_string();
    assert!(matches!(&error, Error::Unequal { pe: at, .. } if *at == pe), "{text}");
    let (other, own) = (format!("with {other}"), format!("this PE with {own}"));
    assert!(text.contains(&other) && text.contains(&own), "{text}");
    let place = error.call().expect("a call of this program").at;
    assert!(place.file().contains("contradictions"), "{text}");
}

fn is_odd(job: &Job) -> bool {
    job.pe() == 1
}

fn regions_that_contradict(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let odd = is_odd(job);
            let alike = ["a region of 100 elements"; 2];
            let with = |options| Region::<u64>::with(job, 100, options).map(drop);
            let placement = if odd { Placement::Cyclic } else { Placement::Block };
            refused(job, alike, with(RegionOptions::new().page(if odd { 64 } else { 128 })));
            refused(job, alike, with(RegionOptions::new().placement(placement)));
            refused(job, alike, with(RegionOptions::new().checked(odd)));
            let of = |len: usize| Region::<u64>::new(job, len).map(drop);
            let shorter = ["a region of 99 elements", alike[0]];
            refused(job, shorter, of(if odd { 99 } else { 100 }));
            let made = match odd {
                true => Region::<u32>::new(job, 200).map(drop),
                false => of(100),
            };
            refused(job, ["a region of 200 elements", alike[0]], made);
            goes_on(job)
        });
    }
}

fn locks_that_contradict(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let odd = is_odd(job);
            let lengths =
                ["a mutex of 99 bytes, aligned to 1", "a mutex of 100 bytes, aligned to 1"];
            let data = &[0; 100][usize::from(odd)..];
            refused(job, lengths, Mutex::<[u8]>::new(job, data).map(drop));
            let mutex = "a mutex of 8 bytes, aligned to 8";
            let others = |what: &str, make: &dyn Fn() -> Result<()>| {
                let made = match odd {
                    true => Mutex::new(job, &0u64).map(drop),
                    false => make(),
                };
                refused(job, [mutex, what], made);
            };
            others("a reader-writer lock of 8 bytes, aligned to 8", &|| {
                RwLock::new(job, &0u64).map(drop)
            });
            others(mutex, &|| Mutex::with_shadow(job, &0u64).map(drop));
            others("a region of 1 elements", &|| Region::<u64>::new(job, 1).map(drop));
            goes_on(job)
        });
    }
}

fn one_asks_for_an_impossible_object(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let odd = is_odd(job);
            let page = if odd { 1 } else { 64 };
            match Region::<u64>::with(job, 100, RegionOptions::new().page(page)).map(drop) {
                Err(Error::Misuse { .. }) if odd => {}
                Err(Error::Unequal { .. }) if !odd => {}
                other => panic!("{other:?}"),
            }
            match if odd {
                Mutex::new(job, &()).map(drop)
            } else {
                Mutex::new(job, &0u64).map(drop)
            } {
                Err(Error::Misuse { .. }) if odd => {}
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
                    (1, 2, Err(Error::NoSuchPe { pe: 99, .. }))
                    | (1, 3, Err(Error::Misuse { .. })) => {}
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

/// Earlier requests of the other PEs, which are in a barrier, are no answers: they are neither
/// reported nor agreed with.
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
                        Err(Error::Unequal { pe: 1, theirs, .. }) => {
                            assert!(theirs.contains("another collective call"), "{theirs}")
                        }
                        other => panic!("{other:?}"),
                    }
                } else {
                    // These barriers stand for the comparison, and for the end of the call.
                    job.barrier()?;
                    job.barrier()?;
                }
                goes_on(job)?;
            }
            Ok(())
        });
    }
}

/// An arrival must not count in a barrier that has taken the place of the dropped one.
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
            // Takes all places.
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

/// PE 0 asks for a window while the others are in a barrier, and these ask for it while PE 0 is in
/// one. An answered request does not count for the next call.
fn a_request_counts_for_one_call(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            for len in [1, 512] {
                let early = job.pe() == 0;
                if !early {
                    job.barrier()?;
                }
                let refused = job.window::<u64>(len).map(drop);
                assert!(
                    matches!(refused, Err(Error::Unequal { .. })),
                    "PE {}: {refused:?}",
                    job.pe()
                );
                if early {
                    job.barrier()?;
                }
            }
            let shared = Mutex::<[u64]>::new(job, &[7; 64])?;
            let window = job.window::<u64>(512)?;
            window.fill(0..512, 1);
            job.barrier()?;
            assert_eq!(*shared.lock()?, [7; 64], "they lie apart at every PE");
            goes_on(job)
        });
    }
}

/// The error of a PE's earlier write comes at its next quiet. No collective call on the heap fails
/// for it at that PE alone.
fn an_earlier_write_that_failed(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let words = job.window::<u64>(1)?;
            if job.pe() == 0 {
                let lock = words.lock(0)?;
                let held = lock.lock()?;
                words.write(0, 0);
                drop(held);
            }
            let window = job.window::<u64>(512)?;
            let restricted = job.restricted::<u64>(4, |_, _| Access::ReadWrite)?;
            let late = job.quiet();
            assert_eq!(late.is_err(), job.pe() == 0, "{late:?}");
            window.fill(0..512, 1);
            restricted.put_one(0, 1, 3)?;
            goes_on(job)
        });
    }
}

/// A member of another collective leaves arbitrary bytes where a count is expected. They cause no
/// write outside of the destination.
fn counts_of_another_collective(setup: Setup) {
    if !setup.is_near() {
        // Under this setup the two calls do not meet.
        return;
    }
    const LEN: usize = 1024;
    for count in [(8 * LEN as u64).wrapping_neg(), u64::MAX, u64::MAX / 2, 8] {
        for run in setup.runs(&[2]) {
            run.results(move |job| {
                let before = Mutex::<[u64]>::new(job, &[7; LEN]).unwrap();
                let window = job.window::<u64>(2 * LEN).unwrap();
                let after = Mutex::<[u64]>::new(job, &[7; LEN]).unwrap();
                window.fill(0..2 * LEN, 1);
                job.barrier().unwrap();
                if job.pe() == 0 {
                    let (before, after) = (before.lock().unwrap(), after.lock().unwrap());
                    window.write(0, count);
                    window.write(1, u64::MAX / 2);
                    let _ = job.world().all_reduce_into(
                        Sum,
                        window.span(2..4).unwrap(),
                        window.span(0..2).unwrap(),
                    );
                    let _ = job.barrier();
                    assert!([before, after].iter().all(|data| **data == [7; LEN]));
                } else {
                    let (to, from) =
                        (window.span(0..LEN).unwrap(), window.span(LEN..2 * LEN).unwrap());
                    let _ = job.world().collect_into(to, from);
                    let _ = job.barrier();
                }
            });
        }
    }
}

/// An operator panics at PE 1, which catches that. It has left the call, and with it the team: none
/// of its later calls counts as the rest of this one.
fn operators_that_panic(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        for len in [4, 3000] {
            let survived = Arc::new(Meeting::new(run.npes - 1));
            run.job(move |job| {
                let window = job.window::<u64>(2 * len)?;
                let odd = job.pe() == 1;
                let add = move |a: u64, b: u64| {
                    if odd {
                        resume_unwind(Box::new("without noise"));
                    }
                    a + b
                };
                let (to, from) = (window.span(0..len)?, window.span(len..2 * len)?);
                let reduce = || job.world().all_reduce_into(By(add), to, from);
                // Where each member combines all elements by itself, the others need nothing more
                // of PE 1. Where each combines a part for all, that of PE 1 is missing.
                let algorithm = job.world().collective_algorithm(8 * len);
                let each_for_itself = match algorithm {
                    CollectiveAlgorithm::Line | CollectiveAlgorithm::Published => true,
                    CollectiveAlgorithm::Nodes => len == 4,
                    _ => false,
                };
                if algorithm == CollectiveAlgorithm::Nodes && !each_for_itself {
                    // As one node has one PE, one of each combines: PE 1 is not among these.
                    return Ok(());
                }
                match catch_unwind(AssertUnwindSafe(reduce)) {
                    Err(_) => {
                        assert!(odd);
                        for _ in 0..3 {
                            assert!(matches!(job.barrier(), Err(Error::Misuse { .. })));
                            assert!(matches!(reduce(), Err(Error::Misuse { .. })));
                            assert!(matches!(
                                job.window::<u64>(1).map(drop),
                                Err(Error::Misuse { .. })
                            ));
                        }
                    }
                    Ok(reduced) => {
                        assert!(!odd && reduced.is_ok() == each_for_itself, "{reduced:?}");
                        let met = job.barrier();
                        assert!(matches!(met, Err(Error::PeerFailed { pe: 1, .. })), "{met:?}");
                        // A PE that left earlier would be missing, too.
                        survived.meet();
                    }
                }
                Ok(())
            });
        }
    }
}
