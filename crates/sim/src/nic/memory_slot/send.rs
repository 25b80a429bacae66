//! The way out: host, transaction queue, HTLB, size decision, send buffer, SWIF.
//!
//! All of it is known when the host writes, as nothing overtakes anything: so it is computed then.
//! A packet leaves its queue when what is behind can take it without stopping, so that a slow link
//! fills the queues; a host that finds its queue full looks at the NIC's status until there is
//! room.

use super::MemorySlot;
use super::command::LoopBack;
use super::header::Header;
use super::parameters::Parameters;
use crate::host::Op;
use crate::nic::{Cx, Unit};
use crate::packet::{Destination, Node, Packet, Payload};
use crate::time::Ps;
use std::collections::VecDeque;

/// Requests of one sort that wait in the NIC: when each leaves.
#[derive(Debug, Clone, Default)]
pub struct Waiting(VecDeque<Ps>);

impl Waiting {
    /// When there is room in a queue of `capacity` for one who comes at `at`.
    fn room(&mut self, at: Ps, capacity: usize) -> Ps {
        while self.0.front().is_some_and(|&leaves| leaves <= at) {
            self.0.pop_front();
        }
        // Requests leave in order, so all that must be gone are those at the front.
        match self.0.len().checked_sub(capacity) {
            None => at,
            Some(too_many) => self.0[too_many],
        }
    }
}

/// The units of the way out of one NIC.
#[derive(Debug, Clone, Default)]
pub struct WayOut {
    pub aotf: Waiting,
    pub botf: Waiting,
    transaction: Unit,
    /// Free for the next packet from here on: HTLB and what comes before SWIF.
    lookup: Unit,
    swif: Unit,
    pub dma: Unit,
}

/// Which queue a request comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    Aotf,
    Botf,
    /// None: remote DMA.
    Inside,
}

/// What a packet takes on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub node: Node,
    pub op: Op,
    pub through: Through,
    /// Whether the page was not in the HTLB.
    pub missed: bool,
    pub header: Header,
    pub payload: Payload,
}

impl MemorySlot {
    /// When a host that comes at `at` finds room in its queue.
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

    /// Takes a request that the NIC has had since `at` through to the link.
    pub(super) fn forward(&mut self, cx: &mut Cx<'_>, at: Ps, packet: Outgoing) {
        let Outgoing { node, op, through, missed, header, payload } = packet;
        let is = &self.is;
        let out = &mut self.slots[node.index()].out;
        let wire = is.wire_header + payload.len() as u64;
        let mut stages: Vec<(&'static str, Ps)> = Vec::with_capacity(5);
        let (lookup, refill) = match through {
            Through::Aotf => (is.header_tlb, if missed { is.htlb_refill } else { Ps::ZERO }),
            _ => (Ps::ZERO, Ps::ZERO),
        };
        let ready = match through {
            Through::Inside => at,
            _ => {
                let (start, end) = out.transaction.take(at + is.host_write, is.transaction_queue);
                cx.stage(node, "send", "host_write", op, (at, at + is.host_write));
                cx.stage(node, "send", "transaction_queue", op, (start, end));
                end
            }
        };
        stages.push(("htlb_refill", refill));
        stages.push(("header_tlb", lookup));
        stages.push(("size_decision", is.size_decision));
        stages.push(("send_buffer_handshake", is.send_buffer_handshake));
        let before_swif = lookup + refill + is.size_decision + is.send_buffer_handshake;
        let leaves =
            ready.max(out.lookup.free()).max(Ps(out.swif.free().0.saturating_sub(before_swif.0)));
        out.lookup.take(leaves, lookup + refill);
        let (start, _) = out.swif.take(leaves + before_swif, is.swif_send.max(is.link.time(wire)));
        match through {
            Through::Aotf => out.aotf.0.push_back(leaves),
            Through::Botf => out.botf.0.push_back(leaves),
            Through::Inside => {}
        }
        let mut from = leaves;
        for (name, time) in stages {
            cx.stage(node, "send", name, op, (from, from + time));
            from += time;
        }
        let sent = start + is.swif_send;
        cx.stage(node, "send", "swif_send", op, (start, sent));
        self.leave(cx, sent, node, op, header, payload, wire as u32);
    }

    #[allow(clippy::too_many_arguments)]
    fn leave(
        &mut self,
        cx: &mut Cx<'_>,
        at: Ps,
        node: Node,
        op: Op,
        header: Header,
        payload: Payload,
        wire_bytes: u32,
    ) {
        let slot = &self.slots[node.index()];
        let turns = header.to == Destination::Node(node) && slot.loop_back == LoopBack::Internal;
        let packet = Packet {
            from: node,
            to: header.to,
            wire_bytes,
            header: header.encode(),
            payload,
            op,
            droppable: false,
        };
        if turns {
            self.later(cx, at, node, super::Due::Turned(packet));
        } else {
            cx.send(at, node, packet);
        }
    }
}

/// A payload as the NIC sees it after software has undone the twist, or has forgotten to.
pub fn through_wires(is: &Parameters, payload: Payload, undone: bool) -> Payload {
    if is.twist.is_straight() {
        return payload;
    }
    payload.with(|bytes| {
        let written = if undone {
            is.twist.each(bytes, super::twist::Twist::to_host)
        } else {
            bytes.to_vec()
        };
        let seen = is.twist.each(&written, super::twist::Twist::to_nic);
        Payload::copy(&seen[..bytes.len()])
    })
}
