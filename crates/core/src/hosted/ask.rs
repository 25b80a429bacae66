//! What a hosted PE asks of the machine that it runs on, and the words in which an attached process
//! writes it down.
//!
//! Nothing in an [`Ask`] points into the program's memory; a block that goes with it or comes back
//! travels beside it.

use crate::base::shm::AtomicOp;
use crate::endpoint::fabric::{
    Awaited, Due, FarAddress, NetworkCollective, Signal, SignalOp, WordOperator,
};
use std::time::Duration;

/// A question to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The PE is there: its program begins.
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
    /// A block, then perhaps a signal.
    Put {
        /// Where.
        to: FarAddress,
        /// Bytes of the block; may be none.
        len: u32,
        /// Whether the program may change its source when the call returns.
        reuse: bool,
        /// Visible only when the block is.
        signal: Option<Signal>,
    },
    /// Answered with a block.
    Get {
        /// Where.
        from: FarAddress,
        /// Bytes of the block.
        len: u32,
    },
    /// Answered with what the word held.
    Atomic {
        /// Where.
        at: FarAddress,
        /// Bytes of the word.
        size: u8,
        /// What to do with it.
        what: Atomic,
    },
    /// [`Fabric::fence`](crate::endpoint::fabric::Fabric::fence).
    Fence,
    /// [`Fabric::quiet`](crate::endpoint::fabric::Fabric::quiet).
    Quiet,
    /// Answered with 1 when all that the PE has written is visible, else with 0; at once.
    IsQuiet,
    /// [`HardwareBarrier::join`](crate::endpoint::fabric::HardwareBarrier::join): answered with 0
    /// where it does not serve the job.
    Join,
    /// [`HardwareBarrier::arrive`](crate::endpoint::fabric::HardwareBarrier::arrive).
    Arrive,
    /// [`HardwareBarrier::complete`](crate::endpoint::fabric::HardwareBarrier::complete).
    Phase,
    /// [`NetworkCollectives::join`](crate::endpoint::fabric::NetworkCollectives::join): the most
    /// bytes are in the upper half.
    JoinCollectives,
    /// [`NetworkCollectives::begin`](crate::endpoint::fabric::NetworkCollectives::begin), with the
    /// part as a block.
    Collective {
        /// Which.
        what: NetworkCollective,
        /// Bytes of the part.
        len: u32,
    },
    /// [`NetworkCollectives::end`](crate::endpoint::fabric::NetworkCollectives::end): 0, or one
    /// more than the bytes of the result that comes back.
    Collected {
        /// The most bytes that may.
        len: u32,
    },
    /// [`Datagrams::join`](crate::endpoint::fabric::Datagrams::join), with the members as a block
    /// of words of 4 bytes: the group's number, and the most bytes of a datagram in the upper half.
    JoinDatagrams {
        /// For what.
        purpose: u32,
        /// Bytes of the block.
        len: u32,
    },
    /// [`Datagrams::send`](crate::endpoint::fabric::Datagrams::send).
    Send {
        /// By which group.
        group: u32,
        /// To whom.
        to: Option<u32>,
        /// Bytes of the datagram.
        len: u32,
    },
    /// [`Datagrams::receive`](crate::endpoint::fabric::Datagrams::receive): 0, or one more than the
    /// bytes of the datagram that comes back.
    Receive {
        /// By which group.
        group: u32,
        /// The most bytes that may.
        len: u32,
    },
    /// [`Datagrams::leave`](crate::endpoint::fabric::Datagrams::leave).
    Leave {
        /// Which group.
        group: u32,
    },
    /// [`Fabric::map_region`](crate::endpoint::fabric::Fabric::map_region), by processes: takes no
    /// time.
    Map {
        /// Whose part of a restricted window it is.
        pe: u32,
        /// Its region.
        region: u32,
        /// Bytes.
        len: u64,
        /// The number that the memory file has in this process.
        file: u32,
    },
    /// [`Fabric::unmap_region`](crate::endpoint::fabric::Fabric::unmap_region), by processes: takes
    /// no time.
    Unmap {
        /// Whose part it was.
        pe: u32,
        /// Its region.
        region: u32,
    },
    /// [`VirtualClock::look`](crate::endpoint::fabric::VirtualClock::look).
    Look,
    /// [`VirtualClock::park`](crate::endpoint::fabric::VirtualClock::park).
    Park {
        /// When to stop.
        due: Option<Due>,
        /// What for.
        what: Awaited,
    },
    /// [`VirtualClock::compute`](crate::endpoint::fabric::VirtualClock::compute).
    Compute {
        /// For how long.
        time: Duration,
    },
}

