//! A reliable connection from a node to another, and back: what has been sent and not acknowledged,
//! and what has come. This is pure state; `reliable` says how it is used.

use crate::packet::Packet;
use crate::time::Ps;
use std::collections::{BTreeMap, VecDeque};

/// What a connection carries: data, or datagrams to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Data,
    Group(u32),
}

/// A packet that has not been acknowledged.
#[derive(Debug, Clone)]
pub struct Sent {
    pub number: u32,
    pub transmission: u32,
    /// When it has left.
    pub left: Ps,
    pub packet: Packet,
}

/// What a node sends to another, and what it takes from that.
#[derive(Debug, Clone, Default)]
pub struct Connection {
    pub packets: u32,
    /// In the order of transmissions.
    pub unacknowledged: VecDeque<Sent>,
    /// When an acknowledgement has come last, or a timeout.
    pub heard: Ps,
    pub has_timer: bool,
    /// Number of the first packet that has not come.
    pub expected: u32,
    /// Packets that have come before their turn.
    early: BTreeMap<u32, Packet>,
}

impl Sent {
    /// A transmission of a packet, which leaves by `left`.
    pub fn new(number: u32, transmission: u32, left: Ps, mut packet: Packet) -> Sent {
        packet.header[3] = u64::from(number) | u64::from(transmission) << 32;
        Sent { number, transmission, left, packet }
    }
}

impl Connection {
    /// Number of packets that have come before their turn.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// Forgets what has been acknowledged: by its transmission, or, whatever was sent again since,
    /// because the receiver lacks none before `lacking`. Returns the packets that are lost.
    pub fn acknowledged(&mut self, lacking: u32, transmission: u32) -> Vec<Sent> {
        let mut lost = Vec::new();
        while let Some(sent) =
            self.unacknowledged.pop_front_if(|sent| sent.transmission <= transmission)
        {
            if sent.transmission != transmission && sent.number >= lacking {
                lost.push(sent);
            }
        }
        self.unacknowledged.retain(|sent| sent.number >= lacking);
        lost
    }

    /// Whether a packet has come before.
    pub fn has(&self, number: u32) -> bool {
        number < self.expected || self.early.contains_key(&number)
    }

    /// Takes a packet that has come. Returns those whose turn it is now.
    pub fn take(&mut self, number: u32, packet: Packet) -> Vec<Packet> {
        self.early.insert(number, packet);
        let mut ready = Vec::new();
        while let Some(packet) = self.early.remove(&self.expected) {
            ready.push(packet);
            self.expected += 1;
        }
        ready
    }

    /// When the oldest packet has been unacknowledged for too long.
    pub fn due(&self, patience: Ps) -> Option<Ps> {
        let oldest = self.unacknowledged.front()?.left;
        Some(oldest.max(self.heard) + patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Pe;
    use crate::op::Op;
    use crate::packet::{Destination, Node, Payload, Service};

    fn packet(byte: u64) -> Packet {
        Packet {
            from: Node(0),
            to: Destination::Node(Node(1)),
            wire_bytes: 1,
            header: [0; 4],
            payload: Payload::word(8, byte),
            op: Op { pe: Pe(0), number: 0 },
            service: Service::default(),
            droppable: true,
        }
    }

    /// A packet is sent again while the answer is under way, and again.
    #[test]
    fn a_late_acknowledgement_counts() {
        let sent = |transmission| Sent::new(0, transmission, Ps::ZERO, packet(7));
        let mut from = Connection::default();
        for late in 1..4 {
            from.unacknowledged = [sent(3)].into();
            assert!(from.acknowledged(1, late).is_empty());
            assert!(from.unacknowledged.is_empty(), "it has come by transmission {late}");
        }
        from.unacknowledged = [sent(3)].into();
        assert!(from.acknowledged(0, 2).is_empty());
        assert_eq!(from.unacknowledged.len(), 1, "another packet has come");
    }

    /// Whatever the network loses, each packet is delivered once, in order.
    #[test]
    fn every_packet_once_and_in_order() {
        for seed in 0..200u64 {
            let mut chance = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut is_lost = || {
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                chance.is_multiple_of(3)
            };
            let (mut from, mut to) = (Connection::default(), Connection::default());
            // Transmissions of other connections are numbered in between.
            let mut transmissions = (0..).step_by(3);
            let mut transmit =
                |number, packet| Sent::new(number, transmissions.next().unwrap(), Ps::ZERO, packet);
            let mut way: VecDeque<Sent> =
                (0..40).map(|number| transmit(number, packet(number.into()))).collect();
            from.unacknowledged = way.clone();
            let mut came = Vec::new();
            while !from.unacknowledged.is_empty() {
                let Some(sent) = way.pop_front() else {
                    let oldest = from.unacknowledged.pop_front().expect("one is left");
                    let again = transmit(oldest.number, oldest.packet);
                    from.unacknowledged.push_back(again.clone());
                    way.push_back(again);
                    continue;
                };
                if is_lost() {
                    continue;
                }
                if !to.has(sent.number) {
                    came.extend(to.take(sent.number, sent.packet));
                }
                if is_lost() {
                    continue;
                }
                for lost in from.acknowledged(to.expected, sent.transmission) {
                    let again = transmit(lost.number, lost.packet);
                    from.unacknowledged.push_back(again.clone());
                    way.push_back(again);
                }
            }
            let numbers: Vec<u64> = came.iter().map(|packet| packet.payload.bits()).collect();
            assert_eq!(numbers, (0..40).collect::<Vec<u64>>(), "seed {seed}");
            assert!(to.early.is_empty());
        }
    }
}
