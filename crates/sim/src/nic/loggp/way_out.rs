//! The way of messages out of a node.
//!
//! ```text
//! call ─► CPU: send_overhead, then send_byte packet by packet ─► a queue for each other node ─► in turn, a packet each ─► link
//!                                       answers of the NIC ─────────►
//! ```
//!
//! The CPU works on one call at a time. A packet that it has copied is ready to go while the CPU
//! copies the next one.
//!
//! The NIC keeps a queue for each node that it sends to, as it would a queue pair, and takes a
//! packet from each queue in turn. So no message waits for all of another to a third node, and
//! messages to one node stay in order. The NIC hands a packet to the link when the link has room.

use super::{Due, LAST, LogGp};
use crate::host::{Answer, Op};
use crate::nic::{Cx, Unit};
use crate::packet::{Destination, Node, Packet, Payload, Service};
use crate::time::Ps;
use std::collections::{BTreeMap, VecDeque};

/// A message, or a part of one that is ready to go.
#[derive(Debug)]
pub(super) struct Message {
    op: Op,
    to: Node,
    header: [u64; 4],
    data: Payload,
    /// Bytes of `data` that have been split off.
    sent: usize,
    /// Whether this is the beginning of its message.
    first: bool,
    /// Whether this is the end of its message.
    last: bool,
}

impl Message {
    pub(super) fn new(op: Op, to: Node, header: [u64; 4], data: Payload) -> Message {
        Message { op, to, header, data, sent: 0, first: true, last: true }
    }

    /// Splits off the next part, of at most `most` bytes.
    fn split(&mut self, most: usize) -> Message {
        let data = self.data.part(self.sent, most);
        let mut header = self.header;
        header[2] += self.sent as u64;
        let first = self.first && self.sent == 0;
        self.sent += data.len();
        let last = self.last && self.is_out();
        Message { op: self.op, to: self.to, header, data, sent: 0, first, last }
    }

    fn is_out(&self) -> bool {
        self.sent == self.data.len()
    }
}

/// A call at which the CPU works, or will.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) op: Op,
    /// The data, or what is asked of another node.
    pub(super) message: Option<Message>,
    /// Follows the message, and costs the CPU nothing.
    pub(super) signal: Option<Message>,
    /// Whether the call returns when the CPU has done its part.
    pub(super) returns: bool,
}

/// What the CPU does next for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Spends `nic.send_overhead`.
    Overhead,
    /// Copies the next packet.
    Copy,
}

/// A node's way out.
#[derive(Debug, Default)]
pub(super) struct WayOut {
    cpu: Unit,
    /// Calls at which the CPU works or will, in order. While there is one, a plan continues it.
    pushes: VecDeque<Push>,
    /// Hands messages to the link, and keeps the gap between them.
    sender: Unit,
    queues: BTreeMap<Node, VecDeque<Message>>,
    /// The nodes whose queues are not empty, in the order of their turns.
    turns: VecDeque<Node>,
    /// Messages that are planned or in a queue. A later message must not overtake them.
    waiting: usize,
}

impl LogGp {
    /// Has the CPU send a call's messages when it is free.
    pub(super) fn push(&mut self, cx: &mut Cx<'_>, node: Node, push: Push) {
        let pushes = &mut self.nics[node.index()].out.pushes;
        pushes.push_back(push);
        if pushes.len() == 1 {
            self.push_part(cx, node, Part::Overhead);
        }
    }

    /// The CPU does a part of its first call.
    pub(super) fn push_part(&mut self, cx: &mut Cx<'_>, node: Node, what: Part) {
        let is = self.is;
        let out = &mut self.nics[node.index()].out;
        let push = out.pushes.front_mut().expect("a plan continues a call that is there");
        let op = push.op;
        let overhead = match what {
            Part::Overhead => is.send_overhead,
            Part::Copy => Ps::ZERO,
        };
        if is.bus.is_some() && overhead > Ps::ZERO {
            // Others may have the bus meanwhile.
            let busy = out.cpu.take(cx.now(), overhead);
            cx.host_stage("send_overhead", op, busy);
            self.plans.at(cx, busy.1, node, Due::Push(Part::Copy));
            return;
        }
        // A NIC that reads the memory by itself gets the message whole.
        let most = if is.send_byte.takes_time() { is.packet } else { usize::MAX };
        let part = push.message.as_mut().map(|message| message.split(most));
        let more = push.message.as_ref().is_some_and(|message| !message.is_out());
        let bytes = part.as_ref().map_or(0, |part| part.data.len());
        let done = self.work(cx, node, op, overhead, bytes);
        if let Some(part) = part {
            self.send(cx, done, node, part);
        }
        if more {
            self.plans.at(cx, done, node, Due::Push(Part::Copy));
            return;
        }
        let pushes = &mut self.nics[node.index()].out.pushes;
        let push = pushes.pop_front().expect("the call at which the CPU has worked");
        if !pushes.is_empty() {
            self.plans.at(cx, done, node, Due::Push(Part::Overhead));
        }
        if let Some(signal) = push.signal {
            self.send(cx, done, node, signal);
        }
        if push.returns {
            cx.finish(done, op, Answer::default());
        }
    }

