//! Errors name the call of the program: the function, the PE, the line, and where the window was
//! made.

use crate::setup::{Setup, sizes_here};
use memonet_core::dsm::{Mutex, Region, RwLock};
use memonet_core::{Cmp, Job, MulticastOptions, Result, SignalOp, Sum};
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    wrong_arguments, timeouts, a_member_that_has_left, misuse, shared_data, channels
);

/// The error is of this function, called in this file at this line.
#[track_caller]
fn told<R>(result: Result<R>, name: &str, pe: usize, window: Option<u32>) {
    let line = std::panic::Location::caller().line();
    let Err(error) = result else { panic!("{name} succeeds") };
    let call = error.call().unwrap_or_else(|| panic!("no call in: {error}"));
    assert_eq!((call.name, call.pe, call.at.line()), (name, pe, line), "{error}");
    assert!(call.at.file().ends_with("conformance/calls.rs"), "{error}");
    assert_eq!(call.window.map(|made| made.line()), window, "{error}");
    assert!(error.to_string().contains(&format!("(PE {pe}, {name} at {}", call.at)), "{error}");
}

fn wrong_arguments(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let (me, other) = (job.pe(), 1 - job.pe());
            let (window, made) = (job.window::<u64>(4)?, Some(line!()));
            let (w, set, one) = (&window, SignalOp::Set, window.span(0..1)?);
            told(w.put(other, 4, &[1]), "Window::put", me, made);
            told(w.put_one(2, 0, 1), "Window::put", me, made);
            told(w.get(other, 3, &mut [0; 2]), "Window::get", me, made);
            told(w.get_one(7, 0), "Window::get", me, made);
            told(w.put_nbi(other, 4, w, 0..1), "Window::put_nbi", me, made);
            told(w.put_strided(other, 0, 4, &[1; 2], 1, 2), "Window::put_strided", me, made);
            told(w.get_strided(other, 0, 1, &mut [1], 1, 2), "Window::get_strided", me, made);
            told(w.put_indexed(other, &[9], &[1]), "Window::put_indexed", me, made);
            told(w.put_signal(other, 0, &[1], w, 4, set, 1), "Window::put_signal", me, made);
            told(w.signal(other, 5, set, 1), "Window::signal", me, made);
            told(w.remote(other, 4), "Window::remote", me, made);
            told(w.remote_word::<u32>(other, 2), "Window::remote_word", me, made);
            told(w.prepare(other, 4, w, 0..1), "Window::prepare", me, made);
            told(w.span(0..5), "Window::span", me, made);
            let team = job.world();
            told(team.broadcast(2, 0), "Team::broadcast", me, None);
            told(team.scatter(me, &[0]), "Team::scatter", me, None);
            told(team.reduce_into(Sum, 9, one, one), "Team::reduce_into", me, None);
            told(job.team(&[5]), "Job::team", me, None);
            told(job.window::<u64>(usize::MAX), "Job::window", me, None);
            job.barrier()
        });
    }
}

fn timeouts(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let me = job.pe();
            let (window, made) = (job.window::<u64>(4)?, Some(line!()));
            let wait = || window.wait().timeout(Duration::from_millis(2));
            told(wait().until(0, Cmp::Ne, 0), "Window::wait_until", me, made);
            told(wait().any(&[0, 1], Cmp::Ne, 0), "Wait::any", me, made);
            told(wait().all(&[0, 1], Cmp::Ne, 0), "Wait::all", me, made);
            job.barrier()
        });
    }
}

fn a_member_that_has_left(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let (window, made) = (job.window::<u64>(4)?, Some(line!()));
            job.barrier()?;
            if job.pe() == 1 {
                return Ok(());
            }
            told(window.wait_until(0, Cmp::Ne, 0), "Window::wait_until", 0, made);
            told(job.world().all_reduce(Sum, 1), "Team::all_reduce", 0, None);
            told(job.barrier(), "Job::barrier", 0, None);
            told(job.world().barrier(), "Team::barrier", 0, None);
            Ok(())
        });
    }
}

/// Calls that the state of an object does not allow.
fn misuse(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let (me, other) = (job.pe(), 1 - job.pe());
            let (window, made) = (job.window::<u64>(4)?, Some(line!()));
            told(window.wait_until_any(&[], Cmp::Eq, 0), "Window::wait_until_any", me, made);
            told(window.put_nbi(me, 0, &window, 0..1), "Window::put_nbi", me, made);
            told(window.key(), "Window::key", me, made);
            told(window.revoke(), "Window::revoke", me, made);
            told(window.revoke_wait(None), "Window::revoke_wait", me, made);
            told(job.team_among(&[other]), "Job::team_among", me, None);
            told(job.world().split_2d(0), "Team::split_2d", me, None);
            let barrier = job.world().new_barrier()?;
            barrier.step()?;
            let soon = Duration::from_millis(2);
            barrier.wait()?;
            // This PE comes first, and the other one only when it has seen the error.
            if me == 0 {
                barrier.step()?;
                told(barrier.wait_timeout(soon), "Barrier::wait_timeout", me, None);
            }
            job.barrier()?;
            if me == 1 {
                barrier.step()?;
            }
            barrier.wait()?;
            job.barrier()
        });
    }
}

fn shared_data(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let me = job.pe();
            told(Mutex::new(job, &()), "Mutex::new", me, None);
            told(RwLock::with_shadow(job, &()), "RwLock::with_shadow", me, None);
            let mutex = Mutex::new(job, &0u64)?;
            let soon = Duration::from_millis(2);
            if me == 0 {
                let guard = mutex.lock()?;
                job.barrier()?;
                job.barrier()?;
                guard.release()?;
            } else {
                job.barrier()?;
                told(mutex.lock_timeout(soon).map(drop), "Mutex::lock_timeout", me, None);
                job.barrier()?;
            }
            let region = Region::<u64>::new(job, 8)?;
            told(region.read(7..9).map(drop), "Region::read", me, None);
            told(region.write(9..9).map(drop), "Region::write", me, None);
            job.barrier()
        });
    }
}

fn channels(setup: Setup) {
    for run in setup.runs(&sizes_here(&[2])) {
        run.job(|job| {
            let me = job.pe();
            let options = MulticastOptions::new();
            told(job.multicast::<u64>(0, &[0], options).map(drop), "Job::multicast", me, None);
            let mut channel = job.multicast::<u64>(0, &[1], options)?;
            if me == 0 {
                told(channel.recv(&mut Vec::new()), "Multicast::recv", me, None);
                told(channel.peek().map(drop), "Multicast::peek", me, None);
                told(channel.try_claim(1 << 40).map(drop), "Multicast::try_claim", me, None);
            } else {
                told(channel.publish(&[1]), "Multicast::publish", me, None);
                told(channel.claim(1).map(drop), "Multicast::claim", me, None);
            }
            job.barrier()
        });
    }
}

/// What a program that ends with an error prints.
#[test]
fn messages_end_with_the_call() {
    let all = Job::threads(1, |job| -> Result<()> {
        let window = job.window::<f64>(3)?;
        window.put(0, 2, &[0.5; 2])
    });
    let text = format!("{:?}", all.unwrap()[0].as_ref().unwrap_err());
    let file = file!();
    assert!(
        text.starts_with(&format!(
            "elements 2..2+2 are not all among the 3 that there are (PE 0, Window::put at {file}:"
        )) && text.contains(&format!(", of the window made at {file}:")),
        "{text}"
    );
}
