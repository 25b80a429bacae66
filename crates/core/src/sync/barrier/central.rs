//! A counter at the first member: the last to arrive tells everybody. Each PE has to run only once
//! per phase, which is what counts when they share CPUs. Near members all poll one word at the
//! first member, so that telling them is one store; far members are told each in its own segment.

use super::{Phases, Slot};
use crate::base::bells::Bells;
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::route::Route;
use std::mem::offset_of;

pub(super) struct Central {
    counter: Route,
    /// Where completion is announced: the first member's word, or everybody's.
    release: Vec<Route>,
    /// The one of them that this PE polls.
    polled: Route,
    /// Where members sleep, beside the first member's word.
    bells: Option<Bells>,
    /// Members that this PE wakes where they sleep on their own doorbells: those that are near.
    sleepers: Box<[usize]>,
}

impl Central {
    pub(super) fn new(slot: &Slot) -> Self {
        let release = |rank: usize| slot.word(rank, offset_of!(BarrierSlot, release));
        let counter = slot.word(0, offset_of!(BarrierSlot, counter));
        let pe = &slot.pe;
        let sleepers = slot.members.iter().copied().filter(|&member| pe.is_near(member)).collect();
        // Which of the two is used, all members find alike.
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
            // A PE that relays for others sleeps on its own doorbell.
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
        let Route::Near(word) = self.polled else { unreachable!("what is polled is mapped") };
        // SAFETY: an aligned word of a barrier slot, in a segment that the slot's PE keeps mapped.
        Ok(unsafe { shm::load(word.cast::<u64>()) } >= phase)
    }
}
