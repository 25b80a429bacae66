//! Bells by CPU: the words on which those sleep who wait for a barrier at which PEs share CPUs.
//!
//! Each barrier has a few of them, in the first member's slot; who sleeps, sleeps on that of the
//! CPU it is on. They are [doorbells](crate::base::doorbell) with many owners, and its proof is
//! theirs: a ring between one owner's announcement and its sleep is seen whatever others announce.
//! So all of a CPU are woken by one system call, and only then does the CPU change processes. Woken
//! one by one, each comes before its waker and sleeps again before the next is woken; and where
//! they are woken from another CPU, each such call interrupts theirs.
//!
//! Which bell somebody sleeps on matters for speed alone: who ends a phase rings all. And nobody
//! else rings these bells, so a sleeper looks by itself, now and then, for who is gone.

use crate::base::clock;
use crate::base::doorbell::Doorbell;
use crate::base::layout::BELLS;
use crate::wait;

/// The bells of a barrier.
#[derive(Clone, Copy)]
pub(crate) struct Bells(Doorbell);

impl Bells {
    /// How many are used: under loom, one that nobody sleeps on as well.
    pub(crate) const COUNT: usize = if cfg!(loom) { 2 } else { BELLS };

    /// # Safety
    /// `first` is the first of [`BELLS`] aligned words that are mapped for as long as this value
    /// and its copies are used.
    pub(crate) unsafe fn new(first: *mut u32) -> Self {
        // SAFETY: the caller's promise.
        Bells(unsafe { Doorbell::new(first) })
    }

    /// The bell of those on a CPU.
    pub(crate) fn of(self, cpu: u32) -> Doorbell {
        self.0.nth(cpu as usize % Self::COUNT)
    }

    /// Wakes all, after a call of [`order_rings`](crate::base::doorbell::order_rings): those on
    /// other CPUs first, which takes longest, but for a moment that is left to who may be awake
    /// there and wakes its own. No wake-up depends on anybody else: after that moment all are rung.
    pub(crate) fn ring_ordered(self) {
        if !self.all().any(Doorbell::is_announced) {
            return;
        }
        let here = wait::this_cpu() as usize % Self::COUNT;
        let elsewhere = (1..Self::COUNT).map(|further| self.0.nth((here + further) % Self::COUNT));
        wait::for_a_moment(clock::cycles(), || !elsewhere.clone().any(Doorbell::is_announced));
        elsewhere.for_each(Doorbell::ring_ordered);
        self.0.nth(here).ring_ordered();
    }

    fn all(self) -> impl Iterator<Item = Doorbell> {
        (0..Self::COUNT).map(move |bell| self.0.nth(bell))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_ends_a_phase_rings_all_wherever_they_sleep() {
        for cpu in 0..=BELLS as u32 {
            let mut words = [0u32; BELLS];
            // SAFETY: as many aligned words, which outlive their bells.
            let bells = unsafe { Bells::new(words.as_mut_ptr()) };
            let ticket = bells.of(cpu).announce(false, false);
            bells.ring_ordered();
            assert!(bells.of(cpu).stale(ticket), "CPU {cpu}");
            assert!(!bells.all().any(Doorbell::is_announced));
        }
    }
}
