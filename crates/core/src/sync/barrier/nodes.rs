//! Between nodes, one message for each pair of nodes; within a node, a counter.
//!
//! The first member on a node is its *leader*: the node's words are in its slot. Members of the
//! node count their arrivals there. The last of them stores the phase into a word of each other
//! node's leader, one word for each node. A phase is complete when the node's counter and the words
//! of all other nodes say so, and all members of the node look at those words: no member has to
//! relay anything.
//!
//! * N1: The counter grows by one for each arrival, and nobody arrives at phase p + 1 before phase
//!   p is complete, here at least. So the arrival that makes it `p * members` is the last one at p.
//! * N2: A word of another node's leader has one writer for each phase, perhaps a different PE for
//!   the next one. The store of p is visible before the store of p + 1 is made: its writer
//!   completes its writes before it arrives at p + 1, and the last member that arrives at p + 1
//!   comes behind that arrival. So a word never goes back.
//! * N3: A message wakes the leader alone, which wakes the other members when it sees the phase
//!   complete. Where the last arrival on the node completes the phase, that member wakes them. One
//!   of the two sees all: the counter is an atomic, and a fabric fences behind what it delivers.

use super::{Mailbox, Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::{BarrierSlot, MAX_ROUNDS};
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use std::mem::offset_of;

/// The most nodes: a slot has as many words for them.
pub(super) const MOST: usize = MAX_ROUNDS;

pub(super) struct Nodes {
    /// The node's words, as this PE reads them.
    words: *const u8,
    counter: Route,
    /// Members of this node, and which of them this PE wakes.
    members: u64,
    sleepers: Box<[usize]>,
    is_leader: bool,
    /// The words of this node at the other nodes' leaders.
    others: Vec<Mailbox>,
    /// The number of this node among those of the team, and how many there are.
    node: usize,
    nodes: usize,
}

// SAFETY: `words` is an address in the mapping that the slot's PE keeps, used only through
// `crate::base::shm`.
unsafe impl Send for Nodes {}
// SAFETY: as above.
unsafe impl Sync for Nodes {}

/// The ranks of the leaders, in the order of the members, and the number of each member's node.
fn leaders(pe: &Pe, members: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut leaders: Vec<usize> = Vec::new();
    let node_of = |(rank, &member): (usize, &usize)| {
        let is_of =
            |&leader: &usize| leader == rank || pe.record().are_near([members[leader], member]);
        leaders.iter().position(is_of).unwrap_or_else(|| {
            leaders.push(rank);
            leaders.len() - 1
        })
    };
    let nodes = members.iter().enumerate().map(node_of).collect();
    (leaders, nodes)
}

/// How many nodes the members are on, as far as this counts.
pub(super) fn count(pe: &Pe, members: &[usize]) -> usize {
    leaders(pe, members).0.len()
}

fn word(node: usize) -> usize {
    offset_of!(BarrierSlot, rounds) + 8 * node
}

impl Nodes {
    pub(super) fn new(slot: &Slot) -> Self {
        let pe = &slot.pe;
        let (leaders, node_of) = leaders(pe, &slot.members);
        let node = node_of[slot.rank];
        let leader = leaders[node];
        let here = || (0..slot.members.len()).filter(|&rank| node_of[rank] == node);
        let others = (0..leaders.len()).filter(|&other| other != node);
        let words = match slot.word(leader, 0) {
            Route::Near(words) => words.cast_const(),
            Route::Far(_) => slot.own(0).cast(),
        };
        Nodes {
            words,
            counter: slot.word(leader, offset_of!(BarrierSlot, counter)),
            members: here().count() as u64,
            sleepers: here()
                .filter(|&rank| rank != slot.rank)
                .map(|rank| slot.members[rank])
                .collect(),
            is_leader: leader == slot.rank,
            others: others
                .map(|other| slot.mailbox(leaders[other], slot.word(leaders[other], word(node))))
                .collect(),
            node,
            nodes: leaders.len(),
        }
    }

    fn load(&self, offset: usize) -> u64 {
        // SAFETY: an aligned word of a barrier slot, in a segment that the slot's PE keeps mapped.
        unsafe { shm::load(self.words.wrapping_add(offset).cast()) }
    }

    fn is_complete(&self, phase: u64) -> bool {
        self.load(offset_of!(BarrierSlot, counter)) >= phase * self.members
            && (0..self.nodes).all(|node| node == self.node || self.load(word(node)) >= phase)
    }

    fn wake(&self, slot: &Slot) {
        slot.pe.order_rings();
        for &member in &self.sleepers {
            slot.pe.control().doorbell(member).ring_ordered();
        }
    }
}

impl Phases for Nodes {
    const PASSIVE: bool = true;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        let before = self.counter.fetch_op(&slot.pe, AtomicOp::Add, 1u64)?;
        // N1.
        if before + 1 == phase * self.members {
            for other in &self.others {
                slot.notify(other, phase);
            }
            // N3.
            if !self.sleepers.is_empty() && self.is_complete(phase) {
                self.wake(slot);
            }
        }
        Ok(())
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        let complete = self.is_complete(phase);
        if complete && self.is_leader && !self.sleepers.is_empty() {
            // N3.
            self.wake(slot);
        }
        Ok(complete)
    }
}
