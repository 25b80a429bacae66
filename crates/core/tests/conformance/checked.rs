//! With the checks that cost time, mistakes are errors that would otherwise hang Rust programs or
//! give them wrong data.

use memonet_core::dsm::{Mutex, RwLock};
use memonet_core::{Error, Job, JobOptions, Max, Result, Sum};
use memonet_fabrics::options as options_of;
use std::time::Duration;

const FABRICS: [Option<&str>; 3] = [None, Some("far"), Some("far:delay_us=40,reorder=1")];

/// Runs `f` on so many PEs of every fabric, with checks.
fn checked<R: Send>(npes: usize, f: impl Fn(&Job) -> R + Sync) -> Vec<R> {
    let run = |fabric: &Option<&str>| {
        let options = fabric.map_or_else(JobOptions::new, |spec| options_of(spec).unwrap());
        Job::threads_with(&options.check(true), npes, |job| f(&job)).unwrap()
    };
    FABRICS.iter().flat_map(run).collect()
}

type Call = fn(&Job, bool) -> Result<()>;

/// PE 1 makes a call that differs from that of all others.
fn told(call: Call, wanted: &[&str]) {
    for text in checked(3, |job| call(job, job.pe() == 1).map_err(|error| error.to_string())) {
        let text = text.unwrap_err();
        assert!(wanted.iter().any(|words| text.contains(words)), "none of {wanted:?} in: {text}");
        assert!(text.contains("every member must make the same calls in the same order"), "{text}");
    }
}

#[test]
fn members_in_different_collectives_are_told() {
    let reduce_or_broadcast: Call = |job, odd| {
        let window = job.window::<u64>(1)?;
        let span = window.span(0..1)?;
        match odd {
            true => job.world().broadcast_into(0, span, span),
            false => job.world().all_reduce_into(Sum, span, span),
        }
    };
    told(
        reduce_or_broadcast,
        &[
            "call, broadcast_into, this PE in all_reduce_into by Sum of u64",
            "call, all_reduce_into by Sum of u64, this PE in broadcast_into",
        ],
    );
    let operators: Call = |job, odd| {
        let window = job.window::<i32>(1)?;
        let span = window.span(0..1)?;
        match odd {
            true => job.world().reduce_into(Max, 0, span, span),
            false => job.world().reduce_into(Sum, 0, span, span),
        }
    };
    told(
        operators,
        &[
            "call, reduce_into by Max of i32, this PE in reduce_into by Sum of i32",
            "call, reduce_into by Sum of i32, this",
        ],
    );
}

#[test]
fn members_with_different_arguments_are_told() {
    let roots: Call = |job, odd| {
        let window = job.window::<u64>(6)?;
        job.world().scatter_into(usize::from(odd), window.span(0..1)?, window.span(3..6)?)
    };
    told(
        roots,
        &[
            "PE 1 called it with root 1, this PE with root 0",
            "called it with root 0, this PE with root 1",
        ],
    );
    let counts: Call = |job, odd| {
        let window = job.window::<u64>(8)?;
        let count = if odd { 2 } else { 1 };
        job.world().all_gather_into(window.span(0..3 * count)?, window.span(6..6 + count)?)
    };
    told(
        counts,
        &[
            "PE 1 called it with bytes of each 16, this PE with bytes of each 8",
            "each 8, this PE with bytes of each 16",
        ],
    );
    // One of them has made another mistake, too, which the others must not miss.
    let wrong: Call = |job, odd| {
        let window = job.window::<u64>(8)?;
        job.world().broadcast_into(if odd { 7 } else { 0 }, window.span(0..1)?, window.span(1..2)?)
    };
    told(wrong, &["root 7", "root 0"]);
}

/// A PE in a barrier has passed it, and need not come to another one.
#[test]
fn a_collective_instead_of_a_barrier_is_told() {
    for result in checked(3, |job| {
        let window = job.window::<u64>(1)?;
        let span = window.span(0..1)?;
        match job.pe() {
            1 => job.barrier().map(|()| String::new()),
            _ => Ok(job.world().all_reduce_into(Sum, span, span).unwrap_err().to_string()),
        }
    }) {
        let text: String = result.unwrap();
        assert!(
            text.is_empty()
                || text.contains(
                    "PE 1 is in another collective call, which is not compared: a barrier"
                ),
            "{text}"
        );
    }
}

#[test]
fn right_calls_are_left_alone() {
    checked(3, |job| -> Result<()> {
        let window = job.window::<u64>(30)?;
        let (one, three, other) = (window.span(0..1)?, window.span(1..4)?, window.span(10..13)?);
        for round in 0..20 {
            let team = job.world();
            window.write(0, round);
            team.all_reduce_into(Sum, one, one)?;
            assert_eq!(window.read(0), 3 * round);
            team.broadcast_into(2, one, one)?;
            team.all_gather_into(three, one)?;
            team.gather_into(1, three, one)?;
            team.scatter_into(1, one, three)?;
            team.all_to_all_into(other, three)?;
            team.all_to_alls_into(other, 1, three, 1, 1)?;
            team.scan_into(Sum, one, one)?;
            team.exclusive_scan_into(one, one)?;
            team.collect_into(three, window.span(10..10 + job.pe().min(1))?)?;
            job.barrier()?;
        }
        Ok(())
    })
    .into_iter()
    .for_each(|result| result.unwrap());
}

#[test]
fn who_takes_twice_is_told() {
    let told = |result: Result<()>| match result {
        Err(Error::Misuse { why, .. }) => {
            assert!(why.contains("already, and would wait for itself"), "{why}")
        }
        other => panic!("{other:?}"),
    };
    checked(2, |job| -> Result<()> {
        let (mutex, table) = (Mutex::new(job, &0u64)?, RwLock::new(job, &0u64)?);
        let lock = job.window::<u64>(1)?.lock(0)?;
        for _ in 0..3 {
            let mut guard = mutex.lock()?;
            *guard += 1;
            told(mutex.lock().map(drop));
            assert!(mutex.try_lock()?.is_none());
            let within = mutex.lock_timeout(Duration::from_millis(1));
            assert!(matches!(within.map(drop), Err(Error::Timeout { .. })));
            drop(guard);
            let guard = table.read()?;
            told(table.read().map(drop));
            told(table.write().map(drop));
            guard.release()?;
            let guard = table.write()?;
            told(table.read().map(drop));
            drop(guard);
            let held = lock.lock()?;
            told(lock.lock().map(drop));
            held.release()?;
            if let Some(held) = lock.try_lock()? {
                told(lock.lock().map(drop));
                drop(held);
            }
        }
        job.barrier()?;
        assert_eq!(*mutex.lock()?, 6);
        job.barrier()?;
        // A lock that is never given back.
        if job.pe() == 0 {
            std::mem::forget(mutex.lock()?);
            told(mutex.lock().map(drop));
        }
        Ok(())
    })
    .into_iter()
    .for_each(|result| result.unwrap());
}

/// Threads of a PE wait for each other, and may give back locks that others have taken.
#[test]
fn threads_are_told_apart() {
    checked(2, |job| -> Result<()> {
        let mutex = Mutex::new(job, &0u64)?;
        let guard = mutex.lock()?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| mutex.lock().map(|mut guard| *guard += 1));
            std::thread::sleep(Duration::from_millis(5));
            scope.spawn(move || drop(guard)).join().unwrap();
            other.join().unwrap()
        })?;
        *mutex.lock()? += 1;
        job.barrier()?;
        assert_eq!(*mutex.lock()?, 4);
        job.barrier()
    })
    .into_iter()
    .for_each(|result| result.unwrap());
}
