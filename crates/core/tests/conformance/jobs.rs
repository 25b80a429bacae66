//! Jobs: their members, their calls, and their settings.

use crate::setup::{ALL, NEAR, Setup, in_another_process, within};
use memonet_core::unstable::layout::MAX_PES;
use memonet_core::{Cmp, Error, Job};

on_every_fabric!(
    everybody_has_a_number,
    results_come_by_pe,
    two_jobs_at_once,
    handles_are_clones,
    everybody_knows_the_same_costs,
);

fn everybody_has_a_number(setup: Setup) {
    for run in setup.runs(ALL) {
        run.job(move |job| {
            assert_eq!(job.npes(), run.npes);
            assert!(job.pe() < run.npes);
            let numbers = job.window::<u32>(job.npes())?;
            for to in 0..job.npes() {
                numbers.remote(to, job.pe())?.add(1)?;
            }
            job.barrier()?;
            assert_eq!(numbers.to_vec(), vec![1; run.npes], "each number once");
            job.barrier()
        });
    }
}

fn everybody_knows_the_same_costs(setup: Setup) {
    for run in setup.runs(&[1, 3, 5]) {
        let costs = run.results(|job| job.costs());
        assert!(costs.iter().all(|pe| *pe == costs[0]), "{costs:?}");
        // A simulated network may not know its costs.
        assert!(setup.is_simulated() || costs[0].is_none() == run.is_near(), "{costs:?}");
        if let Some(costs) = costs[0] {
            assert!(costs.put_ns > 0 && costs.get_ns > 0 && costs.bytes_per_s > 0, "{costs:?}");
        }
    }
}

fn results_come_by_pe(setup: Setup) {
    for run in setup.runs(ALL) {
        let results = run.results(|job| {
            job.barrier().unwrap();
            (job.pe(), format!("PE {}", job.pe()))
        });
        assert_eq!(results, (0..run.npes).map(|pe| (pe, format!("PE {pe}"))).collect::<Vec<_>>());
    }
}

/// Two jobs in one process do not disturb each other.
fn two_jobs_at_once(setup: Setup) {
    for run in setup.runs(&[1, 3]) {
        std::thread::scope(|scope| {
            for other in 0..3u64 {
                scope.spawn(move || {
                    run.job(move |job| {
                        let w = job.window::<u64>(1)?;
                        for round in 1..=20 {
                            w.signal(
                                (job.pe() + 1) % job.npes(),
                                0,
                                memonet_core::SignalOp::Set,
                                100 * other + round,
                            )?;
                            assert_eq!(
                                w.wait_until(0, Cmp::Ge, 100 * other + round)?,
                                100 * other + round
                            );
                            job.barrier()?;
                        }
                        Ok(())
                    });
                });
            }
        });
    }
}

fn handles_are_clones(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let clones: Vec<Job> = (0..3).map(|_| job.clone()).collect();
            let w = clones[0].window::<u8>(1)?;
            for clone in clones {
                assert_eq!((clone.pe(), clone.npes()), (job.pe(), job.npes()));
                clone.barrier()?;
            }
            drop(w);
            job.quiet()?;
            job.fence()
        });
    }
}

#[test]
fn impossible_numbers_of_pes() {
    for n in [0, MAX_PES + 1, usize::MAX] {
        let refused = Job::threads(n, |_| panic!("there is no such job"));
        assert!(refused.is_err_and(|error| !error.to_string().is_empty()), "{n} PEs");
    }
}

#[test]
fn fabrics_that_do_not_exist() {
    for spec in [
        "",
        "fr",
        "far:",
        "far:delay_us",
        "far:delay_us=-1",
        "far:reorder=maybe",
        "far:colour=3",
        "near",
        "far:delay_us=1e3",
    ] {
        match memonet_fabrics::options(spec) {
            Ok(_) => assert_eq!(spec, "far:", "no settings are no mistake"),
            Err(Error::Environment { value, .. }) => assert_eq!(value, spec),
            Err(other) => panic!("{spec}: {other}"),
        }
    }
}

#[test]
fn more_pes_than_this_machine_has_cpus() {
    for run in NEAR.runs(&[64]) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            for round in 1..=3 {
                w.remote(0, 0)?.add(1)?;
                job.barrier()?;
                assert_eq!(w.remote(0, 0)?.load()?, round * 64);
                job.barrier()?;
            }
            Ok(())
        });
    }
}

const SIZE: &str = "MEMONET_SEGMENT_SIZE";

#[test]
fn segments_of_a_wished_size() {
    in_another_process(&["in_a_process_with_small_segments"], &[(SIZE, "6M")]);
    for bad in ["1M", "lots", "-1", "0", "1.5Q", "99999999999999999999"] {
        in_another_process(&["in_a_process_with_bad_segments"], &[(SIZE, bad)]);
    }
}

#[test]
#[ignore = "started by `segments_of_a_wished_size`"]
fn in_a_process_with_small_segments() {
    if std::env::var(SIZE).is_ok_and(|size| size == "6M") {
        for run in NEAR.runs(&[1, 3]) {
            run.job(|job| {
                let refused = job.window::<u8>((6 << 20) + 1).map(drop).unwrap_err();
                assert!(
                    matches!(refused, Error::OutOfMemory { capacity, free, .. } if capacity == 6 << 20 && free == 6 << 20),
                    "{refused}"
                );
                assert!(refused.to_string().contains(SIZE), "what to do: {refused}");
                let all = job.window::<u8>(6 << 20)?;
                all.write((6 << 20) - 1, 1);
                assert!(matches!(job.window::<u8>(1), Err(Error::OutOfMemory { free: 0, .. })));
                all.free()?;
                job.window::<u8>(6 << 20)?;
                job.barrier()
            });
        }
    }
}

#[test]
#[ignore = "started by `segments_of_a_wished_size`"]
fn in_a_process_with_bad_segments() {
    if let Ok(value) = std::env::var(SIZE) {
        let refused = within("a job", || Job::threads(2, |_| ())).unwrap_err();
        assert!(
            matches!(&refused, Error::Environment { name: SIZE, value: named, .. } if *named == value),
            "{refused}"
        );
    }
}

/// What programs print of handles names the PE, the elements and the members, and no addresses.
#[test]
fn handles_can_be_printed() {
    let all = Job::threads(2, |job| -> memonet_core::Result<String> {
        let window = job.window::<f64>(3)?;
        let mutex = memonet_core::dsm::Mutex::new(&job, &7u32)?;
        let remote = window.remote(1, 0)?;
        let text =
            format!("{job:?} {window:?} {remote:?} {:?} {:?}", job.world(), window.span(0..2)?);
        let guard = format!(" {:?}", mutex.lock()?);
        job.barrier()?;
        Ok(text + &guard)
    });
    let window = "Window { element: \"f64\", len: 3, attached: None, .. }";
    assert_eq!(
        all.unwrap().into_iter().next().unwrap().unwrap(),
        format!(
            "Job {{ pe: 0, npes: 2, .. }} {window} Remote {{ word: \"f64\", pe: 1, .. }} Team {{ rank: 0, members: [0, 1], .. }} Span {{ window: {window}, bytes: 16, .. }} 7"
        )
    );
}
