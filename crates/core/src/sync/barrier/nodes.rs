//! Within a node, a counter; between a few nodes, one message for each pair; between more nodes,
//! dissemination.
//!
//! The first member on a node is its *leader*: the node's words are in its slot. Members of the
//! node count their arrivals there. Once all have come, the leader stores the phase into words of
//! other nodes' leaders. A phase is complete when the node's counter and all of its words say so,
//! and all members of the node look at those words.
//!
//! * **A few nodes**: a leader has a word for each other node, and stores into all of them.
//! * **More**: a leader has a word for each round. In round r it stores into the word of the node
//!   2^r further on, once the words of the rounds before are complete. So H nodes send H log2 H
//!   messages, not H squared, and a leader has log2 H partners.
//!
//! The leader sends, not the last member that arrives. That would save the step from this member to
//! the leader, but a leader would then hear of another node by any of that node's members, and
//! `tcp` looks first at the stream that was active last. Four PEs on two nodes of two, on two busy
//! CPUs of one machine: 0.74 ms when the last member sends, 0.20 ms when the leader does. And only
//! leaders need streams to other nodes. In exchange, a leader that computes between arriving and
//! waiting keeps the other nodes waiting.
//!
//! * N1: The counter grows by one for each arrival, and nobody arrives at phase p + 1 before phase
//!   p is complete, here at least. So the arrival that makes it `p * members` is the last one at p.
//! * N2: A word has one writer, the leader of another node. It completes its writes of phase p
//!   before it arrives at p + 1, so a word never goes back.
//! * N3: A message wakes the leader alone, which wakes the other members when it sees the phase
//!   complete. Where the last arrival on the node completes the phase, that member wakes them. One
//!   of the two sees all: the counter is an atomic, and a fabric fences behind what it delivers.
//!   Otherwise the last arrival wakes the leader, which has messages to send.
//! * N4: A leader ends no phase in which it has not sent all of its messages: it looks whether the
//!   phase is complete before it sends. If it is, each message may go, as all have arrived here and
//!   all words are there.
//! * N5: The word of round r says that the 2^r nodes before have all arrived: the sender's own
//!   node, and by its words of the rounds before the others. The words of all rounds so speak of
//!   all other nodes.
//! * N6: *An arrival is counted once.* What follows the addition to the counter does not make the
//!   arrival fail: a program that then called again would be counted twice, and against N1 phases
//!   would be complete too early.

