//! By which way a collective's data travel.
//!
//! Which is chosen depends on bytes alone, so all members choose the same. Measured on two to
//! sixteen near PEs (`memonet bench collective`), a line wins wherever it has room, as nothing but
//! it has to travel; then the outbox, as it saves a meeting. On far peers they save the same, which
//! costs more there; `docs/decisions.md` has what that is. Teams of more than [`MAX_LINED`] members
//! have no lines.

use crate::base::layout::{LINE, OUTBOX};
use crate::team::Team;
use crate::team::forced::{Forced, Way};

impl Team {
    /// The way in which a collective of this team goes to which each member contributes so many
    /// bytes (at a root: which the root hands out).
    #[inline]
    pub fn collective_way(&self, bytes: usize) -> Way {
        match self.forced() {
            Some(Forced::To(Way::Direct)) => Way::Direct,
            _ if bytes <= LINE && self.steps().are_lines() => Way::Line,
            _ if bytes <= OUTBOX => Way::Outbox,
            _ => Way::Direct,
        }
    }

    /// From how many bytes on this team's next broadcast goes by multicast instead; nothing where
    /// none does.
    pub fn multicast_from(&self) -> Option<usize> {
        let least = match self.forced() {
            None => self.put_first().max(OUTBOX + 1),
            Some(Forced::Multicast) => 1,
            Some(Forced::To(_)) => return None,
        };
        (self.steps().are_lines() && self.may_multicast()).then_some(least)
    }
}
