//! Teams without a parent: only their own members are in the call.
//!
//! The agreement on a slot needs a barrier of the members before they have one, and scratch words,
//! which are those of one slot, whatever the team. Threads that make several teams at once take
//! turns at both ([`super::turn`]); a last meeting sees to it that nobody writes the words for the
//! next team while a member still reads.

use super::Team;
use super::agree::Council;
use super::turn::Turn;
use crate::base::error::{Error, Result};
use crate::job::Job;
use crate::sync::barrier::Algorithm;
use std::sync::atomic::AtomicUsize;

/// Whose words the agreements use.
const SLOT: usize = 1;

impl Job {
    /// The team of `pes`, in this order, of which this PE is one. *Collective over these alone*: no
    /// other PE takes part. Threads of a PE may make teams of different PEs at once, in any order.
    ///
    /// # Errors
    /// [`Error::NoSuchPe`], and [`Error::Misuse`] for a list in which a PE stands twice or this PE
    /// not at all, or whose PEs are those of a team that another thread makes now, at this PE
    /// alone; [`Error::Unequal`] when members name different lists of the same PEs,
    /// [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn team_among(&self, pes: &[usize]) -> Result<Team> {
        self.world.check(pes)?;
        let rank = pes.iter().position(|&pe| pe == self.pe());
        let rank = rank.ok_or(Error::Misuse(
            "a team without a parent is made by its own members: this PE is none",
        ))?;
        Algorithm::choose(&self.pe, pes.len())?;
        let turn = Turn::wait(&self.pe, pes)?;
        let council = Council {
            pe: &self.pe,
            members: pes,
            slot: SLOT,
            meet: &|| turn.meet(),
            proposals: &AtomicUsize::new(0),
        };
        let slot = council.agree("team_among", Ok(format!("{pes:?}")), pes);
        turn.meet()?;
        turn.end();
        Team::in_slot(&self.pe, pes.into(), rank, &slot?)
    }
}
