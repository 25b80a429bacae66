//! Each member stores its phase byte into a word of each other member: one step, and one load sees
//! eight arrivals. Where the network copies writes, it is one store for all others.

use super::{Mailbox, Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use std::mem::offset_of;

/// The most members: a word has as many bytes.
pub(super) const MOST: usize = 8;

pub(super) struct Everyone {
    /// This PE's byte in the word of each other member; none where the network copies writes.
    others: Vec<Mailbox>,
    mask: u64,
}

impl Everyone {
    pub(super) fn new(slot: &Slot) -> Self {
        let one_by_one = slot.copies.is_none();
        let ranks = (0..slot.members.len()).filter(|&rank| one_by_one && rank != slot.rank);
        let others = ranks
            .map(|rank| {
                slot.mailbox(rank, slot.word(rank, offset_of!(BarrierSlot, gather)).add(slot.rank))
            })
            .collect();
        Everyone {
            mask: byte_mask((0..slot.members.len()).filter(|&rank| rank != slot.rank)),
            others,
        }
    }
}

impl Phases for Everyone {
    const PASSIVE: bool = true;

    #[inline(always)]
    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        if let Some(copies) = &slot.copies {
            slot.notify_all(copies, offset_of!(BarrierSlot, gather) + slot.rank, phase as u8);
        }
        for other in &self.others {
            slot.notify(other, phase as u8);
        }
        Ok(())
    }

    #[inline(always)]
    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        Ok(all_at(slot.read_own(offset_of!(BarrierSlot, gather)), self.mask, phase))
    }
}

/// A mask of whole bytes.
pub(super) fn byte_mask(bytes: impl Iterator<Item = usize>) -> u64 {
    bytes.map(|byte| 0xFF << (8 * byte)).fold(0, |a, b| a | b)
}

/// Whether every byte of `word` under `mask` is the low byte of `phase` or of the phase after it.
#[inline]
pub(super) fn all_at(word: u64, mask: u64, phase: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x80 * ONES;
    let phases = (phase & 0xFF) * ONES;
    // Eight subtractions at once. The top bit of each byte is set first, to keep a borrow from the
    // next byte, and corrected afterwards.
    let ahead = ((word | TOPS) - (phases & !TOPS)) ^ ((word ^ !phases) & TOPS);
    ahead & mask & !ONES == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_one_behind_are_seen(phase: u64, ahead: [bool; 8], members: [bool; 8], late in proptest::option::of(0usize..8)) {
            let mask = byte_mask((0..8).filter(|&i| members[i]));
            let bytes: Vec<u8> = (0..8).map(|i| {
                if late == Some(i) { (phase as u8).wrapping_sub(1) } else { (phase as u8).wrapping_add(u8::from(ahead[i])) }
            }).collect();
            let word = u64::from_le_bytes(bytes.try_into().unwrap());
            prop_assert_eq!(all_at(word, mask, phase), !late.is_some_and(|i| members[i]));
        }
    }
}
