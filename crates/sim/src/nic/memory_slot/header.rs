//! A packet's header, as it lies in a header seed, in a BOTF window, and on the wire.
//!
//! ```text
//! word 0   kind 0..8 | physical 8 | promised 9 | process group 16..32 | payload bytes 32..48
//! word 1   process at the receiver 0..32 | region 32..64
//! word 2   remote address
//! word 3   destination 0..32 (bit 31: a multicast group) | source 32..64
//! ```
//!
//! Switches read word 3; the receiver does not.

use crate::packet::{Destination, Node};

/// The bits of a kick address that name a byte, and that an AOTF store writes over those of the
/// seed's remote address.
pub const OFFSET_BITS: u32 = 12;
/// Bytes of a page.
pub const PAGE: u64 = 1 << OFFSET_BITS;
/// Process group of a job. The driver gives it to no program.
pub const JOB: u16 = u16::MAX;
const MULTICAST: u32 = 1 << 31;

/// How a packet was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By one store.
    Aotf,
    /// From a window.
    Botf,
    /// By remote DMA.
    Dma,
    /// By the library, for the core processor of the receiver.
    Request,
    /// By a core processor, for a host that waits.
    Answer,
    /// By one store: an arrival at a barrier, for the core processor that gathers.
    Arrival,
    /// By the core processor that gathers: a phase is complete.
    Announcement,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// How it was made.
    pub kind: Kind,
    /// The skip flag: the address is physical, and the receiver does not translate it. Only the
    /// driver may set it.
    pub physical: bool,
    /// Whether the call that sent the packet has promised its write
    /// ([`Cx::promise`](crate::nic::Cx::promise)). The real hardware has no such flag.
    pub promised: bool,
    /// Process group of the sender, PGID.
    pub group: u16,
    /// Bytes of payload; of a request, those of the word that it is for.
    pub len: u16,
    /// The process whose memory the packet goes to.
    pub process: u32,
    /// Which of that process's regions.
    pub region: u32,
    /// The address: in the region, or physical.
    pub address: u64,
    /// The destination.
    pub to: Destination,
    /// The sender.
    pub from: Node,
}

impl Header {
    /// As words.
    pub fn encode(&self) -> [u64; 4] {
        let kind = match self.kind {
            Kind::Aotf => 0,
            Kind::Botf => 1,
            Kind::Dma => 2,
            Kind::Request => 3,
            Kind::Answer => 4,
            Kind::Arrival => 5,
            Kind::Announcement => 6,
        };
        let to = match self.to {
            Destination::Node(node) => node.0,
            Destination::Multicast(group) => MULTICAST | u32::from(group),
            other => panic!("a header is for a node or a multicast group, not {other:?}"),
        };
        [
            kind | u64::from(self.physical) << 8
                | u64::from(self.promised) << 9
                | u64::from(self.group) << 16
                | u64::from(self.len) << 32,
            u64::from(self.process) | u64::from(self.region) << 32,
            self.address,
            u64::from(to) | u64::from(self.from.0) << 32,
        ]
    }

    /// From words. Bits without a meaning are ignored, as by the hardware.
    pub fn decode(words: [u64; 4]) -> Header {
        let to = words[3] as u32;
        Header {
            kind: match words[0] as u8 {
                0 => Kind::Aotf,
                1 => Kind::Botf,
                3 => Kind::Request,
                4 => Kind::Answer,
                5 => Kind::Arrival,
                6 => Kind::Announcement,
                _ => Kind::Dma,
            },
            physical: words[0] >> 8 & 1 != 0,
            promised: words[0] >> 9 & 1 != 0,
            group: (words[0] >> 16) as u16,
            len: (words[0] >> 32) as u16,
            process: words[1] as u32,
            region: (words[1] >> 32) as u32,
            address: words[2],
            to: match to & MULTICAST {
                0 => Destination::Node(Node(to)),
                _ => Destination::Multicast(to as u16),
            },
            from: Node((words[3] >> 32) as u32),
        }
    }

    /// The header of an AOTF store to a kick address, from its seed: the low bits of the kick
    /// address replace those of the remote address, and the store's width is the length.
    pub fn kicked(self, address: u64, width: u16) -> Header {
        Header { address: self.address & !(PAGE - 1) | address & (PAGE - 1), len: width, ..self }
    }

    /// The header that the NIC sends for one that a program has written into a window. The NIC
    /// stamps over the fields for protection.
    pub fn stamped(self, group: u16, from: Node, len: u16) -> Header {
        Header { kind: Kind::Botf, physical: false, promised: false, group, from, len, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_header() -> impl Strategy<Value = Header> {
        let to = prop_oneof![
            (0u32..1 << 31).prop_map(|node| Destination::Node(Node(node))),
            any::<u16>().prop_map(Destination::Multicast)
        ];
        let kind = prop_oneof![
            Just(Kind::Aotf),
            Just(Kind::Botf),
            Just(Kind::Dma),
            Just(Kind::Request),
            Just(Kind::Answer)
        ];
        let first = (kind, any::<[bool; 2]>(), any::<u16>(), any::<u16>());
        (first, any::<u32>(), any::<u32>(), any::<u64>(), to, any::<u32>()).prop_map(
            |((kind, [physical, promised], group, len), process, region, address, to, from)| {
                Header {
                    kind,
                    physical,
                    promised,
                    group,
                    len,
                    process,
                    region,
                    address,
                    to,
                    from: Node(from),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn words_and_back(header in any_header()) {
            prop_assert_eq!(Header::decode(header.encode()), header);
        }

        /// A kick changes the low 12 bits of the address and the length, whatever else the store's
        /// address says.
        #[test]
        fn a_kick_stays_in_its_page(seed in any_header(), address: u64, width in 1u16..=8) {
            let kicked = seed.kicked(address, width);
            prop_assert_eq!(kicked.address >> 12, seed.address >> 12);
            prop_assert_eq!(kicked.address & 0xfff, address & 0xfff);
            prop_assert_eq!(Header { address: seed.address, len: seed.len, ..kicked }, seed);
        }

        /// Whatever a program claims in a window: group, source and the skip flag are the NIC's.
        #[test]
        fn stamping_wins(claimed in any_header(), group: u16, from: u32, len in 1u16..=464) {
            let stamped = claimed.stamped(group, Node(from), len);
            prop_assert_eq!((stamped.group, stamped.from, stamped.physical, stamped.len), (group, Node(from), false, len));
            prop_assert_eq!((stamped.to, stamped.process, stamped.region, stamped.address), (claimed.to, claimed.process, claimed.region, claimed.address));
        }
    }
}
