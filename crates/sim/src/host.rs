//! What a program on a simulated host asks of its NIC, and what the NIC answers.
//!
//! Nothing else passes between a program and the machine. A coroutine hands these values over by a
//! switch of stacks, and an attached process through a shared page, so nothing in them points into
//! the program's memory.

pub use crate::op::{Op, Pe};
use crate::packet::Payload;
use crate::time::Ps;
use memonet_core::unstable::fabric::{FarAddress, NetworkCollective};
pub use memonet_core::unstable::hosted::{Atomic, CommandStep, KeyStep, Signal};
use std::sync::Arc;

/// An operation on the NIC. The library's calls come as any but the last, which is for the kind's
/// own interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostOp {
    /// Writes a word of 1, 2, 4 or 8 bytes, never torn. Answered when the host has written the
    /// word.
    Store {
        /// Where.
        to: FarAddress,
        /// What.
        word: Payload,
    },
    /// Writes a block, and then perhaps a signal. Answered when the call returns; with `reuse`,
    /// when the program may change the source.
    Put {
        /// The place of the block. Meaningless when `data` is empty.
        to: FarAddress,
        /// The block. Empty for a signal alone.
        data: Payload,
        /// The signal. It becomes visible only after the data.
        signal: Option<Signal>,
        /// Whether the program may change its source when the call returns.
        reuse: bool,
    },
    /// The program makes this put, without `reuse`, again and again: hardware that keeps commands
    /// builds one, gives it up, or says how far its last put is. A test is answered with 1 or 0.
    /// Hardware that keeps none is not asked.
    Prepare {
        /// As in [`Put`](Self::Put).
        to: FarAddress,
        /// Bytes of the block.
        len: u32,
        /// As in [`Put`](Self::Put).
        signal: Option<Signal>,
        /// What is asked.
        step: CommandStep,
    },
    /// The library's writes to a PE's region carry this key, or the caller's own NIC admits writes
    /// to a region of its PE's that carry it. Hardware without keys is not asked.
    Key {
        /// The PE whose region it is: the caller, for a key that is admitted.
        pe: u32,
        /// The region.
        region: u32,
        /// The key.
        key: u64,
        /// What is asked.
        step: KeyStep,
    },
    /// Reads a block. Answered with its bytes.
    Get {
        /// Where.
        from: FarAddress,
        /// How many bytes.
        len: u32,
    },
    /// Changes a word. Answered with the word's old value.
    Atomic {
        /// Where.
        at: FarAddress,
        /// Bytes of the word.
        size: u8,
        /// What to do.
        what: Atomic,
    },
    /// Orders writes: those before the fence become visible at each PE before those after it.
    /// Answered when that is certain.
    Fence,
    /// Answered when all that the PE has written is visible.
    Quiet,
    /// An operation of the hardware's for a group of PEs.
    Group(GroupOp),
    /// A command of the kind's own interface, for programs that use the NIC without the library.
    Command(Command),
}

/// The purpose of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wanted {
    /// [`GroupOp::Arrive`] and [`GroupOp::Phase`].
    Barrier,
    /// [`GroupOp::Multicast`].
    Multicast,
    /// [`GroupOp::Collective`].
    Collectives,
    /// [`GroupOp::Send`] and [`GroupOp::Receive`]. The library numbers its purposes.
    Datagrams(u32),
}

/// What hardware may do for several PEs at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupOp {
    /// Sets up hardware for a group. Every member asks with one list and one purpose. Answered with
    /// the group's number, which is not 0. If the hardware cannot serve the group, every member is
    /// answered with 0, and the library does without. For datagrams and collectives, the upper half
    /// of the answer is the most bytes of a datagram, or of a member's part.
    Join {
        /// The members. All that ask share one list.
        members: Arc<[u32]>,
        /// The group's purpose.
        wanted: Wanted,
    },
    /// Arrives at the next phase of the group's barrier.
    Arrive(u32),
    /// The reduced code for the group's barrier: a look that arrives at the next phase if the one
    /// before is complete, and is answered with 0. Else it is answered with 1.
    Step(u32),
    /// A look of the host at the NIC, with the time of a look. Answered with the last complete
    /// phase of the group's barrier.
    Phase(u32),
    /// Writes a block to the segment of every member but the sender, at one offset.
    Multicast {
        /// To whom.
        group: u32,
        /// The region and the offset. The PE has no meaning.
        to: FarAddress,
        /// What.
        data: Payload,
    },
    /// Begins a collective. Refused if the kind's hardware does not have it. Answered when the host
    /// has written its part.
    Collective {
        /// Of whom.
        group: u32,
        /// Which.
        what: NetworkCollective,
        /// This member's part.
        data: Payload,
    },
    /// A look of the host at the NIC, with the time of a look, for the result of the PE's last
    /// collective in the group. Answered with the result and one more than its length, when the
    /// collective is over for this PE and no call has taken the result; otherwise with 0. A PE that
    /// gets no result has an empty one.
    Result(u32),
    /// Sends a datagram, or several in one go. Datagrams may be lost, and `Quiet` and `Fence` do
    /// not wait for them. Answered when the program may change the data.
    Send {
        /// The group.
        group: u32,
        /// The member to send to; `None` for all others.
        to: Option<u32>,
        /// What.
        data: Payload,
    },
    /// A look of the host at the NIC, with the time of a look, for the next datagram that has come
    /// to this PE by the group. Answered with the datagram and one more than its length, or with 0.
    Receive(u32),
    /// Leaves a group for barriers, datagrams or multicast.
    Leave(u32),
}

