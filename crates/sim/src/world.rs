//! The machine at work: events, NICs, links and switches, memory. It knows no programs: those are
//! the engine's, which gives it their calls and takes what happens.

use crate::agent::{self, Agents};
use crate::host::{Answer, HostOp, Op, Pe};
use crate::machine::{Machine, MachineError};
use crate::memory::Memory;
use crate::network::{Channel, Network};
use crate::nic::{self, Call, Feature, Nic, Token};
use crate::packet::{Destination, Node, Packet, Payload};
use crate::queue::Queue;
use crate::random::Random;
use crate::slab::Slab;
use crate::time::Ps;
use crate::trace::{Place, Recorder, Stage, Track};
use memonet_core::fabric::FarAddress;

/// What is due at a time. Small: what it is about lies in slabs.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// A NIC's own.
    Timer { node: Node, token: Token },
    /// A packet comes to the link that begins at this place.
    Depart { flight: u32, port: u16 },
    /// The head of a packet has come in at the place where it is now.
    Head { flight: u32 },
    /// The last bit of a packet has come in at its node, or at the switch that it is for.
    Tail { flight: u32 },
    /// Bytes become visible.
    Land { landing: u32 },
    /// A PE's NIC has something for it.
    News { pe: Pe },
    /// A call returns.
    Finish { finish: u32 },
    /// An agent looks, or has done something.
    Agent { pe: Pe, token: u32 },
    /// The driver of programs asked for it.
    Wake { wake: Wake },
}

/// A queue of events is read and written for every step of a simulation.
const _: () = assert!(size_of::<Event>() <= 16, "with its time, three words");

/// A packet under way.
#[derive(Debug)]
struct Flight {
    packet: Packet,
    /// Where it is, or where it is going to on the link that it is on.
    at: Place,
    /// By which of the ports there it comes.
    by: u16,
    /// When its last bit is there.
    tail: Ps,
}

#[derive(Debug)]
struct Landing {
    op: Op,
    to: FarAddress,
    data: Payload,
}

/// What the driver of programs must know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A call returns, now.
    Answered(Op, Answer),
    /// Something in the memory of this PE has changed, now.
    Changed(Pe),
    /// The NIC of this PE has something new for it, now.
    News(Pe),
    /// A moment that the driver asked for ([`World::wake`]).
    Woken(Wake),
    /// This switch has dropped a packet of a call: its table has no entry for where that goes. What
    /// was promised of it never comes.
    Unrouted(Op, u32, Destination),
}

/// Why the driver of programs asked to be woken. The world gives it back as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// This PE's own time has come, and its request begins.
    Begin(Pe),
    /// This PE's look reads its memory.
    Sample(Pe),
    /// This PE's computation is over.
    Computed(Pe),
    /// The PEs hear of those that have left.
    Departures,
    /// This PE's deadline, or the moment of a look by itself.
    Deadline {
        /// The PE.
        pe: Pe,
        /// The number of the parking that the deadline was set for.
        parking: u32,
    },
}

/// What a PE has under way.
#[derive(Debug, Clone, Default)]
struct Books {
    /// Writes promised and not landed.
    outstanding: u64,
    /// Calls that wait for their landing, and how much later they return.
    quiet: Vec<(Op, Ps)>,
}

/// How much of what has happened: for tests of conservation, and for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events handled.
    pub events: u64,
    /// Packets that NICs have sent.
    pub sent: u64,
    /// Copies that switches have made, beyond the packet itself.
    pub copied: u64,
    /// Packets, or copies, that a switch's table sends nowhere.
    pub absorbed: u64,
    /// Packets that have come to a node or to the switch that they are for.
    pub arrived: u64,
    /// Packets that links have lost.
    pub lost: u64,
    /// Packets that have come to a NIC which did not take them.
    pub discarded: u64,
    /// Writes that have become visible.
    pub landed: u64,
}

/// All of the machine but its NICs.
pub(crate) struct Parts {
    pub(crate) now: Ps,
    events: Queue<Event>,
    pub(crate) network: Network,
    pub(crate) memory: Box<dyn Memory>,
    pub(crate) recorder: Recorder,
    random: Random,
    flights: Slab<Flight>,
    landings: Slab<Landing>,
    finishes: Slab<(Op, Answer)>,
    books: Vec<Books>,
    happened: std::collections::VecDeque<Happened>,
    counts: Counts,
    pub(crate) pes: u32,
}

