//! A NIC in a memory slot: DIMMnet-1, with its Martini controller.
//!
//! ```text
//!  host                                       NIC                                                     link
//!  ────                                       ───                                                     ────
//!  software ─ twist ─ write ──► host_write ─ transaction queue ─ HTLB ─ size decision ─ send buffer ─ SWIF ──►  serialiser, cable,
//!                                     AOTF: one store, 1-8 bytes, header from a seed                          │   deserialiser: link.delay
//!                                     BOTF: a window, 1-464 bytes, stamped                  loop-back, inside │
//!                                                                                                             ▼
//!  look (a read samples in its middle) ◄── LLCM ◄────────────────────────── checks ◄──────────────────────── SWIF ◄──
//!  look after a switch of banks        ◄── bank of the network's side ◄─────┘
//! ```
//!
//! In DIMM mode the NIC can neither stall nor interrupt the host: a full queue and an arrival are
//! both found out by looking.
//!
//! | file | what |
//! |---|---|
//! | `parameters` | what the machine file says |
//! | `twist` | the permutation of the data lines, and its undoing |
//! | `header` | headers and seeds; the overwriting of 12 bits; stamping |
//! | `htlb` | header TLB and header table |
//! | `send` | queues and stages of the way out |
//! | `receive` | stages of the way in; who sees what when |
//! | `translate` | the receiver's checks |
//! | `memory` | LLCM and the two banks |
//! | `frames`, `library` | memonet's own driver: where segments lie, what calls become |
//! | `command` | the NIC's own interface, [for programs that do without the library](command); `begin` serves it |
//! | `driver` | what programs may set up, and what is refused |
//! | `multicast` | the switches' tables |
//!
//! **One reading of the published loop.** A read samples the memory in the middle of its access,
//! and the phase of an arrival against the looks is uniform; so from visibility to the end of the
//! look that sees it passes one read time on average. Everything else of a loop that is not a
//! published component is `host.software`: it holds the chipset's delay of the write too, which
//! nobody could observe.
//!
//! Not here: PEMM mode, OIP and RHiNET-3 switches, several users of one NIC.

mod begin;
pub mod command;
mod driver;
mod frames;
mod header;
mod htlb;
mod library;
mod memory;
mod multicast;
mod parameters;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod translate;
mod twist;

use super::{Call, Cx, Feature, Nic, Owner, Planned, Token};
use crate::host::{Op, Polling};
use crate::machine::{Machine, MachineError};
use crate::packet::{Node, Packet, Payload};
use crate::time::Ps;
use std::collections::{BTreeMap, BTreeSet};

/// What has been planned for a moment.
#[derive(Debug)]
enum Due {
    /// A packet has turned round at SWIF.
    Turned(Packet),
    /// Bytes are in the NIC's memory.
    Land { address: u64, payload: Payload },
    /// The library has switched the banks.
    Switched,
    /// A program has.
    SwitchedFor(Op),
    /// A host's read samples.
    Read { op: Op, at: u64, len: usize, end: Ps },
    /// The first look of a host that waits.
    Look(receive::Wait),
}

/// One NIC.
struct Slot {
    group: u16,
    loop_back: command::LoopBack,
    out: send::WayOut,
    htlb: htlb::Htlb,
    kicks: library::KickPages,
    way_in: receive::WayIn,
    receive_tlb: translate::ReceiveTlb,
    registered: BTreeSet<frames::SegmentPage>,
    frames: frames::Frames,
    memory: memory::NicMemory,
    dropped: BTreeMap<command::Refusal, u64>,
    waits: Vec<receive::Wait>,
    held: Vec<receive::Held>,
    switching: bool,
    /// Until when the host copies what a switch has shown it.
    copied: Ps,
}

/// The kind.
pub struct MemorySlot {
    is: parameters::Parameters,
    slots: Vec<Slot>,
    due: Planned<Due>,
}

impl MemorySlot {
    /// Reads the sections `host`, `send` and `receive`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32) -> Result<Self, MachineError> {
        let is = parameters::Parameters::read(machine)?;
        let slot = |_| Slot {
            group: 0,
            loop_back: command::LoopBack::Internal,
            out: send::WayOut::default(),
            htlb: htlb::Htlb::new(is.htlb),
            kicks: library::KickPages::default(),
            way_in: receive::WayIn::default(),
            receive_tlb: translate::ReceiveTlb::new(is.receive_tlb_entries),
            registered: BTreeSet::new(),
            frames: frames::Frames::default(),
            memory: memory::NicMemory::default(),
            dropped: BTreeMap::new(),
            waits: Vec::new(),
            held: Vec::new(),
            switching: false,
            copied: Ps::ZERO,
        };
        Ok(MemorySlot { slots: (0..nodes).map(slot).collect(), is, due: Planned::new(Owner::Nic) })
    }

    fn later(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, due: Due) {
        self.due.at(cx, at, node, due);
    }
}

impl Nic for MemorySlot {
    fn kind(&self) -> &'static str {
        "memory-slot"
    }

    fn has(&self, _feature: Feature) -> bool {
        false
    }

    fn polling(&self, _node: Node) -> Polling {
        self.is.polling()
    }

    fn begin(&mut self, cx: &mut Cx<'_>, call: Call) {
        self.begin_call(cx, call);
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        let tail = cx.now();
        let serial = self.is.link.time(packet.wire_bytes.into());
        self.receive(cx, node, packet, Ps(tail.0.saturating_sub(serial.0)), tail);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match self.due.take(token) {
            Due::Turned(packet) => self.receive(cx, node, packet, cx.now(), cx.now()),
            Due::Land { address, payload } => self.land(cx, node, address, &payload),
            Due::Switched => self.switched(cx, node),
            Due::SwitchedFor(op) => {
                self.slots[node.index()].memory.switch();
                cx.finish(cx.now(), op, crate::host::Answer::default());
            }
            Due::Read { op, at, len, end } => self.sampled(cx, node, op, at, len, end),
            Due::Look(wait) => self.first_look(cx, node, wait),
        }
    }
}
