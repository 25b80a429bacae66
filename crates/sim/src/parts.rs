//! The machine without its NICs: the events that are due, packets under way, writes that were
//! promised, and memory.

use crate::events::{Event, Happened};
use crate::host::{Answer, Sleep};
use crate::memory::Memory;
use crate::network::{Channel, Network};
use crate::op::Op;
use crate::packet::{Destination, Packet, Payload};
use crate::queue::Queue;
use crate::random::Random;
use crate::slab::Slab;
use crate::time::Ps;
use crate::trace::{Place, Recorder, Stage, Track};
use memonet_core::unstable::fabric::FarAddress;
use std::collections::VecDeque;

/// A packet under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) packet: Packet,
    /// Where the packet is; on a link, where the link ends.
    pub(crate) at: Place,
    /// The port of `at` by which the packet comes.
    pub(crate) by: u16,
    /// When the packet's last bit is there.
    pub(crate) tail: Ps,
}

/// Bytes that will become visible.
#[derive(Debug)]
pub(crate) struct Landing {
    pub(crate) op: Op,
    pub(crate) to: FarAddress,
    pub(crate) data: Payload,
}

/// A PE's writes that are under way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    /// Writes that were promised and have not landed.
    pub(crate) outstanding: u64,
    /// Calls that wait until all writes have landed; each returns this much later.
    pub(crate) quiet: Vec<(Op, Ps)>,
}

/// Counts of what has happened: for tests of conservation, and for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events handled.
    pub events: u64,
    /// Packets that NICs have sent.
    pub sent: u64,
    /// Copies that switches have made, beyond the packet itself.
    pub copied: u64,
    /// Packets, or copies, for which a switch's table has no port.
    pub absorbed: u64,
    /// Packets that have come to a node, or to the switch that they are for.
    pub arrived: u64,
    /// Packets that links have lost.
    pub lost: u64,
    /// Packets that came to a NIC and that the NIC did not take.
    pub discarded: u64,
    /// Writes that have become visible.
    pub landed: u64,
}

/// The machine without its NICs.
pub(crate) struct Parts {
    pub(crate) now: Ps,
    pub(crate) events: Queue<Event>,
    pub(crate) network: Network,
    pub(crate) memory: Box<dyn Memory>,
    pub(crate) recorder: Recorder,
    pub(crate) random: Random,
    pub(crate) flights: Slab<Flight>,
    pub(crate) landings: Slab<Landing>,
    pub(crate) finishes: Slab<(Op, Answer)>,
    pub(crate) books: Vec<Books>,
    pub(crate) happened: VecDeque<Happened>,
    pub(crate) counts: Counts,
    pub(crate) pes: u32,
}

impl Parts {
    pub(crate) fn new(network: Network, memory: Box<dyn Memory>, seed: u64, pes: u32) -> Parts {
        Parts {
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
            happened: VecDeque::new(),
            counts: Counts::default(),
            pes,
        }
    }

    /// Writes of a call have landed, or never will. Agents' writes are not counted.
    pub(crate) fn landed(&mut self, op: Op, writes: u64) {
        if op.pe.is_agent(self.pes) {
            return;
        }
        let books = &mut self.books[op.pe.index()];
        books.outstanding =
            books.outstanding.checked_sub(writes).expect("a NIC kept more promises than it made");
        if books.outstanding == 0 {
            for (op, back) in std::mem::take(&mut books.quiet) {
                self.finish(self.now + back, op, Answer::default());
            }
        }
    }

    /// Has a call return at `at`.
    pub(crate) fn finish(&mut self, at: Ps, op: Op, answer: Answer) {
        let finish = self.finishes.put((op, answer));
        self.events.push(at, Event::Finish { finish });
    }

    /// Puts a packet on the link at a port of a place, at `at`.
    pub(crate) fn launch(&mut self, at: Ps, place: Place, port: u16, packet: Packet) {
        self.counts.sent += 1;
        let flight = self.flights.put(Flight { packet, at: place, by: 0, tail: Ps::ZERO });
        self.events.push(at, Event::Depart { flight, port });
    }

    /// A process that has waited since `from` for a change made at `changed` runs again at the time
    /// that this returns. `op` is its last call.
    pub(crate) fn sleep(&mut self, op: Op, sleep: Sleep, from: Ps, changed: Ps) -> Ps {
        let (blocked, interrupted) = sleep.phases(from, changed);
        let track = Track::Pe(op.pe);
        self.record(track, "system_call", op, from, blocked);
        let Some(begin) = interrupted else { return blocked };
        let handled = begin + sleep.interrupt;
        self.record(track, "interrupt", op, begin, handled);
        self.record(track, "context_switch", op, handled, handled + sleep.context_switch);
        handled + sleep.context_switch
    }

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

    /// A packet enters the link at a port of the place where it is, as soon as the link is free. A
    /// switch's output port may be held for longer than the packet's bits need.
    pub(crate) fn depart(&mut self, flight: u32, port: u16) {
        let (now, delay, switching) = (self.now, self.network.delay, self.network.switching);
        let Flight { packet, at, tail, .. } = self.flights.get_mut(flight);
        let (place, wire, op, came) = (*at, u64::from(packet.wire_bytes), packet.op, *tail);
        let channel = self.channel(place, port);
        let start = channel.free.max(now);
        let serial = channel.rate.time(wire);
        // A packet that comes in more slowly than it goes out leaves no earlier than its last bit
        // came.
        let end = (start + serial).max(came);
        let hold = if matches!(place, Place::Switch(_)) { switching.port_time } else { Ps::ZERO };
        channel.free = end.max(start + hold);
        channel.carried.add(serial, wire);
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

    /// The head of a packet has come to the place from which the packet goes on. Returns a packet
    /// that is lost, and the number of nodes that will not get it.
    pub(crate) fn head(&mut self, flight: u32) -> Option<(Packet, u64)> {
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

    /// A switch's table has no port for a packet. That is no error for a multicast packet that came
    /// from the only member of its group at the switch.
    pub(crate) fn sent_nowhere(&mut self, op: Op, switch: u32, to: Destination) {
        self.counts.absorbed += 1;
        if !matches!(to, Destination::Multicast(_)) {
            self.happened.push_back(Happened::Unrouted(op, switch, to));
        }
    }

    pub(crate) fn record(&mut self, track: Track, name: &'static str, op: Op, start: Ps, end: Ps) {
        self.recorder.stage(Stage { track, name, op, start, end });
    }
}