/// The machine, built, with a job of so many PEs on it, one on each node.
pub struct World {
    nic: Box<dyn Nic>,
    agents: Agents,
    parts: Parts,
}

/// What a NIC may do to the world around it.
pub struct Cx<'a> {
    pub(crate) parts: &'a mut Parts,
}

impl World {
    /// Builds the machine for `pes` PEs whose memory is `memory`.
    ///
    /// # Errors
    /// [`MachineError`]: among others, for every parameter that building the machine did not need.
    pub fn build(
        machine: &Machine,
        pes: u32,
        seed: u64,
        memory: Box<dyn Memory>,
    ) -> Result<World, MachineError> {
        let network = Network::build(machine, pes)?;
        let nic = nic::build(machine, &network)?;
        let agents = Agents::build(machine, &*nic, pes)?;
        machine.finish()?;
        let mut world = World {
            nic,
            agents,
            parts: Parts {
                now: Ps::ZERO,
                events: Queue::default(),
                network,
                memory,
                recorder: Recorder::default(),
                random: Random::new(seed),
                flights: Slab::default(),
                landings: Slab::default(),
                finishes: Slab::default(),
                books: vec![Books::default(); pes as usize],
                happened: std::collections::VecDeque::new(),
                counts: Counts::default(),
                pes,
            },
        };
        let World { nic, parts, .. } = &mut world;
        nic.start(&mut Cx { parts });
        // The job begins when the machine has come up.
        while let Some((now, event)) = world.parts.events.pop() {
            world.parts.now = now;
            world.handle(event);
        }
        Ok(world)
    }

    /// The time of the last event.
    pub fn now(&self) -> Ps {
        self.parts.now
    }

    /// Things that are still to happen.
    pub fn pending(&self) -> usize {
        self.parts.events.len() + self.parts.happened.len()
    }

    /// What has been recorded.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.parts.recorder
    }

    /// What has been counted.
    pub fn counts(&self) -> Counts {
        self.parts.counts
    }

    /// Packets on their way.
    pub fn under_way(&self) -> usize {
        self.parts.flights.len()
    }

    /// The PEs' memory.
    pub fn memory(&mut self) -> &mut dyn Memory {
        &mut *self.parts.memory
    }

    /// Whether the hardware has this.
    pub fn has(&self, feature: Feature) -> bool {
        self.nic.has(feature)
    }

    /// How a PE's host looks at its memory.
    pub fn polling(&self, pe: Pe) -> crate::host::Polling {
        self.nic.polling(Node(pe.0))
    }

    /// Whether all that a PE has written is visible.
    pub fn is_quiet(&self, pe: Pe) -> bool {
        self.parts.books[pe.index()].outstanding == 0
    }

    /// Has [`next`](Self::next) give [`Happened::Woken`] then.
    pub fn wake(&mut self, at: Ps, wake: Wake) {
        self.parts.events.push(at, Event::Wake { wake });
    }

    /// A PE calls, now.
    pub fn begin(&mut self, op: Op, what: HostOp) {
        let World { nic, agents, parts } = self;
        let mut cx = Cx { parts };
        let lacking = match &what {
            HostOp::Get { .. } => !nic.has(Feature::Get),
            HostOp::Atomic { .. } => !nic.has(Feature::Atomics),
            HostOp::Put { signal: Some(signal), .. } => {
                signal.op == memonet_core::SignalOp::Add && !nic.has(Feature::Atomics)
            }
            HostOp::Group(_) => !nic.has(Feature::Groups),
            // What an agent still has to do must not be overtaken by what the hardware does at
            // once.
            HostOp::Fence => agents.owes(op.pe),
            _ => false,
        };
        let node = Node(op.pe.0);
        if lacking {
            agents.begin(&mut cx, &mut **nic, op, what);
        } else {
            nic.begin(&mut cx, Call { op, node, what });
        }
    }

    /// The others have just heard that a PE has left; once, or more often.
    pub fn left(&mut self, pe: Pe) {
        self.nic.left(&mut Cx { parts: &mut self.parts }, pe);
    }

    /// Lets the machine work until something happens that concerns programs; nothing, when no event
    /// is left.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator that is given work between its items is none to loop over"
    )]
    pub fn next(&mut self) -> Option<Happened> {
        loop {
            if let Some(happened) = self.parts.happened.pop_front() {
                return Some(happened);
            }
            let (now, event) = self.parts.events.pop()?;
            self.parts.now = now;
            self.parts.counts.events += 1;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let World { nic, agents, parts } = self;
        let mut cx = Cx { parts };
        match event {
            Event::Timer { node, token } => nic.timer(&mut cx, node, token),
            Event::Finish { finish } => {
                let (op, answer) = cx.parts.finishes.take(finish);
                if agent::is_agent(cx.parts.pes, op.pe) {
                    agents.answered(&mut cx, &mut **nic, op, answer);
                } else {
                    cx.parts.happened.push_back(Happened::Answered(op, answer));
                }
            }
            Event::Land { landing } => {
                let Landing { op, to, data } = cx.parts.landings.take(landing);
                cx.parts.counts.landed += 1;
                if agent::is_agents(to) {
                    agents.received(&mut cx, &mut **nic, to, &data);
                } else {
                    let by = agent::owner(cx.parts.pes, op.pe);
                    match cx.parts.memory.write(by, to, &data) {
                        Ok(()) => cx.parts.happened.push_back(Happened::Changed(Pe(to.pe))),
                        Err(why) => {
                            panic!("a NIC of kind {} wrote where it may not: {why}", nic.kind())
                        }
                    }
                }
                cx.landed(op, 1);
            }
            Event::News { pe } => cx.parts.happened.push_back(Happened::News(pe)),
            Event::Agent { pe, token } => agents.timer(&mut cx, &mut **nic, pe, token),
            Event::Wake { wake } => cx.parts.happened.push_back(Happened::Woken(wake)),
            Event::Depart { flight, port } => cx.parts.depart(flight, port),
            Event::Head { flight } => {
                if let Some((dropped, missing)) = cx.parts.head(flight) {
                    nic.dropped(&mut cx, &dropped, missing);
                }
            }
            Event::Tail { flight } => {
                let Flight { packet, at, .. } = cx.parts.flights.take(flight);
                cx.parts.counts.arrived += 1;
                match at {
                    Place::Node(node) => nic.arrive(&mut cx, node, packet),
                    Place::Switch(switch) => nic.at_switch(&mut cx, switch, packet),
                }
            }
        }
    }
}

