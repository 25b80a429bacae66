//! Packets cross links and switches.
//!
//! Without back-pressure and repeats a link is a time at which it is free, and a packet that comes
//! takes the link from then on. Otherwise packets [wait in line](crate::flow), and start one by
//! one.

use crate::events::{Event, Happened};
use crate::flow::{Line, Started, Stored};
use crate::lanes::Ready;
use crate::network::Channel;
use crate::op::Op;
use crate::packet::{Destination, Packet};
use crate::parts::{Flight, Parts};
use crate::time::Ps;
use crate::trace::{Place, Track};

/// The `by` of a packet that lies in no input of a switch: it begins here, or has left the input
/// before and is sent again.
const NOWHERE: u16 = u16::MAX;

/// A packet's time on a link.
struct Passage {
    /// When the head is at the far end.
    head: Ps,
    /// When the last bit has gone in.
    end: Ps,
    to: Place,
    /// The port there.
    port: u16,
}

impl Parts {
    /// Puts a packet on the link at a port of a place, at `at`. Where switches route by source, the
    /// packet gets the ports on its way, and is longer by them.
    pub(crate) fn launch(&mut self, at: Ps, place: Place, port: u16, mut packet: Packet) {
        self.counts.sent += 1;
        let ports = self.network.carried(place, packet.to);
        packet.wire_bytes += ports.len() as u32 * self.network.switching.route_bytes;
        let flight = Flight { packet, at: place, by: NOWHERE, tail: Ps::ZERO, ports };
        let flight = self.flights.put(flight);
        self.events.push(at, Event::Depart { flight, port });
    }

    pub(crate) fn channel(&mut self, at: Place, port: u16) -> &mut Channel {
        match self.network.out_mut(at).get_mut(usize::from(port)) {
            Some(Some(channel)) => channel,
            _ => panic!("nothing is connected to port {port} of {at:?}"),
        }
    }

    /// A packet comes to the link that begins at a port of the place where the packet is. If the
    /// cable is cut, the packet is lost. Returns such a packet, and the number of nodes that will
    /// not get it.
    pub(crate) fn lost_at_cut(&mut self, flight: u32, port: u16) -> Option<(Packet, u64)> {
        let place = self.flights.get_mut(flight).at;
        let &mut Channel { is_cut, to, port: there, .. } = self.channel(place, port);
        if !is_cut {
            return None;
        }
        self.counts.lost += 1;
        let packet = self.flights.take(flight).packet;
        let missing = match (to, packet.to) {
            (Place::Switch(switch), Destination::Multicast(group)) => {
                self.network.reached(switch, there, group)
            }
            _ => 1,
        };
        Some((packet, missing))
    }

    /// A packet comes to the link that begins at a port of the place where the packet is.
    pub(crate) fn depart(&mut self, flight: u32, port: u16) {
        let Flight { at: place, packet, .. } = self.flights.get_mut(flight);
        let (now, place, lane) = (self.now, *place, self.network.lanes.of(packet.service));
        match &mut self.channel(place, port).line {
            None => {
                let passage = self.occupy(flight, port, now, "link");
                self.pass(flight, &passage);
            }
            Some(line) => {
                line.lanes[usize::from(lane)].waiting.push_back((flight, now));
                self.serve(place, port);
            }
        }
    }

