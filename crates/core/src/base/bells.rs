//! Bells: futex words for barriers of PEs that share CPUs, one word per CPU, so that one system
//! call wakes all sleepers of that CPU.
//!
//! Each barrier has a few bells, in the first member's slot. A PE sleeps on the bell of the CPU
//! that it is on. A bell is a [doorbell](crate::base::doorbell) with many owners, and the
//! doorbell's proof holds for it: a ring between one owner's announcement and its sleep is seen
//! whatever other owners announce. With one system call per CPU, the CPU changes processes only
//! when all are woken. Woken one by one, each sleeper would run before its waker and sleep again
//! before the next is woken; and each such call from another CPU would interrupt the sleepers' CPU.
//!
//! Which bell a PE sleeps on matters for speed alone: the PE that completes a phase wakes the
//! sleepers of all bells. No other event rings a bell, so a sleeper looks by itself, now and then,
//! for PEs that are gone.

use crate::base::clock::cycles;
use crate::base::doorbell::Doorbell;
use crate::base::layout::BELLS;
use crate::base::shm;

/// Cycles within which a PE that spins for all of its CPU sees that the wait is over and begins to
/// wake them.
const GRACE_CYCLES: u64 = 1_500;

/// The bells of a barrier.
#[derive(Clone, Copy)]
pub(crate) struct Bells(Doorbell);

impl Bells {
    /// Bells in use: under loom, one more than PEs sleep on.
    pub(crate) const COUNT: usize = if cfg!(loom) { 2 } else { BELLS };

    /// # Safety
    /// `first` is the first of [`BELLS`] aligned words that are mapped for as long as this value
    /// and its copies are used.
    pub(crate) unsafe fn new(first: *mut u32) -> Self {
        // SAFETY: the caller's promise.
        Bells(unsafe { Doorbell::new(first) })
    }

    /// The bell of a CPU.
    pub(crate) fn of(self, cpu: u32) -> Doorbell {
        self.0.nth(cpu as usize % Self::COUNT)
    }

    /// Wakes all sleepers, after a call of
    /// [`order_rings`](crate::base::doorbell::order_rings). Those on other CPUs come first, as that
    /// takes longest, but for a moment that is left to PEs that are awake there and wake their own.
    /// No wake-up depends on those PEs: after the moment all bells are rung.
    pub(crate) fn wake_all(self) {
        if !self.all().any(Doorbell::is_announced) {
            return;
        }
        let here = this_cpu() as usize % Self::COUNT;
        let elsewhere = (1..Self::COUNT).map(|further| self.0.nth((here + further) % Self::COUNT));
        for_a_moment(cycles(), || !elsewhere.clone().any(Doorbell::is_announced));
        elsewhere.for_each(Doorbell::ring_ordered);
        self.0.nth(here).ring_ordered();
    }

    fn all(self) -> impl Iterator<Item = Doorbell> {
        (0..Self::COUNT).map(move |bell| self.0.nth(bell))
    }
}

/// Waits for PEs that are awake on other CPUs to wake the sleepers there, until `done`, or for
/// [`GRACE_CYCLES`] from cycle `start` on.
pub(crate) fn for_a_moment(start: u64, done: impl Fn() -> bool) {
    while cfg!(not(loom)) && !done() && cycles().saturating_sub(start) < GRACE_CYCLES {
        shm::pause();
    }
}

/// One more than the number of the CPU that this thread is on, or was a moment ago.
pub(crate) fn this_cpu() -> u32 {
    if cfg!(loom) {
        return 1;
    }
    // The C library's: valgrind takes the kernel's page away on which rustix looks for it.
    // SAFETY: it only reads.
    let cpu = unsafe { libc::sched_getcpu() };
    cpu.max(0).cast_unsigned() + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_are_woken_wherever_they_sleep() {
        for cpu in 0..=BELLS as u32 {
            let mut words = [0u32; BELLS];
            // SAFETY: as many aligned words, which outlive their bells.
            let bells = unsafe { Bells::new(words.as_mut_ptr()) };
            let ticket = bells.of(cpu).announce(false, false);
            bells.wake_all();
            assert!(bells.of(cpu).stale(ticket), "CPU {cpu}");
            assert!(!bells.all().any(Doorbell::is_announced));
        }
    }
}