impl Parts {
    fn channel(&mut self, at: Place, port: u16) -> &mut Channel {
        let out = match at {
            Place::Node(node) => &mut self.network.node_out[node.index()],
            Place::Switch(switch) => &mut self.network.switches[switch as usize].out,
        };
        match out.get_mut(usize::from(port)) {
            Some(Some(channel)) => channel,
            _ => panic!("nothing is connected to port {port} of {at:?}"),
        }
    }

    /// A packet enters the link at a port of the place where it is, as soon as that is free. A
    /// switch's output port may be held for longer than the bits need.
    fn depart(&mut self, flight: u32, port: u16) {
        let (now, delay, switching) = (self.now, self.network.delay, self.network.switching);
        let Flight { packet, at, tail, .. } = self.flights.get_mut(flight);
        let (place, wire, op, came) = (*at, u64::from(packet.wire_bytes), packet.op, *tail);
        let channel = self.channel(place, port);
        let start = channel.free.max(now);
        let serial = channel.rate.time(wire);
        // What comes in more slowly than it goes out leaves no earlier than it came.
        let end = (start + serial).max(came);
        let hold = if matches!(place, Place::Switch(_)) { switching.port_time } else { Ps::ZERO };
        channel.free = end.max(start + hold);
        let (free, to, port_there) = (channel.free, channel.to, channel.port);
        let head = if switching.cut_through {
            start + channel.rate.time(wire.min(switching.head))
        } else {
            end
        };
        if let Place::Switch(switch) = place {
            self.record(Track::Port(switch, port), "port", op, now, free);
        }
        self.record(Track::Link(place, port), "link", op, start, end + delay);
        let flight_at = self.flights.get_mut(flight);
        (flight_at.at, flight_at.by, flight_at.tail) = (to, port_there, end + delay);
        let here = match (to, flight_at.packet.to) {
            (Place::Node(_), _) => true,
            (Place::Switch(switch), Destination::Switch(wanted)) => switch == wanted,
            _ => false,
        };
        let lossy = flight_at.packet.droppable && self.network.loss > 0.0;
        if here && !lossy {
            self.events.push(end + delay, Event::Tail { flight });
        } else {
            self.events.push(head + delay, Event::Head { flight });
        }
    }

