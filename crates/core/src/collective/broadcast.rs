//! From one to all.

use super::{Place, Span, Way, check_apart, check_length};
use crate::error::Result;
use crate::shm::Plain;
use crate::team::Team;

impl Team {
    /// Copies `from` of the member with rank `root` to `to` of every member, the root included. *Collective.*
    ///
    /// # Errors
    /// [`NoSuchPe`](crate::Error::NoSuchPe), [`Length`](crate::Error::Length), [`Misuse`](crate::Error::Misuse) when the spans overlap in
    /// part: before anything is exchanged, as for all collectives. [`PeerFailed`](crate::Error::PeerFailed) when a member is gone.
    pub fn broadcast<T: Plain>(&self, root: usize, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        check_apart(to.place, from.place)?;
        self.broadcast_places(root, to.place, from.place)
    }

    /// [`broadcast`](Self::broadcast) between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn broadcast_places(&self, root: usize, to: Place, from: Place) -> Result<()> {
        self.check_rank(root)?;
        self.check_places(to, from)?;
        check_length("bytes of source and destination", from.bytes, to.bytes)?;
        if self.collective_way(from.bytes) == Way::Outbox {
            let outbox = self.next_outbox().part(0, from.bytes);
            if self.rank() == root {
                self.give(root, from, outbox)?;
            }
            self.barrier()?;
            return match self.rank() == root {
                true => self.give(root, from, to),
                false => self.take(root, outbox, to),
            };
        }
        self.barrier()?;
        self.take(root, from, to)?;
        self.barrier()
    }
}
