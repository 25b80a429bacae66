//! The way into one NIC: its units, and what waits to be seen.

use crate::host::Polling;
use crate::nic::Unit;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;

/// The units of the way into one NIC.
#[derive(Debug, Clone, Default)]
pub struct WayIn {
    pub check: Unit,
    pub memory: Unit,
}

/// A host that looks at a word until the word is what the host waits for.
#[derive(Debug, Clone)]
pub struct Wait {
    pub op: Op,
    pub at: u64,
    pub width: u8,
    pub mask: u64,
    pub value: u64,
    /// When the first look began.
    pub from: Ps,
    /// The looks: one read after the other.
    pub polling: Polling,
    /// From the moment at which a look samples the memory until the host goes on.
    pub after: Ps,
}

/// A write to a PE's segment that the PE has not seen yet. It may have to wait: its bytes lie in
/// the network's bank, or it must not overtake one whose bytes do.
#[derive(Debug, Clone)]
pub struct Held {
    pub from: Node,
    pub op: Op,
    pub to: FarAddress,
    pub what: What,
    /// When the bytes were written.
    pub at: Ps,
    pub in_bank: bool,
}

impl Held {
    /// Whether something else from a node to a PE must come after this.
    pub fn keeps_back(&self, from: Node, to: FarAddress) -> bool {
        self.from == from && self.to.pe == to.pe
    }
}

/// What a PE has not seen yet.
#[derive(Debug, Clone)]
pub enum What {
    /// Bytes, and the time in which the host reads them: none for a word, which a look reads.
    Write(Payload, Ps),
    /// An update by the core processor.
    Update,
}
