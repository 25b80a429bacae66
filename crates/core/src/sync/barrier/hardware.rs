//! Barriers in the network's hardware, for any team that the hardware serves.

use super::{Phases, Slot};
use crate::base::error::{Quick, Result};
use crate::base::settings::{self, ENV_BARRIER};
use crate::base::unwinding::unwinds;
use crate::endpoint::fabric::{BarrierGroup, HardwareBarrier};
use crate::endpoint::pe::Pe;

/// The slot of the world's barrier, which all PEs make before any other.
const FIRST: usize = 0;

pub(super) struct Hardware {
    group: BarrierGroup,
}

impl Hardware {
    /// Joins the hardware's group for the barrier in this slot, if the hardware serves it. All
    /// members come to the same answer: it depends on the settings and on the fabric's answer,
    /// which are alike at all.
    pub(super) fn join(pe: &Pe, members: &[usize], slot: usize) -> Result<Option<Self>> {
        let asks = pe.has_fabric() && members.len() > 1 && settings::value(ENV_BARRIER).is_none();
        match if asks { pe.fabric().barrier() } else { None } {
            Some(offered) => {
                let group = offered.join((slot != FIRST).then_some(members))?;
                Ok(group.map(|group| Hardware { group }))
            }
            None => Ok(None),
        }
    }

    fn of(slot: &Slot) -> &dyn HardwareBarrier {
        slot.pe.fabric().barrier().expect("a fabric that has given a group")
    }

    /// Gives the group back when the barrier is dropped. The world's ends with the job, and so do
    /// those of a PE that unwinds: it makes no calls of the fabric.
    pub(super) fn leave(&self, slot: &Slot) {
        if slot.slot != FIRST
            && !unwinds()
            && let Err(error) = Self::of(slot).leave(self.group)
        {
            slot.pe.surface_later(error);
        }
    }
}

impl Phases for Hardware {
    const PASSIVE: bool = true;

    fn arrive(&self, slot: &Slot, _phase: u64) -> Quick<()> {
        Ok(Self::of(slot).arrive(self.group)?)
    }

    fn has_reduced_code(&self, slot: &Slot) -> bool {
        Self::of(slot).has_reduced_code()
    }

    fn step(&self, slot: &Slot) -> Quick<bool> {
        Ok(Self::of(slot).step(self.group)?)
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        Ok(Self::of(slot).complete(self.group)? >= phase)
    }
}
