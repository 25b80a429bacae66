//! How far a stream has been read.

use super::record::HEADER;
use std::ops::Range;

/// Which end asked for the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// This one. It sends nothing before the other's hello.
    Asked,
    /// The other one.
    Accepted,
}

/// What is to be done when a payload is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Refused,
    Applied,
    Answered,
}

/// Most bytes of a record without its block.
pub(super) const LONGEST: usize = HEADER + 8;

/// How far the stream has been read.
pub(super) struct Inbox {
    pub(super) role: Role,
    pub(super) greeted: bool,
    pub(super) closed: bool,
    /// The first bytes of a record.
    pub(super) begun: [u8; LONGEST],
    pub(super) has: usize,
    /// The rest of a payload; one that is not allowed has no place.
    pub(super) rest: Option<(*mut u8, usize, Then)>,
    /// Whether the last payload was large.
    pub(super) large: bool,
    /// Counted records that were applied.
    pub(super) applied: u64,
    /// Whether something was refused that the peer does not know of.
    pub(super) refuses: bool,
    /// Whether an acknowledgement is owed.
    pub(super) owed: bool,
}

impl Inbox {
    pub(super) fn new(role: Role) -> Self {
        Inbox {
            role,
            greeted: false,
            closed: false,
            begun: [0; LONGEST],
            has: 0,
            rest: None,
            large: false,
            applied: 0,
            refuses: false,
            owed: false,
        }
    }

    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.greeted || self.role == Role::Accepted
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.greeted
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the stream is within a record.
    pub(super) fn is_within(&self) -> bool {
        self.has > 0 || self.rest.is_some()
    }

    #[inline]
    pub(super) fn direct(&self) -> Option<(*mut u8, usize)> {
        self.rest.filter(|(to, ..)| !to.is_null()).map(|(to, left, _)| (to, left))
    }

    #[inline]
    pub(super) fn expects_blocks(&self) -> bool {
        self.large && self.has == 0
    }

    /// A payload that goes to that memory goes nowhere.
    pub(super) fn withdraw(&mut self, memory: Range<usize>) {
        if let Some((to, left, Then::Applied)) = self.rest
            && memory.contains(&(to as usize))
        {
            self.rest = Some((std::ptr::null_mut(), left, Then::Refused));
        }
    }

    /// Takes bytes until so many of a record are there; false where they have not all come.
    pub(super) fn fill(&mut self, wanted: usize, bytes: &mut &[u8]) -> bool {
        let some = wanted.saturating_sub(self.has).min(bytes.len());
        self.begun[self.has..self.has + some].copy_from_slice(&bytes[..some]);
        *bytes = &bytes[some..];
        self.has += some;
        self.has >= wanted
    }
}
