//! Each member stores its phase byte into a word of each other member: one step, and one load sees
//! eight arrivals. Where the network copies writes, it is one store for all others.

use super::{Mailbox, Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use crate::base::shm;
use crate::endpoint::errand::{Step, Test, all_at};
use crate::endpoint::route::Route;
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

impl Everyone {
    /// Whether all others have arrived at `phase`.
    #[inline(always)]
    pub(super) fn is_complete(&self, slot: &Slot, phase: u64) -> bool {
        all_at(slot.read_own(offset_of!(BarrierSlot, gather)), self.mask, phase)
    }
}

impl Phases for Everyone {
    const PASSIVE: bool = true;

    /// PEs that come at once have each other's lines under way while they check and count: two on
    /// far CPUs took a sixth less. Where one comes late, nothing is lost or gained.
    #[inline(always)]
    fn prepare(&self) {
        for other in &self.others {
            if let Route::Near(word) = other.word {
                shm::prefetch_to_write(word);
            }
        }
    }

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

    fn steps(&self, slot: &Slot, phase: u64, steps: &mut Vec<Step>) -> bool {
        let notified = self.others.iter().map_while(|other| other.step(phase as u8));
        steps.extend(notified);
        let offset = slot.offset(offset_of!(BarrierSlot, gather));
        steps.push(Step::Await { offset, test: Test::Bytes { mask: self.mask, phase } });
        slot.copies.is_none() && self.others.iter().all(|other| other.step(0u8).is_some())
    }

    #[inline(always)]
    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        Ok(self.is_complete(slot, phase))
    }
}

/// A mask of whole bytes.
pub(super) fn byte_mask(bytes: impl Iterator<Item = usize>) -> u64 {
    bytes.map(|byte| 0xFF << (8 * byte)).fold(0, |a, b| a | b)
}
