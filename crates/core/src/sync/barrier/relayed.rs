//! Barriers whose members pass on each other's news.
//!
//! With such an algorithm a PE that has arrived still owes something: others wait for what it
//! passes on. So every wait of the PE pays, whatever it waits for: its barriers register with it,
//! and [`Pe::progress`](crate::endpoint::pe::Pe::progress) moves those on that are under way.
//! Without that, two PEs that wait for two overlapping barriers in different orders would wait for
//! ever.
//!
//! One thread at a time works on a barrier's words: whoever holds `at`. A thread that only passes
//! by leaves it to the holder.

use super::{Phases, Slot};
use crate::base::error::Quick;
use crate::base::{lock, try_lock};
use crate::endpoint::fabric::Due;
use crate::endpoint::progress::Relay;
use std::sync::{Arc, Mutex};

/// An algorithm whose members pass on news.
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

impl<P: Phases> Phases for Relayed<P> {
    const PASSIVE: bool = P::PASSIVE;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        let mut at = lock(&self.0.at);
        *at = At { phase, complete: false };
        self.0.way.arrive(slot, phase)
    }

    fn poll(&self, _slot: &Slot, phase: u64) -> Quick<bool> {
        let mut at = lock(&self.0.at);
        debug_assert_eq!(at.phase, phase);
        self.0.move_on(&mut at)
    }
}

impl<P: Phases + Send + Sync> Relay for Relaying<P> {
    fn relay(&self) -> Option<Due> {
        // A thread that has it moves on too, or has just done so: then the next look of a wait
        // does, after one poll interval at most.
        let mut at = try_lock(&self.at)?;
        // An error is met again, and reported, by the wait for this barrier.
        drop(self.move_on(&mut at));
        None
    }
}
