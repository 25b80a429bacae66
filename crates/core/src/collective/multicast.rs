//! Broadcasts by multicast, where the fabric's network copies datagrams: the root sends the block
//! once, from its window into all others, and what is lost is sent again ([`Circle`]).
//!
//! A member that has all of it tells the root, as after a direct copy, and the root stays until all
//! have. So the root need not tell anybody that it has come: who has not come yet finds the first
//! datagrams waiting, and those that found no room are sent again. A member that dies ends the call
//! at all others, as each waits for all; one that finalises has told the root.
//!
//! **The circle** is made at the team's first such broadcast, and serves every root. Joining is a
//! call of the fabric's that returns when all have joined, and in which a PE passes on no news; so
//! all meet before, and come to it straight from there. It costs what the network keeps for a group
//! (dimmnet-2: an entry of the switch's 256, and half a megabyte of receive buffers at each
//! member), and goes with the team.
//!
//! **When it pays.** Making a circle takes as long as putting 20 to 40 KiB to each member, however
//! many there are; with it a broadcast is sooner, whatever its size, by a tenth to ten times. How
//! often a program will broadcast nobody knows. So a team first puts as much as a circle costs
//! ([`PUT_FIRST`]): whether it ends there or goes on, it has not lost much.

use super::SymmetricRange;
use crate::base::error::Result;
use crate::base::layout::EAGER_BYTES;
use crate::multicast::Circle;
use crate::team::Team;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that a team's broadcasts have, all together, when the first of them goes by multicast. On
/// dimmnet-2 a circle of 4, 8, 16 and 32 takes 0.15, 0.24, 0.40 and 0.94 ms; broadcasts of 2 KiB to
/// 1 MiB, one to a thousand of them, then take at most 2.9 times what they would with the better of
/// always and never (2 KiB to 15, sixteen of them, where the switch copies at line rate); with
/// always, 6.9 times.
const PUT_FIRST: usize = 32 << 10;

/// What a team has for broadcasts by multicast.
#[derive(Default)]
pub(crate) struct Circles {
    /// The circle, once it was tried to make one; nothing where there can be none.
    made: OnceLock<Option<Arc<Circle>>>,
    /// Bytes of all broadcasts so far that may go by it; the same at all members. One thread at a
    /// time is in a collective of a team.
    bytes: AtomicUsize,
}

impl Team {
    /// Whether there may be a circle of this team's members.
    pub(super) fn may_multicast(&self) -> bool {
        Circle::wins(self.pe(), self.len())
            && !matches!(self.layers().get(Circles::default).made.get(), Some(None))
    }

    /// How many bytes are to be broadcast yet before it pays to make one.
    pub(super) fn put_first(&self) -> usize {
        PUT_FIRST.saturating_sub(self.layers().get(Circles::default).bytes.load(Ordering::Relaxed))
    }

    /// Counts a broadcast that may go by multicast, once there have been some.
    pub(super) fn count_broadcast(&self, block: usize) {
        if block > EAGER_BYTES && self.multicast_from().is_some() {
            let Circles { bytes, .. } = self.layers().get(Circles::default);
            bytes.store(bytes.load(Ordering::Relaxed).saturating_add(block), Ordering::Relaxed);
        }
    }

    /// A broadcast by multicast, if the network serves the team.
    pub(super) fn broadcast_by_multicast(
        &self,
        root: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Result<bool> {
        let Some(circle) = self.circle()? else {
            return Ok(false);
        };
        let step = self.step(false)?;
        let given = self.rank() == root;
        let at = self.here(if given { from } else { to });
        // SAFETY: `check_places` has found both places inside of this PE's segment, which is mapped
        // as long as the job; and they are not empty.
        let block = unsafe { circle.begin(root, at, from.bytes) };
        if given {
            // Its own copy while the first datagrams travel.
            self.pe().progress();
            self.take(root, from, to)?;
            self.await_from(step, 0..self.len())?;
        } else {
            self.wait_in_step(&|pe| pe != self.members()[root], || block.is_here().then_some(()))?;
            self.notify(step, root..root + 1, crate::team::steps::nothing)?;
        }
        Ok(true)
    }

    /// The team's circle, made now if it was not tried before.
    fn circle(&self) -> Result<Option<&Arc<Circle>>> {
        if let Some(known) = self.layers().get(Circles::default).made.get() {
            return Ok(known.as_ref());
        }
        self.barrier()?;
        // Of teams that there are now, no two have the same slot.
        let circle = Circle::join(self.pe(), self.members(), self.rank(), 1 + self.slot() as u32)?;
        Ok(self.layers().get(Circles::default).made.get_or_init(|| circle).as_ref())
    }
}
