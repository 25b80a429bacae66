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
//! In DIMM mode the NIC can neither stall nor interrupt the host. The host finds out by looking
//! that a queue is full, or that something has arrived. In PEMM mode (`pemm`) the NIC can do both.
//!
//! | file | what |
//! |---|---|
//! | `slot` | the state of a node's NIC; `user`, `way_out`, `way_in` and `kick_pages` are parts of it |
//! | `parameters` | what the machine file says |
//! | `chipset` | the rules by which chipsets split addresses, and their inverse |
//! | `pemm`, `signals` | the slot's signals *wait* and *interrupt*; what they take |
//! | `twist` | the permutation of the data lines, and its inverse |
//! | `header` | headers and seeds; the overwriting of 12 bits; stamping |
//! | `htlb` | header TLB and header table, which the core processor or the host keeps |
//! | `send` | queues and stages of the way out |
//! | `stall` | what a link that stands still means for the host |
//! | `receive` | stages of the way in; when the host sees what came |
//! | `translate` | the receiver's checks |
//! | `memory` | LLCM and the two banks |
//! | `frames`, `library` | memonet's own driver: where segments lie, and what its calls do here |
//! | `core`, `asked`, `updates` | the core processor, and the updates of words that it carries out |
//! | `barriers` | barriers that core processors gather and announce |
//! | `groups`, `to_groups` | the library's groups for multicast: packets that the switches copy |
//! | `begin` | calls, by operation |
//! | `command` | the NIC's own interface, [for programs that do without the library](command); `serve` carries its commands out |
//! | `driver` | what programs may set up, and what the driver refuses |
//! | `multicast` | the switches' tables |
//!
//! **How the published loop is read.** The authors name its parts: software, the CPU's write, the
//! chipset's delay of it, the stages, clocks that a packet crosses, the CPU's read, and the phase
//! of the polling. The chipset takes of a write the most that they give, half of read less write. A
//! signal that crosses clocks waits for the next edge, at a random phase. The polling begins when
//! the store is written, and a read samples the memory in its middle. So the phase is not random: a
//! loop takes a whole number of reads, and only a change that crosses a sample changes it. The
//! authors deduced the software, `host.software`, from one of the loops.
//!
//! **Users.** Up to 64 processes share a NIC (`topology.pes_per_node`). Each has a view of its own:
//! a part of the kick pages, a window, a process group, and pages that the driver has given it.
//! They share queues, HTLB, core processor, LLCM, banks and link, and wait for each other there.
//! Each has a CPU, and the CPUs do not wait for each other at the slot's bus. Users of one NIC
//! reach each other by its internal loop.

mod asked;
mod barriers;
mod begin;
mod chipset;
pub mod command;
mod core;
mod driver;
mod frames;
mod groups;
mod header;
mod htlb;
mod kick_pages;
mod library;
mod memory;
mod multicast;
mod parameters;
mod pemm;
mod receive;
mod send;
mod serve;
mod signals;
mod slot;
mod stall;
#[cfg(test)]
mod tests;
mod to_groups;
mod translate;
mod twist;
mod updates;
mod user;
mod way_in;
mod way_out;

pub(super) use parameters::users;
pub use slot::MemorySlot;

use super::{Call, Cx, Feature, Nic, Pe, Token};
use crate::host::{Answer, Polling, Sleep};
use crate::packet::{Node, Packet};
use crate::time::Ps;
use slot::Due;

impl Nic for MemorySlot {
    fn kind(&self) -> &'static str {
        "memory-slot"
    }

    fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::CopiedWrites => self.is.multicast.is_some(),
            Feature::Atomics => self.is.core.is_some(),
            Feature::Groups => self.is.core_look.is_some(),
            _ => false,
        }
    }

    fn polling(&self, _node: Node) -> Polling {
        self.is.polling()
    }

    fn sleep(&self) -> Option<Sleep> {
        self.is.pemm.map(|pemm| pemm.sleep)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, call: Call) {
        if let Some(call) = self.unless_stalled(cx, call) {
            self.begin_call(cx, call);
        }
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        let tail = cx.now();
        let serial = self.is.link.time(packet.wire_bytes.into());
        self.receive(cx, node, packet, Ps(tail.0.saturating_sub(serial.0)), tail);
    }

    fn left(&mut self, cx: &mut Cx<'_>, pe: Pe) {
        self.refuse_groups_with(cx, pe.0);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match self.due.take(token) {
            Due::Turned(packet) => self.receive(cx, node, packet, cx.now(), cx.now()),
            Due::Land { address, payload } => self.land(cx, node, address, &payload),
            Due::Switched => self.switched(cx, node),
            Due::SwitchedFor(op) => {
                self.slots[node.index()].memory.switch();
                cx.finish(cx.now(), op, Answer::default());
            }
            Due::Read { op, at, len, end } => self.sampled(cx, node, op, at, len, end),
            Due::ReadAway { op, at, len, end } => {
                self.sampled_away(cx, node, op, (at, len), end);
            }
            Due::Room(pe) => self.has_room(cx, node, pe),
            Due::RoomSeen(pe) => self.begin_stalled(cx, node, pe),
            Due::Look(wait) => self.first_look(cx, node, wait),
            Due::Update { from, op } => self.update(cx, node, from, op),
            Due::Arrived { op, group } => self.arrived(cx, node, op, group),
            Due::Announce { op, group } => self.announce(cx, node, op, group),
            Due::Announced { group, process } => self.announced(cx, node, group, process),
            Due::Forward(packet) => self.forward(cx, cx.now(), packet),
            Due::Write(block) => self.write_block(cx, node, cx.now(), block),
            Due::Written(pe) => {
                self.caller(pe).writes = false;
                self.begin_stalled(cx, node, pe);
            }
        }
    }
}
