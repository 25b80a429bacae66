//! The ways for the data of collectives, and the one that the user forces.

use super::Team;
use crate::base::error::{Error, Result};
use crate::base::layout::MAX_LINED;
use crate::base::settings::ENV_COLLECTIVES;

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
    pub(crate) fn has_lines(members: usize, forced: Option<Forced>) -> bool {
        members <= MAX_LINED
            && matches!(forced, None | Some(Forced::To(Way::Line) | Forced::Multicast))
    }
}
