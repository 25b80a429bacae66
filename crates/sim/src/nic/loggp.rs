//! Networks that are described by LogGP figures: Ethernet with UDP, and today's remote DMA.
//!
//! | LogGP | here |
//! |---|---|
//! | o, sending | `nic.send_overhead`, plus `nic.send_byte` for each byte that the CPU copies: the call returns after that |
//! | o, receiving | `nic.receive_overhead`, plus `nic.receive_byte`: software on the target host, one message after the other; 0 where hardware delivers |
//! | g | `nic.gap`: the least time between two messages that a NIC sends, and between two that it takes in |
//! | G | `link.rate` |
//! | L | `nic.send_latency`, the links and the switch, `nic.receive_latency` |
//!
//! A message is cut into packets of at most `nic.packet` bytes of payload, each with `nic.header`
//! bytes of its own on the link. Messages to one node take one way and stay in order, so a fence
//! costs nothing; those to several nodes share the link packet by packet (`way_out.rs`). A signal
//! is a message of its own, behind its data. Delivery is acknowledged: `quiet` returns
//! `nic.acknowledge` after the last write has landed.
//!
//! With `nic.bus`, what the CPU copies out (`nic.send_byte`) and what the NIC writes into memory
//! (at the rate of the bus) share a bus of the host, one packet at a time.
//!
//! With `nic.remote_dma` the hardware also gets and does atomics (`nic.read`, `nic.atomic` at the
//! target); without, agents do.

mod way_out;

use super::{Call, Cx, Feature, Nic, Owner, Planned, Token, Unit};
use crate::host::{Answer, Atomic, HostOp, Op, Polling};
use crate::machine::{Machine, MachineError, Rate};
use crate::packet::{Destination, Node, Packet, Payload, Service};
use crate::time::Ps;
use memonet_core::SignalOp;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::shm::AtomicOp;
use std::collections::BTreeMap;
use way_out::{Message, Part, Push, WayOut};

/// The low byte of the first header word is what a packet asks of its receiver. The high half of
/// the word is the PE.
const WRITE: u64 = 0;
const READ: u64 = 1;
const UPDATE: u64 = 2;
const SWAP_IF: u64 = 3;
/// Flag of the last packet of a message.
const LAST: u64 = 1 << 8;
const ANSWER: u64 = 4;
/// The last header word of an answer says what the answer is: bytes, a number, or a refusal.
const AS_DATA: u64 = 0;
const AS_VALUE: u64 = 1;
const REFUSED: u64 = 2;

#[derive(Debug, Clone, Copy)]
struct Parameters {
    send_overhead: Ps,
    send_byte: Rate,
    receive_overhead: Ps,
    receive_byte: Rate,
    /// The host's bus, which both directions share.
    bus: Option<Rate>,
    gap: Ps,
    send_latency: Ps,
    receive_latency: Ps,
    link_rate: Rate,
    packet: usize,
    header: u32,
    acknowledge: Ps,
    /// With remote DMA: the times of a read and of an atomic at the target.
    remote_dma: Option<(Ps, Ps)>,
    polling: Polling,
}

/// The NIC of a node, and the software that receives for it.
#[derive(Debug, Default)]
struct NicOf {
    out: WayOut,
    bus: Unit,
    /// Takes messages in, and keeps the gap between them.
    acceptor: Unit,
    receiver: Unit,
}

/// What is planned for later.
#[derive(Debug)]
enum Due {
    /// The CPU goes on with the first of its calls.
    Push(Part),
    /// A message is ready to go.
    Ready(Message),
    /// The link has room for a packet.
    Turn,
    /// A packet waits for the bus.
    Deliver(Packet),
    /// The hardware carries out a read or an atomic.
    Access(Packet),
}

/// The NICs of a machine.
pub struct LogGp {
    is: Parameters,
    nics: Vec<NicOf>,
    plans: Planned<Due>,
    /// Answers of which some packets have come.
    parts: BTreeMap<Op, Vec<u8>>,
}

