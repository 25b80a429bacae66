//! What the PE's threads and the progress thread share.

use crate::hub::Hub;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// What the PE's threads and the progress thread share.
pub(crate) struct Shared {
    /// A thread that has it for long gives it to one that waits, for which the mutex of the
    /// standard library has no call.
    pub(crate) hub: Mutex<Hub>,
    /// The completion queue, where it has a descriptor, and the meeting.
    pub(crate) epoll: OwnedFd,
    pub(crate) has_queue: bool,
    /// Whether a pair has ever failed.
    pub(crate) has_failed: Arc<AtomicBool>,
    pub(crate) me: u32,
    /// Whether PEs share CPUs.
    pub(crate) crowded: bool,
    /// The process that uses the fabric; 0 until one does.
    pub(crate) process: AtomicI32,
    /// Looks at what has come, of the PE's threads: the progress thread sees by it whether anybody
    /// polls. A call that does not look is none, as a program may make such calls alone.
    pub(crate) polls: AtomicU32,
    /// Threads that wait in calls.
    pub(crate) waiting: AtomicU32,
    pub(crate) ends: AtomicBool,
}

impl Shared {
    /// Lost counts do no harm.
    #[inline]
    pub(crate) fn count_poll(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock()
    }

    /// Sleeps until something comes, for at most so many milliseconds. Says whether anything has.
    pub(crate) fn sleep(&self, mut hub: MutexGuard<'_, Hub>, most: i64) -> bool {
        if hub.is_over() {
            // Nothing comes any more, and nobody takes what the descriptors tell of.
            drop(hub);
            std::thread::sleep(Duration::from_millis(most as u64));
            return false;
        }
        if self.has_queue && !hub.may_sleep() {
            return true;
        }
        let most = if self.has_queue && !hub.is_restless() { most } else { 1 };
        drop(hub);
        let time = Timespec { tv_sec: 0, tv_nsec: most * 1_000_000 };
        // Interrupted, it looks once more.
        poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time))
            .is_ok_and(|ready| ready > 0)
    }
}

/// All that ends a sleep.
pub(crate) fn watch(hub: &Hub) -> rustix::io::Result<OwnedFd> {
    let watched = epoll::create(CreateFlags::CLOEXEC)?;
    for fd in hub.net.fd().into_iter().chain([hub.meeting().fd()]) {
        epoll::add(&watched, fd, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(watched)
}