    /// The head of a packet has come to the place where it goes on. If it is lost, gives it, and
    /// the number of nodes that will not get it.
    fn head(&mut self, flight: u32) -> Option<(Packet, u64)> {
        let Flight { packet, at, by, tail } = self.flights.get_mut(flight);
        let (place, by, tail, to, droppable) = (*at, *by, *tail, packet.to, packet.droppable);
        if droppable && self.random.chance(self.network.loss) {
            self.counts.lost += 1;
            let missing = match (place, to) {
                (Place::Switch(switch), Destination::Multicast(group)) => {
                    self.network.reached(switch, by, group)
                }
                _ => 1,
            };
            return Some((self.flights.take(flight).packet, missing));
        }
        let switch = match place {
            Place::Switch(switch) if to != Destination::Switch(switch) => switch,
            _ => {
                self.events.push(tail, Event::Tail { flight });
                return None;
            }
        };
        let op = packet.op;
        let mut ports = self.network.ports(switch, to);
        if matches!(to, Destination::Multicast(_)) {
            ports.retain(|&port| port != by);
        }
        let leave = self.now + self.network.switching.delay;
        let Some((&first, more)) = ports.split_first() else {
            self.flights.take(flight);
            self.sent_nowhere(op, switch, to);
            return None;
        };
        let packet = self.flights.get_mut(flight).packet.clone();
        let (start, each) =
            self.network.copies(switch, leave, ports.len() as u64, u64::from(packet.wire_bytes));
        self.events.push(start, Event::Depart { flight, port: first });
        for (&port, number) in more.iter().zip(1..) {
            self.counts.copied += 1;
            let copy = Flight { packet: packet.clone(), at: place, by, tail };
            let flight = self.flights.put(copy);
            self.events.push(start + each * number, Event::Depart { flight, port });
        }
        None
    }

    /// A switch's table has no port for a packet. For a group that is right where it came from the
    /// only member there.
    fn sent_nowhere(&mut self, op: Op, switch: u32, to: Destination) {
        self.counts.absorbed += 1;
        if !matches!(to, Destination::Multicast(_)) {
            self.happened.push_back(Happened::Unrouted(op, switch, to));
        }
    }

    fn record(&mut self, track: Track, name: &'static str, op: Op, start: Ps, end: Ps) {
        self.recorder.stage(Stage { track, name, op, start, end });
    }
}

