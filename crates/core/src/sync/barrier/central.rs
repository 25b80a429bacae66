//! A counter at the first member: the last member to arrive announces the phase. Each PE has to run
//! only once per phase, which counts most when they share CPUs. Near members all poll one word at
//! the first member, so one store announces the phase; a far member has a word in its own segment.

use super::{Phases, Slot};
use crate::base::bells::Bells;
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::route::Route;
use std::mem::offset_of;

pub(super) struct Central {
    counter: Route,
    /// The words that announce completion: the first member's, or all members'.
    release: Vec<Route>,
    /// The one of these words that this PE polls.
    polled: Route,
    /// The bells beside the first member's word, on which members sleep.
    bells: Option<Bells>,
    /// Near members, which this PE wakes where they sleep on their own doorbells.
    sleepers: Box<[usize]>,
}

impl Central {
    pub(super) fn new(slot: &Slot) -> Self {
        let release = |rank: usize| slot.word(rank, offset_of!(BarrierSlot, release));
        let counter = slot.word(0, offset_of!(BarrierSlot, counter));
        let pe = &slot.pe;
        let sleepers = slot.members.iter().copied().filter(|&member| pe.is_near(member)).collect();
        // From the record, so that all members decide alike.
        if pe.record().are_near(slot.members.iter().copied()) {
            let (first, bells) = (release(0), bells(slot));
            return Central { counter, release: vec![first], polled: first, bells, sleepers };
        }
        Central {
            counter,
            release: (0..slot.members.len()).map(release).collect(),
            polled: Route::Near(slot.own(offset_of!(BarrierSlot, release)).cast()),
            bells: None,
            sleepers,
        }
    }
}

fn bells(slot: &Slot) -> Option<Bells> {
    match slot.word(0, offset_of!(BarrierSlot, bells)) {
        // SAFETY: the bells of the first member's slot, in a segment that the slot's PE keeps
        // mapped.
        Route::Near(first) => Some(unsafe { Bells::new(first.cast()) }),
        Route::Far(_) => None,
    }
}

impl Phases for Central {
    const PASSIVE: bool = true;

    #[inline(always)]
    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        let before = self.counter.fetch_op(&slot.pe, AtomicOp::Add, 1u64)?;
        if before + 1 == phase * slot.members.len() as u64 {
            for word in &self.release {
                word.store(&slot.pe, phase);
            }
            slot.pe.order_rings();
            if let Some(bells) = self.bells {
                bells.wake_all();
            }
            // A PE that also relays for other barriers sleeps on its own doorbell.
            for &member in &self.sleepers {
                slot.pe.control().doorbell(member).ring_ordered();
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn bells(&self) -> Option<Bells> {
        self.bells
    }

    #[inline(always)]
    fn poll(&self, _slot: &Slot, phase: u64) -> Quick<bool> {
        let Route::Near(word) = self.polled else { unreachable!("the polled word is mapped") };
        // SAFETY: an aligned word of a barrier slot, in a segment that the slot's PE keeps mapped.
        Ok(unsafe { shm::load(word.cast::<u64>()) } >= phase)
    }
}
