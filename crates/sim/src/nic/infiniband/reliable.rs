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
//! *Datagrams to a group* (`nic.reliable_datagrams`) are numbered by their sender, for all members.
//! Each member's NIC acknowledges them, and what one of them lacks is sent again to that one alone.
//! A packet for which the driver has no buffer is not acknowledged, and so comes again. One buffer
//! is kept for the packet whose turn it is: if those behind it had all, nothing could be delivered,
//! and none would ever be free. A node that has left the group acknowledges what comes for it, as
//! nobody there waits for it.
//!
//! InfiniBand's own hardware takes packets in order alone and repeats everything from the lost one
//! on. Here only the lost ones are repeated, as the buffer memory has room for the others.

use super::connection::{Connection, Sent, Stream};
use super::nics::{DATA_LANE, DATAGRAM_FLAG, InfiniBand, LID_SHIFT, Later, MULTICAST, show};
use super::processors::SWITCHED_ON;
use crate::host::Wanted;
use crate::nic::Cx;
use crate::packet::{Destination, Node, Packet, Payload};
use crate::time::Ps;

/// Flag of a packet of a connection. The last word of the header has the packet's number, and the
/// number of the transmission in its high half.
pub const RELIABLE: u64 = 1 << 11;
/// Flag of an acknowledgement. The last word of the header has the number of the first packet that
/// the receiver lacks, and that of the transmission that it acknowledges in its high half.
pub const ACKNOWLEDGES: u64 = 1 << 12;

/// What a member's NIC does with a datagram to a group.
enum Fate {
    Take,
    /// The node is no member any more.
    Acknowledge,
    /// It is none yet, or there is no buffer: the datagram comes again.
    Ignore,
}

/// What a packet, or an acknowledgement, is part of.
fn stream_of(packet: &Packet) -> Stream {
    match packet.header[0] & MULTICAST {
        0 => Stream::Data,
        _ => Stream::Group(packet.header[1] as u32),
    }
}

impl InfiniBand {
    fn connection(&mut self, node: Node, peer: Node, stream: Stream) -> &mut Connection {
        self.nics[node.index()].connections.entry((peer.0, stream)).or_default()
    }

    /// The number of a node's next transmission.
    fn transmission(&mut self, node: Node) -> u32 {
        let transmissions = &mut self.nics[node.index()].transmissions;
        *transmissions += 1;
        *transmissions
    }

    /// The core logic has handed a packet for other nodes to InfiniSWIF, from where it leaves by
    /// `leaves`. Makes it a packet of a connection, if it is one and may be lost.
    pub(super) fn connect(&mut self, cx: &mut Cx<'_>, leaves: Ps, packet: Packet) -> Packet {
        if self.is.retransmit.is_none() {
            return packet;
        }
        let is_datagram = packet.header[0] & DATAGRAM_FLAG != 0;
        match packet.to {
            Destination::Node(peer) if !packet.droppable || self.is.reliable_datagrams => {
                let number = self.connection(packet.from, peer, Stream::Data).packets;
                self.connection(packet.from, peer, Stream::Data).packets += 1;
                let transmission = self.transmission(packet.from);
                self.keep(cx, (peer, Stream::Data), number, transmission, leaves, packet)
            }
            Destination::Multicast(lid) if is_datagram && self.is.reliable_datagrams => {
                self.connect_group(cx, leaves, packet, lid)
            }
            _ => packet,
        }
    }

    /// The same for a datagram to a group, which each member acknowledges.
    fn connect_group(&mut self, cx: &mut Cx<'_>, leaves: Ps, packet: Packet, lid: u16) -> Packet {
        let (node, group) = (packet.from, packet.header[1] as u32);
        let nic = &mut self.nics[node.index()];
        let Some(inbox) = nic.inboxes.get(&lid) else { return packet };
        let members = inbox.members.clone();
        let next = nic.datagrams.entry(group).or_insert(0);
        let number = *next;
        *next += 1;
        let transmission = self.transmission(node);
        for peer in members.iter().map(|&member| Node(member)).filter(|&peer| peer != node) {
            let mut alone = Packet { to: Destination::Node(peer), ..packet.clone() };
            let lid = self.nics[peer.index()].agent.lid;
            alone.header[0] &= !(0xffff << LID_SHIFT);
            alone.header[0] |= u64::from(lid) << LID_SHIFT;
            self.keep(cx, (peer, Stream::Group(group)), number, transmission, leaves, alone);
        }
        let mut packet = Sent::new(number, transmission, leaves, packet).packet;
        packet.header[0] |= RELIABLE;
        packet
    }

    /// Keeps a packet until its peer has acknowledged it. Returns the packet as it is sent.
    fn keep(
        &mut self,
        cx: &mut Cx<'_>,
        (peer, stream): (Node, Stream),
        number: u32,
        transmission: u32,
        leaves: Ps,
        packet: Packet,
    ) -> Packet {
        let node = packet.from;
        let mut packet = Packet { droppable: true, ..packet };
        packet.header[0] |= RELIABLE;
        let sent = Sent::new(number, transmission, leaves, packet);
        let packet = sent.packet.clone();
        self.connection(node, peer, stream).unacknowledged.push_back(sent);
        self.set_timer(cx, node, peer, stream);
        packet
    }

