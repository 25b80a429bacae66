//! Management packets: the processors of nodes and switches, and what follows from their work.

use super::management::{
    ADMINISTRATION, DATAGRAM_BYTES, DIRECTED, Datagram, MANAGEMENT_LANE, MULTICAST_MEMBER, NOTED,
    RESPONSE,
};
use super::nics::{ADMINISTERS, DATA_LANE, Inbox, InfiniBand, Joining, Later, Parameters};
use super::topology::Place;
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
        if datagram.class == DIRECTED {
            self.direct(cx, (to, None), from, datagram.clone());
            return;
        }
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
        let is_for_agent = datagram.class != ADMINISTRATION && datagram.method != RESPONSE;
        match place {
            Place::Node(node) if !is_for_agent => {
                self.told(cx, node, datagram);
                self.at_manager(cx, node, from, datagram);
            }
            _ => {
                if let Some(response) = self.answer(cx, place, datagram) {
                    self.respond(cx, place, from, response);
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
            MULTICAST_MEMBER if datagram.modifier == NOTED => {
                if let Some(joining) = nic.joining.get_mut(&datagram.group()) {
                    joining.noted = true;
                }
                None
            }
            MULTICAST_MEMBER => {
                nic.joining.remove(&datagram.group()).map(
                    |Joining { op, wanted, members, .. }| {
                        let group = datagram.group_lid();
                        if group != 0 {
                            nic.agent.groups.insert(group);
                            nic.member_of.insert(datagram.group(), group);
                        }
                        let mut value = u64::from(group);
                        if group != 0 && matches!(wanted, Wanted::Datagrams(_)) {
                            nic.inboxes.insert(group, Inbox::new(datagram.group(), members));
                            // Packets of an older group with this LID may still be on their way, so
                            // the number tells the groups apart.
                            value |= (datagram.transaction & 0xffff) << 16
                                | (self.is.packet as u64) << 32;
                        }
                        (op, Answer::value(value))
                    },
                )
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
pub(super) fn packet(
    from: Node,
    to: Destination,
    is: &Parameters,
    datagram: &Datagram,
    op: Op,
) -> Packet {
    let (lane, service) = match datagram.class {
        ADMINISTRATION => (DATA_LANE | ADMINISTERS, is.service),
        _ => (MANAGEMENT_LANE, Service::Management),
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