    /// A packet, which has waited since a time, takes a link as soon as the link is free. An output
    /// port of a switch may be held for longer than the packet's bits need.
    fn occupy(&mut self, flight: u32, port: u16, since: Ps, name: &'static str) -> Passage {
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
            self.record(Track::Port(switch, port), "port", op, since, free);
        }
        self.record(Track::Link(place, port), name, op, start, end + delay);
        Passage { head: head + delay, end, to, port: port_there }
    }

    /// A packet gets to the far end of a link.
    fn pass(&mut self, flight: u32, passage: &Passage) {
        let &Passage { head, end, to, port } = passage;
        let tail = end + self.network.delay;
        let Flight { packet, at, by, tail: came, .. } = self.flights.get_mut(flight);
        (*at, *by, *came) = (to, port, tail);
        let here = match to {
            Place::Node(_) => true,
            Place::Switch(switch) => packet.to == Destination::Switch(switch),
        };
        let lossy = packet.droppable && self.network.loss > 0.0;
        if here && !lossy {
            self.events.push(tail, Event::Tail { flight });
        } else {
            self.events.push(head, Event::Head { flight });
        }
    }

    fn line(&mut self, place: Place, port: u16) -> &mut Line {
        let line = &mut self.channel(place, port).line;
        line.as_mut().expect("packets wait where there is a line")
    }

    /// Starts the packets that wait for a link, for as long as the link is free and may take them.
    pub(crate) fn serve(&mut self, place: Place, port: u16) {
        let (now, flow) = (self.now, self.network.flow);
        loop {
            let free = self.channel(place, port).free;
            let line = self.line(place, port);
            if line.waiting() == 0 {
                return;
            }
            if free > now {
                if !std::mem::replace(&mut line.due, true) {
                    self.events.push(free, Event::LinkFree { place, port });
                }
                return;
            }
            let ready = self.ready(place, port);
            let line = self.line(place, port);
            let Some(lane) = line.arbiter.pick(&ready) else { return };
            let first = line.lanes[usize::from(lane)].waiting.pop_front();
            let (flight, since) = first.expect("a lane is ready by its first packet");
            let (bytes, stored) = self.size(flight, place, port);
            let op = self.flights.get_mut(flight).packet.op;
            let line = self.line(place, port);
            line.start(flow, lane, bytes, stored);
            if let Some((from, why)) = line.lanes[usize::from(lane)].stopped.take() {
                self.channel(place, port).carried.stopped += now - from;
                self.record(Track::Link(place, port), why, op, from, now);
            }
            let started = Started { flight, lane, bytes, stored };
            self.start(started, port, since);
            self.call_plans(place, port);
        }
    }

    /// The lanes of a link whose first packets may start. The other packets are stopped, from now
    /// on if they were not before.
    fn ready(&mut self, place: Place, port: u16) -> Ready {
        let (now, flow) = (self.now, self.network.flow);
        let mut ready = Ready::default();
        let lanes = self.network.lanes.count();
        for (lane, ready) in (0..).zip(ready.iter_mut().take(lanes)) {
            let first = self.line(place, port).lanes[usize::from(lane)].waiting.front();
            let Some(&(flight, _)) = first else { continue };
            let (bytes, stored) = self.size(flight, place, port);
            let line = self.line(place, port);
            match line.stops(flow, lane, bytes, stored) {
                Some(why) => {
                    line.lanes[usize::from(lane)].stopped.get_or_insert((now, why));
                }
                None => *ready = Some(bytes),
            }
        }
        ready
    }

    /// Bytes of a packet that is for a link, and whether it goes into a buffer at the far end.
    fn size(&mut self, flight: u32, place: Place, port: u16) -> (u64, bool) {
        let (to, buffered) = (self.channel(place, port).to, self.network.flow.buffer.is_some());
        let packet = &self.flights.get_mut(flight).packet;
        let passes = matches!(to, Place::Switch(there) if packet.to != Destination::Switch(there));
        (packet.wire_bytes.into(), buffered && passes)
    }

    /// A packet starts on a link that may lose or damage it.
    fn start(&mut self, started: Started, port: u16, since: Ps) {
        let (flow, delay) = (self.network.flow, self.network.delay);
        let Started { flight, lane, .. } = started;
        let Flight { packet, at, by, .. } = self.flights.get_mut(flight);
        let (place, bytes) = (*at, packet.wire_bytes);
        let input = std::mem::replace(by, NOWHERE);
        let repairs = flow.resend.is_some();
        let damaged = repairs && self.random.chance(self.network.loss);
        let discarded = self.line(place, port).discards();
        let name = match (damaged, discarded) {
            (_, true) => "discarded",
            (true, false) => "damaged",
            (false, false) => "link",
        };
        let passage = self.occupy(flight, port, since, name);
        if let (Place::Switch(switch), true) = (place, flow.buffer.is_some() && input != NOWHERE) {
            self.events.push(passage.end, Event::LeftInput { switch, port: input, lane });
        }
        let told = passage.end + delay * 2;
        if damaged || discarded {
            self.line(place, port).miss(started);
            if !discarded {
                self.events.push(told, Event::Missing { place, port });
            }
            return;
        }
        if repairs {
            self.events.push(told, Event::Acknowledged { place, port, bytes });
        }
        self.pass(flight, &passage);
    }

    /// Calls a NIC that has planned something for the moment at which few packets wait for its
    /// link.
    fn call_plans(&mut self, place: Place, port: u16) {
        let (Place::Node(node), now) = (place, self.now) else { return };
        let line = self.line(place, port);
        let waiting = line.waiting();
        let called: Vec<_> = line.plans.extract_if(.., |(below, _)| waiting < *below).collect();
        for (_, token) in called {
            self.events.push(now, Event::Timer { node, token });
        }
    }

    /// What the far end of a link says back has come to the link's sender.
    pub(crate) fn told(&mut self, event: Event) {
        let now = self.now;
        let (place, port) = match event {
            Event::LinkFree { place, port }
            | Event::Missing { place, port }
            | Event::Room { place, port, .. }
            | Event::Acknowledged { place, port, .. } => (place, port),
            other => unreachable!("{other:?} is not said to a sender"),
        };
        let channel = self.channel(place, port);
        let line = channel.line.as_mut().expect("only senders with a line are told");
        match event {
            Event::Missing { .. } => channel.carried.repeated += line.go_back(now),
            Event::Room { lane, bytes, .. } => line.lanes[usize::from(lane)].room(bytes.into()),
            Event::Acknowledged { bytes, .. } => line.acknowledged(bytes.into()),
            _ => line.due = false,
        }
        self.serve(place, port);
    }

    /// The head of a packet has come to the place from which the packet goes on. Returns a packet
    /// that is lost, and the number of nodes that will not get it.
    pub(crate) fn head(&mut self, flight: u32) -> Option<(Packet, u64)> {
        let Flight { packet, at, by, tail, .. } = self.flights.get_mut(flight);
        let (place, by, tail, to, droppable) = (*at, *by, *tail, packet.to, packet.droppable);
        let bytes = u64::from(packet.wire_bytes);
        let (flow, lane) = (self.network.flow, self.network.lanes.of(packet.service));
        let switch = match place {
            Place::Switch(switch) if to != Destination::Switch(switch) => Some(switch),
            _ => None,
        };
        if droppable && flow.resend.is_none() && self.random.chance(self.network.loss) {
            self.counts.lost += 1;
            let missing = match (place, to) {
                (Place::Switch(switch), Destination::Multicast(group)) => {
                    self.network.reached(switch, by, group)
                }
                _ => 1,
            };
            if let (Some(switch), true) = (switch, flow.buffer.is_some()) {
                self.tell_room(switch, by, lane, bytes);
            }
            return Some((self.flights.take(flight).packet, missing));
        }
        let Some(switch) = switch else {
            self.events.push(tail, Event::Tail { flight });
            return None;
        };
        let ready = self.now + self.network.switching.delay;
        if flow.buffer.is_none() {
            self.forward(flight, switch, ready);
        } else if self.network.input_mut(switch, by, lane).put(Stored { flight, bytes, ready }) {
            self.send_first(switch, by, lane);
        }
        None
    }

    /// Sends on the first packet of a lane in an input of a switch.
    fn send_first(&mut self, switch: u32, port: u16, lane: u8) {
        while let Some(Stored { flight, ready, .. }) =
            self.network.input_mut(switch, port, lane).first()
        {
            let copies = self.forward(flight, switch, ready.max(self.now));
            if copies > 0 {
                self.network.input_mut(switch, port, lane).copies = copies;
                return;
            }
            let bytes = self.network.input_mut(switch, port, lane).drop_first();
            self.tell_room(switch, port, lane, bytes);
        }
    }

    /// A packet, or one copy of it, has left an input of a switch.
    pub(crate) fn left_input(&mut self, switch: u32, port: u16, lane: u8) {
        if let Some(bytes) = self.network.input_mut(switch, port, lane).left() {
            self.tell_room(switch, port, lane, bytes);
            self.send_first(switch, port, lane);
        }
    }

    /// Tells the sender that feeds an input of a switch that these bytes of a lane there are free.
    fn tell_room(&mut self, switch: u32, port: u16, lane: u8, bytes: u64) {
        let Channel { to: place, port, .. } = *self.channel(Place::Switch(switch), port);
        let bytes = u32::try_from(bytes).expect("a packet's length");
        self.events.push(self.now + self.network.delay, Event::Room { place, port, lane, bytes });
    }

    /// A switch sends a packet on, at `leave`, by the ports that the packet carries or the tables
    /// say. Returns by how many.
    fn forward(&mut self, flight: u32, switch: u32, leave: Ps) -> usize {
        let route_bytes = self.network.switching.route_bytes;
        let Flight { packet, at, by, tail, ports: carried } = self.flights.get_mut(flight);
        let (place, by, tail, to, op) = (*at, *by, *tail, packet.to, packet.op);
        let carried = carried.pop();
        if carried.is_some() {
            packet.wire_bytes -= route_bytes;
        }
        let wire_bytes = u64::from(packet.wire_bytes);
        let (first, more) = match (carried, to) {
            (None, Destination::Multicast(group)) => self.network.copied(switch, group, by),
            (carried, to) => (carried.or_else(|| self.network.route(switch, to)), Vec::new()),
        };
        let Some(first) = first else {
            self.flights.take(flight);
            self.sent_nowhere(op, switch, to);
            return 0;
        };
        let ports = 1 + more.len();
        let (start, each) = self.network.copies(switch, leave, ports as u64, wire_bytes);
        if start == self.now && self.network.lanes.several() {
            // The arbiter must know of the packet at the moment at which the one before has left.
            self.depart(flight, first);
        } else {
            self.events.push(start, Event::Depart { flight, port: first });
        }
        for (port, number) in more.into_iter().zip(1..) {
            self.counts.copied += 1;
            let packet = self.flights.get_mut(flight).packet.clone();
            let copy = Flight { packet, at: place, by, tail, ports: Vec::new() };
            let flight = self.flights.put(copy);
            self.events.push(start + each * number, Event::Depart { flight, port });
        }
        ports
    }

    /// A switch's table has no port for a packet. That is no error for a multicast packet that came
    /// from the only member of its group at the switch.
    pub(crate) fn sent_nowhere(&mut self, op: Op, switch: u32, to: Destination) {
        self.counts.absorbed += 1;
        if !matches!(to, Destination::Multicast(_)) {
            self.happened.push_back(Happened::Unrouted(op, switch, to));
        }
    }
}

#[cfg(test)]
mod tests;