/// A command of the kind's own interface. Each kind offers functions that make its commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Which command, by the kind's numbers.
    pub code: u32,
    /// Its arguments.
    pub words: [u64; 4],
    /// Data that the host writes with it.
    pub data: Payload,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// A number.
    pub value: u64,
    /// Bytes.
    pub data: Payload,
    /// The reason of a refusal, if the call was refused. The caller gets an error with these words.
    pub refused: Option<String>,
}

impl Default for Answer {
    fn default() -> Self {
        Answer { value: 0, data: Payload::EMPTY, refused: None }
    }
}

impl Answer {
    /// An answer with a number.
    pub fn value(value: u64) -> Answer {
        Answer { value, ..Answer::default() }
    }

    /// An answer with bytes.
    pub fn data(data: Payload) -> Answer {
        Answer { data, ..Answer::default() }
    }

    /// An answer to a look that has found bytes: one more than their number, so that it is not 0,
    /// and the bytes.
    pub fn with_length(data: Payload) -> Answer {
        Answer { value: 1 + data.len() as u64, ..Answer::data(data) }
    }

    /// A refusal, in words that name cause and fix.
    pub fn refused(why: impl Into<String>) -> Answer {
        Answer { refused: Some(why.into()), ..Answer::default() }
    }
}

/// The looks of a host at memory that its NIC writes: one read after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    /// From the start of a look to the start of the next. More than zero.
    pub interval: Ps,
    /// From the start of a look to the moment at which the memory is read. At most `interval`.
    pub sample: Ps,
}

impl Polling {
    /// When a host that looks again and again from `from` on has seen a change made at `changed`:
    /// the end of the look that sees the change.
    pub fn seen(self, from: Ps, changed: Ps) -> Ps {
        self.reads(from, changed) + (self.interval - self.sample)
    }

    /// When the look reads the memory that first sees a change made at `changed`.
    pub fn reads(self, from: Ps, changed: Ps) -> Ps {
        let first = from + self.sample;
        first + self.interval * changed.since(first).0.div_ceil(self.interval.0)
    }
}

/// What waiting costs a process that sleeps in the kernel until its NIC interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sleep {
    /// How long the process looks before it sleeps.
    pub spin: Ps,
    /// The system call by which the process blocks.
    pub block: Ps,
    /// The interrupt: its handler, and saving and restoring the state of the CPU around it.
    pub interrupt: Ps,
    /// Switching to the process.
    pub context_switch: Ps,
}

/// The phases of a wait in the kernel, each from its begin to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slept {
    /// The system call.
    pub block: (Ps, Ps),
    /// The interrupt; no time where nothing interrupts.
    pub interrupt: (Ps, Ps),
    /// Switching to the process.
    pub context_switch: (Ps, Ps),
}

impl Sleep {
    /// How a process sleeps that waits since `since`, and since `from` after the last change, for
    /// the change made at `changed`. `None` where it still looks then. The kernel looks before the
    /// process sleeps, and nothing interrupts where the change is there.
    pub fn phases(self, since: Ps, from: Ps, changed: Ps) -> Option<Slept> {
        if self.spin > Ps::ZERO && changed <= since + self.spin {
            return None;
        }
        let begin = from.max(since + self.spin);
        let blocked = begin + self.block;
        let (woken, handled, runs) = if changed > begin {
            let woken = changed.max(blocked);
            (woken, woken + self.interrupt, woken + self.interrupt + self.context_switch)
        } else {
            (blocked, blocked, blocked)
        };
        Some(Slept {
            block: (begin, blocked),
            interrupt: (woken, handled),
            context_switch: (handled, runs),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begin of the interrupt, if there is one, and when the process runs.
    fn slept(spin: u64, since: u64, from: u64, changed: u64) -> Option<(Option<u64>, u64)> {
        let sleep =
            Sleep { spin: Ps(spin), block: Ps(10), interrupt: Ps(20), context_switch: Ps(30) };
        let slept = sleep.phases(Ps(since), Ps(from), Ps(changed))?;
        let (begin, end) = slept.interrupt;
        Some(((end > begin).then_some(begin.0), slept.context_switch.1.0))
    }

    #[test]
    fn a_change_before_the_sleep_interrupts_nobody() {
        assert_eq!(slept(0, 100, 100, 100), Some((None, 110)));
        assert_eq!(slept(0, 100, 100, 101), Some((Some(110), 160)));
        assert_eq!(slept(0, 100, 100, 500), Some((Some(500), 550)));
        assert_eq!(slept(0, 100, 600, 500), Some((None, 610)), "it has come between two looks");
    }

    #[test]
    fn a_process_looks_before_it_sleeps() {
        assert_eq!(slept(50, 100, 100, 150), None);
        assert_eq!(slept(50, 100, 100, 151), Some((Some(160), 210)));
        assert_eq!(slept(50, 100, 300, 301), Some((Some(310), 360)), "once for each wait");
    }

    #[test]
    fn looks_come_one_after_the_other() {
        let polling = Polling { interval: Ps(10), sample: Ps(4) };
        for (changed, seen) in [(0, 110), (104, 110), (105, 120), (114, 120), (115, 130)] {
            assert_eq!(polling.seen(Ps(100), Ps(changed)), Ps(seen), "{changed}");
        }
    }
}
