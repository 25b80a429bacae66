//! The boards of all nodes: their state, and what every part of the kind does with it.

use super::chain::{self, Agenda, Chain, Direction, Due, PAYLOAD_BYTES, Times};
use super::collective::Part;
use super::wires::{self, Wires};
use crate::host::{Polling, Wanted};
use crate::machine::{Machine, MachineError, Section};
use crate::nic::loggp::LogGp;
use crate::nic::{Cx, Nic, Owner, Pe, Planned, Unit};
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::slab::Slab;
use crate::time::Ps;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    pub register_write: Ps,
    pub flag_look: Ps,
    pub flag_read: Ps,
    pub packet_write: Ps,
    pub packet_read: Ps,
    /// The driver's work for a message.
    pub handle: Ps,
    /// What a board that adds floating-point numbers takes longer to pass a packet on.
    pub float_delay: Ps,
}

/// Whether the packet that waits at a board for a decision has gone through the board's adder of
/// floating-point numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Adder {
    #[default]
    Idle,
    Busy,
    Done,
}

/// Packets name boards by 16 bits.
const MOST_BOARDS: u32 = 1 << 16;

/// A request for a group: what the group is for, and the number of its list of members.
pub type Request = (Wanted, usize);

#[derive(Debug)]
pub struct Group {
    pub members: Arc<[u32]>,
    pub wanted: Wanted,
    pub served: bool,
    /// Calls of members that have asked to join, until all have.
    pub joining: Vec<Op>,
    /// Number of members that have left.
    pub left: usize,
    /// Arrivals at the phase under way of which the drivers have told.
    pub told: usize,
    /// Whether the wires were asked for in vain when the last phase became complete.
    pub asked: bool,
}

/// A board's place in the phases of a group's barrier.
#[derive(Debug, Clone, Copy, Default)]
pub struct Membership {
    pub arrived: u64,
    pub complete: u64,
    /// Whether the next phase goes by the wires. Otherwise drivers tell each other of arrivals.
    pub wired: bool,
}

#[derive(Debug, Default)]
pub struct Board {
    pub cpu: Unit,
    /// How many groups the board's PE has asked for with each request.
    pub asked: BTreeMap<Request, usize>,
    /// The groups for barriers that the board is in.
    pub barriers: BTreeMap<u32, Membership>,
    /// The group for whose barrier the flag is set.
    pub flag_of: Option<u32>,
    /// The driver's time, apart from that of the program.
    pub driver: Unit,
    /// The host has looked at its barrier or collective in vain, and goes on looking: the end of
    /// that look, and when the barrier or collective became complete.
    pub watching: Option<(Ps, Option<Ps>)>,
    /// The board's group for collectives.
    pub collectives: Option<u32>,
    /// Whether the board may carry packets for its group's collectives.
    pub may_carry: bool,
    /// Number of collectives that the board has begun.
    pub begun: u16,
    /// The collective that the board is in.
    pub part: Option<Part>,
    /// For each direction.
    pub adders: [Adder; 2],
    /// Packets that the host has read, each with its sender.
    pub inbox: VecDeque<(u16, Payload)>,
    /// Calls that wait for a packet.
    pub receivers: VecDeque<Op>,
    /// Whether the board will carry wires as soon as its buffers are empty.
    pub switching: bool,
    /// A program's call that waits until the board carries wires.
    pub switched_for: Option<Op>,
    /// The call that arrived at the barrier under way, and when it did.
    pub arrived: Option<(Op, Ps)>,
}

/// What drivers tell each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// To the arbiter: a member of this group has arrived.
    Arrived(u32),
    /// To the arbiter: a member of this group has a collective to begin.
    Want(u32),
    /// To a member: all of this group have arrived, and the next phase goes by the wires, or not.
    Complete(u32, bool),
    /// To a member: the board may carry packets for this group.
    Carry(u32),
}

/// What is due at a board.
#[derive(Debug)]
pub enum Later {
    /// A packet has moved along the chain.
    Chain(Direction, Due),
    /// A barrier is complete.
    Complete,
    /// The host has written the register to arrive: at a group's barrier, or at the program's own.
    Enter(Op, Option<u32>),
    /// A driver has read a message.
    Heard(Message),
    /// A look that ends at this time reads the flag.
    Flag(Op, Ps),
    /// A look of the library's reads how many phases of a group's barrier are complete.
    Phase(Op, u32, Ps),
    /// A look of the reduced barrier code reads the flag.
    Reduced(Op, Ps),
    /// The same for a group's barrier.
    Step(Op, u32, Ps),
    /// The host arrives at a group's barrier by a code of its own.
    Arrive(Op, u32),
    /// A program switches the board to packets, or back.
    Mode(Op, bool),
    /// The host has written a packet.
    Send(chain::Packet),
    /// The driver switches the board to packets, or back.
    Packets(bool),
    /// The host has written its part of a collective.
    Begin,
    /// The adder has the first sum of the packet that comes in this direction.
    Added(Direction),
    /// A look reads whether the collective is over.
    Ended(Op, Ps),
    /// The host has read a packet.
    Take(Direction),
    /// The host has the result of its collective.
    Result,
}

/// The boards and the LAN of a machine.
pub struct SyncNetwork {
    pub(super) lan: LogGp,
    pub(super) is: Parameters,
    pub(super) wires: Wires,
    pub(super) chain: Chain,
    pub(super) boards: Vec<Board>,
    pub(super) groups: Vec<Group>,
    /// The groups that have the chain for themselves, as far as they would disturb each other.
    pub(super) holders: BTreeSet<u32>,
    pub(super) messages: Slab<Message>,
    /// PEs that have left the job.
    pub(super) left: BTreeSet<u32>,
    /// Lists of members. All members ask with one list, and the list is kept once.
    pub(super) lists: Vec<Arc<[u32]>>,
    /// Groups by request: one for each time that the members have made the request.
    pub(super) known: BTreeMap<Request, Vec<u32>>,
    pub(super) later: Planned<Later>,
}

