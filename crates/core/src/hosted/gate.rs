//! Where threads of a PE wait until it is their turn to call the machine: first come, first served.
//!
//! A thread that unlocks a mutex and locks it again is often faster than one that has to wake up.
//! A thread that calls again and again would keep the others from their calls.
//!
//! The waiters sleep in the kernel, all on one word, and each looks for its number. A thread of
//! another process never comes here: a forked child has a copy of the words.

use crate::base::shm;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Hands out numbers, and serves them in order.
#[derive(Debug)]
pub(super) struct Gate {
    /// The next number, wrapping.
    next: AtomicU32,
    /// The number that is served.
    serves: AtomicU32,
    /// Calls that have ended, wrapping.
    ended: AtomicU32,
    /// Threads that wait for that to change.
    listeners: AtomicU32,
    /// The earliest time until which one of those sleeps, in nanoseconds of the machine's time: of
    /// those that have told theirs since the last call has ended.
    earliest: AtomicU64,
}

impl Default for Gate {
    fn default() -> Gate {
        let zero = || AtomicU32::new(0);
        Gate {
            next: zero(),
            serves: zero(),
            ended: zero(),
            listeners: zero(),
            earliest: AtomicU64::new(u64::MAX),
        }
    }
}

impl Gate {
    /// Waits until it is this thread's turn.
    pub(super) fn enter(&self) {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        loop {
            let served = self.serves.load(Ordering::Acquire);
            if served == number {
                return;
            }
            // SAFETY: the word is aligned, and lives as long as `self`.
            unsafe { shm::futex_wait(self.serves.as_ptr(), served, None) };
        }
    }

    /// Ends this thread's turn.
    pub(super) fn leave(&self) {
        // A thread that takes its number later than the load sees the new value, as both are
        // sequentially consistent, and does not sleep.
        let serves = self.serves.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if self.next.load(Ordering::SeqCst) != serves {
            // SAFETY: as above.
            unsafe { shm::futex_wake(self.serves.as_ptr()) };
        }
    }

    /// Whether it is nobody's turn.
    pub(super) fn is_free(&self) -> bool {
        self.next.load(Ordering::SeqCst) == self.serves.load(Ordering::SeqCst)
    }

    /// A call has ended.
    pub(super) fn tell(&self) {
        // A sleeper that tells its time before this sees the new number, and tells it again.
        self.earliest.store(u64::MAX, Ordering::SeqCst);
        self.ended.fetch_add(1, Ordering::SeqCst);
        if self.listeners.load(Ordering::SeqCst) > 0 {
            // SAFETY: as above.
            unsafe { shm::futex_wake(self.ended.as_ptr()) };
        }
    }

    /// Number of calls that have ended, wrapping.
    pub(super) fn ended(&self) -> u32 {
        self.ended.load(Ordering::SeqCst)
    }

    /// Tells until when the caller sleeps. Says whether no other sleeper has told an earlier time.
    pub(super) fn is_first(&self, end: std::time::Duration) -> bool {
        let end = end.as_nanos() as u64;
        self.earliest.fetch_min(end, Ordering::SeqCst) >= end
    }

    /// Waits until that number is not `ended` any more, for at most so long in real time.
    pub(super) fn listen(&self, ended: u32, limit: std::time::Duration) {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { shm::futex_wait(self.ended.as_ptr(), ended, Some(limit)) };
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn one_at_a_time_in_the_order_in_which_they_came() {
        let (gate, inside) = (Gate::default(), AtomicBool::new(false));
        let order = std::sync::Mutex::new(Vec::new());
        gate.enter();
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (gate, inside, order) = (&gate, &inside, &order);
                scope.spawn(move || {
                    for _ in 0..100 {
                        gate.enter();
                        assert!(!inside.swap(true, Ordering::SeqCst));
                        order.lock().unwrap().push(thread);
                        assert!(inside.swap(false, Ordering::SeqCst));
                        gate.leave();
                    }
                });
                // It has its number before the next one comes.
                while gate.next.load(Ordering::SeqCst) != thread + 2 {
                    std::thread::yield_now();
                }
            }
            gate.leave();
        });
        assert!(gate.is_free());
        assert_eq!(order.into_inner().unwrap()[..4], [0, 1, 2, 3]);
    }
}
