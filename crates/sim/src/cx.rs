//! What a NIC may do to the machine around it.

use crate::events::{Event, Happened, Token};
use crate::host::{Answer, Atomic, Sleep};
use crate::network::Network;
use crate::op::{Op, Pe};
use crate::packet::{Destination, Node, Packet, Payload};
use crate::parts::{Landing, Parts};
use crate::time::Ps;
use crate::trace::{Place, Track};
use memonet_core::unstable::fabric::FarAddress;

/// A NIC's access to the machine around it.
pub struct Cx<'a> {
    pub(crate) parts: &'a mut Parts,
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
        self.parts.finish(at, op, answer);
    }

    /// Has the call return at `at` if all that its PE has written is visible. Otherwise the call
    /// returns `back` after the last write has landed: the time in which the host hears of it. It
    /// does not return before the host has [heard](Self::heard) of each.
    pub fn finish_when_landed(&mut self, at: Ps, op: Op, back: Ps) {
        let books = &mut self.parts.books[op.pe.index()];
        if books.outstanding == 0 {
            self.finish(at, op, Answer::default());
        } else {
            books.quiet.push((op, back));
        }
    }

    /// Says when the host of a call hears of a write of that call. A NIC for which this depends on
    /// how far the target is says so before the write lands.
    pub fn heard(&mut self, op: Op, at: Ps) {
        if !op.pe.is_agent(self.parts.pes) {
            let heard = &mut self.parts.books[op.pe.index()].heard;
            *heard = at.max(*heard);
        }
    }

    /// Has [`Nic::timer`](crate::nic::Nic::timer) called at `at`.
    pub fn timer(&mut self, at: Ps, node: Node, token: Token) {
        self.parts.events.push(at, Event::Timer { node, token });
    }

    /// Packets that wait for a node's link, where back-pressure or repeats may stop it.
    pub fn waiting_for_link(&mut self, node: Node) -> usize {
        let line = &self.parts.channel(Place::Node(node), 0).line;
        line.as_ref().map_or(0, |line| line.waiting())
    }

    /// Has [`Nic::timer`](crate::nic::Nic::timer) called as soon as fewer than `fewer` packets
    /// [wait for the node's link](Self::waiting_for_link). Now, some do.
    pub fn timer_when_fewer_wait(&mut self, node: Node, fewer: usize, token: Token) {
        let line = &mut self.parts.channel(Place::Node(node), 0).line;
        line.as_mut().expect("packets wait in it").plans.push((fewer, token));
    }

    /// Hands a packet to a node's link at `at`.
    pub fn send(&mut self, at: Ps, node: Node, packet: Packet) {
        self.parts.launch(at, Place::Node(node), 0, packet);
    }

    /// Has a place send a packet by one of its ports, to whom the cable leads to, at `at`.
    pub fn send_by(&mut self, at: Ps, place: Place, port: u16, packet: Packet) {
        self.parts.launch(at, place, port, packet);
    }

    /// Has a switch send a management packet of its own to a node, at `at`.
    pub fn send_from_switch(&mut self, at: Ps, switch: u32, to: Node, packet: Packet) {
        let to = Destination::Node(to);
        match self.parts.network.route(switch, to) {
            Some(port) => {
                let packet = Packet { to, ..packet };
                self.parts.launch(at, Place::Switch(switch), port, packet);
            }
            None => {
                self.parts.counts.sent += 1;
                self.parts.sent_nowhere(packet.op, switch, to);
            }
        }
    }

    /// Says that this many writes of the call will land, or be [lost](Self::lost). A NIC says so
    /// before the first of them.
    pub fn promise(&mut self, op: Op, writes: u64) {
        if !op.pe.is_agent(self.parts.pes) {
            self.parts.books[op.pe.index()].outstanding += writes;
        }
    }

    /// Makes bytes visible at `at`, which keeps one promise. Writes of one time land in the order
    /// in which a NIC asks for them.
    pub fn write(&mut self, at: Ps, op: Op, to: FarAddress, data: Payload) {
        let landing = self.parts.landings.put(Landing { op, to, data });
        self.parts.events.push(at, Event::Land { landing });
    }

    /// Has a PE's looks see, from `at` on, something new that is not in its memory.
    pub fn news(&mut self, at: Ps, pe: Pe) {
        self.parts.events.push(at, Event::News { pe });
    }

    /// Counts a packet that a NIC has not taken: it was for another NIC, or there was no room.
    pub fn discarded(&mut self) {
        self.parts.counts.discarded += 1;
    }

    /// Says that an [`atomic`](Self::atomic) has kept this many promises of the call.
    pub fn kept(&mut self, op: Op, writes: u64) {
        self.parts.landed(op, writes);
    }

    /// Says that this many writes of the call will never land.
    pub fn lost(&mut self, op: Op, writes: u64) {
        self.parts.landed(op, writes);
    }

    /// Reads a PE's memory, with the rights of the call's PE.
    ///
    /// # Errors
    /// A sentence, when there is no such memory.
    pub fn read(&mut self, op: Op, from: FarAddress, len: usize) -> Result<Payload, String> {
        let by = op.pe.owner(self.parts.pes);
        self.parts.memory.read(by, from, len)
    }

    /// Changes a word now and returns its old value. The word's PE sees the change. This keeps no
    /// promise.
    ///
    /// # Errors
    /// A sentence, when there is no such word.
    pub fn atomic(
        &mut self,
        op: Op,
        at: FarAddress,
        size: usize,
        what: Atomic,
    ) -> Result<u64, String> {
        let by = op.pe.owner(self.parts.pes);
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
        let track = match op.pe.is_agent(self.parts.pes) {
            true => Track::Agent(op.pe.owner(self.parts.pes)),
            false => Track::Pe(op.pe),
        };
        self.parts.record(track, name, op, start, end);
    }

    /// When the process of a call runs again that has waited since `from` for a change made at
    /// `changed`.
    pub fn sleep(&mut self, op: Op, sleep: Sleep, from: Ps, changed: Ps) -> Ps {
        match sleep.phases(from, from, changed) {
            Some(slept) => self.parts.sleep(op, slept),
            None => changed.max(from),
        }
    }

    /// Has an agent called at `at`.
    pub(crate) fn agent_timer(&mut self, at: Ps, pe: Pe, token: u32) {
        self.parts.events.push(at, Event::Agent { pe, token });
    }
}
