//! Calls that join a group. Each waits until the manager says that all members have asked to join,
//! or until a member has left the job.

use super::agents::group_name;
use super::nics::{InfiniBand, Joining};
use crate::host::{Answer, Wanted};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::Node;
use std::sync::Arc;

impl InfiniBand {
    /// Begins a member's call.
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
        let name = group_name(&members, purpose, *before);
        *before = before.wrapping_add(1);
        nic.joining.insert(name, Joining { op, noted: false, wanted, members });
        self.ask_to_join(cx, node, name, 0, op);
    }

    /// A PE has left the job. Answers the calls that wait for groups with this PE: there will be no
    /// group. The manager may make such a group even so, but its members do not listen.
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
