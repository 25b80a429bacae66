//! Handles of two jobs, or of two PEs of one job, in one program: no call takes both, and none
//! writes anything. And functions of the program that call the job from inside of one of its calls.

use crate::setup::{Meeting, Run, Setup, results_of};
use memonet_core::{Access, Error, Job, Result, SignalOp, Span, Sum, Team, Window};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

on_every_fabric!(
    [also on recorded]
    ; with threads of their own:
    handles_of_another_job,
    handles_of_another_pe,
    keys_of_another_job,
    rights_that_ask_the_job,
    rights_that_panic,
);

/// Half of it can be cut evenly among three.
const LEN: usize = 120;
const PATTERN: u64 = 0x5555_AAAA_5555_AAAA;

#[track_caller]
fn misuse<T>(result: Result<T>) {
    let result = result.map(drop);
    assert!(matches!(result, Err(Error::Misuse { .. })), "{result:?}");
}

fn filled(job: &Job) -> Result<Window<u64>> {
    let window = job.window::<u64>(LEN)?;
    window.fill(0..LEN, PATTERN);
    Ok(window)
}

/// Makes each call with `own`, which belongs to `job`, and `other`, which does not.
fn mix(job: &Job, own: &Window<u64>, other: &Window<u64>) -> Result<()> {
    let last = job.npes() - 1;
    for (one, two) in [(own, other), (other, own)] {
        misuse(one.put_nbi(0, 0, two, 0..1));
        misuse(one.put_nbi(0, 0, two, 0..0));
        misuse(one.prepare(0, 0, two, 0..LEN));
        misuse(one.put_signal(0, 0, &[1], two, 1, SignalOp::Set, 2));
        misuse(one.put_signal(0, 0, &[], two, 1, SignalOp::Add, 2));
        misuse(one.prepare(0, 0, one, 8..16)?.with_signal(two, 0, SignalOp::Add, 1));
    }
    let (own, other) = (own.span(0..LEN / 2)?, other.span(LEN / 2..LEN)?);
    for (to, from) in [(own, other), (other, own), (other, other)] {
        collect(job.world(), last, to, from)?;
    }
    Ok(())
}

/// Every collective refuses these windows.
fn collect(team: &Team, root: usize, to: Span<'_, u64>, from: Span<'_, u64>) -> Result<()> {
    misuse(team.broadcast_into(root, to, from));
    misuse(team.scatter_into(root, to, from));
    misuse(team.all_gather_into(to, from));
    misuse(team.gather_into(root, to, from));
    misuse(team.collect_into(to, from));
    misuse(team.all_to_all_into(to, from));
    misuse(team.all_to_alls_into(to, 1, from, 1, 1));
    misuse(team.all_reduce_into(Sum, to, from));
    misuse(team.reduce_into(Sum, root, to, from));
    misuse(team.scan_into(Sum, to, from));
    misuse(team.exclusive_scan_into(to, from));
    // The refused calls have left the team as it was.
    team.barrier()
}

fn unchanged(window: &Window<u64>) {
    assert_eq!(window.to_vec(), [PATTERN; LEN]);
}

/// A job of one PE inside of each PE of another.
fn handles_of_another_job(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(move |job| {
            let window = filled(job)?;
            job.barrier()?;
            inner(run, |inner| {
                let theirs = filled(inner)?;
                mix(inner, &theirs, &window)?;
                misuse(window.put_nbi(0, 0, &theirs, 0..1));
                inner.quiet()?;
                unchanged(&theirs);
                Ok(())
            })?;
            let theirs = Mutex::new(None);
            inner(run, |inner| {
                *theirs.lock().unwrap() = Some(filled(inner)?);
                Ok(())
            })?;
            // The window outlives its job.
            let theirs = theirs.into_inner().unwrap().expect("made above");
            mix(job, &window, &theirs)?;
            unchanged(&theirs);
            job.barrier()?;
            unchanged(&window);
            job.barrier()
        });
    }
}

/// A job of one PE on the same fabric.
fn inner(run: Run, f: impl Fn(&Job) -> Result<()> + Send + Sync) -> Result<()> {
    results_of(run.options(), 1, &f).into_iter().collect()
}

fn handles_of_another_pe(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let windows = Mutex::new(Vec::new());
        let meeting = Meeting::new(run.npes);
        run.job(move |job| {
            let window = filled(job)?;
            windows.lock().unwrap().push((job.pe(), window.clone()));
            meeting.meet();
            let all = windows.lock().unwrap().clone();
            let next = (job.pe() + 1) % job.npes();
            let (_, theirs) =
                all.iter().find(|(pe, _)| *pe == next).expect("each has brought its own");
            mix(job, &window, theirs)?;
            job.quiet()?;
            job.barrier()?;
            unchanged(&window);
            meeting.meet();
            windows.lock().unwrap().clear();
            job.barrier()
        });
    }
}

fn keys_of_another_job(setup: Setup) {
    for run in setup.runs(&[2]) {
        run.job(move |job| {
            let window = job.restricted::<u64>(LEN, |_, _| Access::ReadWrite)?;
            let key = window.key()?;
            inner(run, |inner| {
                let _own = inner.restricted::<u64>(LEN, |_, _| Access::ReadWrite)?;
                let refused = inner.attach::<u64>(&key).map(drop);
                assert!(matches!(refused, Err(Error::WrongKey { .. })), "{refused:?}");
                Ok(())
            })?;
            job.barrier()
        });
    }
}

/// The function of rights is called before the collective call begins, so it may call the job.
fn rights_that_ask_the_job(setup: Setup) {
    for run in setup.runs(&[1, 2, 3]) {
        run.job(|job| {
            let table = job.window::<u64>(1)?;
            let restricted = job.restricted::<u64>(LEN, |home, holder| {
                let made = job.window::<u64>(1).expect("every PE asks for the same");
                made.write(0, 7);
                table.write(0, table.read(0) + made.read(0));
                job.barrier().expect("all are here");
                if (home + holder) % 2 == 0 { Access::ReadWrite } else { Access::Read }
            })?;
            let asked = job.npes() * (job.npes() - 1);
            assert_eq!(table.read(0), 7 * asked as u64, "once for each pair");
            job.barrier()?;
            for home in 0..job.npes() {
                let written = restricted.put(home, job.pe(), &[1]);
                assert_eq!(written.is_ok(), (home + job.pe()) % 2 == 0, "{written:?}");
            }
            job.barrier()
        });
    }
}

/// If it panics, the other PEs wait for nothing but the call itself.
fn rights_that_panic(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let attempt =
                || job.restricted::<u64>(LEN, |_, _| resume_unwind(Box::new("without noise")));
            assert!(catch_unwind(AssertUnwindSafe(attempt)).is_err());
            let window = job.restricted::<u64>(LEN, |_, _| Access::ReadWrite)?;
            window.put_one((job.pe() + 1) % job.npes(), 0, 5)?;
            job.barrier()?;
            assert_eq!(window.read(0), 5);
            job.barrier()
        });
    }
}
