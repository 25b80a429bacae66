//! Packets, and the data that they carry.

use crate::op::Op;
use std::sync::Arc;

/// A computer of the simulated machine, with one NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

impl Node {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// To one node, by the switches' routes.
    Node(Node),
    /// To every port that the switches' multicast tables name for this group. A switch that has
    /// several such ports copies the packet.
    Multicast(u16),
    /// To a switch itself: a management packet. It comes out in
    /// [`Nic::at_switch`](crate::nic::Nic::at_switch).
    Switch(u32),
}

/// Which lane of the links a packet goes by, on machines whose links have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Data, of one of 16 levels.
    Level(u8),
    /// Management of the network, before all data.
    Management,
}

impl Default for Service {
    fn default() -> Service {
        Service::Level(0)
    }
}

/// The data of a packet. It is cheap to clone and to cut, however long it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Up to 8 bytes: the low bytes of `bits`, lowest first.
    Word {
        /// How many bytes.
        len: u8,
        /// The bytes.
        bits: u64,
    },
    /// More than 8 bytes, or a part of them.
    Block {
        /// The bytes that hold the part.
        bytes: Arc<[u8]>,
        /// Where the part begins.
        start: u32,
        /// Its length.
        len: u32,
    },
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Payload = Payload::Word { len: 0, bits: 0 };

    /// A word of `len` (at most 8) bytes.
    pub fn word(len: usize, bits: u64) -> Payload {
        assert!(len <= 8, "a word has at most 8 bytes");
        let mask = if len == 8 { u64::MAX } else { (1 << (8 * len)) - 1 };
        Payload::Word { len: len as u8, bits: bits & mask }
    }

    /// A copy of these bytes.
    pub fn copy(bytes: &[u8]) -> Payload {
        if bytes.len() > 8 {
            return Payload::Block {
                bytes: bytes.into(),
                start: 0,
                len: u32::try_from(bytes.len()).expect("blocks are shorter than 4 GiB"),
            };
        }
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Payload::word(bytes.len(), u64::from_le_bytes(word))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Word { len, .. } => usize::from(*len),
            Payload::Block { len, .. } => *len as usize,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first up to 8 bytes as a number, lowest first.
    pub fn bits(&self) -> u64 {
        let mut word = [0; 8];
        let len = self.len().min(8);
        self.with(|bytes| word[..len].copy_from_slice(&bytes[..len]));
        u64::from_le_bytes(word)
    }

    /// Shows the bytes to `f`.
    pub fn with<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Payload::Word { len, bits } => f(&bits.to_le_bytes()[..usize::from(*len)]),
            Payload::Block { bytes, start, len } => {
                f(&bytes[*start as usize..(*start + *len) as usize])
            }
        }
    }

    /// The part from `from` on, of at most `len` bytes. It shares the memory.
    ///
    /// # Panics
    /// When `from` lies behind the end.
    pub fn part(&self, from: usize, len: usize) -> Payload {
        let len = len.min(self.len().checked_sub(from).expect("a part begins inside"));
        match self {
            Payload::Word { bits, .. } if from < 8 => Payload::word(len, bits >> (8 * from)),
            Payload::Word { .. } => Payload::EMPTY,
            Payload::Block { bytes, start, .. } => {
                Payload::Block { bytes: bytes.clone(), start: start + from as u32, len: len as u32 }
            }
        }
    }
}

/// A packet, as a NIC hands it to its link. Switches read only `to` and `wire_bytes`; only the NIC
/// kind reads the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The NIC that sent it.
    pub from: Node,
    /// Where it goes.
    pub to: Destination,
    /// Bytes that a link serialises: header, payload, trailer.
    pub wire_bytes: u32,
    /// The kind's header.
    pub header: [u64; 4],
    /// The kind's payload.
    pub payload: Payload,
    /// The call that the packet belongs to, for the record of stages.
    pub op: Op,
    /// The packet's lane. Packets of different services may overtake each other.
    pub service: Service,
    /// Whether a link may lose the packet, on a machine whose links lose packets. The NIC hears of
    /// the loss by [`Nic::dropped`](crate::nic::Nic::dropped), so that the counts of writes stay
    /// right; real hardware would not know.
    pub droppable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let bytes: Vec<u8> = (0..100).collect();
        let block = Payload::copy(&bytes);
        block.part(10, 30).part(5, 5).with(|part| assert_eq!(part, &bytes[15..20]));
        assert_eq!(block.part(96, 30).len(), 4);
        assert_eq!(block.part(100, 1).len(), 0);
        let word = Payload::copy(&bytes[..6]);
        word.part(2, 3).with(|part| assert_eq!(part, [2, 3, 4]));
        assert_eq!(word.part(6, 1), Payload::EMPTY);
        assert_eq!(Payload::word(2, 0x1_2345).bits(), 0x2345);
    }
}
