//! Slots: the words in each segment that teams and barriers use, and which slots are free at this
//! PE.

use crate::base::layout::{BarrierSlot, Lines, MAX_BARRIERS, SystemArea};
use crate::base::lock;
use crate::base::shm;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Slots that no agreement gives out: slot 0 is the world's, slot 1 is for agreements on teams
/// without a parent, and [`NODE`].
pub(crate) const RESERVED: usize = 3;
/// The slot of a node's team in a job that has one node.
pub(crate) const NODE: usize = 2;

/// A PE's slots.
struct Slots {
    /// Slots that this PE does not use, one bit each.
    free: Mutex<[u64; MAX_BARRIERS / 64]>,
    /// Slots that this PE has dropped, and other PEs perhaps not yet.
    resting: Mutex<Vec<Resting>>,
    /// Whether this PE has made the team in [`NODE`].
    node: AtomicBool,
}

impl Layer for Slots {
    fn new(_pe: &Pe) -> Self {
        let mut free = [u64::MAX; MAX_BARRIERS / 64];
        free[0] &= u64::MAX << RESERVED;
        let resting = Mutex::new(Vec::new());
        Slots { free: Mutex::new(free), resting, node: AtomicBool::new(false) }
    }
}

/// A barrier slot that is free when each of these PEs has dropped one more team or barrier in it.
#[derive(Clone)]
struct Resting {
    slot: usize,
    pes: Arc<[usize]>,
    ended: Arc<[u64]>,
}

impl Pe {
    /// The barrier slots that are free.
    pub(crate) fn free_slots(&self) -> MutexGuard<'_, [u64; MAX_BARRIERS / 64]> {
        lock(&self.layer::<Slots>().free)
    }

    /// Takes a barrier slot. False where another thread has taken it.
    pub(crate) fn claim_slot(&self, slot: usize) -> bool {
        let (mut free, bit) = (self.free_slots(), 1 << (slot % 64));
        let was_free = free[slot / 64] & bit != 0;
        free[slot / 64] &= !bit;
        was_free
    }

    /// Takes the slot [`NODE`]. False where it was taken before: what it had stays in its words.
    pub(crate) fn claim_node_slot(&self) -> bool {
        !self.layer::<Slots>().node.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn release_slot(&self, slot: usize) {
        self.free_slots()[slot / 64] |= 1 << (slot % 64);
    }

    /// Notes that this PE has dropped the team or barrier in a slot, as the other PEs have or will.
    pub(crate) fn rest_slot(&self, slot: usize, pes: Arc<[usize]>, ended: Arc<[u64]>) {
        let word = self.local(Self::barrier_slot(slot) + offset_of!(BarrierSlot, ended) as u64);
        // SAFETY: an aligned word of this PE's own slot, which other PEs only read.
        unsafe { shm::store(word.cast(), self.ended(slot) + 1) };
        let resting = Resting { slot, pes, ended };
        lock(&self.layer::<Slots>().resting).push(resting);
    }

    /// The number of teams and barriers that this PE has dropped in a slot.
    pub(crate) fn ended(&self, slot: usize) -> u64 {
        let word = self.local(Self::barrier_slot(slot) + offset_of!(BarrierSlot, ended) as u64);
        // SAFETY: an aligned word of this PE's own slot.
        unsafe { shm::load(word.cast()) }
    }

    /// Frees the slots that all their PEs have dropped. A slot of a PE that has failed stays taken.
    /// Another thread that does so at once finds the same ones.
    pub(crate) fn free_rested(&self) {
        let resting = || lock(&self.layer::<Slots>().resting);
        // The lock is not held while this PE reads: other threads may drop slots meanwhile.
        let seen = resting().clone();
        let dropped = |slot: usize, pe: usize, before: u64| {
            let word =
                self.route(pe, Self::barrier_slot(slot) + offset_of!(BarrierSlot, ended) as u64);
            word.load::<u64>(self).is_ok_and(|ended| ended > before)
        };
        for Resting { slot, pes, ended } in seen {
            let mut members = pes.iter().zip(&*ended);
            if members.all(|(&pe, &before)| dropped(slot, pe, before)) {
                let mut resting = resting();
                // Another thread may have freed it, and a further use of the slot may rest now.
                if let Some(at) = resting.iter().position(|it| Arc::ptr_eq(&it.ended, &ended)) {
                    resting.swap_remove(at);
                    self.release_slot(slot);
                }
            }
        }
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
