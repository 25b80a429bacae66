//! InfiniBand with multicast in the switch (DIMMnet-2): a NIC in a memory slot. Its buffer memory
//! is the program's memory.
//!
//! ```text
//! host:  software, command_write ─► core logic: decode, read, data path ─► InfiniSWIF: swif_send ─► link ─► switch: one port, or copies
//!                    test module: data path ─────────────────────────────────┘ MCP flag: destination LID := the group's │
//!        the receiver's memory ◄── write ◄── data path ◄── InfiniSWIF: LID mine? swif_receive ◄────────────────────── link
//! ```
//!
//! * Every node has a local id (LID), to which packets are sent. The subnet manager, on node 0,
//!   gives LIDs out when the machine is switched on, by management packets on lane 15. Agents at
//!   nodes and switches answer them (`subnet`).
//! * A packet names the LID that it is for. A NIC takes packets for its own LID, and for the LIDs
//!   of the groups that it has joined, and discards others.
//! * With the section `subnet` the manager knows nothing at first: it finds switches and cables by
//!   directed routes, and writes the tables of routes (`discovery`). It sweeps, and a standby on
//!   another node takes its place when it is gone (`managers`).
//! * Joining a group is a request to the manager. When the last member asks, the manager writes the
//!   group's ports into the 512-byte tables of the switches (`management`), and tells the members
//!   the group's LID.
//! * A multicast packet is an unreliable datagram. A link that loses packets may lose it, or any of
//!   its copies, and nothing repairs that. The library's own multicast sends such datagrams
//!   (`datagrams`). All else goes by reliable connections. With `nic.retransmit`, links lose their
//!   packets, too, and the NICs send those again (`reliable`); otherwise they lose none. With
//!   `nic.reliable_datagrams` they do the same for datagrams to groups.
//! * Where links have lanes, all that a node sends by its connections, and multicast writes, have
//!   one service (`nic.service`): a fence relies on the order of packets to one node. Datagrams may
//!   have another.
//! * The core logic moves `nic.width` bytes a cycle, and works on one packet at a time. InfiniSWIF
//!   stores a packet whole before it goes on, at both ends.
//! * At the host's command the core logic brings parts of the buffer memory into a window, in which
//!   the host reads faster (`prefetch`).
//! * The machine was measured without hosts, from InfiniSWIF to InfiniSWIF ([`test_to`],
//!   [`test_group`]).

mod agents;
mod connection;
mod datagrams;
mod directed;
mod discovery;
mod found;
mod groups;
mod interface;
mod joining;
mod management;
mod managers;
mod nics;
mod prefetch;
mod processors;
mod reliable;
mod seats;
mod subnet;
mod test_module;
#[cfg(test)]
mod tests;
mod topology;
mod window;

pub use interface::{
    cut, listen, mend, prefetch, read, read_table, read_window, stop_manager, test_group, test_to,
    write_table,
};
pub use management::FIRST_GROUP;
pub use nics::InfiniBand;

use super::{Call, Cx, Feature, Nic, Pe, Token};
use crate::host::{Answer, HostOp, Polling};
use crate::machine::{Machine, MachineError};
use crate::packet::{Node, Packet, Payload};
use management::{DIRECTED, Datagram};
use memonet_core::SignalOp;
use nics::{ADMINISTERS, DATA_LANE, DATAGRAM_FLAG, Later, Way};
use reliable::{ACKNOWLEDGES, RELIABLE};
use topology::Place;

impl InfiniBand {
    /// A management packet has come to a place.
    fn managed(&mut self, cx: &mut Cx<'_>, place: Place, packet: &Packet) {
        let datagram = Datagram::read(&packet.payload);
        match datagram.class {
            // Its last cable has told by which port it came.
            DIRECTED => {
                let by = packet.header[1].checked_sub(1).map(|port| port as u8);
                self.direct(cx, (place, by), packet.from, datagram);
            }
            _ => self.handle(cx, place, packet.from, datagram),
        }
    }
}

