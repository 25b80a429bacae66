//! The progress thread: it works while no thread of the PE does.
//!
//! While the PE polls, in waits of the library or in calls that wait, the thread sleeps on a
//! clock, for a millisecond at a time: if it slept on the sockets, each message would wake it, and
//! it would take the CPU from the thread that polls. Each time it wakes, it takes what has come,
//! and sends what the PE has not sent: so what was started is visible after a bounded time,
//! whatever the PE does then. After a millisecond in which the PE has not polled, or when a thread
//! of the PE goes to sleep on its doorbell, it sleeps on the sockets, until one of these ends its
//! sleep:
//!
//! * something comes: it applies that, and sleeps there again, unless the PE has polled and no
//!   thread has gone to sleep after that. If a thread of the PE sleeps in a wait, it is woken,
//!   whatever has come: awake, it polls for a while, and answers what follows at once;
//! * the PE adds something that is not sent at once: it sends that a millisecond later, with all
//!   that was added meanwhile.
//!
//! *A sleep is not missed.* A PE's thread (A1) sets `sleeps`, then (A2) unparks this one, and then
//! sleeps. This one clears `sleeps` before it decides to leave the sockets and park. If it finds it
//! set, it stays with the sockets, or goes there. If not, A1 came later, so A2 ends its parking.

use crate::shared::Shared;
use memonet_core::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a record may wait to be sent, and a message for a thread that has stopped polling.
const TICK: Duration = Duration::from_millis(1);
/// How long it sleeps on the sockets while nobody knows why a stream is broken.
const UNSETTLED: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The thread, for its owner.
pub(crate) struct Progress(JoinHandle<()>);

impl Progress {
    /// A thread of the PE has gone to sleep (A2).
    pub(crate) fn watch(&self) {
        self.0.thread().unpark();
    }

    /// Waits for the thread, which was told to end.
    pub(crate) fn end(self) {
        self.0.thread().unpark();
        // It panics only by a mistake in this crate, and that panic was printed.
        let _ = self.0.join();
    }
}

pub(crate) fn start(shared: Arc<Shared>) -> Result<Progress> {
    let thread = without_signals(|| {
        std::thread::Builder::new().name("memonet-tcp".into()).spawn(move || run(&shared))
    });
    thread.map(Progress).map_err(|error| crate::errors::system("starting a thread", error))
}

/// Threads that `f` starts take no signals: those are the program's.
fn without_signals<R>(f: impl FnOnce() -> R) -> R {
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

fn run(shared: &Shared) {
    let ends = || shared.ends.load(Ordering::Acquire);
    let mut seen = shared.polls.load(Ordering::Relaxed);
    let mut is_needed = || shared.sleeps.swap(false, Ordering::AcqRel) || !polls(shared, &mut seen);
    while !ends() {
        std::thread::park_timeout(TICK);
        let is_needed_now = is_needed();
        let mut hub = shared.lock();
        hub.write_all();
        hub.settle();
        // Also where the PE polls: it may do so seldom, or look at one peer only.
        hub.look_at_all();
        drop(hub);
        if is_needed_now {
            while !ends() && sleep(shared) && is_needed() {}
        }
    }
}

/// Whether the PE has polled since the last look, or a call waits.
fn polls(shared: &Shared, seen: &mut u32) -> bool {
    let polls = shared.polls.load(Ordering::Relaxed);
    let before = std::mem::replace(seen, polls);
    polls != before || shared.waiting.load(Ordering::Relaxed) > 0
}

/// Sleeps until something comes, and applies it. False where the PE has added something to send.
fn sleep(shared: &Shared) -> bool {
    let unsettled = {
        let mut hub = shared.lock();
        // What was added since the last look; from here on, the bell is rung for it.
        hub.write_all();
        hub.want_writes();
        hub.thread_sleeps = true;
        hub.is_unsettled()
    };
    let fd = shared.pollers.fd();
    // Interrupted, it looks for nothing.
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], unsettled.then_some(&UNSETTLED));
    let mut hub = shared.lock();
    shared.pollers.silence();
    let added = !std::mem::replace(&mut hub.thread_sleeps, false);
    if hub.look_at_all() && !shared.crowded {
        // A thread that sleeps in a wait of the library stays awake for a while, and answers what
        // follows faster than this one.
        hub.seat.wake();
    }
    hub.settle();
    !added
}
