//! The questions of a hosted PE to its machine, and the words in which an attached process writes
//! them.
//!
//! Nothing in an [`Ask`] points into the program's memory: blocks travel beside it.

use crate::base::shm::AtomicOp;
#[cfg(doc)]
use crate::endpoint::errand::Step;
use crate::endpoint::errand::Test;
use crate::endpoint::fabric::{
    Awaited, Due, FarAddress, NetworkCollective, Signal, SignalOp, WordOperator,
};
use std::time::Duration;

/// A question to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The program of the PE begins.
    Begin,
    /// [`Fabric::store`](crate::endpoint::fabric::Fabric::store).
    Store {
        /// Where.
        to: FarAddress,
        /// Bytes of the word.
        size: u8,
        /// The word.
        bits: u64,
    },
    /// Puts a block, and sends a signal after it if there is one.
    Put {
        /// Where.
        to: FarAddress,
        /// Bytes of the block; may be none.
        len: u32,
        /// Whether the program may change the source when the call returns.
        reuse: bool,
        /// Visible only after the block.
        signal: Option<Signal>,
    },
    /// About the command of a [`Put`](Self::Put) without `reuse` that the program makes again and
    /// again.
    Command {
        /// Where.
        to: FarAddress,
        /// Bytes of the block.
        len: u32,
        /// Visible only after the block.
        signal: Option<Signal>,
        /// What.
        step: CommandStep,
    },
    /// About the key of a part of a restricted window.
    Key {
        /// The PE whose part it is.
        pe: u32,
        /// Its region.
        region: u32,
        /// The key.
        key: u64,
        /// What.
        step: KeyStep,
    },
    /// Gets a block, which is the answer.
    Get {
        /// Where.
        from: FarAddress,
        /// Bytes of the block.
        len: u32,
    },
    /// Updates a word. The answer is its old value.
    Atomic {
        /// Where.
        at: FarAddress,
        /// Bytes of the word.
        size: u8,
        /// The operation.
        what: Atomic,
    },
    /// [`Fabric::fence`](crate::endpoint::fabric::Fabric::fence).
    Fence,
    /// [`Fabric::quiet`](crate::endpoint::fabric::Fabric::quiet).
    Quiet,
    /// Answered at once: 1 when all writes of the PE are visible, otherwise 0.
    IsQuiet,
    /// [`HardwareBarrier::join`](crate::endpoint::fabric::HardwareBarrier::join). The block has the
    /// members, 4 bytes each; an empty one stands for all PEs. The answer is the group's number, or
    /// 0 where the hardware does not serve it.
    Join {
        /// Bytes of the block.
        len: u32,
    },
    /// [`HardwareBarrier::arrive`](crate::endpoint::fabric::HardwareBarrier::arrive).
    Arrive {
        /// The group.
        group: u32,
    },
    /// [`HardwareBarrier::step`](crate::endpoint::fabric::HardwareBarrier::step). The answer is the
    /// reduced code's: 1 while the phase before is not complete, 0 when the PE has arrived.
    Step {
        /// The group.
        group: u32,
    },
    /// [`HardwareBarrier::complete`](crate::endpoint::fabric::HardwareBarrier::complete).
    Phase {
        /// The group.
        group: u32,
    },
    /// [`NetworkCollectives::join`](crate::endpoint::fabric::NetworkCollectives::join): the
    /// answer's upper half has the most bytes.
    JoinCollectives,
    /// [`NetworkCollectives::begin`](crate::endpoint::fabric::NetworkCollectives::begin). The block
    /// is the PE's part.
    Collective {
        /// The operation, with its root or operator.
        what: NetworkCollective,
        /// Bytes of the part.
        len: u32,
    },
    /// [`NetworkCollectives::end`](crate::endpoint::fabric::NetworkCollectives::end): the answer is
    /// 0, or 1 + the bytes of the result.
    Collected {
        /// The most bytes of a result.
        len: u32,
    },
    /// [`CopiedWrites::join`](crate::endpoint::fabric::CopiedWrites::join). Block and answer are
    /// those of [`Join`](Self::Join).
    JoinCopies {
        /// Bytes of the block.
        len: u32,
    },
    /// [`CopiedWrites::write`](crate::endpoint::fabric::CopiedWrites::write). The block is what is
    /// written.
    WriteAll {
        /// The group.
        group: u32,
        /// Where, in each member's segment.
        to: u64,
        /// Bytes of the block.
        len: u32,
    },
    /// [`Datagrams::join`](crate::endpoint::fabric::Datagrams::join). The block has the members, 4
    /// bytes each. The answer is the group's number, and in the upper half the most bytes of a
    /// datagram.
    JoinDatagrams {
        /// The purpose that members of one group have in common.
        purpose: u32,
        /// Bytes of the block.
        len: u32,
    },
    /// [`Datagrams::send`](crate::endpoint::fabric::Datagrams::send).
    Send {
        /// The group.
        group: u32,
        /// The receiver; `None`: all other members.
        to: Option<u32>,
        /// Bytes of the datagram.
        len: u32,
    },
    /// [`Datagrams::receive`](crate::endpoint::fabric::Datagrams::receive): the answer is 0, or 1 +
    /// the bytes of the datagram.
    Receive {
        /// The group.
        group: u32,
        /// The most bytes of a datagram.
        len: u32,
    },
    /// [`Datagrams::leave`](crate::endpoint::fabric::Datagrams::leave),
    /// [`HardwareBarrier::leave`](crate::endpoint::fabric::HardwareBarrier::leave), and
    /// [`CopiedWrites::leave`](crate::endpoint::fabric::CopiedWrites::leave).
    Leave {
        /// The group.
        group: u32,
    },
    /// [`Fabric::map_region`](crate::endpoint::fabric::Fabric::map_region), by processes: takes no
    /// time.
    Map {
        /// The PE whose part of a restricted window it is.
        pe: u32,
        /// Its region.
        region: u32,
        /// Bytes.
        len: u64,
        /// The memory file's descriptor in this process.
        file: u32,
    },
    /// [`Fabric::unmap_region`](crate::endpoint::fabric::Fabric::unmap_region), by processes: takes
    /// no time.
    Unmap {
        /// The PE whose part it was.
        pe: u32,
        /// Its region.
        region: u32,
    },
    /// [`VirtualClock::look`](crate::endpoint::fabric::VirtualClock::look).
    Look,
    /// [`VirtualClock::park`](crate::endpoint::fabric::VirtualClock::park).
    Park {
        /// When to resume at the latest.
        due: Option<Due>,
        /// The awaited event.
        what: Awaited,
    },
    /// [`VirtualClock::compute`](crate::endpoint::fabric::VirtualClock::compute).
    Compute {
        /// For how long.
        time: Duration,
    },
    /// [`Step::Mark`], by processes: takes no time.
    Mark {
        /// Where in the PE's own segment.
        offset: u64,
        /// What.
        value: u64,
    },
    /// [`Step::Await`], by processes.
    Await {
        /// Where in the PE's own segment.
        offset: u64,
        /// What the word must be.
        test: Test,
        /// The awaited event.
        what: Awaited,
    },
}

