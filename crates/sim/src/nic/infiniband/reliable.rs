//! Reliable connections over links that lose packets: numbers, acknowledgements, retransmission.
//!
//! Each pair of nodes has a connection. The sender numbers its packets and keeps each until it is
//! acknowledged. The receiver acknowledges whatever comes, delivers packets in the order of their
//! numbers, and keeps those in its buffer memory that come before their turn. So data become
//! visible in the order of sending, once, as on links that lose nothing.
//!
//! *What is lost.* Packets of a connection leave in order and cannot overtake each other. Each
//! transmission has a number of its own, which its acknowledgement repeats. When a transmission is
//! acknowledged, all earlier ones without an acknowledgement are lost, or their acknowledgements
//! are: those packets are sent again at once. If nothing comes for `nic.retransmit`, the oldest
//! packet is sent again. A packet that comes twice is acknowledged, and not delivered again.
//!
//! InfiniBand's own hardware takes packets in order alone and repeats everything from the lost one
//! on. Here only the lost ones are repeated, as the buffer memory has room for the others.

use super::connection::{Connection, Sent};
use super::nics::{DATA_LANE, InfiniBand, Later, show};
use super::processors::SWITCHED_ON;
use crate::nic::Cx;
use crate::packet::{Destination, Node, Packet, Payload};
use crate::time::Ps;

/// Flag of a packet of a connection. The last word of the header has the packet's number, and the
/// number of the transmission in its high half.
pub const RELIABLE: u64 = 1 << 11;
/// Flag of an acknowledgement. The last word of the header has the number of the first packet that
/// the receiver lacks, and that of the transmission that it acknowledges in its high half.
pub const ACKNOWLEDGES: u64 = 1 << 12;

impl InfiniBand {
    fn connection(&mut self, node: Node, peer: Node) -> &mut Connection {
        self.nics[node.index()].connections.entry(peer.0).or_default()
    }

    /// The core logic has handed a packet for another node to InfiniSWIF, from where it leaves by
    /// `leaves`. Makes it a packet of a connection, if it is one and may be lost.
    pub(super) fn connect(&mut self, cx: &mut Cx<'_>, leaves: Ps, packet: Packet) -> Packet {
        let (node, Destination::Node(peer)) = (packet.from, packet.to) else { return packet };
        if self.is.retransmit.is_none() || packet.droppable {
            return packet;
        }
        let mut packet = Packet { droppable: true, ..packet };
        packet.header[0] |= RELIABLE;
        let connection = self.connection(node, peer);
        let number = connection.packets;
        connection.packets += 1;
        let sent = connection.transmit(number, leaves, packet);
        let packet = sent.packet.clone();
        connection.unacknowledged.push_back(sent);
        self.set_timer(cx, node, peer);
        packet
    }

    /// Sends packets again that are lost, behind all that the core logic has still to send.
    fn send_again(&mut self, cx: &mut Cx<'_>, node: Node, peer: Node, lost: Vec<Sent>) {
        let is = self.is;
        for Sent { number, packet, .. } in lost {
            let time = self.moved(packet.wire_bytes);
            let busy = self.nics[node.index()].core.take(cx.now(), time + is.packet_gap);
            let moved = busy.0 + time;
            let leaves = moved + is.swif_send;
            cx.stage(node, "core", "width", packet.op, (busy.0, moved));
            cx.stage(node, "InfiniSWIF", "swif_send", packet.op, (moved, leaves));
            let connection = self.connection(node, peer);
            let sent = connection.transmit(number, leaves, packet);
            cx.send(leaves, node, sent.packet.clone());
            connection.unacknowledged.push_back(sent);
        }
    }

    /// A packet of a connection has come in.
    pub(super) fn arrived(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        let (number, from) = (packet.header[3] as u32, packet.from);
        let service = packet.service;
        let transmission = packet.header[3] >> 32;
        debug_assert!(self.is_mine(node, &packet), "the manager gives a node one LID");
        if self.connection(node, from).has(number) {
            cx.discarded();
        } else {
            let written = self.take_in(cx, cx.now(), node, &packet);
            let ready = self.connection(node, from).take(number, packet);
            ready.into_iter().for_each(|packet| show(cx, written, node, packet));
        }
        let lacking = u64::from(self.connection(node, from).expected);
        let answer = Packet {
            from: node,
            to: Destination::Node(from),
            wire_bytes: self.is.header,
            header: [DATA_LANE | ACKNOWLEDGES, 0, 0, lacking | transmission << 32],
            payload: Payload::EMPTY,
            op: SWITCHED_ON,
            service,
            droppable: true,
        };
        cx.send(cx.now() + self.is.swif_receive + self.is.swif_send, node, answer);
    }

    /// An acknowledgement has come in.
    pub(super) fn acknowledged(&mut self, cx: &mut Cx<'_>, node: Node, answer: &Packet) {
        let (lacking, transmission) = (answer.header[3] as u32, (answer.header[3] >> 32) as u32);
        let now = cx.now();
        let connection = self.connection(node, answer.from);
        connection.heard = now;
        let lost = connection.acknowledged(lacking, transmission);
        self.send_again(cx, node, answer.from, lost);
    }

    fn set_timer(&mut self, cx: &mut Cx<'_>, node: Node, peer: Node) {
        let Some(patience) = self.is.retransmit else { return };
        let connection = self.connection(node, peer);
        let Some(due) = connection.due(patience).filter(|_| !connection.has_timer) else { return };
        connection.has_timer = true;
        self.later.at(cx, due.max(cx.now()), node, Later::Patience(peer));
    }

    /// The moment has come at which the oldest packet of a connection may have waited for too long.
    pub(super) fn patience_ends(&mut self, cx: &mut Cx<'_>, node: Node, peer: Node) {
        let Some(patience) = self.is.retransmit else { return };
        let now = cx.now();
        let connection = self.connection(node, peer);
        connection.has_timer = false;
        if connection.due(patience).is_some_and(|due| due <= now) {
            connection.heard = now;
            let oldest = connection.unacknowledged.pop_front();
            self.send_again(cx, node, peer, oldest.into_iter().collect());
        }
        self.set_timer(cx, node, peer);
    }
}
