//! In round r each member notifies the member 2^r further on, after it was notified in round r - 1
//! by the member 2^(r-1) behind. After the last round it knows, at second hand, of all arrivals.

use super::{Mailbox, Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use crate::endpoint::errand::{Step, Test};
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) struct Dissemination {
    partners: Vec<Mailbox>,
    /// Rounds of the current phase in which this PE has notified.
    notified: AtomicUsize,
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
        Dissemination { partners: partners.collect(), notified: AtomicUsize::new(0) }
    }

    fn notify(&self, slot: &Slot, round: usize, phase: u64) {
        if let Some(partner) = self.partners.get(round) {
            slot.notify(partner, phase);
        }
    }
}

impl Phases for Dissemination {
    const PASSIVE: bool = false;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        self.notify(slot, 0, phase);
        self.notified.store(1, Ordering::Relaxed);
        Ok(())
    }

    fn steps(&self, slot: &Slot, phase: u64, steps: &mut Vec<Step>) -> bool {
        self.partners.iter().enumerate().all(|(round, partner)| {
            let notified = partner.step(phase);
            let offset = slot.offset(round_word(round));
            steps.extend(notified);
            steps.push(Step::Await { offset, test: Test::AtLeast(phase) });
            notified.is_some()
        })
    }

    fn made(&self, _phase: u64, notified: usize, complete: bool) {
        self.notified.store(notified + usize::from(complete), Ordering::Relaxed);
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        let mut notified = self.notified.load(Ordering::Relaxed);
        while notified <= self.partners.len() {
            if slot.read_own(round_word(notified - 1)) < phase {
                break;
            }
            self.notify(slot, notified, phase);
            notified += 1;
        }
        self.notified.store(notified, Ordering::Relaxed);
        Ok(notified > self.partners.len())
    }
}