/// What is asked about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStep {
    /// [`Fabric::keep_command`](crate::endpoint::fabric::Fabric::keep_command).
    Keep,
    /// [`Fabric::drop_command`](crate::endpoint::fabric::Fabric::drop_command).
    Drop,
    /// [`Fabric::command_is_complete`](crate::endpoint::fabric::Fabric::command_is_complete): the
    /// answer is 1 or 0.
    Test,
    /// [`Fabric::complete_command`](crate::endpoint::fabric::Fabric::complete_command): answered
    /// when the command is complete.
    Complete,
}

/// What is asked about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStep {
    /// [`Fabric::carry_key`](crate::endpoint::fabric::Fabric::carry_key).
    Carry,
    /// [`Fabric::admit_key`](crate::endpoint::fabric::Fabric::admit_key), beside earlier keys.
    Admit,
    /// The same, as the only key.
    AdmitOnly,
}

/// An atomic operation on a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// An operation of the library's list, with its operand.
    Op(AtomicOp, u64),
    /// Stores `new` where the word holds `expected`.
    CompareSwap {
        /// The value that the word must hold.
        expected: u64,
        /// The value that it then gets.
        new: u64,
    },
}

impl Atomic {
    /// The new value of a word of `size` bytes that held `old`.
    pub fn result(self, old: u64, size: usize) -> u64 {
        let new = match self {
            Atomic::Op(AtomicOp::Add, value) => old.wrapping_add(value),
            Atomic::Op(AtomicOp::And, value) => old & value,
            Atomic::Op(AtomicOp::Or, value) => old | value,
            Atomic::Op(AtomicOp::Xor, value) => old ^ value,
            Atomic::Op(AtomicOp::Swap, value) => value,
            Atomic::CompareSwap { expected, new } if expected == old => new,
            Atomic::CompareSwap { .. } => old,
        };
        new & u64::MAX >> (64 - 8 * size)
    }
}

