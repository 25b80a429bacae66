//! Supersteps: what is put in one is received in a later one, whole and alone.

use crate::failure::{blames, with_a_death};
use crate::setup::{Dice, LONG, Meeting, Run, Setup, nap, sizes_here};
use memonet_core::{Cause, Error, Job, Result, Supersteps};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

on_every_fabric!(
    what_is_put_is_received_once,
    nothing_is_received_too_early,
    a_deadline_is_not_the_end,
    the_limits,
    the_dead_end_a_step,
);

/// Both kinds, by their delay.
fn made(job: &Job, delay: u64, len: usize) -> Result<Supersteps<u64>> {
    match delay {
        1 => Supersteps::new(job, len),
        _ => Supersteps::overlapped(job, len),
    }
}

/// The puts of a PE in a superstep, as target, index and values. All PEs know them alike. Element i
/// of a PE is written by PEs that are i modulo the number of PEs.
fn puts(run: Run, pe: usize, superstep: u64, len: usize) -> Vec<(usize, usize, Vec<u64>)> {
    let mut dice = Dice::from(run.seed ^ superstep << 8 ^ pe as u64);
    let mut all = Vec::new();
    for block in (0..len / run.npes).filter(|_| !superstep.is_multiple_of(5)) {
        if dice.below(3) > 0 {
            let value = superstep << 32 | (pe as u64) << 16 | block as u64;
            all.push((dice.below(run.npes), block * run.npes + pe, vec![value]));
        }
    }
    all
}

/// Against a model, for many supersteps, with PEs that are late at random.
fn what_is_put_is_received_once(setup: Setup) {
    for run in setup.runs(&sizes_here(&[1, 2, 3, 8, 9])) {
        for delay in [1, 2] {
            run.job(move |job| {
                let (me, len) = (job.pe(), 5 * run.npes);
                let mut dice = run.dice(me);
                let mut steps = made(job, delay, len)?;
                assert_eq!((steps.len(), steps.delay(), steps.superstep()), (len, delay, 1));
                for superstep in 1..=24u64 {
                    for (to, index, values) in puts(run, me, superstep, len) {
                        steps.put(to, index, &values)?;
                        if dice.below(4) == 0 {
                            dice.dawdle();
                        }
                    }
                    let mut expected = vec![0; len];
                    let before = superstep.checked_sub(delay).filter(|&before| before > 0);
                    for from in (0..run.npes).filter(|_| before.is_some()) {
                        for (to, index, values) in puts(run, from, superstep - delay, len) {
                            if to == me {
                                expected[index] = values[0];
                            }
                        }
                    }
                    assert_eq!(steps.to_vec(), expected, "PE {me}, superstep {superstep}");
                    assert_eq!(steps.read(len - 1), expected[len - 1]);
                    dice.dawdle();
                    // A late PE still finds all of it, and nothing of what others put now.
                    assert_eq!(steps.to_vec(), expected, "PE {me}, superstep {superstep}, later");
                    steps.step()?;
                }
                steps.free()
            });
        }
    }
}

/// PE 0 stays in each superstep until the others wait for it.
fn nothing_is_received_too_early(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3])) {
        for delay in [1, 2] {
            run.job(move |job| {
                let mut steps = made(job, delay, 1)?;
                let ahead = job.window::<u64>(1)?;
                for superstep in 1..=6 {
                    (0..job.npes()).try_for_each(|pe| steps.put(pe, 0, &[superstep]))?;
                    if job.pe() == 0 {
                        nap(Duration::from_micros(300));
                    }
                    assert_eq!(steps.read(0), superstep.saturating_sub(delay));
                    ahead.write(0, superstep);
                    steps.step()?;
                    // A PE past step s has waited for all to end superstep s + 1 - delay.
                    for pe in 0..job.npes() {
                        let theirs = ahead.remote(pe, 0)?.load()?;
                        assert!(theirs + delay > superstep, "PE {pe} is in {theirs}");
                    }
                }
                steps.free()
            });
        }
    }
}

fn a_deadline_is_not_the_end(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2, 3])) {
        for delay in [1, 2] {
            let meeting = Arc::new(Meeting::new(run.npes));
            run.job(move |job| {
                let mut steps = made(job, delay, 1)?;
                steps.put(0, 0, &[7])?;
                if job.pe() == 0 {
                    meeting.meet();
                    steps.step()?;
                } else {
                    // The first step of overlapped supersteps waits for nobody.
                    (1..delay).try_for_each(|_| steps.step())?;
                    for _ in 0..3 {
                        let late = steps.step_timeout(Duration::from_millis(3));
                        assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
                        assert_eq!(steps.superstep(), delay);
                    }
                    if delay == 1 {
                        let refused = steps.put(0, 0, &[8]);
                        assert!(matches!(refused, Err(Error::Misuse { .. })), "{refused:?}");
                    }
                    meeting.meet();
                }
                while steps.superstep() <= delay {
                    steps.step_timeout(LONG)?;
                }
                assert_eq!(steps.read(0), if job.pe() == 0 { 7 } else { 0 });
                steps.free()
            });
        }
    }
}

fn the_limits(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let mut none = Supersteps::<u32>::new(job, 0)?;
            none.put(0, 0, &[])?;
            none.step()?;
            assert_eq!(none.to_vec(), []);
            let mut steps = Supersteps::<[u8; 3]>::new(job, 3001)?;
            let other = 1 - job.pe();
            let beyond = steps.put(other, 3001, &[[1; 3]]);
            assert!(matches!(beyond, Err(Error::OutOfBounds { .. })), "{beyond:?}");
            let nobody = steps.put(2, 0, &[[1; 3]]);
            assert!(matches!(nobody, Err(Error::NoSuchPe { .. })), "{nobody:?}");
            for superstep in 0..4 {
                if superstep % 2 == 0 {
                    steps.put(other, 0, &vec![[superstep + 1; 3]; 3001])?;
                }
                steps.step()?;
                let expected = if superstep % 2 == 0 { superstep + 1 } else { 0 };
                assert_eq!(steps.to_vec(), vec![[expected; 3]; 3001]);
            }
            none.free()?;
            steps.free()
        });
    }
}

fn the_dead_end_a_step(setup: Setup) {
    for run in setup.runs(&sizes_here(&[3])) {
        for delay in [1, 2] {
            with_a_death(
                run,
                1,
                move |job| Ok(RefCell::new(made(job, delay, 4)?)),
                |_, _| Ok(()),
                move |_, steps| {
                    let mut steps = steps.borrow_mut();
                    // The first step of overlapped supersteps waits for nobody.
                    (1..delay).try_for_each(|_| steps.step())?;
                    for _ in 0..2 {
                        blames(steps.step(), 1, Cause::Panic, "a step");
                        assert_eq!(steps.superstep(), delay, "the superstep has not ended");
                    }
                    Ok(())
                },
            );
        }
    }
}