/// An atomic operation on a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomic {
    /// Of the library's list.
    Op(AtomicOp, u64),
    /// Stores `new` where the word holds `expected`.
    CompareSwap {
        /// What it must hold.
        expected: u64,
        /// What it then gets.
        new: u64,
    },
}

impl Atomic {
    /// What a word of `size` bytes that held `old` holds then.
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

/// Words of a question.
pub(super) const WORDS: usize = 8;

/// In the lowest byte of the first word.
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
}

const OPERATIONS: [AtomicOp; 5] =
    [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap];
const COMPARE_SWAP: u8 = OPERATIONS.len() as u8;
const REUSE: u8 = 1;
const SIGNAL_SET: u8 = 2;
const SIGNAL_ADD: u8 = 4;
const DUE: u8 = 1;
const VAIN: u8 = 2;
const TO_ONE: u8 = 1;

const OPERATORS: [WordOperator; 5] =
    [WordOperator::Add, WordOperator::Min, WordOperator::Max, WordOperator::And, WordOperator::Or];

/// A collective's kind, operator and root.
fn collective(what: NetworkCollective) -> (u8, u8, u32) {
    let number = |operator| {
        OPERATORS.iter().position(|&other| other == operator).expect("all are in the list") as u8
    };
    match what {
        NetworkCollective::Broadcast { root } => (0, 0, root),
        NetworkCollective::Reduce { root, operator } => (1, number(operator), root),
        NetworkCollective::AllReduce(operator) => (2, number(operator), 0),
        NetworkCollective::Scan(operator) => (3, number(operator), 0),
    }
}

fn collective_of(kind: u8, operator: u8, root: u32) -> Option<NetworkCollective> {
    let operator = *OPERATORS.get(usize::from(operator))?;
    match kind {
        0 => Some(NetworkCollective::Broadcast { root }),
        1 => Some(NetworkCollective::Reduce { root, operator }),
        2 => Some(NetworkCollective::AllReduce(operator)),
        3 => Some(NetworkCollective::Scan(operator)),
        _ => None,
    }
}

/// The first word, and a place in two.
fn front(kind: u8, size: u8, what: u8, flags: u8) -> u64 {
    u64::from(u32::from_le_bytes([kind, size, what, flags]))
}

fn place(at: FarAddress) -> [u64; 2] {
    [u64::from(at.pe) | u64::from(at.region) << 32, at.offset]
}

