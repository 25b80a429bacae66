//! What a program on a simulated host asks of its NIC, and what it gets back.
//!
//! These types are the whole of what passes between a program and the machine: a coroutine hands
//! them over by a switch of stacks, an attached process through a shared page. So nothing in them
//! points into the program's memory.

pub use crate::op::{Op, Pe};
use crate::packet::Payload;
use crate::time::Ps;
use memonet_core::fabric::{FarAddress, NetworkCollective};
pub use memonet_core::hosted::{Atomic, Signal};
use std::sync::Arc;

/// An operation on the NIC. The library's calls come as the first seven; the last two are the
/// kind's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOp {
    /// A word of 1, 2, 4 or 8 bytes, never torn. Answered when the host has written it:
    /// [`Answer::default`].
    Store {
        /// Where.
        to: FarAddress,
        /// What.
        word: Payload,
    },
    /// A block, then perhaps a signal. Answered when the source may be reused (with `reuse`), or
    /// when the call returns.
    Put {
        /// Where; of no meaning when `data` is empty.
        to: FarAddress,
        /// What. May be empty: then it is a signal alone.
        data: Payload,
        /// Visible only when the data is.
        signal: Option<Signal>,
        /// Whether the program may change its source when the call returns.
        reuse: bool,
    },
    /// Answered with the bytes.
    Get {
        /// Where.
        from: FarAddress,
        /// How many bytes.
        len: u32,
    },
    /// Answered with what the word held.
    Atomic {
        /// Where.
        at: FarAddress,
        /// Bytes of the word.
        size: u8,
        /// What to do.
        what: Atomic,
    },
    /// What came before becomes visible at each PE before what comes after. Answered when that is
    /// certain.
    Fence,
    /// Answered when all that the PE has written is visible.
    Quiet,
    /// A collective of the hardware's.
    Group(GroupOp),
    /// A command of the kind's own interface, for programs that use the NIC without the library.
    Command(Command),
}

/// For what a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wanted {
    /// [`GroupOp::Arrive`] and [`GroupOp::Phase`].
    Barrier,
    /// [`GroupOp::Multicast`].
    Multicast,
    /// [`GroupOp::Collective`].
    Collectives,
    /// [`GroupOp::Send`] and [`GroupOp::Receive`], of the library's for this purpose.
    Datagrams(u32),
}

/// What hardware may do for several PEs at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupOp {
    /// Sets up hardware for these PEs; every member asks with the same list, and for the same.
    /// Answered with a value that is not 0, the group's number, or with 0 at every member when the
    /// hardware cannot serve this group: then the library does without. For datagrams and
    /// collectives, the upper half is the most bytes of one, or of a part.
    Join {
        /// PEs. A list of very many is shared by all that ask with it.
        members: Arc<[u32]>,
        /// For what.
        wanted: Wanted,
    },
    /// Arrives at the next phase of the group's barrier.
    Arrive(u32),
    /// Answered with the last complete phase of the group's barrier. A look of the host at the NIC,
    /// with its price.
    Phase(u32),
    /// Writes a block at the same offset of every member's segment but the sender's.
    Multicast {
        /// To whom.
        group: u32,
        /// Where: region and offset count, the PE does not.
        to: FarAddress,
        /// What.
        data: Payload,
    },
    /// A collective, refused where the kind's hardware has it not. Answered when the host has
    /// written its part.
    Collective {
        /// Of whom.
        group: u32,
        /// Which.
        what: NetworkCollective,
        /// This member's part.
        data: Payload,
    },
    /// Answered with the result of this PE's collective in the group, empty if it gets none, and
    /// one more than its length, when that is over for it, and it has taken part in none since;
    /// else with 0. A look of the host at the NIC, with its price.
    Result(u32),
    /// Sends a datagram, or several in one go, which may be lost, and of which `Quiet` and `Fence`
    /// do not know. Answered when the data may be changed.
    Send {
        /// By which group.
        group: u32,
        /// To whom of it; `None`: to all others.
        to: Option<u32>,
        /// What.
        data: Payload,
    },
    /// Answered with the next datagram that has come to this PE by the group and one more than its
    /// length, or with 0. A look of the host at the NIC, with its price.
    Receive(u32),
    /// Leaves a group for datagrams.
    Leave(u32),
}

/// A command to the NIC in the kind's own terms. Kinds offer functions that make them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Which, by the kind's numbers.
    pub code: u32,
    /// Its arguments.
    pub words: [u64; 4],
    /// Data that the host writes with it.
    pub data: Payload,
}

/// What a call returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// A number.
    pub value: u64,
    /// Bytes.
    pub data: Payload,
    /// Why it was refused, where it was: the caller gets an error with these words.
    pub refused: Option<String>,
}

impl Default for Answer {
    fn default() -> Self {
        Answer { value: 0, data: Payload::EMPTY, refused: None }
    }
}

impl Answer {
    /// A number.
    pub fn value(value: u64) -> Answer {
        Answer { value, ..Answer::default() }
    }

    /// Bytes.
    pub fn data(data: Payload) -> Answer {
        Answer { data, ..Answer::default() }
    }

    /// Bytes that there may be or not, and one more than how many there are.
    pub fn with_length(data: Payload) -> Answer {
        Answer { value: 1 + data.len() as u64, ..Answer::data(data) }
    }

    /// A refusal, in words that name cause and fix.
    pub fn refused(why: impl Into<String>) -> Answer {
        Answer { refused: Some(why.into()), ..Answer::default() }
    }
}

/// How a host looks at memory that its NIC writes: one read after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// From the start of a look to the start of the next. More than zero.
    pub interval: Ps,
    /// From the start of a look to the moment at which the memory is read. At most `interval`.
    pub sample: Ps,
}

impl Polling {
    /// When a host that looks again and again from `from` on has seen a change made at `changed`:
    /// the end of that look.
    pub fn seen(self, from: Ps, changed: Ps) -> Ps {
        self.reads(from, changed) + (self.interval - self.sample)
    }

    /// When that look reads the memory.
    pub fn reads(self, from: Ps, changed: Ps) -> Ps {
        let first = from + self.sample;
        first + self.interval * changed.since(first).0.div_ceil(self.interval.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_come_one_after_the_other() {
        let polling = Polling { interval: Ps(10), sample: Ps(4) };
        for (changed, seen) in [(0, 110), (104, 110), (105, 120), (114, 120), (115, 130)] {
            assert_eq!(polling.seen(Ps(100), Ps(changed)), Ps(seen), "{changed}");
        }
    }
}
