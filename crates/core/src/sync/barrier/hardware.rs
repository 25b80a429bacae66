//! The network's own barrier. A job has one, and its first barrier uses it.

use super::{Phases, Slot};
use crate::base::error::{Quick, Result};
use crate::base::settings::ENV_BARRIER;
use crate::endpoint::fabric::HardwareBarrier;
use crate::endpoint::pe::Pe;

/// The slot of the world's barrier, which all PEs make before any other.
const FIRST: usize = 0;

/// Whether hardware serves the barrier in this slot.
pub(super) fn serves(pe: &Pe, slot: usize) -> Result<bool> {
    if slot != FIRST || !pe.has_far() || std::env::var_os(ENV_BARRIER).is_some() {
        return Ok(false);
    }
    pe.fabric().barrier().map_or(Ok(false), HardwareBarrier::join)
}

pub(super) struct Hardware;

impl Hardware {
    fn of(slot: &Slot) -> &dyn HardwareBarrier {
        slot.pe.fabric().barrier().expect("a fabric that has said that it serves the job")
    }
}

impl Phases for Hardware {
    const PASSIVE: bool = true;

    fn arrive(&self, slot: &Slot, _phase: u64) -> Quick<()> {
        Ok(Self::of(slot).arrive()?)
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        Ok(Self::of(slot).complete()? >= phase)
    }
}
