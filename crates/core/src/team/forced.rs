//! Algorithms of collectives that the user forces.

use super::Team;
use crate::base::error::{Error, Result};
use crate::base::layout::MAX_LINED;
use crate::base::settings::{self, ENV_COLLECTIVES};
use std::ffi::OsStr;

/// A forced algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forced {
    /// Cache lines where they have room, and nothing in the network.
    Line,
    /// Eager buffers where they have room, and no lines.
    Eager,
    /// The members' windows.
    Direct,
    /// Multicast for broadcasts.
    Multicast,
    /// By nodes where the members are on several, and nothing in the network.
    Nodes,
}

impl Forced {
    /// The algorithm that [`ENV_COLLECTIVES`] names.
    pub(crate) fn asked() -> Result<Option<Forced>> {
        settings::value(ENV_COLLECTIVES).map(|value| Self::named(&value)).transpose()
    }

    /// The algorithm of this name.
    pub(crate) fn named(value: &OsStr) -> Result<Forced> {
        match value.to_str() {
            Some("line") => Ok(Forced::Line),
            Some("eager") => Ok(Forced::Eager),
            Some("direct") => Ok(Forced::Direct),
            Some("multicast") => Ok(Forced::Multicast),
            Some("nodes") => Ok(Forced::Nodes),
            _ => Err(Error::Environment {
                name: ENV_COLLECTIVES,
                value: value.to_string_lossy().into_owned(),
                problem: "names no way for collectives".into(),
                fix: "Use line, eager, direct, multicast or nodes, or unset it",
            }),
        }
    }
}

impl Team {
    /// Whether a team of so many members notifies by lines; otherwise by its barrier.
    pub(crate) fn has_lines(members: usize, forced: Option<Forced>) -> bool {
        members <= MAX_LINED
            && matches!(forced, None | Some(Forced::Line | Forced::Multicast | Forced::Nodes))
    }
}
