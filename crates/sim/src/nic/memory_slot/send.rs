//! The way out: host, transaction queue, HTLB, size decision, send buffer, SWIF.
//!
//! Packets keep their order, so all of a packet's times are known when the slot has it, and are
//! computed then. A packet leaves its queue when the stages behind can take it without stopping, so
//! a slow link fills the queues. A host that finds its queue full looks at the NIC's status until
//! there is room.

use super::command::LoopBack;
use super::parameters::{Parameters, Refill};
use super::slot::{Due, MemorySlot};
use super::twist::Twist;
use super::way_out::{Outgoing, Through};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Destination, Node, Packet, Payload, Service};
use crate::time::Ps;

impl MemorySlot {
    /// When a host that comes at `at` has seen room in its queue.
    pub(super) fn room(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        through: Through,
        at: Ps,
    ) -> Ps {
        let out = &mut self.slots[node.index()].out;
        let free = match through {
            Through::Aotf => out.aotf.room(at, self.is.aotf_queue),
            Through::Botf => out.botf.room(at, self.is.botf_queue),
            Through::Inside => at,
        };
        if free == at {
            return at;
        }
        let seen = self.is.polling().seen(at, free);
        cx.host_stage("queue full", op, (at, seen));
        seen
    }

    /// The slot has a request from `at` on. It is not taken through before: until then others may
    /// come, of another user, an agent or the core processor.
    pub(super) fn hand_over(&mut self, cx: &mut Cx<'_>, at: Ps, packet: Outgoing) {
        let out = &mut self.slots[packet.node.index()].out;
        match packet.through {
            Through::Aotf => out.aotf.expect(),
            Through::Botf => out.botf.expect(),
            Through::Inside => {}
        }
        self.later(cx, at, packet.node, Due::Forward(packet));
    }

    /// Takes a request, which the NIC has from `at` on, through to the link.
    pub(super) fn forward(&mut self, cx: &mut Cx<'_>, at: Ps, packet: Outgoing) {
        let Outgoing { node, op, through, missed, header, payload } = packet;
        let is = &self.is;
        let out = &mut self.slots[node.index()].out;
        let wire = is.wire_header + payload.len() as u64;
        let mut stages: Vec<(&'static str, Ps)> = Vec::with_capacity(5);
        let lookup = if through == Through::Aotf { is.header_tlb } else { Ps::ZERO };
        let ready = match through {
            Through::Inside => at,
            _ => {
                let (start, end) = out.transaction.take(at + is.host_write, is.transaction_queue);
                cx.stage(node, "send", "host_write", op, (at, at + is.host_write));
                cx.stage(node, "send", "transaction_queue", op, (start, end));
                end
            }
        };
        let begins = ready.max(out.lookup.free());
        let refill = if missed { self.refill(cx.now(), node, begins) } else { Ps::ZERO };
        let (is, out) = (&self.is, &mut self.slots[node.index()].out);
        stages.push(("htlb_refill", refill));
        stages.push(("header_tlb", lookup));
        stages.push(("size_decision", is.size_decision));
        stages.push(("send_buffer_handshake", is.send_buffer_handshake));
        let before_swif = lookup + refill + is.size_decision + is.send_buffer_handshake;
        let leaves = begins.max(Ps(out.swif.free().0.saturating_sub(before_swif.0)));
        out.lookup.take(leaves, lookup + refill);
        // SWIF takes the packet at an edge of its own clock, whose phase nobody knows. A packet
        // that waits for SWIF has met that edge before.
        let crossed = begins + before_swif + Ps(cx.random() % is.swif_cycle.0);
        let (start, _) = out.swif.take(crossed, is.swif_send.max(is.link.time(wire)));
        match through {
            Through::Aotf => out.aotf.push(leaves),
            Through::Botf => out.botf.push(leaves),
            Through::Inside => {}
        }
        let mut from = leaves;
        for (name, time) in stages {
            cx.stage(node, "send", name, op, (from, from + time));
            from += time;
        }
        cx.stage(node, "send", "into SWIF's clock", op, (leaves + before_swif, start));
        let sent = start + is.swif_send;
        cx.stage(node, "send", "swif_send", op, (start, sent));
        let packet = Packet {
            from: node,
            to: header.to,
            wire_bytes: wire as u32,
            header: header.encode(),
            payload,
            op,
            service: Service::default(),
            droppable: false,
        };
        self.leave(cx, sent, packet);
    }

    /// The time from a miss of the HTLB until the seed is there.
    fn refill(&mut self, now: Ps, node: Node, missed: Ps) -> Ps {
        let done = match self.is.htlb_refill {
            Refill::Core(time) => self.slots[node.index()].core.take(now, missed, time).1,
            Refill::Host(time) => self.is.polling().seen(Ps::ZERO, missed) + time,
        };
        done - missed
    }

    /// A packet leaves SWIF: for the link, or back into its own NIC.
    fn leave(&mut self, cx: &mut Cx<'_>, at: Ps, packet: Packet) {
        let node = packet.from;
        let internal = self.slots[node.index()].loop_back == LoopBack::Internal;
        if internal && packet.to == Destination::Node(node) {
            self.later(cx, at, node, Due::Turned(packet));
        } else {
            cx.send(at, node, packet);
        }
    }
}

/// A payload as the NIC sees it, when software has undone the twist, or has not. Wires and software
/// undo each other (a test of `twist` says so), so a twist that is undone needs no computing.
pub fn through_wires(is: &Parameters, payload: Payload, undone: bool) -> Payload {
    if undone || is.twist.is_straight() {
        return payload;
    }
    payload.with(|bytes| {
        let seen = is.twist.each(bytes, Twist::to_nic);
        Payload::copy(&seen[..bytes.len()])
    })
}
