//! Barriers by core processors, as an alternative to the hosts' polling.
//!
//! The NIC of the first member gathers. Each member enters by an AOTF store of a byte into words of
//! its LLCM, 8 members a word. Its core processor reads these words again and again. When all have
//! come it announces the phase: by one packet that the switches copy, or by one for each member.
//! The members' hosts see the announcement in their own LLCM, at their next look. They may compute
//! until then, and so may the host whose NIC gathers.

use super::groups::{ALL, BARRIERS, Group};
use super::header::{Header, JOB, Kind, PAGE};
use super::slot::{Due, MemorySlot};
use super::way_out::{Outgoing, Through};
use crate::host::{Answer, Polling, Wanted};
use crate::nic::Cx;
use crate::op::{Op, Pe};
use crate::packet::{Destination, Node, Payload};
use crate::time::Ps;

/// Members of a word.
const WORD: usize = 8;

impl MemorySlot {
    /// The barrier of this number, if the PE is a member.
    fn barrier(&mut self, pe: u32, group: u32) -> Result<&mut Group, String> {
        let found = self.groups.groups.get_mut((group as usize).wrapping_sub(1));
        found
            .filter(|group| group.wanted == Wanted::Barrier && group.members.contains(&pe))
            .ok_or_else(|| format!("this PE is in no barrier {group}"))
    }

    /// A member enters. Returns when its host has written the byte.
    pub(super) fn arrive_at_barrier(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        group: u32,
    ) -> Result<Ps, String> {
        let members = self.barrier(op.pe.0, group)?.members.clone();
        let rank = members.iter().position(|&member| member == op.pe.0).expect("it is a member");
        let seed = Header {
            kind: Kind::Arrival,
            physical: true,
            promised: false,
            group: JOB,
            len: 0,
            process: members[0],
            region: group,
            address: 0,
            to: Destination::Node(self.node_of(members[0])?),
            from: node,
        };
        let page = self.map_kick_page(node, op, (BARRIERS | group, 0, 0), seed)?;
        self.kick(cx, node, op, cx.now(), (page, rank as u64 % PAGE), Payload::word(1, 1))
    }

    /// The complete phases, as the look under way has read them in LLCM.
    pub(super) fn complete_phases(&mut self, cx: &mut Cx<'_>, op: Op, group: u32) {
        let answer = match self.barrier(op.pe.0, group) {
            Ok(group) => Answer::value(group.complete.get(&op.pe.0).copied().unwrap_or(0)),
            Err(why) => Answer::refused(why),
        };
        cx.finish(cx.now(), op, answer);
    }

    /// A member's byte lies in LLCM. After the last one the core processor sees at its next look
    /// that all have come.
    pub(super) fn arrived(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: u32) {
        let barrier = &mut self.groups.groups[group as usize - 1];
        barrier.arrived += 1;
        if barrier.arrived < barrier.members.len() {
            return;
        }
        barrier.arrived = 0;
        let words = barrier.members.len().div_ceil(WORD) as u64;
        let look = self.is.core_look.expect("there are no barriers without") * words;
        let seen = Polling { interval: look, sample: look }.seen(Ps::ZERO, cx.now());
        let handle = self.is.core.expect("there are no barriers without").handle;
        let busy = self.slots[node.index()].core.take(cx.now(), seen, handle);
        cx.stage(node, "core processor", "announce", op, busy);
        self.later(cx, busy.1, node, Due::Announce { op, group });
    }

    /// The core processor announces that a phase is complete.
    pub(super) fn announce(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: u32) {
        let Group { members, number, .. } = &self.groups.groups[group as usize - 1];
        let one = |&pe: &u32| (pe, Destination::Node(self.placement.node(Pe(pe))));
        let packets: Vec<(u32, Destination)> = match number {
            // A switch sends no copy back to where a packet came from.
            Some(entry) => vec![(ALL, Destination::Multicast(*entry)), one(&members[0])],
            None => members.iter().map(one).collect(),
        };
        for (process, to) in packets {
            let header = Header {
                kind: Kind::Announcement,
                physical: true,
                promised: false,
                group: JOB,
                len: 1,
                process,
                region: group,
                address: 0,
                to,
                from: node,
            };
            let packet = Outgoing {
                node,
                op,
                through: Through::Inside,
                missed: false,
                header,
                payload: Payload::word(1, 1),
            };
            self.forward(cx, cx.now(), packet);
        }
    }

    /// An announcement lies in LLCM: for one PE, or for all members here.
    pub(super) fn announced(&mut self, cx: &mut Cx<'_>, node: Node, group: u32, process: u32) {
        let placement = self.placement;
        let Group { members, complete, .. } = &mut self.groups.groups[group as usize - 1];
        let is_told = |&&pe: &&u32| match process {
            ALL => placement.node(Pe(pe)) == node,
            one => pe == one,
        };
        for &pe in members.iter().filter(is_told) {
            *complete.entry(pe).or_default() += 1;
            cx.news(cx.now(), Pe(pe));
        }
    }
}