impl SyncNetwork {
    /// Reads the sections of the kind `loggp`, `wires` and `chain`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32) -> Result<SyncNetwork, MachineError> {
        let host = machine.section("host");
        let (flag_look, flag_read) = (host.time_not_zero("flag_look")?, host.time("flag_read")?);
        if flag_read > flag_look {
            return Err(host.error(
                "flag_read",
                "is later than the end of the look that it is in, host.flag_look",
            ));
        }
        let wires = wire_times(&machine.section("wires"))?;
        let chain = machine.section("chain");
        let times = chain_times(&chain, nodes)?;
        Ok(SyncNetwork {
            lan: LogGp::build(machine, nodes, Owner::Lan)?,
            is: Parameters {
                register_write: host.time("register_write")?,
                flag_look,
                flag_read,
                packet_write: host.time("packet_write")?,
                packet_read: host.time("packet_read")?,
                handle: machine.section("agent").time_not_zero("handle")?,
                float_delay: chain.time("float_delay")?,
            },
            wires: Wires::new(nodes as usize, wires),
            chain: Chain::new(nodes as usize, times),
            boards: (0..nodes).map(|_| Board::default()).collect(),
            groups: Vec::new(),
            holders: BTreeSet::new(),
            messages: Slab::default(),
            left: BTreeSet::new(),
            lists: Vec::new(),
            known: BTreeMap::new(),
            later: Planned::new(Owner::Nic),
        })
    }

    /// Plans what is due at a board.
    pub(super) fn at(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, later: Later) {
        self.later.at(cx, at, node, later);
    }

    /// Has the CPU work for a call. Returns when the work is done.
    pub(super) fn cpu(
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

    /// A look at the board. Returns when the look reads the board, and when the look ends.
    pub(super) fn look(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) -> (Ps, Ps) {
        let end = self.cpu(cx, cx.now(), node, op, "flag_look", self.is.flag_look);
        (Ps(end.0 - self.is.flag_look.0) + self.is.flag_read, end)
    }

    /// When the look began that a waiting host is in the middle of. A host that waits looks again
    /// and again, but its program runs only when there is something to see. If the look under way
    /// had read the board before, this is the start of the next look.
    pub(super) fn look_under_way(&mut self, now: Ps, node: Node) -> Option<Ps> {
        let (end, complete) = self.boards[node.index()].watching.take()?;
        let is_run_for_that = now.since(complete?) <= self.lan.polling(node).interval;
        let looks = now.since(end).0 / self.is.flag_look.0;
        let start = end + self.is.flag_look * looks;
        let missed = start + self.is.flag_read < now;
        (is_run_for_that && now >= end)
            .then(|| if missed { start + self.is.flag_look } else { start })
    }

    /// When a host that looks at its board again and again has seen a change made at `changed`.
    pub(super) fn seen(&self, changed: Ps) -> Ps {
        let looks = Polling { interval: self.is.flag_look, sample: self.is.flag_read };
        looks.seen(Ps::ZERO, changed)
    }

    /// Something that the host may be looking for is there to be seen.
    pub(super) fn show(&mut self, cx: &mut Cx<'_>, node: Node) {
        let now = cx.now();
        if let Some((_, complete)) = &mut self.boards[node.index()].watching {
            *complete = Some(now);
            cx.news(now, Pe(node.0));
        }
    }

    /// Plans what is due on the chain.
    pub(super) fn plan(&mut self, cx: &mut Cx<'_>, agenda: Agenda) {
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
}

/// The times of the wires.
fn wire_times(wires: &Section<'_>) -> Result<wires::Times, MachineError> {
    let [microcluster, further, all_complete] =
        ["microcluster", "further_microcluster", "all_complete"].map(|name| wires.time(name));
    let times = wires::Times {
        microcluster: microcluster?,
        further: further?,
        all_complete: all_complete?,
    };
    if times.further > times.microcluster {
        return Err(wires.error(
            "further_microcluster",
            "is more than wires.microcluster, which has as many boards and more to do",
        ));
    }
    if times.all_complete > times.further {
        return Err(wires.error(
            "all_complete",
            "is more than wires.further_microcluster, of which it is a part",
        ));
    }
    Ok(times)
}

/// The times of a link of the chain.
fn chain_times(chain: &Section<'_>, nodes: u32) -> Result<Times, MachineError> {
    if nodes > MOST_BOARDS {
        let problem = format!("names boards by 16 bits, and {nodes} are too many");
        return Err(chain.error("header", problem));
    }
    let (rate, width) = (chain.rate("rate")?, chain.count_up_to("width_bits", 1024)?);
    let (header, payload) = (chain.bytes_up_to("header", 1 << 16)?, chain.bytes("payload")?);
    if payload != PAYLOAD_BYTES as u64 {
        let problem = format!("must be {PAYLOAD_BYTES} B: boards have buffers for that");
        return Err(chain.error("payload", problem));
    }
    // A packet takes whole steps of `width_bits`.
    let bits = |bits: u64| Ps(rate.time(1000 * bits.div_ceil(width) * width).0 / 8000);
    Ok(Times {
        header: bits(8 * header),
        packet: bits(8 * (header + payload)),
        delay: chain.time("delay")?,
    })
}