    /// Has the CPU spend `overhead`, and copy bytes. Returns when that is done.
    fn work(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, overhead: Ps, bytes: usize) -> Ps {
        let copy = self.is.send_byte.time(bytes as u64);
        let nic = &mut self.nics[node.index()];
        let busy = match self.is.bus {
            None => nic.out.cpu.take(cx.now(), overhead + copy),
            // The CPU stands still while others have the bus.
            Some(_) => {
                let begin = nic.out.cpu.free().max(cx.now()) + overhead;
                let (_, copied) = nic.bus.take(begin, copy);
                nic.out.cpu.take(begin, copied - begin)
            }
        };
        cx.host_stage("send_overhead", op, busy);
        busy.1
    }

    /// Sends a message that is ready at `at`.
    pub(super) fn send(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, mut message: Message) {
        if message.to == node {
            loop {
                let part = message.split(self.is.packet);
                self.hand_over(cx, at, node, part);
                if message.is_out() {
                    return;
                }
            }
        }
        let out = &mut self.nics[node.index()].out;
        if out.waiting == 0 && message.data.len() <= self.is.packet {
            self.hand_over(cx, at, node, message);
            return;
        }
        out.waiting += 1;
        self.plans.at(cx, at, node, Due::Ready(message));
    }

    /// A message is ready, and gets into its queue.
    pub(super) fn ready(&mut self, cx: &mut Cx<'_>, node: Node, message: Message) {
        let out = &mut self.nics[node.index()].out;
        let (to, is_idle) = (message.to, out.turns.is_empty());
        let queue = out.queues.entry(to).or_default();
        queue.push_back(message);
        if queue.len() == 1 {
            out.turns.push_back(to);
        }
        if is_idle {
            let free = out.sender.free().max(cx.now());
            self.plans.at(cx, free, node, Due::Turn);
        }
    }

    /// The link has room for a packet of the queue whose turn it is.
    pub(super) fn turn(&mut self, cx: &mut Cx<'_>, node: Node) {
        let out = &mut self.nics[node.index()].out;
        let to = out.turns.pop_front().expect("a plan for a queue that is not empty");
        let queue = out.queues.get_mut(&to).expect("it is not empty");
        let message = queue.front_mut().expect("it is not empty");
        let part = message.split(self.is.packet);
        if message.is_out() {
            queue.pop_front();
            out.waiting -= 1;
        }
        match queue.is_empty() {
            true => drop(out.queues.remove(&to)),
            false => out.turns.push_back(to),
        }
        self.hand_over(cx, cx.now(), node, part);
        let out = &self.nics[node.index()].out;
        if !out.turns.is_empty() {
            self.plans.at(cx, out.sender.free(), node, Due::Turn);
        }
    }

    /// Hands a packet to the link when the sender is free, from `at` on.
    fn hand_over(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, part: Message) {
        let is = self.is;
        let Message { op, to, mut header, data, first, last, .. } = part;
        let wire_bytes = is.header + data.len() as u32;
        // A packet to the node itself stays within the NIC, which is as fast inside as its link.
        let link = is.link_rate.time(wire_bytes.into());
        let gap = if first { is.gap } else { Ps::ZERO };
        let (start, _) = self.nics[node.index()].out.sender.take(at, gap.max(link));
        let leaves = start + is.send_latency;
        cx.stage(node, "send", "gap", op, (at, start));
        cx.stage(node, "send", "send_latency", op, (start, leaves));
        if last {
            header[0] |= LAST;
        }
        let packet = Packet {
            from: node,
            to: Destination::Node(to),
            wire_bytes,
            header,
            payload: data,
            op,
            service: Service::default(),
            droppable: false,
        };
        if to == node {
            self.receive(cx, leaves, node, packet);
        } else {
            cx.send(leaves, node, packet);
        }
    }
}
