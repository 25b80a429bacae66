//! Groups of boards: which groups the wires and the chain serve, and the calls of their members.

use super::boards::{Board, Group, Later, Membership, Message, SyncNetwork};
use super::chain::PAYLOAD_BYTES;
use super::collective::{Collective, Part};
use super::drivers::ARBITER;
use super::wires;
use crate::host::{Answer, GroupOp, Wanted};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;
use std::sync::Arc;

impl SyncNetwork {
    /// A look of a host that may be in the middle of a look. Returns when the look reads the board,
    /// and when it ends.
    fn watch(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> (Ps, Ps) {
        match self.look_under_way(cx.now(), node) {
            Some(start) => (start + self.is.flag_read, start + self.is.flag_look),
            None => self.look(cx, node, op),
        }
    }

    pub(super) fn join(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        members: Arc<[u32]>,
        wanted: Wanted,
    ) {
        let request = (wanted, self.list(&members));
        let times = self.boards[node.index()].asked.entry(request).or_insert(0);
        let before = *times;
        *times += 1;
        let known = self.known.entry(request).or_default();
        // The first member that asks causes the decision for all.
        if known.len() == before {
            known.push(self.groups.len() as u32 + 1);
            let served = self.serves(&members, wanted);
            self.groups.push(Group {
                members: self.lists[request.1].clone(),
                wanted,
                served,
                joining: Vec::new(),
                left: 0,
                told: 0,
                asked: false,
            });
        }
        let number = self.known[&request][before];
        let group = &mut self.groups[number as usize - 1];
        group.joining.push(op);
        if group.members.iter().any(|member| self.left.contains(member)) {
            return self.refuse_to_join(cx, number);
        }
        if group.joining.len() == group.members.len() {
            self.joined(cx, number);
        }
    }

    /// All members have asked to join. Answers them.
    fn joined(&mut self, cx: &mut Cx<'_>, number: u32) {
        let Group { members, wanted, served, joining, .. } = &mut self.groups[number as usize - 1];
        let (members, wanted, served) = (members.clone(), *wanted, *served);
        let joining = std::mem::take(joining);
        let holds = served && self.hold(cx, number, false);
        for &member in members.iter().filter(|_| served) {
            let board = &mut self.boards[member as usize];
            if wanted == Wanted::Barrier {
                board.barriers.insert(number, Membership { wired: holds, ..Default::default() });
            } else {
                (board.collectives, board.may_carry) = (Some(number), holds);
            }
        }
        let most = if wanted == Wanted::Collectives { PAYLOAD_BYTES as u64 } else { 0 };
        let answer = if served { u64::from(number) | most << 32 } else { 0 };
        for op in joining {
            cx.finish(cx.now() + self.is.register_write, op, Answer::value(answer));
        }
    }

    /// Answers those that wait for a group that will not be: a member has left the job.
    fn refuse_to_join(&mut self, cx: &mut Cx<'_>, number: u32) {
        for op in std::mem::take(&mut self.groups[number as usize - 1].joining) {
            cx.finish(cx.now(), op, Answer::value(0));
        }
    }

    /// A PE has left the job. There will be no group with it but those that there are.
    pub(super) fn refuse_groups_with(&mut self, cx: &mut Cx<'_>, pe: u32) {
        if !self.left.insert(pe) {
            return;
        }
        for number in 1..=self.groups.len() as u32 {
            if self.groups[number as usize - 1].members.contains(&pe) {
                self.refuse_to_join(cx, number);
            }
        }
    }

    /// Writes the group registers of the members of a group for barriers.
    pub(super) fn name_groups(&mut self, number: u32) {
        let Group { members, wanted, .. } = &self.groups[number as usize - 1];
        if *wanted == Wanted::Barrier {
            members.clone().iter().for_each(|&member| self.name_group(member, number));
        }
    }

    /// Writes a board's group register: the members of its microcluster.
    fn name_group(&mut self, board: u32, number: u32) {
        let members = &self.groups[number as usize - 1].members;
        let here = self.wires.boards_of(board as usize / wires::MICROCLUSTER);
        let mask = if members.len() == self.boards.len() {
            here.fold(0, |mask, member| mask | 1 << (member % wires::MICROCLUSTER))
        } else {
            let members = members.iter().map(|&member| member as usize);
            let here = members.filter(|member| here.contains(member));
            here.fold(0, |mask, member| mask | 1 << (member % wires::MICROCLUSTER))
        };
        self.wires.set_group(board as usize, mask);
    }

    /// The number of a list of members.
    fn list(&mut self, members: &Arc<[u32]>) -> usize {
        // Lists that share memory compare equal without being read.
        let known = self.lists.iter().position(|list| list == members);
        known.unwrap_or_else(|| {
            self.lists.push(members.clone());
            self.lists.len() - 1
        })
    }

    /// Whether the boards can serve a group.
    fn serves(&self, members: &[u32], wanted: Wanted) -> bool {
        let all = |free: &dyn Fn(&Board) -> bool| {
            members.iter().all(|&member| self.boards.get(member as usize).is_some_and(free))
        };
        match wanted {
            Wanted::Barrier => {
                let mut is_member = vec![false; self.boards.len()];
                let all_there = members.iter().all(|&member| {
                    is_member
                        .get_mut(member as usize)
                        .is_some_and(|is| !std::mem::replace(is, true))
                });
                let last = |&member: &u32| is_member[self.wires.last_of(member as usize)];
                all_there && (!self.wires.is_divided() || members.iter().all(last))
            }
            Wanted::Collectives => {
                members.is_sorted_by(|a, b| a < b) && all(&|board| board.collectives.is_none())
            }
            Wanted::Multicast | Wanted::Datagrams(_) => false,
        }
    }

    pub(super) fn group(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, what: GroupOp) {
        let refused = |why: &str| Answer::refused(why.to_owned());
        // The boards of its members know a group that is served.
        let board = &mut self.boards[node.index()];
        let collectives = board.collectives;
        match what {
            GroupOp::Join { members, wanted } => self.join(cx, node, op, members, wanted),
            GroupOp::Arrive(group) if let Some(barrier) = board.barriers.get_mut(&group) => {
                if barrier.arrived > barrier.complete {
                    return cx.finish(cx.now(), op, refused("the last phase is not complete"));
                }
                self.arrive_at(cx, node, op, group);
            }
            GroupOp::Step(group) if board.barriers.contains_key(&group) => {
                let (read, end) = self.watch(cx, node, op);
                self.at(cx, read, node, Later::Step(op, group, end));
            }
            GroupOp::Phase(group) if board.barriers.contains_key(&group) => {
                let (read, end) = self.watch(cx, node, op);
                self.at(cx, read, node, Later::Phase(op, group, end));
            }
            GroupOp::Leave(group) if let Some(barrier) = board.barriers.get(&group) => {
                if barrier.arrived > barrier.complete {
                    return cx.finish(cx.now(), op, refused("the last phase is not complete"));
                }
                self.leave(node, group);
                cx.finish(cx.now(), op, Answer::default());
            }
            GroupOp::Result(group) if collectives == Some(group) => {
                let (read, end) = self.watch(cx, node, op);
                self.at(cx, read, node, Later::Ended(op, end));
            }
            GroupOp::Collective { group, what, data } if collectives == Some(group) => {
                if let Err(why) = self.collective(cx, node, op, group, what, &data) {
                    cx.finish(cx.now(), op, refused(why));
                }
            }
            _ => cx.finish(cx.now(), op, refused("this PE has joined no such group for that")),
        }
    }

    /// The host arrives at the next phase of a group, after it has switched the board to wires.
    pub(super) fn arrive_at(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: u32) {
        let board = &mut self.boards[node.index()];
        let barrier = board.barriers.get_mut(&group).expect("a member arrives");
        barrier.arrived += 1;
        let wired = barrier.wired;
        if wired && self.wires.carries_packets(node.index()) && !board.switching {
            let done = self.cpu(cx, cx.now(), node, op, "register_write", self.is.register_write);
            self.at(cx, done, node, Later::Packets(false));
        }
        self.enter(cx, node, op, Some(group));
    }

    /// Begins a member's part of a collective.
    fn collective(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        group: u32,
        what: Collective,
        data: &Payload,
    ) -> Result<(), &'static str> {
        let words = matches!(what, Collective::Broadcast { .. }) || data.len().is_multiple_of(8);
        let members = &self.groups[group as usize - 1].members;
        let root = match what {
            Collective::Broadcast { root } | Collective::Reduce { root, .. } => root as usize,
            Collective::AllReduce(_) | Collective::Scan(_) => 0,
        };
        if data.is_empty() || data.len() > PAYLOAD_BYTES || !words || root >= members.len() {
            return Err(
                "a collective has from 1 to 56 bytes, in words of 8 unless it is a broadcast, and its root is a rank of the group",
            );
        }
        let board = &mut self.boards[node.index()];
        if board.part.is_some() {
            return Err("the board is in a collective already");
        }
        board.begun = board.begun.wrapping_add(1);
        board.part =
            Some(data.with(|bytes| Part::new(op, what, board.begun, node.0, members, bytes)));
        if !board.may_carry {
            self.tell(cx, node, ARBITER, Message::Want(group));
            // The driver goes on when it may.
            cx.finish(cx.now() + self.lan.send_overhead(), op, Answer::default());
            return Ok(());
        }
        let done = self.write_part(cx, node, op);
        cx.finish(done, op, Answer::default());
        Ok(())
    }

    /// The host writes its part of a collective, after it has switched the board to packets.
    /// Returns when that is done.
    pub(super) fn write_part(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> Ps {
        let mut ready = cx.now();
        if self.boards[node.index()].switching || !self.wires.carries_packets(node.index()) {
            ready = self.cpu(cx, ready, node, op, "register_write", self.is.register_write);
            self.at(cx, ready, node, Later::Packets(true));
        }
        let done = self.cpu(cx, ready, node, op, "packet_write", self.is.packet_write);
        self.at(cx, done, node, Later::Begin);
        done
    }

    /// A member has dropped a barrier. The group ends with the last one.
    fn leave(&mut self, node: Node, number: u32) {
        self.boards[node.index()].barriers.remove(&number);
        let group = &mut self.groups[number as usize - 1];
        group.left += 1;
        if group.left == group.members.len() {
            let members = std::mem::replace(&mut group.members, Arc::from([]));
            if self.holders.remove(&number) {
                members.iter().for_each(|&member| self.wires.set_group(member as usize, 0));
            }
        }
    }
}
