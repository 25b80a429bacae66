//! In round r each member tells the one 2^r further on, once it has heard from the one 2^(r-1)
//! behind: after the last round it has heard, at second hand, from all.

use super::{Mailbox, Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct Dissemination {
    partners: Vec<Mailbox>,
    /// Rounds of the current phase that have been told.
    told: AtomicUsize,
}

fn round_word(round: usize) -> usize {
    offset_of!(BarrierSlot, rounds) + 8 * round
}

impl Dissemination {
    pub(super) fn new(slot: &Slot) -> Self {
        let n = slot.members.len();
        let rounds = n.next_power_of_two().trailing_zeros() as usize;
        let partners = (0..rounds).map(|round| {
            let partner = (slot.rank + (1 << round)) % n;
            slot.mailbox(partner, slot.word(partner, round_word(round)))
        });
        Dissemination { partners: partners.collect(), told: AtomicUsize::new(0) }
    }

    fn tell(&self, slot: &Slot, round: usize, phase: u64) {
        if let Some(partner) = self.partners.get(round) {
            slot.tell(partner, phase);
        }
    }
}

impl Phases for Dissemination {
    const PASSIVE: bool = false;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        self.tell(slot, 0, phase);
        self.told.store(1, Ordering::Relaxed);
        Ok(())
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        let mut told = self.told.load(Ordering::Relaxed);
        while told <= self.partners.len() {
            if slot.read_own(round_word(told - 1)) < phase {
                break;
            }
            self.tell(slot, told, phase);
            told += 1;
        }
        self.told.store(told, Ordering::Relaxed);
        Ok(told > self.partners.len())
    }
}