impl LogGp {
    /// Reads the sections `host` and `nic`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32, owner: Owner) -> Result<LogGp, MachineError> {
        let (nic, host) = (machine.section("nic"), machine.section("host"));
        let interval = host.time_not_zero("look")?;
        let packet = nic.bytes("packet")? as usize;
        if !(32..=1 << 24).contains(&packet) {
            return Err(nic.error("packet", "must be from 32 B to 16 MiB"));
        }
        let by_byte = |name: &str| if nic.has(name) { nic.rate(name) } else { Ok(Rate::INFINITE) };
        let is = Parameters {
            send_overhead: nic.time("send_overhead")?,
            send_byte: by_byte("send_byte")?,
            receive_overhead: nic.time("receive_overhead")?,
            receive_byte: by_byte("receive_byte")?,
            bus: nic.has("bus").then(|| nic.rate("bus")).transpose()?,
            gap: nic.time("gap")?,
            send_latency: nic.time("send_latency")?,
            receive_latency: nic.time("receive_latency")?,
            link_rate: machine.section("link").rate("rate")?,
            packet,
            header: nic.bytes_up_to("header", 1 << 16)? as u32,
            acknowledge: nic.time("acknowledge")?,
            remote_dma: match nic.flag("remote_dma")? {
                true => Some((nic.time("read")?, nic.time("atomic")?)),
                false => None,
            },
            polling: Polling { interval, sample: interval },
        };
        Ok(LogGp {
            is,
            nics: (0..nodes).map(|_| NicOf::default()).collect(),
            plans: Planned::new(owner),
            parts: BTreeMap::new(),
        })
    }

    /// How long the CPU works for a message without data that it sends.
    pub(super) fn send_overhead(&self) -> Ps {
        self.is.send_overhead
    }

    /// A packet has come in by `at`.
    fn receive(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, packet: Packet) {
        let is = self.is;
        let gap = if packet.header[0] & LAST != 0 { is.gap } else { Ps::ZERO };
        let (taken, _) = self.nics[node.index()].acceptor.take(at, gap);
        let got = taken + is.receive_latency;
        cx.stage(node, "receive", "gap", packet.op, (at, taken));
        cx.stage(node, "receive", "receive_latency", packet.op, (taken, got));
        match is.bus {
            None => self.deliver(cx, got, node, packet),
            // Until then, others may have the bus.
            Some(_) => self.plans.at(cx, got, node, Due::Deliver(packet)),
        }
    }

    /// The NIC has a packet, at `at`, and the software gets it.
    fn deliver(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, packet: Packet) {
        let is = self.is;
        let Packet { header, payload, op, from, .. } = packet;
        let mut got = at;
        if let Some(bus) = is.bus {
            let busy = self.nics[node.index()].bus.take(got, bus.time(payload.len() as u64));
            cx.stage(node, "bus", "bus", op, busy);
            got = busy.1;
        }
        let overhead = if header[0] & LAST != 0 { is.receive_overhead } else { Ps::ZERO };
        let time = overhead + is.receive_byte.time(payload.len() as u64);
        let busy = self.nics[node.index()].receiver.take(got, time);
        cx.stage(node, "receive", "receive_overhead", op, busy);
        let (done, place) = (busy.1, address(&header));
        match header[0] & 0xff {
            WRITE => cx.write(done, op, place, payload),
            ANSWER => self.answer(cx, done, op, &header, payload),
            // The hardware accesses the memory at the end of its time.
            what => {
                let (read, atomic) =
                    is.remote_dma.expect("only hardware sends what hardware must carry out");
                let (name, time) = if what == READ { ("read", read) } else { ("atomic", atomic) };
                let busy = self.nics[node.index()].receiver.take(done, time);
                cx.stage(node, "receive", name, op, busy);
                let asked = Packet {
                    from,
                    to: Destination::Node(node),
                    wire_bytes: 0,
                    header,
                    payload,
                    op,
                    service: Service::default(),
                    droppable: false,
                };
                self.plans.at(cx, busy.1, node, Due::Access(asked));
            }
        }
    }

    /// Collects the parts of an answer. The call returns with the last part.
    fn answer(&mut self, cx: &mut Cx<'_>, done: Ps, op: Op, header: &[u64; 4], part: Payload) {
        let answer = if header[3] == AS_VALUE {
            Answer::value(part.bits())
        } else if header[3] == REFUSED {
            Answer::refused("this is no memory of that PE")
        } else if header[0] & LAST != 0 && !self.parts.contains_key(&op) {
            Answer::data(part)
        } else {
            let parts = self.parts.entry(op).or_default();
            part.with(|bytes| parts.extend_from_slice(bytes));
            if header[0] & LAST == 0 {
                return;
            }
            Answer::data(Payload::copy(&self.parts.remove(&op).expect("it was there just now")))
        };
        let seen = self.is.polling.seen(Ps::ZERO, done);
        cx.host_stage("look", op, (done, seen));
        cx.finish(seen, op, answer);
    }

    /// Has the CPU ask another node for something. The call returns with the answer.
    fn ask(&mut self, cx: &mut Cx<'_>, node: Node, message: Message, op: Op) {
        self.push(cx, node, Push { op, message: Some(message), signal: None, returns: false });
    }

    /// The hardware carries out a read or an atomic, and answers.
    fn access(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        let Packet { from, header: asked, payload, op, .. } = packet;
        let place = address(&asked);
        let (result, kind, fetch) = match asked[0] & 0xff {
            READ => (cx.read(op, place, asked[3] as usize), AS_DATA, true),
            _ => {
                let old =
                    cx.atomic(op, place, (asked[3] & 0xff) as usize, atomic(&asked, &payload));
                (old.map(|old| Payload::word(8, old)), AS_VALUE, asked[3] & FETCH != 0)
            }
        };
        if !fetch {
            cx.kept(op, 1);
            return;
        }
        let (kind, data) = result.map_or((REFUSED, Payload::EMPTY), |data| (kind, data));
        let back = FarAddress { pe: from.0, region: 0, offset: 0 };
        let answer = Message::new(op, from, header(ANSWER, back, kind), data);
        self.send(cx, cx.now(), node, answer);
    }
}