/// Length of a question in words.
pub(super) const WORDS: usize = 8;

/// Kinds of questions: the lowest byte of the first word.
mod kind {
    pub(super) const BEGIN: u8 = 1;
    pub(super) const STORE: u8 = 2;
    pub(super) const PUT: u8 = 3;
    pub(super) const GET: u8 = 4;
    pub(super) const ATOMIC: u8 = 5;
    pub(super) const FENCE: u8 = 6;
    pub(super) const QUIET: u8 = 7;
    pub(super) const IS_QUIET: u8 = 8;
    pub(super) const JOIN: u8 = 9;
    pub(super) const ARRIVE: u8 = 10;
    pub(super) const PHASE: u8 = 11;
    pub(super) const LOOK: u8 = 12;
    pub(super) const PARK: u8 = 13;
    pub(super) const COMPUTE: u8 = 14;
    pub(super) const MAP: u8 = 15;
    pub(super) const UNMAP: u8 = 16;
    pub(super) const JOIN_COLLECTIVES: u8 = 17;
    pub(super) const COLLECTIVE: u8 = 18;
    pub(super) const COLLECTED: u8 = 19;
    pub(super) const JOIN_DATAGRAMS: u8 = 20;
    pub(super) const SEND: u8 = 21;
    pub(super) const RECEIVE: u8 = 22;
    pub(super) const LEAVE: u8 = 23;
    pub(super) const COMMAND: u8 = 24;
    pub(super) const JOIN_COPIES: u8 = 25;
    pub(super) const WRITE_ALL: u8 = 26;
    pub(super) const MARK: u8 = 27;
    pub(super) const AWAIT: u8 = 28;
    pub(super) const KEY: u8 = 29;
    pub(super) const STEP: u8 = 30;
    /// The last kind, for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) const LAST: u8 = STEP;
}

const OPERATIONS: [AtomicOp; 5] =
    [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap];
const COMPARE_SWAP: u8 = OPERATIONS.len() as u8;
const COMMAND_STEPS: [CommandStep; 4] =
    [CommandStep::Keep, CommandStep::Drop, CommandStep::Test, CommandStep::Complete];
const KEY_STEPS: [KeyStep; 3] = [KeyStep::Carry, KeyStep::Admit, KeyStep::AdmitOnly];
/// Of a put: the source may change.
const REUSE: u8 = 1;
const SIGNAL_SET: u8 = 2;
const SIGNAL_ADD: u8 = 4;
const DUE: u8 = 1;
const VAIN: u8 = 2;
const TO_ONE: u8 = 1;
const BYTES: u8 = 1;
const EQUAL: u8 = 2;

const OPERATORS: [WordOperator; 7] = [
    WordOperator::Add,
    WordOperator::Min,
    WordOperator::Max,
    WordOperator::And,
    WordOperator::Or,
    WordOperator::AddDouble,
    WordOperator::AddSingle,
];

/// Kind, operator and root of a collective, as numbers.
fn collective(what: NetworkCollective) -> (u8, u8, u32) {
    let number = |operator| number_in(&OPERATORS, operator);
    match what {
        NetworkCollective::Broadcast { root } => (0, 0, root),
        NetworkCollective::Reduce { root, operator } => (1, number(&operator), root),
        NetworkCollective::AllReduce(operator) => (2, number(&operator), 0),
        NetworkCollective::Scan(operator) => (3, number(&operator), 0),
    }
}

fn collective_of(kind: u8, operator: u8, root: u32) -> Option<NetworkCollective> {
    let operator = listed(&OPERATORS, operator)?;
    match kind {
        0 => Some(NetworkCollective::Broadcast { root }),
        1 => Some(NetworkCollective::Reduce { root, operator }),
        2 => Some(NetworkCollective::AllReduce(operator)),
        3 => Some(NetworkCollective::Scan(operator)),
        _ => None,
    }
}

/// The first word.
fn front(kind: u8, size: u8, what: u8, flags: u8) -> u64 {
    u64::from(u32::from_le_bytes([kind, size, what, flags]))
}

