//! Back-pressure reaches the host: while the link stands still, the send queues fill, and a host
//! that finds its queue full looks at the NIC's status until there is room.
//!
//! The packets of one call are planned when the call begins. So a call that has begun goes on; the
//! next one waits.

use super::command;
use super::slot::{Due, MemorySlot};
use crate::host::{GroupOp, HostOp};
use crate::nic::{Call, Cx};
use crate::packet::Node;

impl MemorySlot {
    /// The call, if it may begin now. Otherwise it begins when its queue has room, and those before
    /// it have begun.
    pub(super) fn unless_stalled(&mut self, cx: &mut Cx<'_>, call: Call) -> Option<Call> {
        let capacity = self.capacity(&call.what);
        let node = call.node;
        let stalled = &mut self.slots[node.index()].stalled;
        if !stalled.is_empty() {
            stalled.push_back((call, cx.now()));
            return None;
        }
        if cx.waiting_for_link(node) < capacity {
            return Some(call);
        }
        stalled.push_back((call, cx.now()));
        self.due.when_fewer_wait(cx, node, capacity, Due::Room);
        None
    }

    /// The queue of the first call that waits has room. The host sees so at its next look.
    pub(super) fn has_room(&mut self, cx: &mut Cx<'_>, node: Node) {
        let (_, since) = self.slots[node.index()].stalled[0];
        let seen = self.is.polling().seen(since, cx.now());
        self.later(cx, seen, node, Due::RoomSeen);
    }

    /// Begins the calls that wait, for as long as there is room.
    pub(super) fn begin_stalled(&mut self, cx: &mut Cx<'_>, node: Node) {
        while let Some((call, since)) = self.slots[node.index()].stalled.pop_front() {
            let capacity = self.capacity(&call.what);
            if cx.waiting_for_link(node) >= capacity {
                self.slots[node.index()].stalled.push_front((call, since));
                self.due.when_fewer_wait(cx, node, capacity, Due::Room);
                return;
            }
            cx.host_stage("queue full", call.op, (since, cx.now()));
            self.begin_call(cx, call);
        }
    }

    /// Packets that the queue of a call has room for. A call that sends nothing needs none.
    fn capacity(&self, what: &HostOp) -> usize {
        let (words, blocks) = (self.is.aotf_queue, self.is.botf_queue);
        match what {
            HostOp::Store { .. } => words,
            HostOp::Put { data, .. } if data.is_empty() => words,
            HostOp::Put { .. } | HostOp::Group(GroupOp::Multicast { .. }) => blocks,
            HostOp::Command(command) => match command.code {
                command::KICK => words,
                command::BLOCK | command::NEXT_BLOCK => blocks,
                _ => usize::MAX,
            },
            _ => usize::MAX,
        }
    }
}
