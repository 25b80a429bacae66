//! Teams without a parent: only the members of the new team make the call.
//!
//! The agreement on a slot needs a barrier of the members before they have one, and scratch words.
//! These are the words of one slot, whatever the team. Threads that make several teams at once take
//! turns at both ([`super::turn`]). After a last meeting no member reads these words any more, so
//! the next team may write them. A team of one PE needs none of this.

use super::Team;
use super::agree::{self, Council};
use super::turn::Turn;
use crate::base::error::{Error, Result};
use crate::endpoint::ending;
use crate::sync::barrier::{Algorithm, rank_of};
use std::sync::atomic::AtomicUsize;

/// The slot whose scratch words the agreements use.
const SLOT: usize = 1;

impl Team {
    /// [`Job::team_among`](crate::Job::team_among); this team is the job's team of all PEs.
    pub(crate) fn among(&self, pes: &[usize]) -> Result<Team> {
        // Words of the PE's segment are written before the first wait, which would refuse a child.
        ending::refuse_child(&self.pe)?;
        self.check(pes)?;
        let rank = rank_of(pes, self.pe.me()).ok_or(Error::misuse(
            "a team without a parent is made by its own members: this PE is none",
        ))?;
        Algorithm::forced(pes.len())?;
        if let [_] = pes {
            return Team::in_slot(&self.pe, pes.into(), rank, &agree::alone(&self.pe)?);
        }
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
