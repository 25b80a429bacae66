//! Calls that join a group: each waits until the manager says that all members have, or it is known
//! that one of them never will.

use super::management::{ADMINISTRATION, Datagram, MULTICAST_MEMBER, SET};
use super::nics::{InfiniBand, Joining};
use super::subnet::{self, Place};
use crate::host::{Answer, Wanted};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::Node;
use std::sync::Arc;

impl InfiniBand {
    /// A member's call.
    pub(super) fn join(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        members: Arc<[u32]>,
        wanted: Wanted,
    ) {
        let purpose = match wanted {
            Wanted::Multicast => 0,
            Wanted::Datagrams(purpose) => 1 + u64::from(purpose),
            _ => return cx.finish(cx.now(), op, Answer::value(0)),
        };
        if members.iter().any(|member| self.left.contains(member)) {
            return cx.finish(cx.now(), op, Answer::value(0));
        }
        let nic = &mut self.nics[node.index()];
        let before = nic.joined.entry((members.clone(), wanted)).or_insert(0);
        let name = subnet::group_name(&members, purpose, *before);
        *before = before.wrapping_add(1);
        nic.joining.insert(name, Joining { op, wanted, members });
        let mut datagram = Datagram::new(ADMINISTRATION, SET, MULTICAST_MEMBER, 0, 0);
        datagram.data[..name.len()].copy_from_slice(&name);
        self.manage(cx, node, Place::Node(Node(0)), &datagram, op);
    }

    /// This PE has left the job: there are no groups any more that wait for it. Those that the
    /// manager makes even so have members that do not listen.
    pub(super) fn refuse_groups_with(&mut self, cx: &mut Cx<'_>, pe: u32) {
        if !self.left.insert(pe) {
            return;
        }
        for nic in &mut self.nics {
            for (_, joining) in
                nic.joining.extract_if(.., |_, joining| joining.members.contains(&pe))
            {
                cx.finish(cx.now(), joining.op, Answer::value(0));
            }
        }
    }
}