fn place_of(words: [u64; 2]) -> FarAddress {
    FarAddress { pe: words[0] as u32, region: (words[0] >> 32) as u32, offset: words[1] }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Ask {
    /// Bytes of the block that goes with it.
    pub fn gives(self) -> usize {
        match self {
            Ask::Put { len, .. }
            | Ask::Collective { len, .. }
            | Ask::JoinDatagrams { len, .. }
            | Ask::Send { len, .. } => len as usize,
            _ => 0,
        }
    }

    /// The most bytes of the block that comes back.
    pub fn takes(self) -> usize {
        match self {
            Ask::Get { len, .. } | Ask::Collected { len } | Ask::Receive { len, .. } => {
                len as usize
            }
            _ => 0,
        }
    }

    /// Written down. [`from_words`](Self::from_words) reads it; times are whole nanoseconds.
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let plain = |kind| [front(kind, 0, 0, 0), 0, 0, 0, 0, 0, 0, 0];
        match self {
            Ask::Begin => plain(kind::BEGIN),
            Ask::Store { to, size, bits } => {
                let [pe, offset] = place(to);
                [front(kind::STORE, size, 0, 0), pe, offset, bits, 0, 0, 0, 0]
            }
            Ask::Put { to, len, reuse, signal } => {
                let [pe, offset] = place(to);
                let mut flags = if reuse { REUSE } else { 0 };
                let mut then = ([0, 0], 0);
                if let Some(signal) = signal {
                    flags |= match signal.op {
                        SignalOp::Set => SIGNAL_SET,
                        SignalOp::Add => SIGNAL_ADD,
                    };
                    then = (place(signal.at), signal.value);
                }
                let ([signal_pe, signal_offset], value) = then;
                let front = front(kind::PUT, 0, 0, flags);
                [front, pe, offset, len.into(), signal_pe, signal_offset, value, 0]
            }
            Ask::Get { from, len } => {
                let [pe, offset] = place(from);
                [front(kind::GET, 0, 0, 0), pe, offset, len.into(), 0, 0, 0, 0]
            }
            Ask::Atomic { at, size, what } => {
                let [pe, offset] = place(at);
                let (what, operand, new) = match what {
                    Atomic::Op(op, operand) => {
                        let number = OPERATIONS.iter().position(|&other| other == op);
                        (number.expect("all are in the list") as u8, operand, 0)
                    }
                    Atomic::CompareSwap { expected, new } => (COMPARE_SWAP, expected, new),
                };
                [front(kind::ATOMIC, size, what, 0), pe, offset, operand, new, 0, 0, 0]
            }
            Ask::Fence => plain(kind::FENCE),
            Ask::Quiet => plain(kind::QUIET),
            Ask::IsQuiet => plain(kind::IS_QUIET),
            Ask::Join => plain(kind::JOIN),
            Ask::Arrive => plain(kind::ARRIVE),
            Ask::Phase => plain(kind::PHASE),
            Ask::Map { pe, region, len, file } => {
                let [at, _] = place(FarAddress { pe, region, offset: 0 });
                [front(kind::MAP, 0, 0, 0), at, 0, len, file.into(), 0, 0, 0]
            }
            Ask::Unmap { pe, region } => {
                let [at, _] = place(FarAddress { pe, region, offset: 0 });
                [front(kind::UNMAP, 0, 0, 0), at, 0, 0, 0, 0, 0, 0]
            }
            Ask::JoinCollectives => plain(kind::JOIN_COLLECTIVES),
            Ask::Collective { what, len } => {
                let (number, operator, root) = collective(what);
                [
                    front(kind::COLLECTIVE, number, operator, 0),
                    root.into(),
                    0,
                    len.into(),
                    0,
                    0,
                    0,
                    0,
                ]
            }
            Ask::Collected { len } => {
                [front(kind::COLLECTED, 0, 0, 0), 0, 0, len.into(), 0, 0, 0, 0]
            }
            Ask::JoinDatagrams { purpose, len } => {
                [front(kind::JOIN_DATAGRAMS, 0, 0, 0), purpose.into(), 0, len.into(), 0, 0, 0, 0]
            }
            Ask::Send { group, to, len } => {
                let flags = if to.is_some() { TO_ONE } else { 0 };
                let [at, _] = place(FarAddress { pe: group, region: to.unwrap_or(0), offset: 0 });
                [front(kind::SEND, 0, 0, flags), at, 0, len.into(), 0, 0, 0, 0]
            }
            Ask::Receive { group, len } => {
                [front(kind::RECEIVE, 0, 0, 0), group.into(), 0, len.into(), 0, 0, 0, 0]
            }
            Ask::Leave { group } => [front(kind::LEAVE, 0, 0, 0), group.into(), 0, 0, 0, 0, 0, 0],
            Ask::Look => plain(kind::LOOK),
            Ask::Park { due, what } => {
                let number = Awaited::ALL.iter().position(|&other| other == what);
                let flags = due.map_or(0, |due| DUE | if due.vain { VAIN } else { 0 });
                let front = front(kind::PARK, 0, number.expect("all are in the list") as u8, flags);
                [front, due.map_or(0, |due| nanos(due.at)), 0, 0, 0, 0, 0, 0]
            }
            Ask::Compute { time } => [front(kind::COMPUTE, 0, 0, 0), nanos(time), 0, 0, 0, 0, 0, 0],
        }
    }

    /// Read, believing nothing: that addresses are memory of the job, and words aligned, is for the
    /// reader to check. Nothing, where no question is written like this.
    pub(super) fn from_words(words: [u64; WORDS]) -> Option<Ask> {
        let [kind, size, what, flags] = u32::try_from(words[0]).ok()?.to_le_bytes();
        let at = place_of([words[1], words[2]]);
        let len = || u32::try_from(words[3]).ok();
        Some(match kind {
            kind::BEGIN => Ask::Begin,
            kind::STORE => Ask::Store { to: at, size, bits: words[3] },
            kind::PUT => {
                let op = match flags & !REUSE {
                    0 => None,
                    SIGNAL_SET => Some(SignalOp::Set),
                    SIGNAL_ADD => Some(SignalOp::Add),
                    _ => return None,
                };
                let signal =
                    |op| Signal { at: place_of([words[4], words[5]]), op, value: words[6] };
                Ask::Put { to: at, len: len()?, reuse: flags & REUSE != 0, signal: op.map(signal) }
            }
            kind::GET => Ask::Get { from: at, len: len()? },
            kind::ATOMIC => {
                let what = match OPERATIONS.get(usize::from(what)) {
                    Some(&op) => Atomic::Op(op, words[3]),
                    None if what == COMPARE_SWAP => {
                        Atomic::CompareSwap { expected: words[3], new: words[4] }
                    }
                    None => return None,
                };
                Ask::Atomic { at, size, what }
            }
            kind::FENCE => Ask::Fence,
            kind::QUIET => Ask::Quiet,
            kind::IS_QUIET => Ask::IsQuiet,
            kind::JOIN => Ask::Join,
            kind::ARRIVE => Ask::Arrive,
            kind::PHASE => Ask::Phase,
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
            kind::JOIN_DATAGRAMS => Ask::JoinDatagrams { purpose: at.pe, len: len()? },
            kind::SEND => Ask::Send {
                group: at.pe,
                to: (flags & TO_ONE != 0).then_some(at.region),
                len: len()?,
            },
            kind::RECEIVE => Ask::Receive { group: at.pe, len: len()? },
            kind::LEAVE => Ask::Leave { group: at.pe },
            kind::LOOK => Ask::Look,
            kind::PARK => Ask::Park {
                due: (flags & DUE != 0)
                    .then(|| Due { at: Duration::from_nanos(words[1]), vain: flags & VAIN != 0 }),
                what: *Awaited::ALL.get(usize::from(what))?,
            },
            kind::COMPUTE => Ask::Compute { time: Duration::from_nanos(words[1]) },
            _ => return None,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What can be read is what would be written, but for bits of no meaning.
        #[test]
        fn whatever_is_written_is_read_or_refused(front in any::<[u8; 4]>(), rest in any::<[u64; WORDS - 1]>(), kind in 0u8..25) {
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
            Ask::Get { from: at, len: 77 },
            Ask::Atomic { at, size: 8, what: Atomic::Op(AtomicOp::Xor, 5) },
            Ask::Atomic { at, size: 2, what: Atomic::CompareSwap { expected: 1, new: 2 } },
            Ask::Fence,
            Ask::Quiet,
            Ask::IsQuiet,
            Ask::Join,
            Ask::Arrive,
            Ask::Phase,
            Ask::Map { pe: 1, region: 2, len: 1 << 40, file: 3 },
            Ask::Unmap { pe: 1, region: 2 },
            Ask::JoinCollectives,
            Ask::Collective {
                what: NetworkCollective::Reduce { root: 5, operator: WordOperator::Or },
                len: 56,
            },
            Ask::Collective { what: NetworkCollective::Scan(WordOperator::Max), len: 8 },
            Ask::Collected { len: 56 },
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
        ];
        for ask in asks {
            assert_eq!(Ask::from_words(ask.to_words()), Some(ask));
        }
        assert_eq!(Ask::from_words([0; WORDS]), None);
        assert_eq!(Ask::from_words([u64::MAX; WORDS]), None);
    }
}