use super::{Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::{BarrierSlot, MAX_ROUNDS};
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::route::Route;
use std::mem::offset_of;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most nodes that message each other directly. With more, a leader would send for longer than
/// the messages of the rounds take. Models of three nodes explore both ways.
pub(super) const MOST_DIRECT: usize = if cfg!(loom) { 2 } else { 8 };
const _: () = assert!(MOST_DIRECT <= MAX_ROUNDS);

pub(super) struct Nodes {
    /// The node's words, as this PE reads them.
    words: *const u8,
    counter: Route,
    /// Members of this node, and which of them this PE wakes.
    members: u64,
    sleepers: Box<[usize]>,
    /// The leader, if it is another PE.
    leader: Option<usize>,
    /// Whether each message awaits the message of the round before.
    in_rounds: bool,
    /// Where a leader's messages go: words of PEs of other nodes.
    others: Vec<Route>,
    /// The numbers of the node's own words.
    awaited: Box<[usize]>,
    /// Messages of the current phase that this leader has sent.
    sent: AtomicUsize,
}

// SAFETY: `words` is an address in the mapping that the slot's PE keeps, used only through
// `crate::base::shm`.
unsafe impl Send for Nodes {}
// SAFETY: as above.
unsafe impl Sync for Nodes {}

fn word(number: usize) -> usize {
    offset_of!(BarrierSlot, rounds) + 8 * number
}

impl Nodes {
    pub(super) fn new(slot: &Slot) -> Self {
        let nodes = slot.pe.record().by_node(&slot.members);
        let is_here = |ranks: &Vec<usize>| ranks.binary_search(&slot.rank).is_ok();
        let node = nodes.iter().position(is_here).expect("each member is on a node");
        let (here, leader, all) = (&nodes[node], nodes[node][0], nodes.len());
        let words = match slot.word(leader, 0) {
            Route::Near(words) => words.cast_const(),
            Route::Far(_) => slot.own(0).cast(),
        };
        let in_rounds = all > MOST_DIRECT;
        // Nodes, and the number of a word at each: this node's number, or the round's.
        let others: Vec<(usize, usize)> = if in_rounds {
            let rounds = all.next_power_of_two().trailing_zeros() as usize;
            (0..rounds).map(|round| ((node + (1 << round)) % all, round)).collect()
        } else {
            (0..all).filter(|&other| other != node).map(|other| (other, node)).collect()
        };
        let address = |&(other, number): &(usize, usize)| slot.word(nodes[other][0], word(number));
        let awaited = |&(other, round): &(usize, usize)| if in_rounds { round } else { other };
        let is_other = |&&rank: &&usize| rank != slot.rank;
        Nodes {
            words,
            counter: slot.word(leader, offset_of!(BarrierSlot, counter)),
            members: here.len() as u64,
            sleepers: here.iter().filter(is_other).map(|&rank| slot.members[rank]).collect(),
            leader: (leader != slot.rank).then(|| slot.members[leader]),
            in_rounds,
            awaited: others.iter().map(awaited).collect(),
            others: others.iter().map(address).collect(),
            sent: AtomicUsize::new(0),
        }
    }

    fn load(&self, offset: usize) -> u64 {
        // SAFETY: an aligned word of a barrier slot, in a segment that the slot's PE keeps mapped.
        unsafe { shm::load(self.words.wrapping_add(offset).cast()) }
    }

    fn has_arrived(&self, phase: u64) -> bool {
        self.load(offset_of!(BarrierSlot, counter)) >= phase * self.members
    }

    fn is_complete(&self, phase: u64) -> bool {
        self.has_arrived(phase) && self.awaited.iter().all(|&at| self.load(word(at)) >= phase)
    }

    /// Sends the leader's messages for which it is time.
    fn send(&self, slot: &Slot, phase: u64) -> Quick<()> {
        let mut next = self.sent.load(Ordering::Relaxed);
        let may = |next: usize| !self.in_rounds || next == 0 || self.load(word(next - 1)) >= phase;
        while next < self.others.len() && self.has_arrived(phase) && may(next) {
            let word = self.others[next];
            // Not `notify`: by default that is a store, which a fabric may keep back until the PE
            // waits.
            // SAFETY: nothing is read; the word is of this barrier, in the segment of a PE of
            // another node, which is far.
            unsafe { word.put_and_notify(&slot.pe, std::ptr::null(), 0, word, phase) }?;
            next += 1;
            self.sent.store(next, Ordering::Relaxed);
            if next == self.others.len() {
                slot.publish_done(phase);
            }
        }
        Ok(())
    }

    fn wake(&self, slot: &Slot) {
        slot.pe.order_rings();
        for &member in &self.sleepers {
            slot.pe.control().doorbell(member).ring_ordered();
        }
    }
}

impl Phases for Nodes {
    const PASSIVE: bool = false;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        self.sent.store(0, Ordering::Relaxed);
        if self.leader.is_some() {
            // The others need no more of this PE than its arrival.
            slot.publish_done(phase);
        }
        let before = self.counter.fetch_op(&slot.pe, AtomicOp::Add, 1u64)?;
        let Some(leader) = self.leader else {
            // N6. The wait for this phase meets the error again, and reports it.
            drop(self.send(slot, phase));
            return Ok(());
        };
        // N1, N3.
        if before + 1 == phase * self.members {
            if self.is_complete(phase) {
                self.wake(slot);
            } else {
                slot.pe.ring(leader);
            }
        }
        Ok(())
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        let is_leader = self.leader.is_none();
        // N4: before it sends.
        let complete = self.is_complete(phase);
        if is_leader {
            self.send(slot, phase)?;
        }
        if complete && is_leader && !self.sleepers.is_empty() {
            // N3.
            self.wake(slot);
        }
        Ok(complete)
    }
}
