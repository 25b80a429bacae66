//! Datagrams to groups, and the driver's buffers for them. They carry memonet's own multicast.
//!
//! A datagram is one packet, multicast or to one node, and as unreliable as the links. The core
//! logic cuts the data of one command into packets, as it does with a block. The driver copies the
//! data into one of two buffers, so the call returns when the NIC has read the data of the call
//! before. Datagrams that come by a group go into buffers that the driver has posted for the group;
//! while no buffer is free, they are discarded. A look of the host frees one buffer. The copying
//! itself is a computation of the host, like all that a program does between calls.

use super::management::{ADMINISTRATION, DELETE, Datagram, MULTICAST_MEMBER};
use super::nics::{InfiniBand, Way};
use crate::host::{Answer, GroupOp};
use crate::nic::{Cx, Pe};
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;
use memonet_core::unstable::fabric::{DATAGRAMS_AT_ONCE, FarAddress};

impl InfiniBand {
    /// Begins a member's call for datagrams.
    pub(super) fn datagram(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, what: GroupOp) {
        match what {
            GroupOp::Send { group, to, data } => {
                let (most, member) =
                    (self.is.packet, self.nics[node.index()].inboxes.contains_key(&(group as u16)));
                let there = to.is_none_or(|to| (to as usize) < self.nics.len());
                if data.len() > DATAGRAMS_AT_ONCE * most || !member || !there {
                    let why = format!(
                        "a datagram has at most {most} bytes, {DATAGRAMS_AT_ONCE} go at once, and by a group that this PE has joined to PEs that there are"
                    );
                    return cx.finish(cx.now(), op, Answer::refused(why));
                }
                let way = to.map_or(Way::Datagrams(group as u16), |to| Way::Datagram(Node(to)));
                let place = FarAddress { pe: 0, region: group, offset: 0 };
                let read_before = self.nics[node.index()].core.free();
                let told = self.command(cx, node, op);
                self.send(cx, told, node, op, way, place, &data);
                self.finish_when_read(cx, told, read_before.max(told), op);
            }
            GroupOp::Receive(group) => {
                let seen = self.nics[node.index()].cpu.take(cx.now(), self.is.look);
                cx.host_stage("look", op, seen);
                let inbox = self.nics[node.index()].inboxes.get_mut(&(group as u16));
                let came =
                    inbox.and_then(|inbox| inbox.came.pop_front_if(|&mut (at, _)| at <= seen.1));
                let answer =
                    came.map_or_else(Answer::default, |(_, data)| Answer::with_length(data));
                cx.finish(seen.1, op, answer);
            }
            GroupOp::Leave(group) => {
                let nic = &mut self.nics[node.index()];
                nic.agent.groups.remove(&(group as u16));
                let written = nic.cpu.take(cx.now(), self.is.command_write);
                if let Some(inbox) = nic.inboxes.remove(&(group as u16)) {
                    let mut datagram =
                        Datagram::new(ADMINISTRATION, DELETE, MULTICAST_MEMBER, 0, 0);
                    datagram.data[..inbox.name.len()].copy_from_slice(&inbox.name);
                    self.nics[node.index()].member_of.remove(&inbox.name);
                    let manager = self.manager_of(node);
                    self.manage(cx, node, manager, &datagram, op);
                }
                cx.finish(written.1, op, Answer::default());
            }
            other => unreachable!("{other:?} is none of datagrams"),
        }
    }

    /// A datagram comes into a node's memory at `at`, if a buffer is free.
    pub(super) fn came(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, group: u16, data: Payload) {
        let most = self.is.receive_buffers;
        let inbox = self.nics[node.index()].inboxes.get_mut(&group);
        match inbox.filter(|inbox| (inbox.came.len() as u64) < most) {
            Some(inbox) => {
                inbox.came.push_back((at, data));
                cx.news(at, Pe(node.0));
            }
            None => cx.discarded(),
        }
    }
}
