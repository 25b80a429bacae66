//! The machine without its NICs: the events that are due, packets under way, writes that were
//! promised, and memory.

use crate::events::{Event, Happened};
use crate::host::{Answer, Slept};
use crate::memory::Memory;
use crate::network::Network;
use crate::op::Op;
use crate::packet::{Packet, Payload};
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
    /// The port of `at` by which the packet comes, if it came by one.
    pub(crate) by: u16,
    /// When the packet's last bit is there.
    pub(crate) tail: Ps,
    /// The ports by which the packet's header still tells switches to send it on, the last one
    /// first.
    pub(crate) ports: Vec<u16>,
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
    /// When the host will have heard of all that has landed, where its NIC says so.
    pub(crate) heard: Ps,
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
            let heard = books.heard;
            for (op, back) in std::mem::take(&mut books.quiet) {
                self.finish(heard.max(self.now + back), op, Answer::default());
            }
        }
    }

    /// Has a call return at `at`.
    pub(crate) fn finish(&mut self, at: Ps, op: Op, answer: Answer) {
        let finish = self.finishes.put((op, answer));
        self.events.push(at, Event::Finish { finish });
    }

    /// A process slept. Returns when it runs again; `op` is its last call.
    pub(crate) fn sleep(&mut self, op: Op, slept: Slept) -> Ps {
        let phases = [
            ("system_call", slept.block),
            ("interrupt", slept.interrupt),
            ("context_switch", slept.context_switch),
        ];
        for (name, (begin, end)) in phases.into_iter().filter(|(_, (begin, end))| end > begin) {
            self.record(Track::Pe(op.pe), name, op, begin, end);
        }
        slept.context_switch.1
    }

    pub(crate) fn record(&mut self, track: Track, name: &'static str, op: Op, start: Ps, end: Ps) {
        self.recorder.stage(Stage { track, name, op, start, end });
    }
}
