//! Rows of PEs that wait long, and of the memory of a PE.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use memonet::{Cmp, SignalOp};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::bench::raw;
use crate::bench::row::Row;
use crate::bench::rows::process::{cpu_ns, now_ns, resident_kib};
use crate::bench::stats::LIBRARY;
use crate::bench::toolkit::{Bench, Contender};

/// How long the waiters wait for a plain store.
const LONG_WAIT: Duration = Duration::from_secs(1);
/// How long they wait for a signal: long enough for all to be asleep.
const SHORT_WAIT: Duration = Duration::from_millis(100);
/// How long the storing PE makes no call afterwards: a call could wake the waiters early.
const AWAY: Duration = Duration::from_millis(50);

/// The PE that ends the waits. All others wait.
const WAKER: usize = 0;

/// The CPU time of a wait of a second, in percent of the wait.
pub fn cpu(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    plain_store(bench, rows, |wait| 100.0 * wait.cpu as f64 / (wait.end - wait.start) as f64)
}

/// Microseconds from a plain store that ends a wait of a second until it is seen.
pub fn store_latency(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    plain_store(bench, rows, |wait| wait.end.saturating_sub(wait.sent) as f64 / 1e3)
}

/// A wait for a plain store; all times in nanoseconds.
struct Wait {
    start: u64,
    /// When the store was made.
    sent: u64,
    end: u64,
    cpu: u64,
}

/// Waits of a second that a plain store ends.
fn plain_store(bench: &mut Bench<'_>, rows: &[Row], value: fn(&Wait) -> f64) -> Result<()> {
    let job = bench.job;
    let window = job.window::<u64>(1)?;
    let remotes = (1..job.npes()).map(|pe| window.remote(pe, 0)).collect::<Result<Vec<_>, _>>()?;
    for row in rows {
        for round in 0..bench.effort.rounds {
            let last = window.read(0);
            job.barrier()?;
            if job.pe() == WAKER {
                std::thread::sleep(LONG_WAIT);
                for remote in &remotes {
                    remote.store(now_ns());
                }
                std::thread::sleep(AWAY);
                continue;
            }
            let (start, cpu) = (now_ns(), cpu_ns());
            let sent = window.wait_until(0, Cmp::Gt, last)?;
            let (end, cpu) = (now_ns(), cpu_ns() - cpu);
            bench.record(row, LIBRARY, round, vec![value(&Wait { start, sent, end, cpu })]);
        }
    }
    Ok(())
}

/// Microseconds from a signal to each of many sleepers until that sleeper sees it.
pub fn signal_latency(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let window = job.window::<u64>(1)?;
    let doors = job.window::<u32>(1)?;
    let others = 1..job.npes();
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            let last = window.read(0);
            job.barrier()?;
            if job.pe() == WAKER {
                std::thread::sleep(SHORT_WAIT);
                for pe in others.clone() {
                    window.signal(pe, 0, SignalOp::Set, now_ns())?;
                }
                return Ok(Vec::new());
            }
            let sent = window.wait_until(0, Cmp::Gt, last)?;
            Ok(vec![now_ns().saturating_sub(sent) as f64 / 1e3])
        })];
        let near: Option<Vec<_>> = others
            .clone()
            .map(|pe| Some((raw::near(bench.job, &window, pe)?, raw::near(bench.job, &doors, pe)?)))
            .collect();
        if let Some(near) = near {
            // SAFETY: words of windows that live to the end of this function. Memonet accesses the
            // first as 64 bits, the second not at all.
            let (own, door) =
                unsafe { (raw::word(window.local_ptr()), raw::half_word(doors.local_ptr())) };
            contenders.push(Contender::limit("store and futex wake", move || {
                let last = own.load(Ordering::Acquire);
                job.barrier()?;
                if job.pe() == WAKER {
                    std::thread::sleep(SHORT_WAIT);
                    for &(word, door) in &near {
                        // SAFETY: the same words of the windows' parts of a peer.
                        let (word, door) = unsafe { (raw::word(word), raw::half_word(door)) };
                        word.store(now_ns(), Ordering::Release);
                        door.fetch_add(1, Ordering::SeqCst);
                        raw::futex_wake(door, 1);
                    }
                    return Ok(Vec::new());
                }
                loop {
                    let seen = door.load(Ordering::SeqCst);
                    let sent = own.load(Ordering::Acquire);
                    if sent > last {
                        return Ok(vec![now_ns().saturating_sub(sent) as f64 / 1e3]);
                    }
                    raw::futex_wait(door, seen);
                }
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Microseconds from a signal until a program that polls the descriptor of an event has the value.
pub fn event(bench: &mut Bench<'_>, rows: &[Row]) -> Result<()> {
    let job = bench.job;
    let (window, doors) = (job.window::<u64>(1)?, job.window::<u32>(1)?);
    let mut event = window.event(0, Cmp::Gt, 0)?;
    let near = raw::near(bench.job, &window, 1).zip(raw::near(bench.job, &doors, 1));
    // SAFETY: words of windows that live to the end of this function. Memonet accesses the first as
    // 64 bits, the second not at all.
    let (own, door) = unsafe { (raw::word(window.local_ptr()), raw::half_word(doors.local_ptr())) };
    for row in rows {
        let mut contenders = vec![Contender::library(|| {
            let last = window.read(0);
            event.arm(Cmp::Gt, last)?;
            job.barrier()?;
            if job.pe() == WAKER {
                std::thread::sleep(SHORT_WAIT);
                window.signal(1, 0, SignalOp::Set, now_ns())?;
                return Ok(Vec::new());
            }
            poll(&mut [PollFd::new(&event, PollFlags::IN)], None)?;
            let sent = event.result()?.expect("it is readable");
            Ok(vec![now_ns().saturating_sub(sent) as f64 / 1e3])
        })];
        if let Some((word, there)) = near {
            contenders.push(Contender::limit("futex wake, eventfd and poll", move || {
                let (last, seen) = (own.load(Ordering::Acquire), door.load(Ordering::SeqCst));
                job.barrier()?;
                if job.pe() == WAKER {
                    std::thread::sleep(SHORT_WAIT);
                    // SAFETY: the same words of the windows' parts of the peer.
                    let (word, door) = unsafe { (raw::word(word), raw::half_word(there)) };
                    word.store(now_ns(), Ordering::Release);
                    door.fetch_add(1, Ordering::SeqCst);
                    raw::futex_wake(door, 1);
                    return Ok(Vec::new());
                }
                let ready = eventfd(0, EventfdFlags::CLOEXEC)?;
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while own.load(Ordering::Acquire) <= last {
                            raw::futex_wait(door, seen);
                        }
                        rustix::io::write(&ready, &1u64.to_ne_bytes()).expect("room for a 1");
                    });
                    poll(&mut [PollFd::new(&ready, PollFlags::IN)], None)?;
                    let sent = own.load(Ordering::Acquire);
                    Ok(vec![now_ns().saturating_sub(sent) as f64 / 1e3])
                })
            }));
        }
        bench.interleave(row, &mut contenders)?;
    }
    Ok(())
}

/// Resident KiB of this process now, and `before` it joined.
pub fn memory(bench: &mut Bench<'_>, rows: &[Row], before: f64) -> Result<()> {
    bench.job.barrier()?;
    let joined = resident_kib()?;
    for row in rows {
        bench.record(row, LIBRARY, 0, vec![joined]);
        bench.record(row, "before joining", 0, vec![before]);
    }
    Ok(())
}
