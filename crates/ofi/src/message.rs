//! Requests to a PE's CPU, and its answers.
//!
//! A message is eight words and, for a signal, the bytes of a block that fit behind them. Numbers
//! are in the byte order of the machine: all PEs of a job have the same architecture.

use memonet_core::unstable::fabric::{FarAddress, Signal, SignalOp};
use memonet_core::unstable::shm::AtomicOp;

/// Bytes before the block.
pub(crate) const HEAD: usize = 64;
/// Most bytes of a message.
pub(crate) const MOST: usize = 1024;
/// Most bytes of a block that goes with its signal.
pub(crate) const EAGER: usize = MOST - HEAD;

/// What a message asks or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Write the block, if there is one, then do the signal.
    Signal,
    /// Update the word, and say what it held.
    Update,
    /// Exchange the word if it holds what is expected, and say what it held.
    CompareSwap,
    /// Say when all signals before have been done.
    Flush,
    /// Tell the key of the range in which the place lies.
    Key,
    /// What a word held.
    Held,
    /// So many signals have been done.
    Flushed,
    /// A key.
    KeyIs,
    /// The request was refused: there is no such place, or no right to it.
    Refused,
}

const KINDS: [Kind; 9] = [
    Kind::Signal,
    Kind::Update,
    Kind::CompareSwap,
    Kind::Flush,
    Kind::Key,
    Kind::Held,
    Kind::Flushed,
    Kind::KeyIs,
    Kind::Refused,
];

const OPS: [AtomicOp; 5] =
    [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap];

/// The words of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    /// Who sends it.
    pub(crate) from: u32,
    /// Size of a word, in bytes.
    pub(crate) size: u8,
    /// What is done to a word.
    pub(crate) op: AtomicOp,
    /// Bytes of a block.
    pub(crate) len: u32,
    pub(crate) region: u32,
    pub(crate) offset: u64,
    /// The signal's region.
    pub(crate) other_region: u32,
    /// The signal's offset; what is expected; where a range ends.
    pub(crate) other: u64,
    pub(crate) value: u64,
    /// What an answer is recognised by.
    pub(crate) ticket: u64,
    /// The network's address of a range.
    pub(crate) base: u64,
}

impl Head {
    pub(crate) fn new(kind: Kind, from: u32) -> Self {
        Head {
            kind,
            from,
            size: 8,
            op: AtomicOp::Swap,
            len: 0,
            region: 0,
            offset: 0,
            other_region: 0,
            other: 0,
            value: 0,
            ticket: 0,
            base: 0,
        }
    }

    pub(crate) fn at(self, at: FarAddress) -> Self {
        Head { region: at.region, offset: at.offset, ..self }
    }

    /// A signal; its block is added where there is one.
    pub(crate) fn signal(from: u32, signal: Signal) -> Self {
        let op = match signal.op {
            SignalOp::Set => AtomicOp::Swap,
            SignalOp::Add => AtomicOp::Add,
        };
        let (other_region, other) = (signal.at.region, signal.at.offset);
        Head { op, other_region, other, value: signal.value, ..Head::new(Kind::Signal, from) }
    }

    /// The bytes, for a job with this mark.
    pub(crate) fn encode(&self, mark: u32) -> [u8; HEAD] {
        let index = |found: Option<usize>| found.expect("all are in the table") as u64;
        let kind = index(KINDS.iter().position(|&kind| kind == self.kind));
        let op = index(OPS.iter().position(|&op| op == self.op));
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [
            pair(mark, self.from),
            kind | u64::from(self.size) << 8 | op << 16 | u64::from(self.len) << 32,
            pair(self.region, self.other_region),
            self.offset,
            self.other,
            self.value,
            self.ticket,
            self.base,
        ];
        let mut bytes = [0; HEAD];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// What the bytes of a message say, if they are one of this job.
    pub(crate) fn decode(bytes: &[u8], mark: u32) -> Option<Self> {
        let head = bytes.get(..HEAD)?;
        let word = |index: usize| {
            let bytes = &head[index * 8..][..8];
            u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
        };
        let (who, what, regions) = (word(0), word(1), word(2));
        let len = (what >> 32) as u32;
        let is_whole = who as u32 == mark && HEAD + len as usize == bytes.len();
        Some(Head {
            kind: *KINDS.get(what as u8 as usize)?,
            from: (who >> 32) as u32,
            size: (what >> 8) as u8,
            op: *OPS.get((what >> 16) as u8 as usize)?,
            len,
            region: regions as u32,
            offset: word(3),
            other_region: (regions >> 32) as u32,
            other: word(4),
            value: word(5),
            ticket: word(6),
            base: word(7),
        })
        .filter(|_| is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for (kind, op) in KINDS.into_iter().zip(OPS.into_iter().cycle()) {
            let head = Head {
                kind,
                from: 7,
                size: 4,
                op,
                len: 3,
                region: 2,
                offset: 1 << 40,
                other_region: u32::MAX,
                other: 9,
                value: u64::MAX,
                ticket: 5,
                base: 6,
            };
            let mut bytes = head.encode(0xABCD).to_vec();
            bytes.extend([1, 2, 3]);
            assert_eq!(Head::decode(&bytes, 0xABCD), Some(head));
            assert_eq!(Head::decode(&bytes, 0xABCE), None, "another job");
            assert_eq!(Head::decode(&bytes[..66], 0xABCD), None, "a part");
            assert_eq!(Head::decode(&bytes[..63], 0xABCD), None, "a part");
            bytes[8] = KINDS.len() as u8;
            assert_eq!(Head::decode(&bytes, 0xABCD), None, "no such kind");
        }
    }
}
