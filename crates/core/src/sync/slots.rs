//! The slots of words in each segment that teams and barriers have: which are free at this PE.

use crate::base::layout::{BarrierSlot, Lines, MAX_BARRIERS, SystemArea};
use crate::base::lock;
use crate::base::shm;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a PE knows of slots.
struct Slots {
    /// Those that this PE has not in use.
    free: Mutex<[u64; MAX_BARRIERS / 64]>,
    /// Those that it has dropped, and others perhaps not yet.
    resting: Mutex<Vec<Resting>>,
}

impl Layer for Slots {
    fn new(_pe: &Pe) -> Self {
        // Slot 0 is the world's; the next is where teams without a parent are agreed on.
        let mut free = [u64::MAX; MAX_BARRIERS / 64];
        free[0] &= !3;
        Slots { free: Mutex::new(free), resting: Mutex::new(Vec::new()) }
    }
}

/// A barrier slot that is free when each of these PEs has dropped one more in it.
struct Resting {
    slot: usize,
    pes: Arc<[usize]>,
    ended: Arc<[u64]>,
}

impl Pe {
    /// Barrier slots that are free, now.
    pub(crate) fn free_slots(&self) -> MutexGuard<'_, [u64; MAX_BARRIERS / 64]> {
        lock(&self.layer::<Slots>().free)
    }

    /// Takes a barrier slot, unless another thread was faster.
    pub(crate) fn claim_slot(&self, slot: usize) -> bool {
        let (mut free, bit) = (self.free_slots(), 1 << (slot % 64));
        let was_free = free[slot / 64] & bit != 0;
        free[slot / 64] &= !bit;
        was_free
    }

    pub(crate) fn release_slot(&self, slot: usize) {
        self.free_slots()[slot / 64] |= 1 << (slot % 64);
    }

    /// This PE has dropped what it had in a barrier slot, as the others did or will.
    pub(crate) fn rest_slot(&self, slot: usize, pes: Arc<[usize]>, ended: Arc<[u64]>) {
        let word = self.local(Self::barrier_slot(slot) + offset_of!(BarrierSlot, ended) as u64);
        // SAFETY: an aligned word of this PE's own slot, which others only read.
        unsafe { shm::store(word.cast(), self.ended(slot) + 1) };
        let resting = Resting { slot, pes, ended };
        lock(&self.layer::<Slots>().resting).push(resting);
    }

    /// How often this PE has dropped something in a barrier slot.
    pub(crate) fn ended(&self, slot: usize) -> u64 {
        let word = self.local(Self::barrier_slot(slot) + offset_of!(BarrierSlot, ended) as u64);
        // SAFETY: an aligned word of this PE's own slot.
        unsafe { shm::load(word.cast()) }
    }

    /// Frees the slots that everybody has dropped. Of a PE that has failed that is never known.
    pub(crate) fn free_rested(&self) {
        // Others may drop meanwhile: to read may take a while.
        let resting = std::mem::take(&mut *lock(&self.layer::<Slots>().resting));
        let dropped = |slot: usize, pe: usize, before: u64| {
            let word =
                self.route(pe, Self::barrier_slot(slot) + offset_of!(BarrierSlot, ended) as u64);
            word.load::<u64>(self).is_ok_and(|ended| ended > before)
        };
        let (rested, others): (Vec<_>, Vec<_>) = resting.into_iter().partition(|resting| {
            let mut members = resting.pes.iter().zip(&*resting.ended);
            members.all(|(&pe, &before)| dropped(resting.slot, pe, before))
        });
        rested.iter().for_each(|resting| self.release_slot(resting.slot));
        lock(&self.layer::<Slots>().resting).extend(others);
    }

    /// Offset in a segment of the lines of a barrier slot.
    pub(crate) fn lines(slot: usize) -> u64 {
        (offset_of!(SystemArea, lines) + slot * size_of::<Lines>()) as u64
    }

    /// Offset in a segment of a barrier slot.
    pub(crate) fn barrier_slot(slot: usize) -> u64 {
        offset_of!(SystemArea, barriers) as u64 + (slot * size_of::<BarrierSlot>()) as u64
    }
}
