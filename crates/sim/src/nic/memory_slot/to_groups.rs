//! Calls of the library for groups. There are entries in the switches' tables only where a NIC has
//! one user, so a PE and its node have one number there.

use super::groups::{ALL, FIRST, GROUPS, Group};
use super::header::{Header, JOB, Kind, PAGE};
use super::multicast;
use super::parameters::MulticastTables;
use super::send::through_wires;
use super::slot::MemorySlot;
use super::way_out::Block;
use crate::host::{Answer, GroupOp, Wanted};
use crate::nic::Cx;
use crate::op::{Op, Pe};
use crate::packet::{Destination, Node, Payload};
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;
use std::sync::Arc;

impl MemorySlot {
    pub(super) fn group(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, what: GroupOp) {
        match what {
            GroupOp::Join { members, wanted } if self.serves(wanted) => {
                self.join(cx, op, &members, wanted);
            }
            GroupOp::Join { .. } => cx.finish(cx.now(), op, Answer::value(0)),
            GroupOp::Multicast { group, to, data } => {
                if let Err(why) = self.write_all(cx, node, op, group, to, &data) {
                    cx.finish(cx.now(), op, Answer::refused(why));
                }
            }
            GroupOp::Arrive(group) => {
                let result = self.arrive_at_barrier(cx, node, op, group);
                self.returned(cx, op, result);
            }
            GroupOp::Phase(group) => self.complete_phases(cx, op, group),
            GroupOp::Leave(group) => {
                let result = self.leave_group(op.pe, group).map(|()| cx.now());
                self.returned(cx, op, result);
            }
            _ => cx.finish(
                cx.now(),
                op,
                Answer::refused("a memory-slot NIC has groups for multicast and barriers alone"),
            ),
        }
    }

    fn serves(&self, wanted: Wanted) -> bool {
        match wanted {
            Wanted::Multicast => self.is.multicast.is_some(),
            Wanted::Barrier => self.is.core_look.is_some(),
            _ => false,
        }
    }

    /// A member asks to join. The last one that asks has the tables written. A barrier does without
    /// an entry in them, if it must.
    fn join(&mut self, cx: &mut Cx<'_>, op: Op, members: &Arc<[u32]>, wanted: Wanted) {
        let number = self.groups.of(op.pe.0, members, wanted);
        let group = &mut self.groups.groups[number];
        group.joining.push(op);
        let gone = &self.groups.gone;
        if !gone.is_empty() && group.members.iter().any(|member| gone.contains(member)) {
            return self.refuse_to_join(cx, number);
        }
        if group.joining.len() < group.members.len() {
            return;
        }
        let joining = std::mem::take(&mut group.joining);
        let (at, answer) = match self.make(cx, number) {
            Some(took) => (self.all_told(cx, op, number) + took, 1 + number as u64),
            None if wanted == Wanted::Barrier => (self.all_told(cx, op, number), 1 + number as u64),
            None => (cx.now(), 0),
        };
        joining.into_iter().for_each(|op| cx.finish(at, op, Answer::value(answer)));
    }

    /// When all members of a group know what the member of this call, the last one that has asked
    /// to join, tells them now.
    fn all_told(&self, cx: &mut Cx<'_>, op: Op, number: usize) -> Ps {
        let node = |pe| self.placement.node(pe);
        let members = self.groups.groups[number].members.iter();
        let longest = members.map(|&pe| self.message(cx, node(op.pe), node(Pe(pe)))).max();
        cx.now() + longest.unwrap_or(Ps::ZERO)
    }

    /// Writes the switches' tables for a group. Returns what that takes; nothing if the switches
    /// have no entry for it.
    fn make(&mut self, cx: &mut Cx<'_>, number: usize) -> Option<Ps> {
        let MulticastTables { groups, write } = self.is.multicast?;
        let free = (FIRST..=u16::MAX).take(groups as usize);
        let entry = free.into_iter().find(|entry| !self.groups.taken.contains(entry))?;
        let members = &self.groups.groups[number].members;
        let nodes: Vec<Node> = members.iter().map(|&member| Node(member)).collect();
        let tables = cx.network().spanning(&nodes).filter(|tables| !tables.is_empty())?;
        let took = write * tables.len() as u64;
        multicast::write(cx.network(), entry, tables);
        self.groups.taken.insert(entry);
        self.groups.groups[number].number = Some(entry);
        Some(took)
    }

