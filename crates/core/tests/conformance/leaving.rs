//! Leaving in order: which waits go on, and what a PE that has left can still do.

use crate::failure::{Tools, WAYS, blames, with_a_death};
use crate::setup::{Meeting, Setup, eventually};
use memonet_core::{Cause, Cmp, Error, SignalOp};
use std::time::Duration;

on_every_fabric!(
    [also on copying]
    who_has_left_is_not_waited_for,
    who_is_left_may_still_write,
    leaving_after_the_last_phase,
    finalising_twice,
    departures_are_told,
);

/// Of those that have died, and of those that have left.
fn departures_are_told(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let (dies, leaves) = (1, 2);
        with_a_death(
            run,
            dies,
            |_| Ok(()),
            |_, ()| Ok(()),
            move |job, ()| {
                if job.pe() == leaves {
                    return Ok(());
                }
                let told = |pe: usize, cause: Cause| job.departed(pe).unwrap() == Some(cause);
                eventually("the death is told", || told(dies, Cause::Panic));
                eventually("the departure is told", || told(leaves, Cause::Finalized));
                assert_eq!(job.departed(job.pe())?, None);
                let none = job.departed(job.npes());
                assert!(matches!(none, Err(Error::NoSuchPe { .. })), "{none:?}");
                Ok(())
            },
        );
    }
}

fn who_has_left_is_not_waited_for(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        for explicit in [false, true] {
            let (all, meeting) = (Meeting::new(run.npes), Meeting::new(run.npes - 1));
            run.job(move |job| {
                let tools = Tools::new(job, 0)?;
                all.meet();
                if job.pe() == 0 {
                    return if explicit { job.finalize() } else { Ok(()) };
                }
                for (what, way) in &WAYS[5..] {
                    blames(way(job, &tools), 0, Cause::Finalized, what);
                    meeting.meet();
                }
                Ok(())
            });
        }
    }
}

fn who_is_left_may_still_write(setup: Setup) {
    for run in setup.runs(&[3, 4]) {
        run.job(|job| {
            let (me, n) = (job.pe(), job.npes());
            let w = job.window::<u64>(1)?;
            if me == n - 1 {
                for left in 0..n - 2 {
                    blames(
                        w.wait().depends_on(&[left]).until(0, Cmp::Eq, 9),
                        left,
                        Cause::Finalized,
                        "a PE that left",
                    );
                }
                w.signal(n - 2, 0, SignalOp::Set, 1)?;
                assert_eq!(w.wait_until(0, Cmp::Eq, 2)?, 2);
                // Now all other PEs have left.
                let waited = w.wait_until(0, Cmp::Eq, 3);
                assert!(
                    matches!(waited, Err(Error::PeerFailed { cause: Cause::Finalized, .. })),
                    "{waited:?}"
                );
            } else if me == n - 2 {
                // Others have left, but this one has not.
                assert_eq!(w.wait_until(0, Cmp::Eq, 1)?, 1);
                crate::setup::nap(Duration::from_millis(5));
                w.remote(n - 1, 0)?.store(2);
            }
            Ok(())
        });
    }
}

/// A PE may leave after it has passed a barrier: the others still pass.
fn leaving_after_the_last_phase(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 8, 9, 17]) {
        for late in [0, run.npes - 1, run.npes / 2] {
            run.job(move |job| {
                let barrier = job.world().new_barrier()?;
                let arrival = barrier.arrive()?;
                if job.pe() == late {
                    crate::setup::nap(Duration::from_millis(4));
                }
                arrival.wait()
            });
            run.job(move |job| {
                if job.pe() == late {
                    crate::setup::nap(Duration::from_millis(4));
                }
                job.barrier()
            });
        }
    }
}

fn finalising_twice(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let w = job.window::<u64>(1)?;
            job.barrier()?;
            job.finalize()?;
            job.finalize()?;
            // A PE may always use its own part.
            w.write(0, 1);
            assert_eq!(w.read(0), 1);
            Ok(())
        });
    }
}