/// An address in two words.
fn place(at: FarAddress) -> [u64; 2] {
    [u64::from(at.pe) | u64::from(at.region) << 32, at.offset]
}

fn place_of(words: [u64; 2]) -> FarAddress {
    FarAddress { pe: words[0] as u32, region: (words[0] >> 32) as u32, offset: words[1] }
}

/// The address of questions that have none.
const NOWHERE: FarAddress = FarAddress { pe: 0, region: 0, offset: 0 };

/// All words: the front, an address, and the rest, padded with zeros.
fn words<const N: usize>(front: u64, at: FarAddress, rest: [u64; N]) -> [u64; WORDS] {
    const { assert!(N <= WORDS - 3) };
    let mut words = [0; WORDS];
    words[0] = front;
    words[1..3].copy_from_slice(&place(at));
    words[3..3 + N].copy_from_slice(&rest);
    words
}

/// The words of a question whose operand is a time.
fn timed(front: u64, time: Duration) -> [u64; WORDS] {
    [front, nanos(time), 0, 0, 0, 0, 0, 0]
}

/// The words of a put, or of a question about a command for one. `what` and `flags` are those of
/// the front.
fn put_words(
    [kind, what, flags]: [u8; 3],
    to: FarAddress,
    len: u32,
    signal: Option<Signal>,
) -> [u64; WORDS] {
    let Some(Signal { at, op, value }) = signal else {
        return words(front(kind, 0, what, flags), to, [len.into()]);
    };
    let signal = match op {
        SignalOp::Set => SIGNAL_SET,
        SignalOp::Add => SIGNAL_ADD,
    };
    let [signal_pe, signal_offset] = place(at);
    let rest = [len.into(), signal_pe, signal_offset, value];
    words(front(kind, 0, what, flags | signal), to, rest)
}

/// The signal in the words of a put.
fn signal_of(words: [u64; WORDS], flags: u8) -> Option<Option<Signal>> {
    let op = match flags {
        0 => return Some(None),
        SIGNAL_SET => SignalOp::Set,
        SIGNAL_ADD => SignalOp::Add,
        _ => return None,
    };
    Some(Some(Signal { at: place_of([words[4], words[5]]), op, value: words[6] }))
}

/// The value at a place of the list of its kind.
fn listed<T: Copy>(list: &[T], number: u8) -> Option<T> {
    list.get(usize::from(number)).copied()
}

/// The place of a value in the list of its kind.
fn number_in<T: PartialEq>(list: &[T], value: &T) -> u8 {
    list.iter().position(|other| other == value).expect("all are in the list") as u8
}

fn atomic_words(at: FarAddress, size: u8, what: Atomic) -> [u64; WORDS] {
    let (what, operand, new) = match what {
        Atomic::Op(op, operand) => (number_in(&OPERATIONS, &op), operand, 0),
        Atomic::CompareSwap { expected, new } => (COMPARE_SWAP, expected, new),
    };
    words(front(kind::ATOMIC, size, what, 0), at, [operand, new])
}

/// The operation in the words of an atomic; `number` stands in the front.
fn atomic_of(words: [u64; WORDS], number: u8) -> Option<Atomic> {
    if number == COMPARE_SWAP {
        return Some(Atomic::CompareSwap { expected: words[3], new: words[4] });
    }
    Some(Atomic::Op(listed(&OPERATIONS, number)?, words[3]))
}

fn park_words(due: Option<Due>, what: Awaited) -> [u64; WORDS] {
    let flags = due.map_or(0, |due| DUE | if due.vain { VAIN } else { 0 });
    let front = front(kind::PARK, 0, number_in(&Awaited::ALL, &what), flags);
    timed(front, due.map_or(Duration::ZERO, |due| due.at))
}

/// When a parked PE goes on by itself, if it does.
fn due_of(words: [u64; WORDS], flags: u8) -> Option<Due> {
    let due = Due { at: Duration::from_nanos(words[1]), vain: flags & VAIN != 0 };
    (flags & DUE != 0).then_some(due)
}

fn await_words(offset: u64, test: Test, what: Awaited) -> [u64; WORDS] {
    let (flags, phase, mask) = match test {
        Test::AtLeast(least) => (0, least, 0),
        Test::Equal(value) => (EQUAL, value, 0),
        Test::Bytes { mask, phase } => (BYTES, phase, mask),
    };
    let at = FarAddress { offset, ..NOWHERE };
    words(front(kind::AWAIT, 0, number_in(&Awaited::ALL, &what), flags), at, [phase, mask])
}

