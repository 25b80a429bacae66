//! Broadcasts by multicast, where the fabric's network copies datagrams. The root sends the block
//! once, from its window into the windows of all others; lost datagrams are sent again
//! ([`Circle`]).
//!
//! A member that has the whole block notifies the root, as after a direct copy. The root stays
//! until all members have notified it. So the root need not notify anybody that it has come: a
//! member that comes later finds the first datagrams waiting, and datagrams that found no room are
//! sent again. A member that dies ends the call at all others, as each waits for all. A member that
//! finalises has notified the root before.
//!
//! **The circle** is made at the team's first such broadcast, and serves every root. All members
//! first meet, and join straight after that: joining is a call of the fabric that returns when all
//! have joined, and in which a PE relays nothing. A circle costs what the network keeps for a group
//! (dimmnet-2: an entry of the switch's 256, and half a megabyte of receive buffers at each
//! member), and ends with the team.
//!
//! **When it pays.** Making a circle takes as long as putting 20 to 40 KiB to each member, however
//! many members there are. With it, a broadcast of any size is faster by a tenth to ten times than
//! by puts of the root. Where a switch copies for one member after the other, though, and there are
//! many, large blocks are faster in parts that members pass on ([`Circle::beats_parts`]). The
//! library does not know how often a program will broadcast. So a team first puts as many bytes as
//! a circle costs ([`PUT_FIRST_BYTES`]): whether it ends there or goes on, it has not lost much.

use super::Broadcast;
use crate::base::error::Quick;
use crate::base::layout::EAGER_BYTES;
use crate::multicast::Circle;
use crate::team::Team;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that a team broadcasts by puts before it makes a circle. On dimmnet-2 a circle of 4, 8, 16
/// and 32 takes 0.15, 0.24, 0.40 and 0.94 ms. Broadcasts of 2 KiB to 1 MiB, one to a thousand of
/// them, then take at most 2.9 times what they would with the better of always and never (2 KiB to
/// 15, sixteen of them, where the switch copies at line rate); with always, 6.9 times.
const PUT_FIRST_BYTES: usize = 32 << 10;

/// A team's state for broadcasts by multicast.
#[derive(Default)]
pub(crate) struct Circles {
    /// The circle, after the first attempt to make it; `None` where the network does not serve the
    /// team.
    made: OnceLock<Option<Arc<Circle>>>,
    /// Bytes of all broadcasts so far that may go by multicast: equal at all members. One thread at
    /// a time is in a collective of a team.
    bytes: AtomicUsize,
}

impl Team {
    /// Whether this team has a circle, or may make one.
    pub(super) fn may_multicast(&self) -> bool {
        Circle::wins(self.pe(), self.len())
            && !matches!(self.layers().get(Circles::default).made.get(), Some(None))
    }

    /// Whether a circle of this team is faster than members that pass parts on.
    pub(super) fn multicast_beats_parts(&self) -> bool {
        self.forced().is_some() || Circle::beats_parts(self.pe(), self.len())
    }

    /// Bytes that this team still broadcasts by puts before a circle pays.
    pub(super) fn put_first(&self) -> usize {
        let done = self.layers().get(Circles::default).bytes.load(Ordering::Relaxed);
        PUT_FIRST_BYTES.saturating_sub(done)
    }

    /// Counts a broadcast, if it may go by multicast.
    pub(super) fn count_broadcast(&self, block: usize) {
        if block > EAGER_BYTES && self.multicast_from().is_some() {
            let Circles { bytes, .. } = self.layers().get(Circles::default);
            bytes.store(bytes.load(Ordering::Relaxed).saturating_add(block), Ordering::Relaxed);
        }
    }

    /// Broadcasts by multicast. Gives false, having done nothing, where the network does not serve
    /// the team.
    pub(super) fn broadcast_by_multicast(&self, what: Broadcast) -> Quick<bool> {
        let Broadcast { root, to, from, .. } = what;
        let Some(circle) = self.circle()? else {
            return Ok(false);
        };
        let step = self.step(false)?;
        let given = self.rank() == root;
        let at = self.here(if given { from } else { to });
        // SAFETY: `check_places` has found both places inside of this PE's segment, which is mapped
        // as long as the job. They are not empty: `choose` gave multicast a least number of bytes.
        let block = unsafe { circle.begin(root, at, from.bytes) };
        if given {
            // The root copies while the first datagrams travel.
            self.pe().progress();
            self.take(root, from, what.own_to(root))?;
            self.await_from(step, 0..self.len())?;
        } else {
            self.wait_in_step(&|pe| pe != self.members()[root], || block.is_here().then_some(()))?;
            self.notify(step, root..root + 1, crate::team::steps::nothing)?;
        }
        Ok(true)
    }

    /// The team's circle. The first call tries to make it.
    fn circle(&self) -> Quick<Option<&Arc<Circle>>> {
        if let Some(known) = self.layers().get(Circles::default).made.get() {
            return Ok(known.as_ref());
        }
        self.pass_barrier()?;
        // The slot is the purpose: no two teams that exist at once share one.
        let circle = Circle::join(self.pe(), self.members(), self.rank(), 1 + self.slot() as u32)?;
        Ok(self.layers().get(Circles::default).made.get_or_init(|| circle).as_ref())
    }
}