fn header(what: u64, at: FarAddress, extra: u64) -> [u64; 4] {
    [what | u64::from(at.pe) << 32, at.region.into(), at.offset, extra]
}

fn address(header: &[u64; 4]) -> FarAddress {
    FarAddress { pe: (header[0] >> 32) as u32, region: header[1] as u32, offset: header[2] }
}

/// The operands of an atomic, as payload.
fn operands(a: u64, b: u64) -> Payload {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    Payload::copy(&bytes)
}

const OPERATIONS: [AtomicOp; 5] =
    [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap];
/// Flag in the last header word of an atomic: it is answered.
const FETCH: u64 = 1 << 16;

/// Header and payload of an atomic. The last header word has the size in bits 0 to 7, and the
/// operation from bit 8 on.
fn update(at: FarAddress, size: u8, what: Atomic, fetch: bool) -> ([u64; 4], Payload) {
    let fetch = if fetch { FETCH } else { 0 };
    match what {
        Atomic::Op(op, operand) => {
            let code = OPERATIONS
                .iter()
                .position(|&other| other == op)
                .expect("all operations are listed") as u64;
            (header(UPDATE, at, u64::from(size) | code << 8 | fetch), operands(operand, 0))
        }
        Atomic::CompareSwap { expected, new } => {
            (header(SWAP_IF, at, u64::from(size) | fetch), operands(expected, new))
        }
    }
}

/// The atomic that a packet asks for.
fn atomic(header: &[u64; 4], payload: &Payload) -> Atomic {
    let (a, b) = (payload.bits(), payload.part(8, 8).bits());
    match header[0] & 0xff {
        UPDATE => Atomic::Op(OPERATIONS[(header[3] >> 8 & 0xff) as usize], a),
        _ => Atomic::CompareSwap { expected: a, new: b },
    }
}

impl Nic for LogGp {
    fn kind(&self) -> &'static str {
        "loggp"
    }

    fn has(&self, feature: Feature) -> bool {
        match feature {
            Feature::Get | Feature::Atomics => self.is.remote_dma.is_some(),
            Feature::Groups
            | Feature::Datagrams
            | Feature::CopiedWrites
            | Feature::Commands
            | Feature::Keys
            | Feature::ReducedCode => false,
        }
    }

    fn polling(&self, _node: Node) -> Polling {
        self.is.polling
    }

    fn begin(&mut self, cx: &mut Cx<'_>, Call { op, node, what }: Call) {
        match what {
            HostOp::Store { to, word } => {
                cx.promise(op, 1);
                let message = Message::new(op, Node(to.pe), header(WRITE, to, 0), word);
                let push = Push { op, message: Some(message), signal: None, returns: true };
                self.push(cx, node, push);
            }
            HostOp::Put { to, data, signal, .. } => {
                let writes = data.len().div_ceil(self.is.packet) + usize::from(signal.is_some());
                cx.promise(op, writes as u64);
                let data = (!data.is_empty())
                    .then(|| Message::new(op, Node(to.pe), header(WRITE, to, 0), data));
                let signal = signal.map(|signal| {
                    let (header, payload) = match signal.op {
                        SignalOp::Set => {
                            (header(WRITE, signal.at, 0), Payload::word(8, signal.value))
                        }
                        SignalOp::Add => {
                            update(signal.at, 8, Atomic::Op(AtomicOp::Add, signal.value), false)
                        }
                    };
                    Message::new(op, Node(signal.at.pe), header, payload)
                });
                self.push(cx, node, Push { op, message: data, signal, returns: true });
            }
            HostOp::Get { from, len } => {
                let header = header(READ, from, len.into());
                self.ask(cx, node, Message::new(op, Node(from.pe), header, Payload::EMPTY), op);
            }
            HostOp::Atomic { at, size, what } => {
                let (header, payload) = update(at, size, what, true);
                self.ask(cx, node, Message::new(op, Node(at.pe), header, payload), op);
            }
            HostOp::Fence => cx.finish(cx.now(), op, Answer::default()),
            HostOp::Quiet => cx.finish_when_landed(cx.now(), op, self.is.acknowledge),
            HostOp::Group(_) | HostOp::Command(_) | HostOp::Prepare { .. } | HostOp::Key { .. } => {
                cx.finish(cx.now(), op, Answer::refused("a LogGP network has no such operation"))
            }
        }
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        self.receive(cx, cx.now(), node, packet);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match self.plans.take(token) {
            Due::Push(part) => self.push_part(cx, node, part),
            Due::Ready(message) => self.ready(cx, node, message),
            Due::Turn => self.turn(cx, node),
            Due::Deliver(packet) => self.deliver(cx, cx.now(), node, packet),
            Due::Access(asked) => self.access(cx, node, asked),
        }
    }
}

#[cfg(test)]
mod tests;
