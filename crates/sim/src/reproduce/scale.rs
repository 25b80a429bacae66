//! Scale: barriers, all-reduce and broadcast on 2 to 65,536 nodes of each kind of network.
//!
//! The programs here send the messages of the library's algorithms themselves. Before a collective,
//! the library compares arguments among all PEs, to find mistakes; that takes too long on so many
//! nodes. Each operation is done twice. The first one fills tables and caches. For the second one
//! all nodes begin together, and its time ends when the last node is done. No node leaves before
//! that, because PEs that still wait would check a PE that has left.

use super::area::{Area, ask};
use super::outcome::{Curve, Outcome, Row};
use crate::error::Error;
use crate::host::{HostOp, Signal};
use crate::machine::{Machine, MachineError};
use crate::memory::PlainMemory;
use crate::packet::Payload;
use crate::run::{Host, Options, run as run_on};
use crate::world::World;
use memonet_core::{Broadcast, Goal, Job, SignalOp, Sum};

/// The most nodes.
pub const MOST: usize = 1 << 16;

/// One machine for each kind of NIC. The kind `loggp` has two: a slow Ethernet and a fast network.
const MACHINES: [&str; 6] =
    ["dimmnet-1/D-tree", "sr2201", "dimmnet-2/tree", "rdma-100g", "fast-ethernet-udp", "scc"];

/// An operation of all nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Tree,
    Dissemination,
    AllReduce,
    Broadcast,
}

/// Operations, each with its part of rows' ids, and of figures' names.
const OPERATIONS: [(Operation, &str, &str); 4] = [
    (Operation::Tree, "barrier_tree", "scale: barrier by a tree of eight, and by wires"),
    (
        Operation::Dissemination,
        "barrier_dissemination",
        "scale: barrier by dissemination, and by wires",
    ),
    (Operation::AllReduce, "all_reduce", "scale: all-reduce of 8 bytes"),
    (Operation::Broadcast, "broadcast", "scale: broadcast of 8 bytes"),
];

const FAN: usize = 8;
/// Offsets in a node's memory, in bytes: a byte from each child in the tree, the parent's word, and
/// the words of the rounds.
const GATHERED: usize = 0;
const RELEASED: usize = 8;
const DATA: usize = 16;
const ROUNDS: usize = 64;
const BYTES: usize = ROUNDS + 16 * 16;
/// All nodes begin the second operation at this time after the start, and leave at twice this time.
const TOGETHER_NS: u64 = 100_000_000_000;

/// A node among others.
struct Member {
    job: Job,
    area: Area,
    me: usize,
    n: usize,
}

impl Member {
    fn store(&self, to: usize, byte: usize, size: usize, value: u64) {
        ask(HostOp::Store { to: self.area.at(to as u32, byte), word: Payload::word(size, value) });
    }

    /// A word with a flag behind it.
    fn send(&self, to: usize, byte: usize, word: u64, flag: usize, phase: u64) {
        ask(HostOp::Put {
            to: self.area.at(to as u32, byte),
            data: Payload::word(8, word),
            signal: Some(Signal {
                at: self.area.at(to as u32, flag),
                op: SignalOp::Set,
                value: phase,
            }),
            reuse: true,
        });
    }

    fn parent(&self) -> Option<usize> {
        Some(self.me.checked_sub(1)? / FAN)
    }

    fn children(&self) -> std::ops::Range<usize> {
        (FAN * self.me + 1).min(self.n)..(FAN * self.me + FAN + 1).min(self.n)
    }

    fn tree(&self, phase: u64) {
        let all = self.children().fold(0, |all, child| all | phase << (8 * ((child - 1) % FAN)));
        self.area.wait_for(GATHERED, all);
        if let Some(parent) = self.parent() {
            self.store(parent, GATHERED + (self.me - 1) % FAN, 1, phase);
            self.area.wait_for(RELEASED, phase);
        }
        self.children().for_each(|child| self.store(child, RELEASED, 8, phase));
    }

    fn rounds(&self) -> usize {
        self.n.ilog2() as usize
    }

    fn dissemination(&self, phase: u64) {
        for round in 0..self.rounds() {
            self.store((self.me + (1 << round)) % self.n, ROUNDS + 16 * round, 8, phase);
            self.area.wait_for(ROUNDS + 16 * round, phase);
        }
    }

    /// The sum of all nodes' numbers. In each round, pairs exchange their partial sums.
    fn all_reduce(&self, phase: u64) {
        let mut sum = self.me as u64;
        for round in 0..self.rounds() {
            let at = ROUNDS + 16 * round;
            self.send(self.me ^ 1 << round, at, sum, at + 8, phase);
            self.area.wait_for(at + 8, phase);
            sum += self.area.load(at);
        }
        assert_eq!(sum, (self.n * (self.n - 1) / 2) as u64, "the sum of {} nodes' numbers", self.n);
    }

    /// A collective of the library, on a word that the boards combine, or that the first one sends.
    fn in_the_network(&self, goal: Option<Goal>) {
        let (world, to, from) =
            (self.job.world(), self.area.place(RELEASED), self.area.place(DATA));
        assert!(world.most_in_network() >= 8, "the boards serve all");
        let done = match goal {
            // SAFETY: any bytes are valid numbers.
            Some(goal) => unsafe { world.combine_values::<u64>(Sum, goal, to, from) },
            None => world.broadcast_places(Broadcast::new(0, to, from)),
        };
        done.expect("nobody dies in an experiment");
    }

