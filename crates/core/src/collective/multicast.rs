//! Broadcasts by multicast, where the fabric's network copies datagrams: the root sends the block once, from its window into all others, and what is lost is sent again ([`Circle`]).
//!
//! A member that has all of it tells the root, as after a direct copy, and the root stays until all have. So the root need not tell anybody that it has come: who has not come yet
//! finds the first datagrams waiting, and those that found no room are sent again. A member that dies ends the call at all others, as each waits for all; one that finalises has told the root.
//!
//! **The circle** is made at the team's first such broadcast, and serves every root. Joining is a call of the fabric's that returns when all have joined, and in which a PE passes on no news; so all meet before, and come to it
//! straight from there. It costs what the network keeps for a group (dimmnet-2: an entry of the switch's 256, and half a megabyte of receive buffers at each member), and goes with the team.

use super::Place;
use crate::error::Result;
use crate::multicast::Circle;
use crate::team::Team;
use std::sync::{Arc, OnceLock};

/// A team's circle, once it was tried to make one; nothing where there can be none.
#[derive(Default)]
pub(crate) struct Circles(OnceLock<Option<Arc<Circle>>>);

impl Team {
    /// Whether there may be a circle of this team's members.
    pub(super) fn may_multicast(&self) -> bool {
        Circle::wins(self.pe(), self.len()) && !matches!(self.circles().0.get(), Some(None))
    }

    /// A broadcast, if it goes by multicast.
    pub(super) fn broadcast_by_multicast(&self, root: usize, to: Place, from: Place) -> Result<bool> {
        if self.multicast_from().is_none_or(|least| from.bytes < least) {
            return Ok(false);
        }
        let Some(circle) = self.circle()? else {
            return Ok(false);
        };
        let step = self.step(false)?;
        let given = self.rank() == root;
        let at = self.here(if given { from } else { to });
        // SAFETY: `check_places` has found both places inside of this PE's segment, which is mapped as long as the job; and they are not empty.
        let block = unsafe { circle.begin(root, at, from.bytes) };
        if given {
            // Its own copy while the first datagrams travel.
            self.pe().progress();
            self.take(root, from, to)?;
            self.hear(step, 0..self.len())?;
        } else {
            self.wait_in_step(&|pe| pe != self.members()[root], || block.is_here().then_some(()))?;
            self.tell(step, root..root + 1, super::steps::nothing)?;
        }
        Ok(true)
    }

    /// The team's circle, made now if it was not tried before.
    fn circle(&self) -> Result<Option<&Arc<Circle>>> {
        if let Some(known) = self.circles().0.get() {
            return Ok(known.as_ref());
        }
        self.barrier()?;
        // Of teams that there are now, no two have the same slot.
        let circle = Circle::join(self.pe(), self.members(), self.rank(), 1 + self.slot() as u32)?;
        Ok(self.circles().0.get_or_init(|| circle).as_ref())
    }
}