impl Nic for InfiniBand {
    fn kind(&self) -> &'static str {
        "infiniband"
    }

    fn has(&self, feature: Feature) -> bool {
        matches!(feature, Feature::Groups | Feature::Datagrams)
    }

    fn polling(&self, _node: Node) -> Polling {
        Polling { interval: self.is.look, sample: self.is.look }
    }

    fn start(&mut self, cx: &mut Cx<'_>) {
        self.go_on(cx, 0);
    }

    fn has_come_up(&self, machine: &Machine) -> Result<(), MachineError> {
        if self.seats[0].manager.is_content() {
            return Ok(());
        }
        let problem = "is too short: the answers to the subnet manager come later, and it finds no way to anybody; make it longer";
        Err(machine.section("subnet").error("timeout", problem))
    }

    fn begin(&mut self, cx: &mut Cx<'_>, Call { op, node, what }: Call) {
        self.called(cx);
        let packets = |data: &Payload| data.len().div_ceil(self.is.packet) as u64;
        match what {
            HostOp::Store { to, word } => {
                cx.promise(op, 1);
                let told = self.command(cx, node, op);
                self.send(cx, told, node, op, Way::To(Node(to.pe)), to, &word);
                cx.finish(told, op, Answer::default());
            }
            HostOp::Put { to, data, signal, reuse } => {
                cx.promise(op, packets(&data) + u64::from(signal.is_some()));
                let told = self.command(cx, node, op);
                let mut read = told;
                if !data.is_empty() {
                    read = self.send(cx, told, node, op, Way::To(Node(to.pe)), to, &data);
                }
                if let Some(signal) = signal {
                    debug_assert_eq!(signal.op, SignalOp::Set, "signals that add are the agents'");
                    let word = Payload::word(8, signal.value);
                    self.send(cx, told, node, op, Way::To(Node(signal.at.pe)), signal.at, &word);
                }
                let block = reuse && data.len() > 8;
                self.finish_when_read(cx, told, if block { read } else { told }, op);
            }
            // Packets to one node take one way. But packets of a group may wait until the switch
            // copies them, while others go on.
            HostOp::Fence if !std::mem::take(&mut self.nics[node.index()].has_multicast) => {
                cx.finish(cx.now(), op, Answer::default())
            }
            HostOp::Fence | HostOp::Quiet => {
                cx.finish_when_landed(cx.now(), op, self.is.acknowledge)
            }
            HostOp::Group(what) => self.group(cx, node, op, what),
            HostOp::Command(command) => self.own_command(cx, node, op, &command),
            HostOp::Get { .. }
            | HostOp::Atomic { .. }
            | HostOp::Prepare { .. }
            | HostOp::Key { .. } => {
                cx.finish(cx.now(), op, Answer::refused("this NIC has no such operation"))
            }
        }
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        match packet.header[0] & 0xff {
            DATA_LANE if packet.header[0] & ACKNOWLEDGES != 0 => {
                self.acknowledged(cx, node, &packet)
            }
            DATA_LANE if packet.header[0] & RELIABLE != 0 => self.arrived(cx, node, packet),
            DATA_LANE if packet.header[0] & ADMINISTERS == 0 => {
                self.receive(cx, cx.now(), node, packet)
            }
            _ => self.managed(cx, Place::Node(node), &packet),
        }
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match self.later.take(token) {
            Later::Handled(place, from, datagram) => self.handled(cx, place, from, &datagram),
            Later::Patience(peer, stream) => self.patience_ends(cx, node, peer, stream),
            Later::Prefetched(op, from, len) => self.prefetched(cx, node, op, from, len),
            Later::Filled(op, place) => self.window_filled(cx, node, op, place),
            Later::Read(reading) => self.word_read(cx, node, reading),
            Later::Unanswered(seat, transaction) => self.unanswered(cx, seat, transaction),
            Later::Sweep => self.sweep(cx),
            Later::Join(node, name) => self.join_again(cx, node, name),
        }
    }

    fn at_switch(&mut self, cx: &mut Cx<'_>, switch: u32, packet: Packet) {
        self.managed(cx, Place::Switch(switch), &packet);
    }

    fn left(&mut self, cx: &mut Cx<'_>, pe: Pe) {
        self.refuse_groups_with(cx, pe.0);
    }

    fn dropped(&mut self, cx: &mut Cx<'_>, packet: &Packet, missing: u64) {
        let promised_nothing = DATAGRAM_FLAG | RELIABLE | ACKNOWLEDGES | ADMINISTERS;
        if packet.header[0] & (0xff | promised_nothing) == DATA_LANE {
            cx.lost(packet.op, missing);
        }
    }
}
