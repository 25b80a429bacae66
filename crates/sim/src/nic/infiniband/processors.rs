//! Management packets: the processors of nodes and switches, and what follows from their work.

use super::management::{
    DATAGRAM_BYTES, Datagram, MANAGEMENT_LANE, MULTICAST_MEMBER, RESPONSE, SUBNET,
};
use super::nics::{ADMINISTERS, DATA_LANE, Inbox, InfiniBand, Joining, Later, Parameters};
use super::subnet::Place;
use crate::host::{Answer, Wanted};
use crate::nic::{Cx, Pe};
use crate::op::Op;
use crate::packet::{Destination, Node, Packet, Payload, Service};

/// The call for which management is recorded that no call has caused.
pub const SWITCHED_ON: Op = Op { pe: Pe(0), number: 0 };

impl InfiniBand {
    /// Sends a management datagram to the agent of a place, or administration to a node.
    pub(super) fn manage(
        &mut self,
        cx: &mut Cx<'_>,
        from: Node,
        to: Place,
        datagram: &Datagram,
        op: Op,
    ) {
        if to == Place::Node(from) {
            self.handle(cx, to, from, datagram.clone());
            return;
        }
        let destination = match to {
            Place::Node(node) => Destination::Node(node),
            Place::Switch(switch) => Destination::Switch(switch),
        };
        cx.send(
            cx.now() + self.is.swif_send,
            from,
            packet(from, destination, &self.is, datagram, op),
        );
    }

    /// A place's processor works on a datagram.
    pub(super) fn handle(&mut self, cx: &mut Cx<'_>, place: Place, from: Node, datagram: Datagram) {
        let (processor, node) = match place {
            Place::Node(node) => (&mut self.nics[node.index()].processor, node),
            // A timer needs a node, but nothing reads the node of this one.
            Place::Switch(switch) => (&mut self.switch_processors[switch as usize], from),
        };
        let done = processor.take(cx.now(), self.is.management);
        self.later.at(cx, done.1, node, Later::Handled(place, from, datagram));
    }

    /// A place's processor has worked on a datagram.
    pub(super) fn handled(
        &mut self,
        cx: &mut Cx<'_>,
        place: Place,
        from: Node,
        datagram: &Datagram,
    ) {
        match place {
            Place::Switch(switch) => {
                let response =
                    self.switches[switch as usize].take(cx.network().switch_mut(switch), datagram);
                let packet =
                    packet(from, Destination::Node(from), &self.is, &response, SWITCHED_ON);
                cx.send_from_switch(cx.now(), switch, from, packet);
            }
            Place::Node(node) if datagram.class == SUBNET && datagram.method != RESPONSE => {
                let response = self.nics[node.index()].agent.take(datagram);
                self.manage(cx, node, Place::Node(from), &response, SWITCHED_ON);
            }
            Place::Node(node) => {
                self.told(cx, node, datagram);
                if node == Node(0) {
                    self.manager.take(cx.network(), from, datagram);
                    for (place, datagram) in self.manager.next() {
                        self.manage(cx, node, place, &datagram, SWITCHED_ON);
                    }
                }
            }
        }
    }

    /// Answers the call that waits for this response, if one does.
    fn told(&mut self, cx: &mut Cx<'_>, node: Node, datagram: &Datagram) {
        if datagram.method != RESPONSE {
            return;
        }
        let nic = &mut self.nics[node.index()];
        let answered = match datagram.attribute {
            MULTICAST_MEMBER => {
                nic.joining.remove(&datagram.group()).map(|Joining { op, wanted, .. }| {
                    let group = datagram.group_lid();
                    if group != 0 {
                        nic.agent.groups.insert(group);
                    }
                    let mut value = u64::from(group);
                    if group != 0 && matches!(wanted, Wanted::Datagrams(_)) {
                        nic.inboxes.insert(group, Inbox::new(datagram.group()));
                        // Packets of an older group with this LID may still be on their way, so
                        // the number tells the groups apart.
                        value |=
                            (datagram.transaction & 0xffff) << 16 | (self.is.packet as u64) << 32;
                    }
                    (op, Answer::value(value))
                })
            }
            _ => nic
                .asked
                .remove(&datagram.transaction)
                .map(|op| (op, Answer::data(Payload::copy(&datagram.data)))),
        };
        if let Some((op, answer)) = answered {
            cx.finish(cx.now() + self.is.look, op, answer);
        }
    }
}

/// A management packet. Subnet management has a lane of its own.
fn packet(from: Node, to: Destination, is: &Parameters, datagram: &Datagram, op: Op) -> Packet {
    let (lane, service) = match datagram.class {
        SUBNET => (MANAGEMENT_LANE, Service::Management),
        _ => (DATA_LANE | ADMINISTERS, is.service),
    };
    Packet {
        from,
        to,
        wire_bytes: is.header + DATAGRAM_BYTES as u32,
        header: [lane, 0, 0, 0],
        payload: datagram.payload(),
        op,
        service,
        droppable: false,
    }
}