    /// Answers those that wait for a group that will not be: a member has left the job.
    fn refuse_to_join(&mut self, cx: &mut Cx<'_>, number: usize) {
        for op in std::mem::take(&mut self.groups.groups[number].joining) {
            cx.finish(cx.now(), op, Answer::value(0));
        }
    }

    /// A PE has left the job. There will be no group with it but those that there are.
    pub(super) fn refuse_groups_with(&mut self, cx: &mut Cx<'_>, pe: u32) {
        if !self.groups.gone.insert(pe) {
            return;
        }
        for number in 0..self.groups.groups.len() {
            let Group { joining, members, .. } = &self.groups.groups[number];
            if !joining.is_empty() && members.contains(&pe) {
                self.refuse_to_join(cx, number);
            }
        }
    }

    /// The group of this number and its entry, if the node is a member.
    fn entry(&self, node: Node, group: u32) -> Result<(&Group, u16), String> {
        let found = self.groups.groups.get((group as usize).wrapping_sub(1));
        found
            .filter(|group| group.wanted == Wanted::Multicast && group.members.contains(&node.0))
            .and_then(|group| group.number.map(|number| (group, number)))
            .ok_or_else(|| format!("this PE is in no group {group}"))
    }

    /// Writes to all other members: a word by AOTF, a block by BOTF. The call returns when the host
    /// has written it.
    fn write_all(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        group: u32,
        to: FarAddress,
        data: &Payload,
    ) -> Result<(), String> {
        let (group, number) = self.entry(node, group)?;
        let others: Vec<u32> =
            group.members.iter().copied().filter(|&member| member != node.0).collect();
        let now = cx.now();
        let len = data.len();
        if is_word(to, data) {
            let page = self.group_kick_page(node, op, (number, &others), to)?;
            let word = through_wires(&self.is, data.clone(), true);
            cx.promise(op, others.len() as u64);
            let result = self.kick(cx, node, op, now, (page, to.offset % PAGE), word);
            self.returned(cx, op, result);
            return Ok(());
        }
        let parts = self.parts(to, data);
        for &pe in &others {
            let in_llcm = self.may_be_in_llcm(FarAddress { pe, ..to }, len);
            for (offset, _) in &parts {
                self.place(FarAddress { pe, offset: *offset, ..to }, in_llcm)?;
            }
        }
        cx.promise(op, (parts.len() * others.len()) as u64);
        let packets = parts.into_iter().map(|(offset, part)| {
            let header = Header {
                kind: Kind::Botf,
                len: part.len() as u16,
                ..to_group(node, number, FarAddress { offset, ..to })
            };
            (header, through_wires(&self.is, part, true))
        });
        let block = Block { op, packets: packets.collect(), signal: None };
        self.write_block(cx, node, now + self.is.software, block);
        Ok(())
    }

    /// The kick page of a page of all members' segments.
    fn group_kick_page(
        &mut self,
        node: Node,
        op: Op,
        (number, others): (u16, &[u32]),
        to: FarAddress,
    ) -> Result<u32, String> {
        for &pe in others {
            self.place(FarAddress { pe, ..to }, true)?;
        }
        let page = FarAddress { offset: to.offset - to.offset % PAGE, ..to };
        let key = (GROUPS | u32::from(number), to.region, to.offset / PAGE);
        self.map_kick_page(node, op, key, to_group(node, number, page))
    }

    /// A member has dropped a group. The last one frees its entry: by then each member has received
    /// what was sent to it. Another group writes over the entry.
    fn leave_group(&mut self, pe: Pe, group: u32) -> Result<(), String> {
        let found = self.groups.groups.get_mut((group as usize).wrapping_sub(1));
        let group = found
            .filter(|group| group.left < group.members.len() && group.members.contains(&pe.0))
            .ok_or_else(|| format!("this PE is in no group {group}"))?;
        group.left += 1;
        if group.left == group.members.len()
            && let Some(number) = group.number.take()
        {
            self.groups.taken.remove(&number);
        }
        Ok(())
    }
}

/// Whether one store writes this to all members of a group.
pub(super) fn is_word(to: FarAddress, data: &Payload) -> bool {
    matches!(data.len(), 1 | 2 | 4 | 8) && to.offset.is_multiple_of(data.len() as u64)
}

/// The header of the library's packets from a node to a place in the segments of a group's members.
fn to_group(from: Node, number: u16, to: FarAddress) -> Header {
    Header {
        kind: Kind::Aotf,
        physical: false,
        promised: true,
        group: JOB,
        len: 0,
        process: ALL,
        region: to.region,
        address: to.offset,
        to: Destination::Multicast(number),
        from,
    }
}
