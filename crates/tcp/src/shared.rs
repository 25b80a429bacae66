//! What the threads of a PE share, and the lock.

use crate::hub::Hub;
use crate::pollers::Pollers;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// What the PE's threads and the progress thread share.
pub(crate) struct Shared {
    /// A thread that has it for long gives it to one that waits, for which the mutex of the
    /// standard library has no call.
    pub(crate) hub: Mutex<Hub>,
    pub(crate) pollers: Arc<Pollers>,
    /// Whether a pair has ever failed.
    pub(crate) has_failed: Arc<AtomicBool>,
    /// The hub's.
    pub(crate) keeps_back: Arc<AtomicBool>,
    pub(crate) me: u32,
    /// Whether PEs of this node share CPUs.
    pub(crate) crowded: bool,
    /// The generation of the process that uses the fabric; 0 until one does.
    pub(crate) used_by: AtomicU64,
    /// Looks at what has come, of the PE's threads: the progress thread sees by it whether anybody
    /// polls. A call that only writes is none, as a program may make such calls alone.
    pub(crate) polls: AtomicU32,
    /// Calls of `progress` in which nothing moved, since something did.
    pub(crate) vain: AtomicU32,
    /// Threads that wait in calls.
    pub(crate) waiting: AtomicU32,
    /// Whether a thread of the PE has slept on the descriptors since `progress` last looked at all.
    pub(crate) has_slept: AtomicBool,
    /// Whether a thread of the PE has gone to sleep on its doorbell since the progress thread last
    /// asked.
    pub(crate) sleeps: AtomicBool,
    pub(crate) ends: AtomicBool,
}

impl Shared {
    /// Lost counts do no harm.
    #[inline(always)]
    pub(crate) fn count_poll(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Hub> {
        // One that panicked with the lock has printed that; links check what they are given.
        self.hub.lock()
    }
}
