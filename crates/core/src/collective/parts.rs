//! Large broadcasts through a fabric, in parts: each byte leaves the root's link twice at most, and
//! the other links as often as it comes in. If the root put all data to each member, its link would
//! carry them once for each.
//!
//! 1. All members meet. From then on every destination may be written.
//! 2. The root puts a part of the data into each member's destination, and notifies the member.
//! 3. Each member puts its part into the destinations of all others, and notifies them. All meet.
//!
//! P1: A member sends its part on only after the root has notified it, and so after the part has
//! come. A member leaves when each other has notified it: then each part has come. So whoever
//! leaves without an error has all data, and nothing that others still put changes them: all put
//! the same bytes. A PE that dies leaves notifications out, and the others' waits end with
//! [`PeerFailed`](crate::Error::PeerFailed).

use super::{Broadcast, SymmetricRange};
use crate::base::error::Quick;
use crate::team::Team;

/// The bytes from which on a broadcast goes in parts: below, three meetings cost more than they
/// save.
pub(super) const PARTED_BYTES: usize = 32 << 10;
/// The most members to which the root writes everything by itself. Parts take the time of twice
/// the data, and members wait for each other.
pub(super) const MOST_SERVED: usize = 4;
/// Parts begin at multiples of this, so that copies are aligned.
const ALIGNMENT: usize = 64;

impl Team {
    /// A broadcast in parts. *Collective.*
    pub(super) fn broadcast_in_parts(&self, what: Broadcast) -> Quick<()> {
        let Broadcast { root, to, from, .. } = what;
        let (n, me) = (self.len(), self.rank());
        let each = from.bytes.div_ceil(n).next_multiple_of(ALIGNMENT);
        let part = |place: SymmetricRange, rank: usize| {
            let at = (rank * each).min(place.bytes);
            place.part(at, each.min(place.bytes - at))
        };
        self.pass_barrier()?;
        let dealt = self.step(false)?;
        if me == root {
            self.take(root, from, to)?;
            self.deal(dealt, |rank| part(to, rank), |rank| self.here(part(from, rank)))?;
        } else {
            self.await_from(dealt, root..root + 1)?;
        }
        let spread = self.step(true)?;
        // P1.
        self.push(spread, 0..n, part(to, me), |_| self.here(part(to, me)))?;
        self.meet(spread)
    }
}
