//! By which way a collective's data travel.
//!
//! Which is chosen depends on bytes alone, so all members choose the same. Measured on two to
//! sixteen near PEs (`memonet bench collective`), a line wins wherever it has room, as nothing but
//! it has to travel; then the outbox, as it saves a meeting. On far peers they save the same, which
//! costs more there; `docs/decisions.md` has what that is. Teams of more than [`MAX_LINED`] members
//! have no lines.

use crate::base::error::{Error, Result};
use crate::base::layout::{LINE, MAX_LINED, OUTBOX};
use crate::team::Team;

/// A way for the data of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Pushed into a cache line of each member that needs it, with the news that the sender has
    /// come. Up to [`LINE`] bytes for each.
    Line,
    /// Published in each member's slot of the team, and read there when its owner has told of it;
    /// through a fabric, put into the slots of those who need it, with the news. Up to [`OUTBOX`]
    /// bytes per member.
    Outbox,
    /// Between the windows of the members, once they have come to the call and before they leave
    /// it. Any size.
    Direct,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Way::Line => "line",
            Way::Outbox => "outbox",
            Way::Direct => "direct",
        })
    }
}

/// Variable that forces a way, where it can serve: that of a [`Way`], of which `outbox` and
/// `direct` do without lines altogether, and none leaves anything to the network; or `multicast`,
/// which broadcasts then go by whatever their size, and all else as if nothing were forced, but not
/// in the network. The same in all PEs of a job.
pub const ENV_COLLECTIVES: &str = "MEMONET_COLLECTIVES";

/// What is forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    /// A way.
    To(Way),
    /// Multicast for broadcasts.
    Multicast,
}

impl Forced {
    /// What [`ENV_COLLECTIVES`] asks for.
    pub(crate) fn asked() -> Result<Option<Forced>> {
        let Some(value) = std::env::var_os(ENV_COLLECTIVES) else {
            return Ok(None);
        };
        match value.to_str() {
            Some("line") => Ok(Some(Forced::To(Way::Line))),
            Some("outbox") => Ok(Some(Forced::To(Way::Outbox))),
            Some("direct") => Ok(Some(Forced::To(Way::Direct))),
            Some("multicast") => Ok(Some(Forced::Multicast)),
            _ => Err(Error::Environment {
                name: ENV_COLLECTIVES,
                value: value.to_string_lossy().into_owned(),
                problem: "is no way for collectives".into(),
                fix: "Use line, outbox, direct or multicast, or unset it",
            }),
        }
    }
}

impl Team {
    /// Whether the news of a team with so many members goes by lines; else, by its barrier.
    pub(super) fn has_lines(members: usize, forced: Option<Forced>) -> bool {
        members <= MAX_LINED
            && matches!(forced, None | Some(Forced::To(Way::Line) | Forced::Multicast))
    }

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