impl Cx<'_> {
    /// The time.
    pub fn now(&self) -> Ps {
        self.parts.now
    }

    /// Random bits, from the run's seed.
    pub fn random(&mut self) -> u64 {
        self.parts.random.next_bits()
    }

    /// Number of PEs.
    pub fn pes(&self) -> u32 {
        self.parts.pes
    }

    /// The links and switches.
    pub fn network(&mut self) -> &mut Network {
        &mut self.parts.network
    }

    /// Has the call return at `at`.
    pub fn finish(&mut self, at: Ps, op: Op, answer: Answer) {
        let finish = self.parts.finishes.put((op, answer));
        self.parts.events.push(at, Event::Finish { finish });
    }

    /// Has the call return at `at` if all that its PE has written is visible; else `back` after it
    /// is: the time in which the news of it comes back.
    pub fn finish_when_landed(&mut self, at: Ps, op: Op, back: Ps) {
        let books = &mut self.parts.books[op.pe.index()];
        if books.outstanding == 0 {
            self.finish(at, op, Answer::default());
        } else {
            books.quiet.push((op, back));
        }
    }

    /// Calls [`Nic::timer`] at `at`.
    pub fn timer(&mut self, at: Ps, node: Node, token: Token) {
        self.parts.events.push(at, Event::Timer { node, token });
    }

    /// Hands a packet to a node's link at `at`.
    pub fn send(&mut self, at: Ps, node: Node, packet: Packet) {
        self.parts.counts.sent += 1;
        let flight = Flight { packet, at: Place::Node(node), by: 0, tail: Ps::ZERO };
        let flight = self.parts.flights.put(flight);
        self.parts.events.push(at, Event::Depart { flight, port: 0 });
    }

    /// Has a switch send a packet of its own to a node, at `at`: management.
    pub fn send_from_switch(&mut self, at: Ps, switch: u32, to: Node, packet: Packet) {
        self.parts.counts.sent += 1;
        let to = Destination::Node(to);
        let Some(port) = self.parts.network.route(switch, to) else {
            return self.parts.sent_nowhere(packet.op, switch, to);
        };
        let flight = Flight {
            packet: Packet { to, ..packet },
            at: Place::Switch(switch),
            by: 0,
            tail: Ps::ZERO,
        };
        let flight = self.parts.flights.put(flight);
        self.parts.events.push(at, Event::Depart { flight, port });
    }

    /// Says that so many writes of this call will land, or be [lost](Self::lost). Before the first
    /// of them.
    pub fn promise(&mut self, op: Op, writes: u64) {
        if !agent::is_agent(self.parts.pes, op.pe) {
            self.parts.books[op.pe.index()].outstanding += writes;
        }
    }

    /// Makes bytes visible at `at`: one promise kept. Writes of the same time land in the order of
    /// these calls.
    pub fn write(&mut self, at: Ps, op: Op, to: FarAddress, data: Payload) {
        let landing = self.parts.landings.put(Landing { op, to, data });
        self.parts.events.push(at, Event::Land { landing });
    }

    /// Has a PE's looks see something new from `at` on that is not in its memory.
    pub fn news(&mut self, at: Ps, pe: Pe) {
        self.parts.events.push(at, Event::News { pe });
    }

    /// A NIC has not taken a packet that had come: it was for another, or nobody had room for it.
    pub fn discarded(&mut self) {
        self.parts.counts.discarded += 1;
    }

    /// Says that so many promises of this call are kept otherwise: by an [`atomic`](Self::atomic).
    pub fn kept(&mut self, op: Op, writes: u64) {
        self.landed(op, writes);
    }

    /// Says that so many writes of this call will never land.
    pub fn lost(&mut self, op: Op, writes: u64) {
        self.landed(op, writes);
    }

    /// What is in a PE's memory now, as the call's PE may see it.
    ///
    /// # Errors
    /// In words, when there is no such memory.
    pub fn read(&mut self, op: Op, from: FarAddress, len: usize) -> Result<Payload, String> {
        let by = agent::owner(self.parts.pes, op.pe);
        self.parts.memory.read(by, from, len)
    }

    /// Changes a word now; gives what it held. The word's PE sees the change. Keeps no promise.
    ///
    /// # Errors
    /// In words, when there is no such word.
    pub fn atomic(
        &mut self,
        op: Op,
        at: FarAddress,
        size: usize,
        what: crate::host::Atomic,
    ) -> Result<u64, String> {
        let by = agent::owner(self.parts.pes, op.pe);
        let old = self.parts.memory.atomic(by, at, size, what)?;
        if what.result(old, size) != old {
            self.parts.happened.push_back(Happened::Changed(Pe(at.pe)));
        }
        Ok(old)
    }

    /// Records that a part of a node's NIC was busy with a call.
    pub fn stage(
        &mut self,
        node: Node,
        part: &'static str,
        name: &'static str,
        op: Op,
        (start, end): (Ps, Ps),
    ) {
        self.parts.record(Track::Nic(node, part), name, op, start, end);
    }

    /// Records that a PE's CPU was busy with a call.
    pub fn host_stage(&mut self, name: &'static str, op: Op, (start, end): (Ps, Ps)) {
        let track = match agent::is_agent(self.parts.pes, op.pe) {
            true => Track::Agent(agent::owner(self.parts.pes, op.pe)),
            false => Track::Pe(op.pe),
        };
        self.parts.record(track, name, op, start, end);
    }

    /// Has the agents' timer come at `at`.
    pub(crate) fn agent_timer(&mut self, at: Ps, pe: Pe, token: u32) {
        self.parts.events.push(at, Event::Agent { pe, token });
    }

    pub(crate) fn landed(&mut self, op: Op, writes: u64) {
        if agent::is_agent(self.parts.pes, op.pe) {
            return;
        }
        let now = self.parts.now;
        let books = &mut self.parts.books[op.pe.index()];
        books.outstanding =
            books.outstanding.checked_sub(writes).expect("a NIC kept more promises than it made");
        if books.outstanding == 0 {
            for (op, back) in std::mem::take(&mut books.quiet) {
                self.finish(now + back, op, Answer::default());
            }
        }
    }
}
