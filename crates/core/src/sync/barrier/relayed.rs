//! Barriers whose members relay each other's arrivals.
//!
//! With such an algorithm a PE that has arrived still has work to do: others wait for arrivals that
//! it relays. So every wait of the PE does this work, whatever it waits for. The barriers register
//! with the PE, and [`Pe::progress`](crate::endpoint::pe::Pe::progress) moves on those that are
//! under way. Without that, two PEs that wait for two overlapping barriers in different orders
//! would wait for ever.
//!
//! One thread at a time works on a barrier's words: the one that holds `at`. Another thread that
//! finds `at` locked leaves the work to the holder.

use super::{Phases, Slot};
use crate::base::error::Quick;
use crate::base::{lock, try_lock};
use crate::endpoint::errand::Step;
use crate::endpoint::fabric::Due;
use crate::endpoint::progress::Relay;
use std::sync::{Arc, Mutex};

/// An algorithm whose members relay arrivals.
pub(super) struct Relayed<P>(Arc<Relaying<P>>);

struct Relaying<P> {
    slot: Slot,
    way: P,
    at: Mutex<At>,
}

struct At {
    phase: u64,
    complete: bool,
}

impl<P: Phases + Send + Sync + 'static> Relayed<P> {
    pub(super) fn new(slot: &Slot, way: P) -> Self {
        let at = Mutex::new(At { phase: 0, complete: true });
        let shared = Arc::new(Relaying { slot: slot.clone(), way, at });
        let relay: Arc<dyn Relay> = shared.clone();
        slot.pe.register_relay(Arc::downgrade(&relay));
        Relayed(shared)
    }
}

impl<P: Phases> Relaying<P> {
    fn move_on(&self, at: &mut At) -> Quick<bool> {
        if !at.complete {
            at.complete = self.way.poll(&self.slot, at.phase)?;
        }
        Ok(at.complete)
    }
}

impl<P: Phases + Send + Sync + 'static> Phases for Relayed<P> {
    const PASSIVE: bool = P::PASSIVE;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        let mut at = lock(&self.0.at);
        *at = At { phase, complete: false };
        self.0.way.arrive(slot, phase)
    }

    fn steps(&self, slot: &Slot, phase: u64, steps: &mut Vec<Step>) -> bool {
        self.0.way.steps(slot, phase, steps)
    }

    fn made(&self, phase: u64, notified: usize, complete: bool) {
        *lock(&self.0.at) = At { phase, complete };
        self.0.way.made(phase, notified, complete);
    }

    fn poll(&self, _slot: &Slot, phase: u64) -> Quick<bool> {
        let mut at = lock(&self.0.at);
        debug_assert_eq!(at.phase, phase);
        self.0.move_on(&mut at)
    }

    fn dropped_early(&self, slot: &Slot) {
        slot.pe.keep_relay(self.0.clone());
    }
}

impl<P: Phases + Send + Sync> Relay for Relaying<P> {
    fn rests(&self) -> bool {
        try_lock(&self.at).is_some_and(|at| at.complete)
    }

    fn relay(&self) -> Option<Due> {
        // A thread that holds the lock moves the barrier on, or has just done so. Then the next
        // look of a wait does, after one poll interval at most.
        let mut at = try_lock(&self.at)?;
        // The wait for this barrier meets the error again, and reports it.
        drop(self.move_on(&mut at));
        None
    }

    /// A PE may arrive and leave. Its part of the phase counts as done, as it relays to the end.
    fn before_departure(&self) {
        let at = lock(&self.at);
        if !at.complete {
            self.slot.publish_done(at.phase);
        }
    }

    /// Members that still work, or have yet to join, need the relay until the phase is complete.
    /// Where it cannot be completed, they learn that by themselves.
    fn depart(&self) -> bool {
        let complete = self.move_on(&mut lock(&self.at)).unwrap_or(true);
        let slot = &self.slot;
        let works = |&pe: &usize| slot.pe.control().state(pe).departed().is_none();
        !complete && slot.members.iter().filter(|&&pe| pe != slot.pe.me()).any(works)
    }
}
