//! What is due at a board, carried out.

use super::boards::{Adder, Later, Membership, SyncNetwork};
use super::chain::{self, Agenda, Direction, Due, Notice};
use super::collective::{Found, SEND, Step};
use crate::host::Answer;
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;

impl SyncNetwork {
    pub(super) fn later(&mut self, cx: &mut Cx<'_>, node: Node, later: Later) {
        let (now, board) = (cx.now(), node.index());
        match later {
            Later::Enter(op, group) => self.arrive(cx, node, op, group),
            Later::Heard(message) => self.heard(cx, node, message),
            Later::Complete => self.completed(cx, node),
            Later::Flag(op, end) => {
                cx.finish(end, op, Answer::value(self.wires.flag(board).into()))
            }
            Later::Phase(op, group, end) => self.phase(cx, node, op, group, end),
            Later::Reduced(op, end) => self.reduced(cx, node, op, end),
            Later::Step(op, group, end) => self.step(cx, node, op, group, end),
            Later::Arrive(op, group) => self.arrive_at(cx, node, op, group),
            Later::Mode(op, true) => {
                self.set_packets(cx, node, true);
                cx.finish(now, op, Answer::default());
            }
            Later::Mode(op, false) => {
                self.boards[board].switched_for = Some(op);
                self.switch_to_wires(cx, node);
            }
            Later::Packets(false) => self.switch_to_wires(cx, node),
            Later::Packets(true) => {
                self.boards[board].switching = false;
                self.set_packets(cx, node, true);
            }
            Later::Send(packet) => {
                let direction = Direction::to(node.0, packet.to.into());
                self.send(cx, node, direction, packet);
            }
            Later::Ended(op, end) => self.ended(cx, node, op, end),
            Later::Begin => {
                let part = self.boards[board].part.as_mut().expect("begun once");
                let steps = part.begin();
                self.steps(cx, node, steps);
                self.decide(cx, node);
            }
            Later::Added(direction) => {
                self.boards[board].adders[direction as usize] = Adder::Done;
                self.decide(cx, node);
            }
            Later::Chain(direction, due) => self.moved(cx, node, direction, due),
            Later::Take(direction) => self.take(cx, node, direction),
            Later::Result => self.result(cx, node),
        }
    }

