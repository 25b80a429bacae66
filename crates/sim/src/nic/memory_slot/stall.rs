//! Back-pressure reaches the host: while the link stands still, the send queues fill, and a host
//! that finds its queue full looks at the NIC's status until there is room.
//!
//! A call that has begun goes on; the next one waits. A process begins its calls in their order,
//! and none while its CPU writes the packets of a block. It does not wait for others that share the
//! NIC: each looks for itself.

use super::command;
use super::slot::{Due, MemorySlot};
use super::to_groups::is_word;
use super::user::Caller;
use super::way_out::Through;
use crate::host::{GroupOp, HostOp, Signal};
use crate::mailbox::MAILBOXES;
use crate::nic::{Call, Cx};
use crate::op::Pe;
use crate::packet::Node;
use memonet_core::SignalOp;

impl MemorySlot {
    /// The call, if it may begin now. Otherwise it begins when its queue has room, and those of its
    /// process before it have begun.
    pub(super) fn unless_stalled(&mut self, cx: &mut Cx<'_>, call: Call) -> Option<Call> {
        let (node, pe) = (call.node, call.op.pe);
        let capacity = self.capacity(&call.what);
        let Caller { stalled, writes } = self.caller(pe);
        if *writes || !stalled.is_empty() {
            stalled.push_back((call, cx.now()));
            return None;
        }
        if cx.waiting_for_link(node) < capacity {
            return Some(call);
        }
        stalled.push_back((call, cx.now()));
        self.due.when_fewer_wait(cx, node, capacity, Due::Room(pe));
        None
    }

    /// The queue of the first call that a process has waiting has room. The process sees so at its
    /// next look.
    pub(super) fn has_room(&mut self, cx: &mut Cx<'_>, node: Node, pe: Pe) {
        let (_, since) = self.caller(pe).stalled[0];
        let seen = self.is.polling().seen(since, cx.now());
        self.later(cx, seen, node, Due::RoomSeen(pe));
    }

    /// Begins the calls that a process has waiting, for as long as there is room.
    pub(super) fn begin_stalled(&mut self, cx: &mut Cx<'_>, node: Node, pe: Pe) {
        while !self.caller(pe).writes
            && let Some((call, since)) = self.caller(pe).stalled.pop_front()
        {
            let capacity = self.capacity(&call.what);
            if cx.waiting_for_link(node) >= capacity {
                self.caller(pe).stalled.push_front((call, since));
                self.due.when_fewer_wait(cx, node, capacity, Due::Room(pe));
                return;
            }
            cx.host_stage("queue full", call.op, (since, cx.now()));
            self.begin_call(cx, call);
        }
    }

    /// Packets that the queue of a call has room for. A call that sends nothing needs none.
    fn capacity(&self, what: &HostOp) -> usize {
        match self.first_through(what) {
            Some(Through::Aotf) => self.is.aotf_queue,
            Some(Through::Botf) => self.is.botf_queue,
            Some(Through::Inside) | None => usize::MAX,
        }
    }

    /// The queue that a call's first packet comes through, if the host sends any.
    fn first_through(&self, what: &HostOp) -> Option<Through> {
        match what {
            HostOp::Store { .. } => Some(Through::Aotf),
            HostOp::Put { data, signal, .. } if data.is_empty() => {
                signal.as_ref().map(|Signal { at, op, .. }| match *op == SignalOp::Set {
                    true if at.region < MAILBOXES => Through::Aotf,
                    _ => Through::Botf,
                })
            }
            HostOp::Put { .. } | HostOp::Atomic { .. } => Some(Through::Botf),
            HostOp::Group(GroupOp::Multicast { to, data, .. }) => {
                Some(if is_word(*to, data) { Through::Aotf } else { Through::Botf })
            }
            HostOp::Group(GroupOp::Arrive(_)) => Some(Through::Aotf),
            HostOp::Command(command) => match command.code {
                command::KICK => Some(Through::Aotf),
                command::BLOCK | command::NEXT_BLOCK => Some(Through::Botf),
                _ => None,
            },
            _ => None,
        }
    }
}