fn test_of(words: [u64; WORDS], flags: u8) -> Option<Test> {
    match flags {
        0 => Some(Test::AtLeast(words[3])),
        EQUAL => Some(Test::Equal(words[3])),
        BYTES => Some(Test::Bytes { phase: words[3], mask: words[4] }),
        _ => None,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Ask {
    /// Bytes of the block that goes with the question.
    pub fn gives(self) -> usize {
        match self {
            Ask::Put { len, .. }
            | Ask::Collective { len, .. }
            | Ask::Join { len }
            | Ask::JoinCopies { len }
            | Ask::WriteAll { len, .. }
            | Ask::JoinDatagrams { len, .. }
            | Ask::Send { len, .. } => len as usize,
            _ => 0,
        }
    }

    /// The most bytes of the block that comes back with the answer.
    pub fn takes(self) -> usize {
        match self {
            Ask::Get { len, .. } | Ask::Collected { len } | Ask::Receive { len, .. } => {
                len as usize
            }
            _ => 0,
        }
    }

    /// The question in words, which [`from_words`](Self::from_words) reads. Times are whole
    /// nanoseconds.
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let plain = |kind| front(kind, 0, 0, 0);
        let alone = |kind| words(plain(kind), NOWHERE, []);
        let of_region = |pe, region| FarAddress { pe, region, offset: 0 };
        let numbered = |number| of_region(number, 0);
        match self {
            Ask::Begin => alone(kind::BEGIN),
            Ask::Store { to, size, bits } => words(front(kind::STORE, size, 0, 0), to, [bits]),
            Ask::Put { to, len, reuse, signal } => {
                put_words([kind::PUT, 0, if reuse { REUSE } else { 0 }], to, len, signal)
            }
            Ask::Command { to, len, signal, step } => {
                put_words([kind::COMMAND, number_in(&COMMAND_STEPS, &step), 0], to, len, signal)
            }
            Ask::Key { pe, region, key, step } => {
                let front = front(kind::KEY, 0, number_in(&KEY_STEPS, &step), 0);
                words(front, of_region(pe, region), [key])
            }
            Ask::Get { from, len } => words(plain(kind::GET), from, [len.into()]),
            Ask::Atomic { at, size, what } => atomic_words(at, size, what),
            Ask::Fence => alone(kind::FENCE),
            Ask::Quiet => alone(kind::QUIET),
            Ask::IsQuiet => alone(kind::IS_QUIET),
            Ask::Join { len } => words(plain(kind::JOIN), NOWHERE, [len.into()]),
            Ask::Arrive { group } => words(plain(kind::ARRIVE), numbered(group), []),
            Ask::Step { group } => words(plain(kind::STEP), numbered(group), []),
            Ask::Phase { group } => words(plain(kind::PHASE), numbered(group), []),
            Ask::Map { pe, region, len, file } => {
                words(plain(kind::MAP), of_region(pe, region), [len, file.into()])
            }
            Ask::Unmap { pe, region } => words(plain(kind::UNMAP), of_region(pe, region), []),
            Ask::JoinCollectives => alone(kind::JOIN_COLLECTIVES),
            Ask::Collective { what, len } => {
                let (number, operator, root) = collective(what);
                let front = front(kind::COLLECTIVE, number, operator, 0);
                words(front, numbered(root), [len.into()])
            }
            Ask::Collected { len } => words(plain(kind::COLLECTED), NOWHERE, [len.into()]),
            Ask::JoinCopies { len } => words(plain(kind::JOIN_COPIES), NOWHERE, [len.into()]),
            Ask::WriteAll { group, to, len } => {
                let at = FarAddress { pe: group, region: 0, offset: to };
                words(plain(kind::WRITE_ALL), at, [len.into()])
            }
            Ask::JoinDatagrams { purpose, len } => {
                words(plain(kind::JOIN_DATAGRAMS), numbered(purpose), [len.into()])
            }
            Ask::Send { group, to, len } => {
                let flags = if to.is_some() { TO_ONE } else { 0 };
                let at = of_region(group, to.unwrap_or(0));
                words(front(kind::SEND, 0, 0, flags), at, [len.into()])
            }
            Ask::Receive { group, len } => {
                words(plain(kind::RECEIVE), numbered(group), [len.into()])
            }
            Ask::Leave { group } => words(plain(kind::LEAVE), numbered(group), []),
            Ask::Look => alone(kind::LOOK),
            Ask::Park { due, what } => park_words(due, what),
            Ask::Compute { time } => timed(plain(kind::COMPUTE), time),
            Ask::Mark { offset, value } => {
                words(plain(kind::MARK), FarAddress { offset, ..NOWHERE }, [value])
            }
            Ask::Await { offset, test, what } => await_words(offset, test, what),
        }
    }

    /// The question that words from an untrusted process hold; `None` if they hold none. The caller
    /// checks that addresses are memory of the job, and words aligned.
    pub(super) fn from_words(words: [u64; WORDS]) -> Option<Ask> {
        let [kind, size, what, flags] = u32::try_from(words[0]).ok()?.to_le_bytes();
        let at = place_of([words[1], words[2]]);
        let len = || u32::try_from(words[3]).ok();
        Some(match kind {
            kind::BEGIN => Ask::Begin,
            kind::STORE => Ask::Store { to: at, size, bits: words[3] },
            kind::PUT => Ask::Put {
                to: at,
                len: len()?,
                reuse: flags & REUSE != 0,
                signal: signal_of(words, flags & !REUSE)?,
            },
            kind::COMMAND => Ask::Command {
                to: at,
                len: len()?,
                signal: signal_of(words, flags)?,
                step: listed(&COMMAND_STEPS, what)?,
            },
            kind::KEY => Ask::Key {
                pe: at.pe,
                region: at.region,
                key: words[3],
                step: listed(&KEY_STEPS, what)?,
            },
            kind::GET => Ask::Get { from: at, len: len()? },
            kind::ATOMIC => Ask::Atomic { at, size, what: atomic_of(words, what)? },
            kind::FENCE => Ask::Fence,
            kind::QUIET => Ask::Quiet,
            kind::IS_QUIET => Ask::IsQuiet,
            kind::JOIN => Ask::Join { len: len()? },
            kind::ARRIVE => Ask::Arrive { group: at.pe },
            kind::PHASE => Ask::Phase { group: at.pe },
            kind::STEP => Ask::Step { group: at.pe },
            kind::MAP => Ask::Map {
                pe: at.pe,
                region: at.region,
                len: words[3],
                file: u32::try_from(words[4]).ok()?,
            },
            kind::UNMAP => Ask::Unmap { pe: at.pe, region: at.region },
            kind::JOIN_COLLECTIVES => Ask::JoinCollectives,
            kind::COLLECTIVE => {
                Ask::Collective { what: collective_of(size, what, at.pe)?, len: len()? }
            }
            kind::COLLECTED => Ask::Collected { len: len()? },
            kind::JOIN_COPIES => Ask::JoinCopies { len: len()? },
            kind::WRITE_ALL => Ask::WriteAll { group: at.pe, to: at.offset, len: len()? },
            kind::JOIN_DATAGRAMS => Ask::JoinDatagrams { purpose: at.pe, len: len()? },
            kind::SEND => Ask::Send {
                group: at.pe,
                to: (flags & TO_ONE != 0).then_some(at.region),
                len: len()?,
            },
            kind::RECEIVE => Ask::Receive { group: at.pe, len: len()? },
            kind::LEAVE => Ask::Leave { group: at.pe },
            kind::LOOK => Ask::Look,
            kind::PARK => {
                Ask::Park { due: due_of(words, flags), what: listed(&Awaited::ALL, what)? }
            }
            kind::COMPUTE => Ask::Compute { time: Duration::from_nanos(words[1]) },
            kind::MARK => Ask::Mark { offset: at.offset, value: words[3] },
            kind::AWAIT => Ask::Await {
                offset: at.offset,
                test: test_of(words, flags)?,
                what: listed(&Awaited::ALL, what)?,
            },
            _ => return None,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Words that can be read give a question that is written and read alike.
        #[test]
        fn whatever_is_written_is_read_or_refused(front in any::<[u8; 4]>(), rest in any::<[u64; WORDS - 1]>(), kind in 0..=kind::LAST) {
            let mut words = [0; WORDS];
            words[0] = u64::from(u32::from_le_bytes([kind, front[1], front[2] % 8, front[3] % 8]));
            words[1..].copy_from_slice(&rest);
            for words in [words, { let mut short = words; short[3] %= 1 << 32; short }] {
                if let Some(ask) = Ask::from_words(words) {
                    prop_assert_eq!(Ask::from_words(ask.to_words()), Some(ask));
                }
            }
        }
    }

    /// So the test above makes questions of every kind.
    #[test]
    fn no_kind_is_beyond_the_last() {
        for kind in kind::LAST + 1..=u8::MAX {
            assert_eq!(Ask::from_words([u64::from(kind); WORDS]), None, "kind {kind}");
            assert_eq!(Ask::from_words([u64::from(kind), 0, 0, 0, 0, 0, 0, 0]), None);
        }
        assert!(Ask::from_words([u64::from(kind::LAST), 0, 0, 0, 0, 0, 0, 0]).is_some());
    }

    #[test]
    fn each_kind_is_written_and_read() {
        let at = FarAddress { pe: 3, region: 2, offset: 1 << 40 };
        let signal = |op| Some(Signal { at, op, value: 9 });
        let asks = [
            Ask::Begin,
            Ask::Store { to: at, size: 4, bits: u64::MAX },
            Ask::Put { to: at, len: u32::MAX, reuse: true, signal: None },
            Ask::Put { to: at, len: 0, reuse: false, signal: signal(SignalOp::Set) },
            Ask::Put { to: at, len: 5, reuse: true, signal: signal(SignalOp::Add) },
            Ask::Command { to: at, len: 9, signal: None, step: CommandStep::Keep },
            Ask::Command { to: at, len: 9, signal: signal(SignalOp::Set), step: CommandStep::Drop },
            Ask::Command { to: at, len: 0, signal: None, step: CommandStep::Test },
            Ask::Command { to: at, len: 1, signal: None, step: CommandStep::Complete },
            Ask::Key { pe: 3, region: 2, key: u64::MAX, step: KeyStep::Carry },
            Ask::Key { pe: 3, region: 2, key: 0, step: KeyStep::Admit },
            Ask::Key { pe: 3, region: 2, key: 1, step: KeyStep::AdmitOnly },
            Ask::Get { from: at, len: 77 },
            Ask::Atomic { at, size: 8, what: Atomic::Op(AtomicOp::Xor, 5) },
            Ask::Atomic { at, size: 2, what: Atomic::CompareSwap { expected: 1, new: 2 } },
            Ask::Fence,
            Ask::Quiet,
            Ask::IsQuiet,
            Ask::Join { len: 0 },
            Ask::Join { len: 64 },
            Ask::Arrive { group: 7 },
            Ask::Phase { group: u32::MAX },
            Ask::Step { group: 3 },
            Ask::Map { pe: 1, region: 2, len: 1 << 40, file: 3 },
            Ask::Unmap { pe: 1, region: 2 },
            Ask::JoinCollectives,
            Ask::Collective {
                what: NetworkCollective::Reduce { root: 5, operator: WordOperator::Or },
                len: 56,
            },
            Ask::Collective { what: NetworkCollective::Scan(WordOperator::Max), len: 8 },
            Ask::Collected { len: 56 },
            Ask::JoinCopies { len: 12 },
            Ask::WriteAll { group: 9, to: 1 << 40, len: 464 },
            Ask::JoinDatagrams { purpose: 3, len: 16 },
            Ask::Send { group: 9, to: None, len: 2048 },
            Ask::Send { group: 9, to: Some(0), len: 1 },
            Ask::Receive { group: 9, len: 2048 },
            Ask::Leave { group: 9 },
            Ask::Look,
            Ask::Park { due: None, what: Awaited::Lock },
            Ask::Park {
                due: Some(Due { at: Duration::from_nanos(7), vain: false }),
                what: Awaited::Barrier,
            },
            Ask::Park { due: Some(Due { at: Duration::ZERO, vain: true }), what: Awaited::Word },
            Ask::Compute { time: Duration::from_secs(1) },
            Ask::Mark { offset: 1 << 40, value: 3 },
            Ask::Await { offset: 8, test: Test::AtLeast(9), what: Awaited::Barrier },
            Ask::Await { offset: 8, test: Test::Equal(9), what: Awaited::Step },
            Ask::Await {
                offset: 8,
                test: Test::Bytes { mask: 0xFF00, phase: 7 },
                what: Awaited::Step,
            },
        ];
        for ask in asks {
            assert_eq!(Ask::from_words(ask.to_words()), Some(ask));
        }
        assert_eq!(Ask::from_words([0; WORDS]), None);
        assert_eq!(Ask::from_words([u64::MAX; WORDS]), None);
    }
}