    /// A word of the first node, sent down the tree.
    fn broadcast(&self, phase: u64) {
        if self.me > 0 {
            self.area.wait_for(RELEASED, phase);
        }
        let word = if self.me == 0 { 77 + phase } else { self.area.load(DATA) };
        assert_eq!(word, 77 + phase, "what the first node has sent");
        self.children().for_each(|child| self.send(child, DATA, word, RELEASED, phase));
    }
}

/// Sleeps until this time after the start, in ns.
fn stay_until(job: &Job, moment: u64) {
    let left = moment.checked_sub(Host::here().now().0 / 1000);
    job.compute(left.expect("what comes before is over by then"));
}

/// The time of an operation on this many nodes, in ns.
fn time(machine: &Machine, nodes: usize, operation: Operation) -> Result<f64, Error> {
    let options = Options { segment: Some(2 << 20), stack: 128 << 10, ..Options::default() };
    let wires = machine.kind() == "sync-network";
    let done = run_on(machine, nodes, &options, |job| {
        let member = Member {
            job: job.clone(),
            area: Area::at_the_start(&job, BYTES),
            me: job.pe(),
            n: nodes,
        };
        for phase in 1..=2 {
            if phase == 2 {
                stay_until(&job, TOGETHER_NS);
            }
            match operation {
                // The library leaves these to the boards.
                Operation::AllReduce if wires => member.in_the_network(Some(Goal::All)),
                Operation::Broadcast if wires => member.in_the_network(None),
                _ if wires => job.barrier().expect("the wires work"),
                Operation::Tree => member.tree(phase),
                Operation::Dissemination => member.dissemination(phase),
                Operation::AllReduce => member.all_reduce(phase),
                Operation::Broadcast => member.broadcast(phase),
            }
        }
        let end = Host::here().now().as_ns();
        stay_until(&job, 2 * TOGETHER_NS);
        end - TOGETHER_NS as f64
    })?;
    Ok(done.results.into_iter().fold(0.0, f64::max))
}

/// Numbers of nodes: powers of two, because pairs exchange; from 16 on every other one, and the
/// last.
fn sizes(most: usize) -> Vec<usize> {
    let last = most.min(MOST).ilog2();
    let powers = (1..=last).filter(|power| power % 2 == 0 || *power < 4 || *power == last);
    powers.map(|power| 1 << power).collect()
}

/// The number of nodes that a machine can have, up to so many: all, or the largest power of two
/// with the reason.
fn room(machine: &Machine, most: usize) -> Result<(usize, Option<MachineError>), Error> {
    let built =
        |nodes: usize| World::build(machine, nodes as u32, 1, Box::new(PlainMemory::new(nodes, 0)));
    let Err(refusal) = built(most) else {
        return Ok((most, None));
    };
    let smaller = (1..most.ilog2()).rev().map(|power| 1 << power);
    match smaller.into_iter().find(|&nodes| built(nodes).is_ok()) {
        Some(nodes) => Ok((nodes, Some(refusal))),
        None => Err(refusal.into()),
    }
}

/// Runs all operations on all machines, up to `most` nodes. Calls `progress` with the name of each
/// run before it.
///
/// # Errors
/// [`Error`] of a run.
pub fn scale(most: usize, mut progress: impl FnMut(String)) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    let most = most.clamp(2, MOST);
    let mut machines = Vec::new();
    for name in MACHINES {
        let machine = Machine::load(name)?;
        let (most, refusal) = room(&machine, most)?;
        let note = refusal.map(|refusal| format!("{name} ends at {most} nodes: {refusal}."));
        outcome.notes.extend(note);
        machines.push((name, machine, most));
    }
    for (operation, id, figure) in OPERATIONS {
        for (name, machine, most) in &machines {
            let mut points = Vec::new();
            for nodes in sizes(*most) {
                progress(format!("{id} on {name}, {nodes} nodes"));
                points.push((nodes as f64, time(machine, nodes, operation)?));
            }
            let (kind, machine_name) = (machine.kind(), name.replace('/', "."));
            if let Some(&(nodes, time)) = points.last() {
                outcome.rows.push(Row::predicted(
                    format!("scale.{id}.{machine_name}.{nodes}"),
                    "ns",
                    time,
                ));
            }
            outcome.curves.push(Curve {
                figure,
                label: format!("{name} ({kind})"),
                x: "nodes",
                y: "ns",
                points,
            });
        }
    }
    outcome.notes.push(
        "Each kind of NIC has a machine here, loggp two. On SCC barriers go by wires, all-reduce and broadcast by its chain; elsewhere all are programs of stores and \
         signalled puts."
            .into(),
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice as many boards are twice as far apart, even where the first has its result long before
    /// the last.
    #[test]
    fn nobody_leaves_while_others_wait() {
        let scc = Machine::load("scc").unwrap();
        let [half, whole] =
            [2048, 4096].map(|boards| time(&scc, boards, Operation::AllReduce).unwrap());
        assert!((1.9..2.1).contains(&(whole / half)), "{half} ns, {whole} ns");
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(sizes(100), [2, 4, 8, 16, 64]);
        assert_eq!(sizes(1 << 7).last(), Some(&(1 << 7)));
        assert_eq!(sizes(MOST).last(), Some(&MOST));
    }
}
