//! The progress thread: it works while no thread of the PE does.
//!
//! While the PE polls, in waits of the library or in calls that wait, the thread sleeps on a clock,
//! for a millisecond at a time: if it slept on the queue, each message would wake it, and it would
//! take the CPU from the thread that polls. After a millisecond in which the PE has not polled, it
//! sleeps on the queue's descriptor, where there is one, and otherwise looks once a millisecond.
//! While messages keep coming, it works in turns, and gives the lock to calls of the PE between two
//! of them.

use crate::hub::Hub;
use crate::shared::Shared;
use memonet_core::Result;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(1);
/// The longest sleep on descriptors, in milliseconds: with something under way, a provider may need
/// to be called though nothing comes.
const BUSY: i64 = 1;
const IDLE: i64 = 10;
/// Looks of a turn, after each of which more had come. Others may never stop sending.
const LOOKS: u32 = 16;

/// The thread, for its owner.
pub(crate) struct Progress(JoinHandle<()>);

impl Progress {
    /// Waits for the thread, which was told to end.
    pub(crate) fn end(self) {
        self.0.thread().unpark();
        // It panics only by a mistake in this crate, and that panic was printed.
        let _ = self.0.join();
    }
}

pub(crate) fn start(shared: Arc<Shared>) -> Result<Progress> {
    let thread = without_signals(|| {
        std::thread::Builder::new().name("memonet-ofi".into()).spawn(move || run(&shared))
    });
    thread.map(Progress).map_err(|error| crate::error::system("starting a thread", error))
}

/// Threads that `f` starts take no signals: those are the program's.
pub(crate) fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: plain sets of signals, filled by the first calls and restored by the last.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// What `f` sets for signals is undone, and threads that it starts take none. Some of libfabric's
/// providers catch SIGTERM, SIGINT and others as soon as they are loaded, and end the process with
/// status 1.
pub(crate) fn sheltered<R>(f: impl FnOnce() -> R) -> R {
    // Of two at once, one would take for the program's what the other has not undone yet.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = actions();
    let result = without_signals(f);
    for (signal, (before, after)) in (1..).zip(before.iter().zip(&actions())) {
        if before.sa_sigaction != after.sa_sigaction {
            // SAFETY: puts back what the kernel has said; a number that is no signal is refused.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }
    result
}

/// What happens at each signal, from number 1 on.
fn actions() -> Vec<libc::sigaction> {
    let action = |signal| {
        // SAFETY: zeros are an action, into which the call writes that of the signal, if there is
        // such a signal.
        unsafe {
            let mut action = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            action
        }
    };
    (1..=libc::SIGRTMAX()).map(action).collect()
}

fn run(shared: &Shared) {
    let ends = || shared.ends.load(Ordering::Acquire);
    let mut seen = shared.polls.load(Ordering::Relaxed);
    while !ends() {
        std::thread::park_timeout(TICK);
        while !ends() && !polls(shared, &mut seen) {
            sleep(shared);
        }
    }
}

/// Whether the PE has polled since the last look, or a call waits.
fn polls(shared: &Shared, seen: &mut u32) -> bool {
    let polls = shared.polls.load(Ordering::Relaxed);
    let before = std::mem::replace(seen, polls);
    polls != before || shared.waiting.load(Ordering::Relaxed) > 0
}

/// Takes what has come, and sleeps until something comes. What the network has written to the PE's
/// memory meanwhile wakes nobody: so this does.
fn sleep(shared: &Shared) {
    let mut hub = shared.lock();
    let more = take(&mut hub);
    hub.take_addresses();
    hub.settle();
    if more {
        hub.seat.wake();
        return MutexGuard::unlock_fair(hub);
    }
    let most = if hub.is_busy() { BUSY } else { IDLE };
    if shared.sleep(hub, most) {
        let mut hub = shared.lock();
        take(&mut hub);
        hub.seat.wake();
    }
}

/// Takes what has come; says whether there may be more. Calls of the PE get the lock in between.
fn take(hub: &mut MutexGuard<'_, Hub>) -> bool {
    (0..LOOKS).all(|_| {
        let moved = hub.pump();
        MutexGuard::bump(hub);
        moved
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever of libfabric is loaded, a signal ends the process as it would without it.
    #[test]
    fn signals_stay_as_they_are() {
        if let Err(why) = crate::provider(Some("tcp;ofi_rxm")) {
            return println!("SKIPPED: {why}");
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGABRT, libc::SIGILL] {
            let action = actions()[signal as usize - 1].sa_sigaction;
            // A shell has those ignored that it starts in the background.
            assert!([libc::SIG_DFL, libc::SIG_IGN].contains(&action), "signal {signal}");
        }
    }
}
