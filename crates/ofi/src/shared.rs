//! What the PE's threads and the progress thread share.

use crate::hub::Hub;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// How often a thread yields to those that wait for the lock, before it takes the lock again: they
/// may not have a CPU.
const YIELDS: u32 = 16;

/// What the PE's threads and the progress thread share.
pub(crate) struct Shared {
    pub(crate) hub: Mutex<Hub>,
    /// Threads that wait for the lock: whoever has it gives way to them between two looks.
    pub(crate) locking: AtomicU32,
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

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Hub> {
        match self.hub.try_lock() {
            Ok(hub) => hub,
            // A panic with the lock has been printed.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait_for_lock(),
        }
    }

    #[cold]
    fn wait_for_lock(&self) -> MutexGuard<'_, Hub> {
        self.locking.fetch_add(1, Ordering::Relaxed);
        let hub = self.hub.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.locking.fetch_sub(1, Ordering::Relaxed);
        hub
    }

    /// Whether a thread waits for the lock.
    pub(crate) fn is_wanted(&self) -> bool {
        self.locking.load(Ordering::Relaxed) > 0
    }

    /// Gives the lock to a thread that waits for it, if there is one. The lock is not fair: a
    /// thread that takes it again at once would often keep it from one that has to be woken first.
    pub(crate) fn give_way<'a>(&'a self, hub: MutexGuard<'a, Hub>) -> MutexGuard<'a, Hub> {
        if !self.is_wanted() {
            return hub;
        }
        drop(hub);
        let looks = (0..YIELDS).take_while(|_| self.is_wanted());
        looks.for_each(|_| std::thread::yield_now());
        self.lock()
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
