//! Groups of boards: which groups the wires and the chain serve, and the calls of their members.

use super::boards::{Board, Group, Later, SyncNetwork};
use super::chain::PAYLOAD_BYTES;
use super::collective::{Collective, Part};
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
            let number = self.groups.len() as u32 + 1;
            known.push(number);
            let served = self.serves(&members, wanted);
            for &member in members.iter().filter(|_| served) {
                let board = &mut self.boards[member as usize];
                match wanted {
                    Wanted::Barrier => {
                        board.barrier = Some((number, self.wires.phases(member as usize)))
                    }
                    _ => board.collectives = Some(number),
                }
            }
            self.groups.push(Group {
                members: self.lists[request.1].clone(),
                served,
                joining: Vec::new(),
            });
        }
        let number = self.known[&request][before];
        let group = &mut self.groups[number as usize - 1];
        group.joining.push(op);
        let served = group.served;
        if served && wanted == Wanted::Barrier {
            let here = self.wires.boards_of(node.index() / wires::MICROCLUSTER);
            let named = here
                .filter(|&board| self.boards[board].barrier.is_some_and(|(of, _)| of == number));
            let mask = named.fold(0, |mask, board| mask | 1 << (board % wires::MICROCLUSTER));
            self.wires.set_group(node.index(), mask);
        }
        let group = &mut self.groups[number as usize - 1];
        if group.joining.len() == group.members.len() {
            for op in std::mem::take(&mut group.joining) {
                let done = cx.now() + self.is.register_write;
                let most = if wanted == Wanted::Collectives { PAYLOAD_BYTES as u64 } else { 0 };
                cx.finish(
                    done,
                    op,
                    Answer::value(if served { u64::from(number) | most << 32 } else { 0 }),
                );
            }
        }
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
            Wanted::Barrier if self.wires.is_divided() => {
                let mut is_member = vec![false; self.boards.len()];
                let all_there = members.iter().all(|&member| {
                    is_member
                        .get_mut(member as usize)
                        .is_some_and(|is| !std::mem::replace(is, true))
                });
                let last = |&member: &u32| is_member[self.wires.last_of(member as usize)];
                !self.boards.iter().any(|board| board.barrier.is_some())
                    && all_there
                    && members.iter().all(last)
            }
            Wanted::Barrier => all(&|board| board.barrier.is_none()),
            Wanted::Collectives => {
                members.is_sorted_by(|a, b| a < b) && all(&|board| board.collectives.is_none())
            }
            Wanted::Multicast | Wanted::Datagrams(_) => false,
        }
    }

    pub(super) fn group(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, what: GroupOp) {
        let refused = |why: &str| Answer::refused(why.to_owned());
        // The boards of its members know a group that is served.
        let board = &self.boards[node.index()];
        let (barrier, collectives) = (board.barrier.map(|(group, _)| group), board.collectives);
        match what {
            GroupOp::Join { members, wanted } => self.join(cx, node, op, members, wanted),
            GroupOp::Arrive(group) if barrier == Some(group) => {
                if self.wires.carries_packets(node.index()) && !self.boards[node.index()].switching
                {
                    let done =
                        self.cpu(cx, cx.now(), node, op, "register_write", self.is.register_write);
                    self.at(cx, done, node, Later::Packets(false));
                }
                self.enter(cx, node, op);
            }
            GroupOp::Phase(group) if barrier == Some(group) => {
                let (read, end) = self.watch(cx, node, op);
                self.at(cx, read, node, Later::Phase(op, end));
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
        let mut ready = cx.now();
        if board.switching || !self.wires.carries_packets(node.index()) {
            ready = self.cpu(cx, ready, node, op, "register_write", self.is.register_write);
            self.at(cx, ready, node, Later::Packets(true));
        }
        let done = self.cpu(cx, ready, node, op, "packet_write", self.is.packet_write);
        self.at(cx, done, node, Later::Begin);
        cx.finish(done, op, Answer::default());
        Ok(())
    }
}
