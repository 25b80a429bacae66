//! By which way a collective's data travel.
//!
//! Two ways serve every collective. Which is chosen depends on bytes alone, so all members choose the same: measured on two to
//! sixteen near PEs (`memonet bench collective`), the outbox wins up to its size, for any number of PEs, as it saves a barrier. On
//! far peers it saves the same barrier, which costs more there.

use crate::error::{Error, Result};
use crate::layout::OUTBOX;
use crate::team::Team;

/// A way for the data of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Published in each member's slot of the team, and read there after one barrier. Up to [`Way::OUTBOX_BYTES`] per member.
    Outbox,
    /// Between the windows of the members, after one barrier and before another. Any size.
    Direct,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Way::Outbox => "outbox",
            Way::Direct => "direct",
        })
    }
}

/// Variable that forces a way, where it can serve. The same in all PEs of a job.
pub const ENV_COLLECTIVES: &str = "MEMONET_COLLECTIVES";

impl Way {
    /// The most that a member can publish.
    pub const OUTBOX_BYTES: usize = OUTBOX;

    /// The way that [`ENV_COLLECTIVES`] asks for.
    pub(crate) fn forced() -> Result<Option<Way>> {
        let Some(value) = std::env::var_os(ENV_COLLECTIVES) else {
            return Ok(None);
        };
        match value.to_str() {
            Some("outbox") => Ok(Some(Way::Outbox)),
            Some("direct") => Ok(Some(Way::Direct)),
            _ => Err(Error::Environment {
                name: ENV_COLLECTIVES,
                value: value.to_string_lossy().into_owned(),
                problem: "is no way for collectives".into(),
                fix: "Use outbox or direct, or unset it",
            }),
        }
    }
}

impl Team {
    /// The way in which a collective of this team goes to which each member contributes so many bytes (at a root: which the root
    /// hands out).
    #[inline]
    pub fn collective_way(&self, bytes: usize) -> Way {
        match self.forced_way() {
            _ if bytes > OUTBOX => Way::Direct,
            Some(way) => way,
            None => Way::Outbox,
        }
    }
}
