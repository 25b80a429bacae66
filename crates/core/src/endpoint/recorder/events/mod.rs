//! Events: what a PE's program has called and waited for, when, one record for each.
//!
//! A launcher that wants a timeline gives each part of the file of records room for events. Then
//! each call of the program, each further operation inside of a call, and each wait becomes an
//! [`Event`] there. Its record is written when it begins, and its end is filled in: so what a PE
//! was doing when it was killed is there, without an end.
//!
//! *Room is bounded.* Records are appended. When there is room for no more, further events are
//! counted, and the reader says how many are [missing](Events::missing).
//!
//! *Appending takes no lock.* A thread takes the next record by an atomic addition, and alone
//! writes it. The record's first word is written last, and is 0 before: a reader takes a record for
//! one that was never written, or sees all of it. The end is a word of its own.

pub mod layout;
pub(super) mod log;
mod read;
mod texts;

pub use read::Events;

use super::Kind;
use crate::base::compare::Cmp;
use crate::endpoint::awaiting::Awaited;

/// Number of a text of the part. [`Events::text`] has the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TextId(pub(super) u32);

impl TextId {
    /// No text.
    pub const NONE: TextId = TextId(0);
}

/// What a PE has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What sort of event it is.
    pub sort: Sort,
    /// The thread, by its number in the PE.
    pub thread: u16,
    /// When it began, in nanoseconds of the PE's clock.
    pub start: u64,
    /// When it ended, if it did.
    pub end: Option<u64>,
    /// The name of the call, or of the thread.
    pub name: TextId,
    /// Where the program has made the call, where that is known.
    pub place: TextId,
    /// Where the program has made the window that was used, if one was.
    pub window: TextId,
    /// What it did, or waited for, as far as that is known.
    pub deed: Deed,
}

/// What sort of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A call of the program.
    Call,
    /// A further operation of the thread's call, beyond the one that stands in the call's own
    /// event.
    Operation,
    /// A wait of the thread, inside of its call where it is in one.
    Wait,
    /// A thread has begun to record. The name is the thread's.
    Thread,
}

/// What an event did, or waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Nothing is known.
    None,
    /// An operation on memory.
    Operation {
        /// What it did.
        kind: Kind,
        /// Where.
        at: Spot,
        /// How many bytes it moved.
        bytes: u64,
        /// The word that was written, or the operand.
        value: Option<u64>,
    },
    /// A wait for a word of this PE.
    Word {
        /// Where it lies.
        at: Spot,
        /// Bytes of the word.
        bytes: u64,
        /// How it is compared.
        cmp: Cmp,
        /// With what.
        value: u64,
    },
    /// A call of all members of a team.
    Team {
        /// The team's slot, equal at all members.
        slot: u32,
        /// The members.
        members: TextId,
        /// The bytes that this PE gives.
        bytes: u64,
    },
    /// An arrival at a barrier, for which the PE waits later, or the end of that wait. The wait is
    /// for the PE's last arrival at the barrier.
    Phase {
        /// The barrier's slot, equal at all members.
        slot: u32,
        /// The members.
        members: TextId,
        /// It is the arrival.
        arrives: bool,
    },
    /// A wait for this.
    Wait(Awaited),
}

/// A place in a PE's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The PE.
    pub pe: u32,
    /// Where in its memory: region, as fabrics number them, and offset. `None` where the recorder
    /// does not know.
    pub offset: Option<(u16, u64)>,
}
