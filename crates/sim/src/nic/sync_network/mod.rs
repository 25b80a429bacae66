//! Boards of a wired synchronisation network beside an ordinary LAN (SCC).
//!
//! ```text
//! host ── register_write, flag_look ──► board ══ chain to the next ══ ...        either wires (barriers) or links (packets)
//!   └──── an ordinary NIC ──► LAN                                               stores, puts, gets, atomics of the library
//! ```
//!
//! * The library's data goes by the LAN, whose sections are those of the kind `loggp`. Its barriers
//!   go by the `wires`: a group of PEs gets them if its boards are in no other group and, where
//!   there are several microclusters, if it is the only group and has the last board of each
//!   microcluster in which it has members. A board takes part in one barrier at a time: it has one
//!   flag.
//! * The host sees the sync flag by a look that takes `host.flag_look`, a read of the board within
//!   it.
//! * A program switches its board to packets and back ([`set_mode`]), and so does the library's
//!   driver, for a collective and for the next barrier; a board goes back when its buffers are
//!   empty. Packets (`chain`) pass between boards that are both switched, and wait at the others;
//!   signals pass while no board is.
//! * Transactions: [`send`] and [`receive`], and the [`Collective`]s, of at most 56 bytes each,
//!   worked on by the boards alone: the host writes a packet, looks, and reads one.

mod calls;
mod chain;
mod collective;
mod groups;
mod interface;
mod wires;

pub use collective::{Collective, Operator};
pub use interface::{collective, enter, flag, receive, reduced, send, set_group, set_mode};

use super::loggp::LogGp;
use super::{Call, Cx, Feature, Nic, Owner, Planned, Token, Unit};
use crate::host::{Answer, Command, GroupOp, HostOp, Op, Polling, Wanted};
use crate::machine::{Machine, MachineError};
use crate::packet::{Node, Packet, Payload};
use crate::time::Ps;
use chain::{Agenda, Chain, Direction, Due, Notice, PAYLOAD, Times};
use collective::{Found, Part, SEND, Step};
use interface::{ENTER, FLAG, MODE, RECEIVE, REDUCED, SEND_PACKET, SET_GROUP};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wires::Wires;

#[derive(Debug, Clone, Copy)]
struct Parameters {
    register_write: Ps,
    flag_look: Ps,
    flag_read: Ps,
    packet_write: Ps,
    packet_read: Ps,
}

/// What a group is wanted for, and the number of its list of members.
type Request = (Wanted, usize);

#[derive(Debug)]
struct Group {
    members: Arc<[u32]>,
    served: bool,
    /// Members that have joined, until all have.
    joining: Vec<Op>,
}

#[derive(Debug, Default)]
struct Board {
    cpu: Unit,
    /// How many groups it has asked for with this request.
    asked: BTreeMap<Request, usize>,
    /// Its group for barriers, and the phases that it had completed before.
    barrier: Option<(u32, u64)>,
    /// A host that has looked at its barrier or collective in vain, and goes on looking: the end of
    /// that look; and when that has become complete.
    watching: Option<(Ps, Option<Ps>)>,
    collectives: Option<u32>,
    /// Collectives of its group that it has begun.
    begun: u16,
    part: Option<Part>,
    inbox: VecDeque<(u16, Payload)>,
    receivers: VecDeque<Op>,
    /// It is to carry wires when its buffers are empty,
    switching: bool,
    /// which a program waits for.
    switched_for: Option<Op>,
    /// A call whose barrier's time on the wires is recorded: when it arrived.
    arrived: Option<(Op, Ps)>,
}

/// What is due at a board.
#[derive(Debug)]
enum Later {
    Chain(Direction, Due),
    Complete,
    /// Answered with this number.
    Enter(Op, u64),
    Flag(Op, Ps),
    Phase(Op, Ps),
    Reduced(Op, Ps),
    Mode(Op, bool),
    Send(chain::Packet),
    /// The driver switches to packets, or back.
    Packets(bool),
    Begin,
    Ended(Op, Ps),
    Take(Direction),
    Result,
}

/// The kind.
pub struct SyncNetwork {
    lan: LogGp,
    is: Parameters,
    wires: Wires,
    chain: Chain,
    boards: Vec<Board>,
    groups: Vec<Group>,
    /// Lists of members, each once: there may be as many who ask with one as it has members.
    lists: Vec<Arc<[u32]>>,
    /// Groups by requests: one for each time that the members have asked.
    known: BTreeMap<Request, Vec<u32>>,
    later: Planned<Later>,
}

