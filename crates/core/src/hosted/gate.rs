//! Where threads of a PE wait until it is their turn to call the machine: first come, first served.
//!
//! A thread that unlocks a mutex and locks it again is often faster than one that has to wake up.
//! A thread that calls again and again would keep the others from their calls.
//!
//! The waiters sleep in the kernel, all on one word, and each looks for its number. A thread of
//! another process never comes here: a forked child has a copy of the words.

use crate::base::shm::{self, AtomicOp};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number of this process, wrapping.
#[derive(Default)]
struct Number(UnsafeCell<u32>);

// SAFETY: the primitives of `shm` alone access it, which are atomic.
unsafe impl Sync for Number {}

impl Number {
    fn now(&self) -> u32 {
        // SAFETY: an aligned word, which lives as long as `self`.
        unsafe { shm::load(self.0.get()) }
    }

    /// Adds to it, and gives what it was. A full fence.
    fn add(&self, more: u32) -> u32 {
        // SAFETY: as above.
        unsafe { shm::fetch_op(self.0.get().cast(), 4, AtomicOp::Add, more.into()) as u32 }
    }

    /// Sleeps while it is `value`, for at most so long in real time.
    fn sleep(&self, value: u32, limit: Option<Duration>) {
        // SAFETY: as above.
        unsafe { shm::futex_wait(self.0.get(), value, limit) }
    }

    /// Wakes all that sleep.
    fn wake(&self) {
        // SAFETY: as above.
        unsafe { shm::futex_wake(self.0.get()) }
    }
}

/// Hands out numbers, and serves them in order.
pub(crate) struct Gate {
    /// The next number.
    next: Number,
    /// The number that is served.
    serves: Number,
    /// Calls that have ended.
    ended: Number,
    /// Threads that wait for that to change.
    listeners: Number,
    /// The earliest time until which one of those sleeps, in nanoseconds of the machine's time: of
    /// those that have told theirs since the last call has ended.
    earliest: AtomicU64,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            next: Number::default(),
            serves: Number::default(),
            ended: Number::default(),
            listeners: Number::default(),
            earliest: AtomicU64::new(u64::MAX),
        }
    }
}

impl Gate {
    /// Touches all words, and wakes nobody.
    #[cfg(loom)]
    pub(crate) fn touch(&self) {
        for number in [&self.next, &self.serves, &self.ended, &self.listeners] {
            number.now();
            number.wake();
        }
    }

    /// Waits until it is this thread's turn.
    pub(crate) fn enter(&self) {
        let number = self.next.add(1);
        loop {
            let served = self.serves.now();
            if served == number {
                return;
            }
            self.serves.sleep(served, None);
        }
    }

    /// Ends this thread's turn.
    pub(crate) fn leave(&self) {
        let serves = self.serves.add(1).wrapping_add(1);
        // A thread that takes its number after this look sees the new value: each of the two has
        // fenced between what it wrote and what it reads.
        if self.next.now() != serves {
            self.serves.wake();
        }
    }

    /// Whether it is nobody's turn.
    pub(super) fn is_free(&self) -> bool {
        self.next.now() == self.serves.now()
    }

    /// A call has ended.
    pub(crate) fn tell(&self) {
        // A sleeper that tells its time before this sees the new number, and tells it again.
        self.earliest.store(u64::MAX, Ordering::SeqCst);
        self.ended.add(1);
        if self.listeners.now() > 0 {
            self.ended.wake();
        }
    }

    /// Number of calls that have ended.
    pub(crate) fn ended(&self) -> u32 {
        self.ended.now()
    }

    /// Tells until when the caller sleeps. Says whether no other sleeper has told an earlier time.
    pub(super) fn is_first(&self, end: Duration) -> bool {
        let end = end.as_nanos() as u64;
        self.earliest.fetch_min(end, Ordering::SeqCst) >= end
    }

    /// Waits until that number is not `ended` any more, for at most so long in real time.
    pub(crate) fn listen(&self, ended: u32, limit: Duration) {
        self.listeners.add(1);
        self.ended.sleep(ended, Some(limit));
        self.listeners.add(u32::MAX);
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
                while gate.next.now() != thread + 2 {
                    std::thread::yield_now();
                }
            }
            gate.leave();
        });
        assert!(gate.is_free());
        assert_eq!(order.into_inner().unwrap()[..4], [0, 1, 2, 3]);
    }
}
