//! Errands: steps of a PE that its machine makes for it, one after the other.
//!
//! A PE that is a process of a simulated machine sleeps while its machine works, and each of its
//! calls costs two changes of process. Between most calls of a barrier the PE does nothing but look
//! at a word of its own memory, which the machine can do as well. So the PE gives the machine all
//! steps of a phase at once.
//!
//! *Contract.* The machine makes the steps as the PE would: each at the moment at which the PE
//! would make it, with the same calls, looks and parkings between them. So an errand takes the same
//! time of the machine's as the steps by themselves, and changes no result.
//!
//! *When a PE goes on errands.* A wait does more than look at a word. An errand leaves that out, so
//! each of these keeps a PE from an errand, or ends the errand at its next look in vain, from which
//! the PE goes on by itself:
//!
//! * E1: A PE has left the job: the wait may depend on it. The machine sees the count of those.
//! * E2: A front end calls for [attention](crate::Attention). The PE
//!   [recalls](super::fabric::VirtualClock::recall) its errand. A PE that sets out withdraws
//!   earlier recalls, and then looks for a call; a front end calls, and then recalls. So one of the
//!   two is seen.
//! * E3: The wait has a limit. No errand has one.
//! * E4: Another barrier or a channel needs this PE's help. Only calls of this PE begin one, and
//!   while it is on an errand it makes none.
//! * E5: Calls and waits are recorded, with their times.

use super::fabric::{FarAddress, VirtualClock};
use super::pe::Pe;
use crate::base::shm;

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// [`Fabric::quiet`](super::fabric::Fabric::quiet).
    Quiet,
    /// [`Fabric::notify`](super::fabric::Fabric::notify).
    Notify {
        /// The word.
        to: FarAddress,
        /// Its bytes: 1, 2, 4 or 8.
        size: u8,
        /// What it gets.
        bits: u64,
    },
    /// The first look of a wait.
    Look,
    /// A plain store of 8 bytes to this PE's own memory.
    Mark {
        /// Where in its segment.
        offset: u64,
        /// What.
        value: u64,
    },
    /// A wait until a word of 8 bytes of this PE's own memory passes a test. Its first look is free
    /// if the PE has not looked on this errand yet, as a call looks before it waits.
    Await {
        /// Where in its segment.
        offset: u64,
        /// The test.
        test: Test,
    },
}

/// What a word must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// At least this.
    AtLeast(u64),
    /// This.
    Equal(u64),
    /// In every byte under the mask, the low byte of this phase or of the phase after it.
    Bytes {
        /// Whole bytes.
        mask: u64,
        /// The phase.
        phase: u64,
    },
}

impl Test {
    /// Whether a word passes.
    pub fn passes(self, word: u64) -> bool {
        match self {
            Test::AtLeast(least) => word >= least,
            Test::Equal(value) => word == value,
            Test::Bytes { mask, phase } => all_at(word, mask, phase),
        }
    }
}

/// Whether every byte of `word` under `mask` is the low byte of `phase` or of the phase after it.
#[inline]
pub(crate) fn all_at(word: u64, mask: u64, phase: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x80 * ONES;
    let phases = (phase & 0xFF) * ONES;
    // Eight subtractions at once. The top bit of each byte is set first, to keep a borrow from the
    // next byte, and corrected afterwards.
    let ahead = ((word | TOPS) - (phases & !TOPS)) ^ ((word ^ !phases) & TOPS);
    ahead & mask & !ONES == 0
}

impl Pe {
    /// Whether this PE may go on an errand now.
    pub(crate) fn may_go(&self) -> bool {
        if self.recorder().is_some() || !self.clock().is_some_and(VirtualClock::makes_errands) {
            return false; // E5
        }
        // SAFETY: the header's counter lies in the mapping that `control` holds.
        let departures = unsafe { shm::load(self.control().departures()) };
        departures == 0 && self.relays_rest()
    }

    /// Has the fabric keep writes that the library is about to make, until the next call: see
    /// [`VirtualClock::keep`](super::fabric::VirtualClock::keep).
    pub(crate) fn keep_writes(&self) -> Kept<'_> {
        let pe = (self.is_simulated() && self.recorder().is_none()).then_some(self); // E5
        if let Some(clock) = pe.and_then(Pe::clock) {
            clock.keep(true);
        }
        Kept(pe)
    }
}

/// While this value lives, writes of this thread are kept.
pub(crate) struct Kept<'a>(Option<&'a Pe>);

impl Kept<'_> {
    /// Ends it, for a caller whose next step is a call that takes the writes along.
    pub(crate) fn go_along(mut self) {
        if let Some(clock) = self.0.take().and_then(Pe::clock) {
            clock.keep(false);
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(clock) = self.0.and_then(Pe::clock) {
            clock.keep(false);
            clock.ask_kept();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_one_behind_are_seen(phase: u64, ahead: [bool; 8], members: [bool; 8], late in proptest::option::of(0usize..8)) {
            let mask = (0..8).filter(|&i| members[i]).map(|i| 0xFF << (8 * i)).sum();
            let bytes: Vec<u8> = (0..8).map(|i| {
                if late == Some(i) { (phase as u8).wrapping_sub(1) } else { (phase as u8).wrapping_add(u8::from(ahead[i])) }
            }).collect();
            let word = u64::from_le_bytes(bytes.try_into().unwrap());
            prop_assert_eq!(all_at(word, mask, phase), !late.is_some_and(|i| members[i]));
        }
    }
}
