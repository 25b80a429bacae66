//! Steps by a network's reduced barrier code: one operation that ends the phase under way and
//! arrives at the next, or does nothing.
//!
//! Without it a step is two operations: a look until the phase is complete, and an arrival.
//!
//! * R1: The code arrives at phase p + 1 only if phase p is complete. So a PE is never more than
//!   one phase ahead, as B2 of the parent module says.
//! * R2: Any of the codes of a step may be the one that arrives. So this PE's writes are complete
//!   before the first of them.
//! * R3: `done` follows the arrival, and does not come before it as elsewhere. If a PE wrote it
//!   first and died while the code was answered in vain, the others would wait for an arrival that
//!   never comes. If it dies between the two, they may hear of its death although it has arrived,
//!   which is as if it had died a moment earlier.

use super::{Barrier, Phases};
use crate::base::error::Quick;
use crate::endpoint::ending;
use crate::wait::{self, limit::Patience};
use std::sync::atomic::Ordering;

impl Barrier {
    /// Whether one operation of the network ends the phase under way and arrives at the next. It is
    /// no use where this PE knows that the phase is complete.
    #[inline(always)]
    pub(super) fn is_for_reduced_code(&self, way: &impl Phases) -> bool {
        way.has_reduced_code(&self.slot) && !self.is_complete()
    }

    /// [`next_of_split`](Self::next_of_split) by the reduced code, which is made again and again.
    #[cold]
    pub(super) fn step_by_reduced_code(&self, way: &impl Phases) -> Quick<()> {
        let pe = &self.slot.pe;
        // R2. As in `next`, a write that failed keeps no member waiting.
        let written = pe.complete_writes();
        if let Err(error) = self.await_reduced_code(way) {
            return Err(self.keep_lost(written, error));
        }
        written?;
        pe.surface()
    }

    fn await_reduced_code(&self, way: &impl Phases) -> Quick<()> {
        if self.reduced_code(way)? {
            return Ok(());
        }
        let made = || match self.reduced_code(way) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        };
        self.terms(way, Patience::Forever, |terms| wait::until(&self.slot.pe, terms, made))?
    }

    /// [`try_step`](Self::try_step) by the reduced code.
    #[cold]
    pub(super) fn try_reduced_code(&self, way: &impl Phases) -> Quick<bool> {
        let pe = &self.slot.pe;
        if let Some(error) = ending::refusal(pe) {
            return Err(error.into());
        }
        if let Err(error) = pe.complete_writes() {
            pe.surface_later(*error);
        }
        if self.reduced_code(way)? {
            pe.surface()?;
            return Ok(true);
        }
        wait::test(pe, || None::<()>);
        match self.terms(way, Patience::Forever, |terms| terms.departed(pe)) {
            Some(error) if !self.reduced_code(way)? => Err(error.into()),
            departed => Ok(departed.is_some()),
        }
    }

    /// The reduced code, once. Gives whether this PE has arrived.
    fn reduced_code<P: Phases>(&self, way: &P) -> Quick<bool> {
        if !way.step(&self.slot)? {
            return Ok(false);
        }
        let phase = self.phase();
        self.note_phase(false);
        self.complete::<P>(phase);
        // R3.
        self.slot.publish_done(phase + 1);
        self.arrived.store(phase + 1, Ordering::Relaxed);
        self.note_phase(true);
        Ok(true)
    }
}
