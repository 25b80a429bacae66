//! Collectives that a death ends at some members sooner than at others. None takes abandoned data
//! for a result.

use crate::failure::{MANY, Tools, blames, with_a_death};
use crate::setup::{Meeting, Setup};
use memonet_core::{By, Cause, Result, Sum};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

on_every_fabric!(
    [also on copying, streams_dealt]
    what_is_given_up_is_not_taken,
    what_is_given_up_is_not_combined,
    who_dies_while_it_combines_leaves_no_wrong_result
);

/// A root sees a death, gives up, and reuses its memory. A member that comes later must not take
/// that for the broadcast data.
fn what_is_given_up_is_not_taken(setup: Setup) {
    for run in setup.runs(&[3, 5]) {
        let (victim, meeting) = (run.npes - 1, Meeting::new(run.npes - 1));
        with_a_death(
            run,
            victim,
            move |job| Tools::new(job, victim),
            |_, _| Ok(()),
            move |job, tools| {
                let (to, from) = tools.spans(MANY, 1)?;
                let (_, parts) = tools.spans(MANY, job.npes())?;
                let broadcast = || job.world().broadcast_into(0, to, from);
                let scatter = || job.world().scatter_into(0, to, parts);
                for (what, call) in [
                    ("a broadcast", &broadcast as &dyn Fn() -> Result<()>),
                    ("a scatter", &scatter),
                ] {
                    if job.pe() == 0 {
                        blames(call(), victim, Cause::Panic, what);
                        tools.blocks.fill(0..tools.blocks.len(), u64::MAX);
                    }
                    meeting.meet();
                    if job.pe() != 0 {
                        blames(call(), victim, Cause::Panic, what);
                    }
                    meeting.meet();
                }
                Ok(())
            },
        );
    }
}

/// A PE dies at the end of a reduction that others have reached, while a member still reads, for
/// all, what they have given up.
fn what_is_given_up_is_not_combined(setup: Setup) {
    const VICTIM: usize = 0;
    const SLOW: usize = 1;
    const GIVES_UP: usize = 2;
    for run in setup.runs(&[3, 5]) {
        let (meeting, combine) = (Meeting::new(2), Arc::new(Meeting::new(run.npes)));
        let all_combine = combine.clone();
        with_a_death(
            run,
            VICTIM,
            move |job| Tools::new(job, VICTIM),
            move |job, _| {
                // All that it would do, except for combining its part.
                job.barrier()?;
                drop(job.world().split_barrier().arrive()?);
                all_combine.meet();
                Ok(())
            },
            move |job, tools| {
                let (to, from) = tools.spans(MANY, 1)?;
                let begun = std::cell::Cell::new(false);
                let slow_sum = By(|a: u64, b: u64| {
                    if !begun.replace(true) {
                        combine.meet();
                        if job.pe() == SLOW {
                            meeting.meet();
                        }
                    }
                    a.wrapping_add(b)
                });
                let reduced = job.world().reduce_into(slow_sum, SLOW, to, from);
                blames(reduced, VICTIM, Cause::Panic, "a reduction");
                if job.pe() == GIVES_UP {
                    tools.blocks.fill(0..tools.blocks.len(), u64::MAX);
                    meeting.meet();
                }
                Ok(())
            },
        );
    }
}

/// A PE dies in the middle of its part, between its input and its output. The others get the right
/// result or an error, and none waits for ever.
fn who_dies_while_it_combines_leaves_no_wrong_result(setup: Setup) {
    for (case, run) in setup.runs(&[2, 3, 5]).into_iter().enumerate() {
        // More than a network combines by itself, because none knows the victim's operator.
        const SOME: usize = 120;
        for (len, goal) in [(SOME, 0), (SOME, 1), (SOME, 2), (MANY, 0), (MANY, 2)] {
            let (victim, npes) = (case % run.npes, run.npes as u64);
            let root = (victim + 1) % run.npes;
            with_a_death(
                run,
                victim,
                move |job| {
                    let tools = Tools::new(job, victim)?;
                    tools.blocks.fill(0..tools.blocks.len(), 1 + job.pe() as u64);
                    Ok(tools)
                },
                move |job, tools| {
                    let (to, from) = tools.spans(len, 1)?;
                    let dies = By(|_: u64, _: u64| resume_unwind(Box::new(())));
                    let died = catch_unwind(AssertUnwindSafe(|| match goal {
                        0 => job.world().all_reduce_into(dies, to, from),
                        1 => job.world().reduce_into(dies, root, to, from),
                        _ => job.world().scan_into(dies, to, from),
                    }));
                    // Near, only the root of a reduction, or all but the first rank of a scan,
                    // combine.
                    died.unwrap_or(Ok(()))
                },
                move |job, tools| {
                    let (to, from) = tools.spans(len, 1)?;
                    let reduced = match goal {
                        0 => job.world().all_reduce_into(Sum, to, from),
                        1 => job.world().reduce_into(Sum, root, to, from),
                        _ => job.world().scan_into(Sum, to, from),
                    };
                    let sum = match goal {
                        2 => (job.pe() as u64 + 1) * (job.pe() as u64 + 2) / 2,
                        _ => npes * (npes + 1) / 2,
                    };
                    match reduced {
                        Ok(()) if goal == 1 && job.pe() != root => {}
                        Ok(()) => {
                            assert_eq!(tools.blocks.to_vec()[..len], vec![sum; len], "goal {goal}")
                        }
                        failed => blames(failed, victim, Cause::Panic, "a reduction"),
                    }
                    blames(job.barrier(), victim, Cause::Panic, "a barrier");
                    Ok(())
                },
            );
        }
    }
}