    /// Sends packets again that are lost, behind all that the core logic has still to send.
    fn send_again(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        (peer, stream): (Node, Stream),
        lost: Vec<Sent>,
    ) {
        let is = self.is;
        for Sent { number, packet, .. } in lost {
            let time = self.moved(packet.wire_bytes);
            let busy = self.nics[node.index()].core.take(cx.now(), time + is.packet_gap);
            let moved = busy.0 + time;
            let leaves = moved + is.swif_send;
            cx.stage(node, "core", "width", packet.op, (busy.0, moved));
            cx.stage(node, "InfiniSWIF", "swif_send", packet.op, (moved, leaves));
            let sent = Sent::new(number, self.transmission(node), leaves, packet);
            cx.send(leaves, node, sent.packet.clone());
            self.connection(node, peer, stream).unacknowledged.push_back(sent);
        }
    }

    /// What becomes of a datagram to a group at a node.
    fn fate(&self, node: Node, from: Node, group: u32, number: u32) -> Fate {
        let nic = &self.nics[node.index()];
        let joins = |wanted: &Wanted| matches!(wanted, Wanted::Datagrams(_));
        match nic.inboxes.get(&(group as u16)) {
            Some(inbox) => {
                let connection = nic.connections.get(&(from.0, Stream::Group(group)));
                let early = connection.map_or(0, Connection::early);
                let is_next = number == connection.map_or(0, |connection| connection.expected);
                let needed = (inbox.came.len() + early) as u64 + if is_next { 1 } else { 2 };
                if needed > self.is.receive_buffers { Fate::Ignore } else { Fate::Take }
            }
            None if nic.joining.values().any(|joining| joins(&joining.wanted)) => Fate::Ignore,
            None => Fate::Acknowledge,
        }
    }

    /// A packet of a connection has come in.
    pub(super) fn arrived(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        let (number, from, stream) = (packet.header[3] as u32, packet.from, stream_of(&packet));
        let (service, group) = (packet.service, packet.header[1]);
        let transmission = packet.header[3] >> 32;
        let fate = match stream {
            Stream::Data => Fate::Take,
            Stream::Group(group) => self.fate(node, from, group, number),
        };
        let flags = packet.header[0] & MULTICAST;
        let mut is_gone = false;
        match fate {
            Fate::Ignore => return cx.discarded(),
            Fate::Take if !self.connection(node, from, stream).has(number) => {
                let written = self.take_in(cx, cx.now(), node, &packet);
                let ready = self.connection(node, from, stream).take(number, packet);
                ready.into_iter().for_each(|packet| self.deliver(cx, written, node, packet));
            }
            Fate::Take => cx.discarded(),
            Fate::Acknowledge => {
                cx.discarded();
                is_gone = true;
            }
        }
        // Where nobody is left to take anything, nothing is lacking.
        let lacking = match is_gone {
            true => u64::from(u32::MAX),
            false => u64::from(self.connection(node, from, stream).expected),
        };
        let answer = Packet {
            from: node,
            to: Destination::Node(from),
            wire_bytes: self.is.header,
            header: [DATA_LANE | ACKNOWLEDGES | flags, group, 0, lacking | transmission << 32],
            payload: Payload::EMPTY,
            op: SWITCHED_ON,
            service,
            droppable: true,
        };
        cx.send(cx.now() + self.is.swif_receive + self.is.swif_send, node, answer);
    }

    /// A packet's turn has come, and it is in memory by `written`.
    fn deliver(&mut self, cx: &mut Cx<'_>, written: Ps, node: Node, packet: Packet) {
        match packet.header[0] & DATAGRAM_FLAG {
            0 => show(cx, written, node, packet),
            _ => self.came(cx, written, node, packet.header[1] as u16, packet.payload),
        }
    }

    /// An acknowledgement has come in.
    pub(super) fn acknowledged(&mut self, cx: &mut Cx<'_>, node: Node, answer: &Packet) {
        let (lacking, transmission) = (answer.header[3] as u32, (answer.header[3] >> 32) as u32);
        let (now, stream) = (cx.now(), stream_of(answer));
        let connection = self.connection(node, answer.from, stream);
        connection.heard = now;
        let lost = connection.acknowledged(lacking, transmission);
        self.send_again(cx, node, (answer.from, stream), lost);
    }

    fn set_timer(&mut self, cx: &mut Cx<'_>, node: Node, peer: Node, stream: Stream) {
        let Some(patience) = self.is.retransmit else { return };
        let connection = self.connection(node, peer, stream);
        let Some(due) = connection.due(patience).filter(|_| !connection.has_timer) else { return };
        connection.has_timer = true;
        self.later.at(cx, due.max(cx.now()), node, Later::Patience(peer, stream));
    }

    /// The moment has come at which the oldest packet of a connection may have waited for too long.
    pub(super) fn patience_ends(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        peer: Node,
        stream: Stream,
    ) {
        let Some(patience) = self.is.retransmit else { return };
        let now = cx.now();
        let connection = self.connection(node, peer, stream);
        connection.has_timer = false;
        if connection.due(patience).is_some_and(|due| due <= now) {
            connection.heard = now;
            let oldest = connection.unacknowledged.pop_front();
            self.send_again(cx, node, (peer, stream), oldest.into_iter().collect());
        }
        self.set_timer(cx, node, peer, stream);
    }
}