    /// The register to arrive is written. A group that has lost the wires meanwhile goes by
    /// messages.
    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: Option<u32>) {
        let wired = |group| self.boards[node.index()].barriers[&group].wired;
        if let Some(group) = group.filter(|&group| !wired(group)) {
            self.tell_arrival(cx, node, group);
            return cx.finish(cx.now() + self.lan.send_overhead(), op, Answer::default());
        }
        let answer = match self.drive(cx, node, op, group) {
            true => Answer::default(),
            false => Answer::refused("the board has arrived at a barrier that is not complete"),
        };
        cx.finish(cx.now(), op, answer);
    }

    /// The board drives its wire, unless it does already.
    fn drive(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: Option<u32>) -> bool {
        let mut completes = Vec::new();
        let arrived = self.wires.arrive(cx.now(), node.index(), &mut completes);
        if arrived {
            let board = &mut self.boards[node.index()];
            (board.arrived, board.flag_of) = (Some((op, cx.now())), group);
        }
        self.complete(cx, completes);
        arrived
    }

    /// Plans the completions of barriers.
    fn complete(&mut self, cx: &mut Cx<'_>, completes: Vec<(Ps, usize)>) {
        for (at, board) in completes {
            self.at(cx, at, Node(board as u32), Later::Complete);
        }
    }

    /// A barrier is complete at a board.
    fn completed(&mut self, cx: &mut Cx<'_>, node: Node) {
        self.wires.complete(node.index());
        let board = &mut self.boards[node.index()];
        if let Some(group) = board.flag_of.take()
            && let Some(membership) = board.barriers.get_mut(&group)
        {
            membership.complete += 1;
        }
        if let Some((op, arrived)) = board.arrived.take() {
            cx.stage(node, "wires", "microcluster", op, (arrived, cx.now()));
            self.show(cx, node);
        }
    }

    /// A look of the library's reads the flag, or what the driver has heard.
    fn phase(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: u32, end: Ps) {
        let board = &mut self.boards[node.index()];
        let Membership { arrived, complete, .. } = board.barriers[&group];
        board.watching = (arrived > complete).then_some((end, None));
        cx.finish(end, op, Answer::value(complete));
    }

    /// A look of the reduced barrier code reads the board, whose circuit answers with the flag and
    /// sets it if it is clear.
    fn reduced(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, end: Ps) {
        let was_set = !self.drive(cx, node, op, None);
        cx.finish(end, op, Answer::value(was_set.into()));
    }

    /// A look of the library's reads the board by the reduced code. The circuit arrives where the
    /// group has the wires, and the board does not carry packets. Otherwise the driver arrives as
    /// the program, after the look.
    fn step(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: u32, end: Ps) {
        let carries_packets = self.wires.carries_packets(node.index());
        let board = &mut self.boards[node.index()];
        let switches = carries_packets || board.switching;
        let barrier = board.barriers.get_mut(&group).expect("a member arrives");
        if barrier.arrived > barrier.complete {
            board.watching = Some((end, None));
            return cx.finish(end, op, Answer::value(1));
        }
        if switches || !barrier.wired {
            return self.at(cx, end, node, Later::Arrive(op, group));
        }
        barrier.arrived += 1;
        let answer = match self.drive(cx, node, op, Some(group)) {
            true => Answer::value(0),
            false => Answer::refused("the board has arrived at a barrier that is not complete"),
        };
        cx.finish(end, op, answer);
    }

    /// A look reads whether the board's collective is over.
    fn ended(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, end: Ps) {
        let board = &mut self.boards[node.index()];
        let Some(part) = board.part.as_mut().filter(|part| part.over.is_some()) else {
            board.watching = Some((end, None));
            return cx.finish(end, op, Answer::default());
        };
        part.taken_by = Some(op);
        let (found, reads) = (part.over, part.has_result());
        let read = if reads { self.is.packet_read } else { Ps::ZERO };
        let done = self.cpu(cx, end, node, op, "packet_read", read);
        let next = match found {
            Some(Found::In(direction)) => Later::Take(direction),
            _ => Later::Result,
        };
        self.at(cx, done, node, next);
    }

    /// A packet has moved along the chain.
    fn moved(&mut self, cx: &mut Cx<'_>, node: Node, direction: Direction, due: Due) {
        let mut agenda = Agenda::new();
        let notice = self.chain.due(cx.now(), node.0, direction, due, &mut agenda);
        self.plan(cx, agenda);
        match notice {
            Some(Notice::Decide(_)) => self.decide(cx, node),
            Some(Notice::ForHost) => self.for_host(cx, node, direction),
            None => {}
        }
        self.switched(cx, node);
    }

    /// The host has read a packet.
    fn take(&mut self, cx: &mut Cx<'_>, node: Node, direction: Direction) {
        let mut agenda = Agenda::new();
        let packet = self.chain.take(cx.now(), node.0, direction, &mut agenda);
        self.plan(cx, agenda);
        if packet.code == SEND {
            let data = Payload::copy(&packet.payload[..usize::from(packet.len)]);
            self.boards[node.index()].inbox.push_back((packet.from, data));
            self.hand_out(cx, node);
        } else {
            self.result(cx, node);
        }
        self.switched(cx, node);
    }

    /// Sends a packet from the host, or from the board's part of a collective.
    fn send(&mut self, cx: &mut Cx<'_>, node: Node, direction: Direction, packet: chain::Packet) {
        let mut agenda = Agenda::new();
        self.chain.send(cx.now(), node.0, direction, packet, &mut agenda);
        self.plan(cx, agenda);
    }

    /// The board goes back to wires, as soon as its buffers are empty.
    pub(super) fn switch_to_wires(&mut self, cx: &mut Cx<'_>, node: Node) {
        self.boards[node.index()].switching = true;
        self.switched(cx, node);
    }

    /// What a board does for its part of a collective.
    fn steps(&mut self, cx: &mut Cx<'_>, node: Node, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Send(direction, packet) => self.send(cx, node, direction, packet),
                Step::Done => self.over(cx, node, Found::Here),
            }
        }
    }

    /// Decides what becomes of packets that wait at a board, where the board can decide now.
    fn decide(&mut self, cx: &mut Cx<'_>, node: Node) {
        for direction in Direction::BOTH {
            let Some(packet) = self.chain.undecided(node.0, direction).cloned() else {
                continue;
            };
            let here = u32::from(packet.to) == node.0;
            let [sender, receiver] = [usize::from(packet.from), node.index()]
                .map(|board| self.boards[board].collectives);
            let of_one_group = receiver.is_some() && receiver == sender;
            if of_one_group && self.is_adding(cx, node, direction, &packet) {
                continue;
            }
            let board = &mut self.boards[node.index()];
            let (passes, for_host, steps) = if packet.code == SEND || !of_one_group {
                ((!here).then_some(packet), here, Vec::new())
            } else {
                match board.part.as_mut().and_then(|part| part.decide(&packet)) {
                    Some(decision) => (decision.passes, decision.for_host, decision.steps),
                    None => continue,
                }
            };
            let mut agenda = Agenda::new();
            let notice =
                self.chain.decide(cx.now(), node.0, direction, passes, for_host, &mut agenda);
            self.plan(cx, agenda);
            self.steps(cx, node, steps);
            if notice.is_some() {
                self.for_host(cx, node, direction);
            }
        }
    }

    /// Whether a packet still has to go through the board's adder of floating-point numbers.
    fn is_adding(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        direction: Direction,
        packet: &chain::Packet,
    ) -> bool {
        let board = &mut self.boards[node.index()];
        if !board.part.as_ref().is_some_and(|part| part.adds_floats_to(packet)) {
            return false;
        }
        let adder = &mut board.adders[direction as usize];
        match adder {
            Adder::Idle => {
                *adder = Adder::Busy;
                self.at(cx, cx.now() + self.is.float_delay, node, Later::Added(direction));
                true
            }
            Adder::Busy => true,
            Adder::Done => {
                *adder = Adder::Idle;
                false
            }
        }
    }

    /// There is a packet for the host. The host sees and reads it, or will find it as the result of
    /// its collective.
    fn for_host(&mut self, cx: &mut Cx<'_>, node: Node, direction: Direction) {
        let packet = self.chain.incoming(node.0, direction);
        let (code, op) = (packet.code, packet.op);
        if code != SEND {
            return self.over(cx, node, Found::In(direction));
        }
        let seen = self.seen(cx.now());
        let done = self.cpu(cx, seen, node, op, "packet_read", self.is.packet_read);
        self.at(cx, done, node, Later::Take(direction));
    }

    /// A board's collective is over.
    fn over(&mut self, cx: &mut Cx<'_>, node: Node, found: Found) {
        let part = self.boards[node.index()].part.as_mut().expect("it is in a collective");
        part.over = Some(found);
        self.show(cx, node);
    }

    /// The host has the result of its collective.
    fn result(&mut self, cx: &mut Cx<'_>, node: Node) {
        let part = self.boards[node.index()].part.take().expect("it was in a collective");
        let op = part.taken_by.expect("a call has found it");
        let data = Payload::copy(part.result());
        let done = self.resume_barrier(cx, node, op);
        cx.finish(done, op, Answer::with_length(data));
    }

    /// After a collective: if the program has arrived at a barrier before, the driver switches the
    /// board back to wires, as no next barrier may come before this one is complete. Returns when
    /// that is done.
    fn resume_barrier(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> Ps {
        let board = &self.boards[node.index()];
        let mut barriers = board.barriers.values();
        let is_under_way = barriers.any(|of| of.wired && of.arrived > of.complete);
        if !is_under_way || board.switching || !self.wires.carries_packets(node.index()) {
            return cx.now();
        }
        let done = self.cpu(cx, cx.now(), node, op, "register_write", self.is.register_write);
        self.at(cx, done, node, Later::Packets(false));
        done
    }

    /// Has a board that is to carry wires do so, if its buffers are empty.
    fn switched(&mut self, cx: &mut Cx<'_>, node: Node) {
        let board = &mut self.boards[node.index()];
        if !board.switching || !self.chain.is_empty(node.0) {
            return;
        }
        board.switching = false;
        let op = board.switched_for.take();
        self.set_packets(cx, node, false);
        if let Some(op) = op {
            cx.finish(cx.now(), op, Answer::default());
        }
    }

    /// Switches a board to packets, or to wires.
    fn set_packets(&mut self, cx: &mut Cx<'_>, node: Node, packets: bool) {
        let (mut agenda, mut completes) = (Agenda::new(), Vec::new());
        self.wires.set_packets(cx.now(), node.index(), packets, &mut completes);
        self.chain.set_packets(cx.now(), node.0, packets, &mut agenda);
        self.complete(cx, completes);
        self.plan(cx, agenda);
    }
}
