//! Larger broadcasts by a write that the network copies: the root sends once, whatever the number
//! of members. (What fits an eager buffer needs nothing more than `notify` and `push` of
//! `team/steps.rs`, which write the same to all others at once.)
//!
//! 1. Each member notifies the root that it has come. From then on its destination may be written.
//! 2. When all have come, the root writes its block to the destinations of all, and then the step's
//!    number into its line at all.
//!
//! * C1: A member returns when its line shows the number. Block and number go by one group, so the
//!   block is visible when the number is.
//! * C2: The root awaits all members before it writes. So the death of a member ends the root's
//!   call in [`PeerFailed`](crate::Error::PeerFailed) before anything is written. The others end so
//!   when the root has left without notifying them.

use super::Broadcast;
use crate::base::error::Quick;
use crate::endpoint::copies::Copies;
use crate::team::Team;
use crate::team::steps::nothing;

impl Team {
    /// Broadcasts by a copied write.
    pub(super) fn broadcast_copied(&self, copies: &Copies, what: Broadcast) -> Quick<()> {
        let Broadcast { root, to, from, .. } = what;
        let step = self.step(false)?;
        if self.rank() != root {
            self.notify(step, root..root + 1, nothing)?;
            return self.await_from(step, root..root + 1);
        }
        self.await_from(step, 0..self.len())?;
        // SAFETY: `check_places` has found the source inside of this PE's segment.
        unsafe { copies.write(to.offset, self.here(from), from.bytes) }?;
        self.notify_copied(step, copies)?;
        self.take(root, from, what.own_to(root))
    }
}
