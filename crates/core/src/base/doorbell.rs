//! Doorbells: the words on which PEs sleep, each on its own, or several on one of a barrier's
//! ([`bells`](crate::base::bells)).
//!
//! | bits | meaning |
//! |---|---|
//! | 0 `ASLEEP` | somebody sleeps here, or is about to |
//! | 1 `WORDS` | ... and waits for words that a plain store may change |
//! | 2-31 | rings so far, wrapping |
//!
//! **A sleeper** announces itself (sets the bits), executes a barrier that orders every ringer,
//! looks once more at what it waits for, and sleeps only while the word is still what its
//! announcement made it. **A ringer** writes what the sleeper waits for, then reads the doorbell;
//! where it finds somebody announced, it clears the bits, counts one ring, and wakes all.
//!
//! *No wake-up is lost.* Take the sleeper's barrier as the dividing moment. If the ringer read the
//! doorbell before it, its write was visible before it too, and the look that follows sees it. If
//! it read after, it saw the announcement (or a ring that came later, see below) and counts a ring:
//! either the sleeper is not asleep yet, and the kernel finds the word changed; or it is, and is
//! woken. When two ringers race, the loser of the compare-and-swap reads again: it finds the bits
//! clear, so a ring came after its own write, and whoever that ring wakes looks again after
//! announcing itself anew; or it finds a new announcement and rings it. Several threads of a PE
//! share the doorbell, or several PEs a barrier's: the word they sleep on contains the count, so a
//! ring between one thread's announcement and its sleep is seen whatever the others announce.
//!
//! The bits may stay set when the sleeper woke by itself (time-out): the next ringer pays one
//! system call for nothing. Clearing them would cost more: another thread may still sleep.

use crate::base::shm;
use std::time::Duration;

const ASLEEP: u32 = 1;
const WORDS: u32 = 2;
const RING: u32 = 4;

/// A doorbell in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Doorbell(*mut u32);

// SAFETY: an address of a word that is used only through `crate::base::shm`.
unsafe impl Send for Doorbell {}
// SAFETY: as above.
unsafe impl Sync for Doorbell {}

/// Orders a ringer's writes before its looks at doorbells; the sleeper's `announce` does where
/// `membarrier` says so.
#[inline]
pub(crate) fn order_rings(membarrier: bool) {
    if membarrier {
        shm::light_fence();
    } else {
        shm::full_fence();
    }
}

/// What the doorbell showed when a sleeper announced itself.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u32);

impl Doorbell {
    /// # Safety
    /// `word` is aligned, and mapped for as long as this value and its copies are used.
    pub(crate) unsafe fn new(word: *mut u32) -> Self {
        Doorbell(word)
    }

    /// The doorbell `n` places further on; the caller has checked that there is one.
    #[inline]
    pub(crate) fn nth(self, n: usize) -> Self {
        Doorbell(self.0.wrapping_add(n))
    }

    #[inline]
    fn read(self) -> u32 {
        // SAFETY: `new`'s caller promised a mapped aligned word.
        unsafe { shm::load(self.0) }
    }

    fn replace(self, old: u32, new: u32) -> bool {
        // SAFETY: as in `read`.
        unsafe {
            shm::compare_swap_sized(self.0.cast(), 4, old.into(), new.into()) == u64::from(old)
        }
    }

    /// First half of going to sleep. The caller looks once more, then calls [`sleep`](Self::sleep).
    pub(crate) fn announce(self, words: bool, membarrier: bool) -> Ticket {
        let bits = if words { ASLEEP | WORDS } else { ASLEEP };
        loop {
            let old = self.read();
            if old & bits == bits || self.replace(old, old | bits) {
                shm::announce_barrier(membarrier);
                return Ticket(old | bits);
            }
        }
    }

    /// Second half: sleeps until rung, at most for `timeout`.
    pub(crate) fn sleep(self, ticket: Ticket, timeout: Duration) {
        // SAFETY: `new`'s caller promised a mapped aligned word.
        unsafe { shm::futex_wait(self.0, ticket.0, Some(timeout)) }
    }

    /// Whether the announcement that gave `ticket` no longer stands: it was used up by a ring, or
    /// another thread has announced more, so that the kernel would not let anybody sleep on this
    /// ticket.
    pub(crate) fn stale(self, ticket: Ticket) -> bool {
        self.read() != ticket.0
    }

    /// Whether somebody sleeps, or is about to; by the time the caller knows, perhaps no longer.
    pub(crate) fn is_announced(self) -> bool {
        self.read() & ASLEEP != 0
    }

    /// Wakes the owner if it has announced itself; called after the write it may wait for. Says
    /// whether it had.
    #[inline]
    pub(crate) fn ring(self, membarrier: bool) -> bool {
        self.ring_if(ASLEEP, membarrier)
    }

    /// Wakes the owner if it sleeps on words that plain stores may change.
    #[inline]
    pub(crate) fn ring_for_words(self, membarrier: bool) {
        self.ring_if(WORDS, membarrier);
    }

    #[inline]
    fn ring_if(self, bit: u32, membarrier: bool) -> bool {
        order_rings(membarrier);
        self.ring_now(bit)
    }

    /// [`ring`](Self::ring) after a call of [`order_rings`], for several doorbells at the price of
    /// one fence.
    #[inline]
    pub(crate) fn ring_ordered(self) {
        self.ring_now(ASLEEP);
    }

    #[inline]
    fn ring_now(self, bit: u32) -> bool {
        let old = self.read();
        if old & bit != 0 {
            self.wake(old, bit);
            return true;
        }
        false
    }

    #[cold]
    fn wake(self, mut old: u32, bit: u32) {
        while old & bit != 0 {
            if self.replace(old, (old & !(ASLEEP | WORDS)).wrapping_add(RING)) {
                // SAFETY: `new`'s caller promised a mapped aligned word.
                return unsafe { shm::futex_wake(self.0) };
            }
            old = self.read();
        }
    }

    /// Wakes the owner whatever it has announced: something that every wait looks for has changed.
    pub(crate) fn ring_always(self) {
        loop {
            let old = self.read();
            if self.replace(old, (old & !(ASLEEP | WORDS)).wrapping_add(RING)) {
                // SAFETY: `new`'s caller promised a mapped aligned word.
                return unsafe { shm::futex_wake(self.0) };
            }
        }
    }
}

/// Sleeps while the word at `counter` is `seen`, at most for `limit`. May return early.
///
/// # Safety
/// `counter` is aligned, and mapped.
pub(crate) unsafe fn sleep_while(counter: *const u32, seen: u32, limit: Duration) {
    // SAFETY: as the caller promises.
    unsafe { shm::futex_wait(counter, seen, Some(limit)) }
}

/// Wakes everybody who [sleeps](sleep_while) on a counter, after it was changed.
///
/// # Safety
/// As for [`sleep_while`].
pub(crate) unsafe fn wake_all(counter: *const u32) {
    // Nobody sleeps there in a model, where each step has its price.
    if !cfg!(loom) {
        // SAFETY: as the caller promises.
        unsafe { shm::futex_wake(counter) }
    }
}