impl SyncNetwork {
    /// Reads the sections of the kind `loggp`, `wires` and `chain`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32) -> Result<SyncNetwork, MachineError> {
        let (host, wires, chain) =
            (machine.section("host"), machine.section("wires"), machine.section("chain"));
        let (flag_look, flag_read) = (host.time_not_zero("flag_look")?, host.time("flag_read")?);
        if flag_read > flag_look {
            return Err(host.error(
                "flag_read",
                "is later than the end of the look that it is in, host.flag_look",
            ));
        }
        let (microcluster, further) =
            (wires.time("microcluster")?, wires.time("further_microcluster")?);
        if further > microcluster {
            return Err(wires.error(
                "further_microcluster",
                "is more than wires.microcluster, which has as many boards and more to do",
            ));
        }
        if nodes > 1 << 16 {
            return Err(
                chain.error("header", format!("names boards by 16 bits, and {nodes} are too many"))
            );
        }
        let (rate, width) = (chain.rate("rate")?, chain.count("width_bits")?);
        if !(1..=1024).contains(&width) {
            return Err(chain.error("width_bits", format!("is {width}; it must be from 1 to 1024")));
        }
        let (header, payload) = (chain.bytes_up_to("header", 1 << 16)?, chain.bytes("payload")?);
        if payload != PAYLOAD as u64 {
            return Err(chain
                .error("payload", format!("must be {PAYLOAD} B: boards have buffers for that")));
        }
        // A byte takes 8 bits' share of a step of `width_bits`, and a packet whole steps.
        let bits = |bits: u64| Ps(rate.time(1000 * bits.div_ceil(width) * width).0 / 8000);
        let times = Times {
            header: bits(8 * header),
            packet: bits(8 * (header + payload)),
            delay: chain.time("delay")?,
        };
        Ok(SyncNetwork {
            lan: LogGp::build(machine, nodes, Owner::Lan)?,
            is: Parameters {
                register_write: host.time("register_write")?,
                flag_look,
                flag_read,
                packet_write: host.time("packet_write")?,
                packet_read: host.time("packet_read")?,
            },
            wires: Wires::new(nodes as usize, microcluster, further),
            chain: Chain::new(nodes as usize, times),
            boards: (0..nodes).map(|_| Board::default()).collect(),
            groups: Vec::new(),
            lists: Vec::new(),
            known: BTreeMap::new(),
            later: Planned::new(Owner::Nic),
        })
    }

    fn at(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, later: Later) {
        self.later.at(cx, at, node, later);
    }

    /// Has the CPU do something for a call; gives when it is through.
    fn cpu(
        &mut self,
        cx: &mut Cx<'_>,
        from: Ps,
        node: Node,
        op: Op,
        name: &'static str,
        time: Ps,
    ) -> Ps {
        let busy = self.boards[node.index()].cpu.take(from, time);
        cx.host_stage(name, op, busy);
        busy.1
    }

    /// A look at the board, and the moment within it at which the board is read.
    fn look(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> (Ps, Ps) {
        let end = self.cpu(cx, cx.now(), node, op, "flag_look", self.is.flag_look);
        (Ps(end.0 - self.is.flag_look.0) + self.is.flag_read, end)
    }

    /// A host that waits looks again and again, though its program is only run when there is
    /// something to see. So when it is run for that, it is in the middle of a look: gives when that
    /// began. The next one, if this has read the board before.
    fn look_under_way(&mut self, now: Ps, node: Node) -> Option<Ps> {
        let (end, complete) = self.boards[node.index()].watching.take()?;
        let is_run_for_that = now.since(complete?) <= self.lan.polling(node).interval;
        let looks = now.since(end).0 / self.is.flag_look.0;
        let start = end + self.is.flag_look * looks;
        let missed = start + self.is.flag_read < now;
        (is_run_for_that && now >= end)
            .then(|| if missed { start + self.is.flag_look } else { start })
    }

    /// When a host that looks at its board again and again has seen what changed at `changed`.
    fn seen(&self, changed: Ps) -> Ps {
        let looks = Polling { interval: self.is.flag_look, sample: self.is.flag_read };
        looks.seen(Ps::ZERO, changed)
    }

    fn command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let is = self.is;
        let (board, word) = (node.index(), command.words[0]);
        match command.code {
            SET_GROUP => {
                let done = self.cpu(cx, cx.now(), node, op, "register_write", is.register_write);
                let bad = self.boards[board].barrier.is_some() || self.wires.flag(board);
                let answer = if bad {
                    Answer::refused(
                        "the group register is in use, by a barrier under way or the library's",
                    )
                } else {
                    self.wires.set_group(board, word as u16);
                    Answer::default()
                };
                cx.finish(done, op, answer);
            }
            ENTER => self.enter(cx, node, op),
            FLAG => {
                let (read, end) = self.look(cx, node, op);
                self.at(cx, read, node, Later::Flag(op, end));
            }
            REDUCED => {
                let (read, end) = self.look(cx, node, op);
                self.at(cx, read, node, Later::Reduced(op, end));
            }
            MODE => {
                let done = self.cpu(cx, cx.now(), node, op, "register_write", is.register_write);
                self.at(cx, done, node, Later::Mode(op, word != 0));
            }
            SEND_PACKET
                if command.data.len() > PAYLOAD
                    || word >= self.boards.len() as u64
                    || word == u64::from(node.0) =>
            {
                let problem = format!(
                    "a packet has at most {PAYLOAD} bytes, and goes to another PE of the job"
                );
                cx.finish(cx.now(), op, Answer::refused(problem));
            }
            SEND_PACKET => {
                let done = self.cpu(cx, cx.now(), node, op, "packet_write", is.packet_write);
                let mut payload = [0; PAYLOAD];
                command.data.with(|bytes| payload[..bytes.len()].copy_from_slice(bytes));
                let packet = chain::Packet {
                    code: SEND,
                    len: command.data.len() as u8,
                    from: node.0 as u16,
                    to: word as u16,
                    number: 0,
                    payload,
                    op,
                };
                self.at(cx, done, node, Later::Send(packet));
                cx.finish(done, op, Answer::default());
            }
            RECEIVE => {
                self.boards[board].receivers.push_back(op);
                self.hand_out(cx, node);
            }
            code => cx.finish(
                cx.now(),
                op,
                Answer::refused(format!("a sync network has no command {code}")),
            ),
        }
    }

    /// Gives what has come to who waits for it.
    fn hand_out(&mut self, cx: &mut Cx<'_>, node: Node) {
        let board = &mut self.boards[node.index()];
        while let (Some(_), Some(_)) = (board.inbox.front(), board.receivers.front()) {
            let (sender, data) = board.inbox.pop_front().expect("just seen");
            let op = board.receivers.pop_front().expect("just seen");
            let answer = Answer { value: sender.into(), ..Answer::data(data) };
            cx.finish(cx.now(), op, answer);
        }
    }

    /// Writes the board's register to arrive.
    fn enter(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) {
        let done = self.cpu(cx, cx.now(), node, op, "register_write", self.is.register_write);
        self.at(cx, done, node, Later::Enter(op, 0));
    }

    /// A board drives its wire. False if it does already.
    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> bool {
        let mut completes = Vec::new();
        let arrived = self.wires.arrive(cx.now(), node.index(), &mut completes);
        if arrived {
            self.boards[node.index()].arrived = Some((op, cx.now()));
        }
        self.complete(cx, completes);
        arrived
    }

    fn complete(&mut self, cx: &mut Cx<'_>, completes: Vec<(Ps, usize)>) {
        for (at, board) in completes {
            self.at(cx, at, Node(board as u32), Later::Complete);
        }
    }

    /// What the chain says is due.
    fn plan(&mut self, cx: &mut Cx<'_>, agenda: Agenda) {
        for (at, board, direction, due) in agenda {
            let node = Node(board);
            if due == Due::Sent {
                let track = if direction == Direction::Up { "chain up" } else { "chain down" };
                let op = self.chain.outgoing(board, direction).op;
                cx.stage(node, track, "rate", op, (cx.now(), at));
            }
            self.at(cx, at, node, Later::Chain(direction, due));
        }
    }

    /// What a board does for its part of a collective.
    fn steps(&mut self, cx: &mut Cx<'_>, node: Node, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Send(direction, packet) => {
                    let mut agenda = Agenda::new();
                    self.chain.send(cx.now(), node.0, direction, packet, &mut agenda);
                    self.plan(cx, agenda);
                }
                Step::Done => self.over(cx, node, Found::Here),
            }
        }
    }

    /// Decides what becomes of packets that wait at a board, as far as it can now.
    fn decide(&mut self, cx: &mut Cx<'_>, node: Node) {
        for direction in Direction::BOTH {
            let Some(packet) = self.chain.undecided(node.0, direction).cloned() else {
                continue;
            };
            let here = u32::from(packet.to) == node.0;
            let [sender, receiver] = [usize::from(packet.from), node.index()]
                .map(|board| self.boards[board].collectives);
            let of_one_group = receiver.is_some() && receiver == sender;
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

    /// There is a packet for the host: it sees and reads it, or will find it as the result of its
    /// collective.
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

    /// Something that a host may be looking for is there to be seen.
    fn show(&mut self, cx: &mut Cx<'_>, node: Node) {
        let now = cx.now();
        if let Some((_, complete)) = &mut self.boards[node.index()].watching {
            *complete = Some(now);
            cx.news(now, super::Pe(node.0));
        }
    }

    /// The host has the result of its collective.
    fn result(&mut self, cx: &mut Cx<'_>, node: Node) {
        let part = self.boards[node.index()].part.take().expect("it was in a collective");
        let op = part.taken_by.expect("a call has found it");
        let data = Payload::copy(part.result());
        cx.finish(cx.now(), op, Answer::with_length(data));
    }

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

    fn set_packets(&mut self, cx: &mut Cx<'_>, node: Node, packets: bool) {
        let (mut agenda, mut completes) = (Agenda::new(), Vec::new());
        self.wires.set_packets(cx.now(), node.index(), packets, &mut completes);
        self.chain.set_packets(cx.now(), node.0, packets, &mut agenda);
        self.complete(cx, completes);
        self.plan(cx, agenda);
    }

    fn later(&mut self, cx: &mut Cx<'_>, node: Node, later: Later) {
        let (now, board) = (cx.now(), node.index());
        match later {
            Later::Enter(op, value) => {
                let answer = match self.arrive(cx, node, op) {
                    true => Answer::value(value),
                    false => {
                        Answer::refused("the board has arrived at a barrier that is not complete")
                    }
                };
                cx.finish(now, op, answer);
            }
            Later::Complete => {
                self.wires.complete(board);
                if let Some((op, arrived)) = self.boards[board].arrived.take() {
                    cx.stage(node, "wires", "microcluster", op, (arrived, now));
                    self.show(cx, node);
                }
            }
            Later::Flag(op, end) => {
                cx.finish(end, op, Answer::value(self.wires.flag(board).into()))
            }
            Later::Phase(op, end) => {
                self.boards[board].watching = self.wires.flag(board).then_some((end, None));
                let before = self.boards[board].barrier.map_or(0, |(_, before)| before);
                cx.finish(end, op, Answer::value(self.wires.phases(board) - before));
            }
            Later::Reduced(op, end) => {
                if self.wires.flag(board) {
                    cx.finish(end, op, Answer::value(0));
                } else {
                    // The write follows the look; nobody else drives this wire meanwhile.
                    let written =
                        self.cpu(cx, end, node, op, "register_write", self.is.register_write);
                    self.at(cx, written, node, Later::Enter(op, 1));
                }
            }
            Later::Mode(op, true) => {
                self.set_packets(cx, node, true);
                cx.finish(now, op, Answer::default());
            }
            Later::Mode(op, false) => {
                self.boards[board].switched_for = Some(op);
                self.later(cx, node, Later::Packets(false));
            }
            Later::Packets(false) => {
                self.boards[board].switching = true;
                self.switched(cx, node);
            }
            Later::Packets(true) => {
                self.boards[board].switching = false;
                self.set_packets(cx, node, true);
            }
            Later::Send(packet) => {
                let mut agenda = Agenda::new();
                let direction = Direction::to(node.0, packet.to.into());
                self.chain.send(now, node.0, direction, packet, &mut agenda);
                self.plan(cx, agenda);
            }
            Later::Ended(op, end) => {
                let part = self.boards[board].part.as_mut().filter(|part| part.over.is_some());
                let Some(part) = part else {
                    self.boards[board].watching = Some((end, None));
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
            Later::Begin => {
                let part = self.boards[board].part.as_mut().expect("begun once");
                let steps = part.begin();
                self.steps(cx, node, steps);
                self.decide(cx, node);
            }
            Later::Chain(direction, due) => {
                let mut agenda = Agenda::new();
                let notice = self.chain.due(now, node.0, direction, due, &mut agenda);
                self.plan(cx, agenda);
                match notice {
                    Some(Notice::Decide(_)) => self.decide(cx, node),
                    Some(Notice::ForHost) => self.for_host(cx, node, direction),
                    None => {}
                }
                self.switched(cx, node);
            }
            Later::Take(direction) => {
                let mut agenda = Agenda::new();
                let packet = self.chain.take(now, node.0, direction, &mut agenda);
                self.plan(cx, agenda);
                if packet.code == SEND {
                    let data = Payload::copy(&packet.payload[..usize::from(packet.len)]);
                    self.boards[board].inbox.push_back((packet.from, data));
                    self.hand_out(cx, node);
                } else {
                    self.result(cx, node);
                }
                self.switched(cx, node);
            }
            Later::Result => self.result(cx, node),
        }
    }
}

#[cfg(test)]
mod tests;
