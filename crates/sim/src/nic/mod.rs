//! Kinds of NICs.
//!
//! A kind is a file, or a folder: a state machine that holds the NICs of all nodes. For every
//! operation it does what the hardware does, at the times at which the hardware does it. A kind
//! reads no clock and keeps no queue of events. When it is called, it changes its state, and tells
//! its [`Cx`] what follows and when.
//!
//! ```text
//! program ──HostOp──► begin ──► stages, timers ──► send ──► links, switches ──► arrive ──► stages ──► write ──► the PE's memory
//!    ▲                   │                                                                                        │
//!    └── finish ◄────────┘                                                        a look of the host sees it ◄────┘
//! ```
//!
//! Rules:
//!
//! * Every call that [`begin`](Nic::begin) gets is answered by exactly one [`Cx::finish`] (or
//!   [`Cx::finish_when_landed`]), at that moment or any later.
//! * Every write that a call promises ([`Cx::promise`]) ends in one [`Cx::write`] or [`Cx::kept`],
//!   or in [`Cx::lost`]: that is what `quiet` counts.
//! * Every stage that takes time is recorded with its name ([`Cx::stage`]). Names are those of the
//!   machine file's parameters.
//! * A unit that serves one thing at a time is a [`Unit`]; what comes while it is busy waits.
//! * Every constant is a parameter of the machine file, read once in the kind's constructor. A
//!   parameter that is not read there is a mistake in the file.
//! * The state of each node is an entry of a `Vec`, small until it is used: a machine may have
//!   65,536 nodes.

pub mod command_word;
pub mod infiniband;
pub mod loggp;
pub mod memory_slot;
mod planned;
pub mod sync_network;

pub use crate::cx::Cx;
pub use crate::events::{Owner, Token};
use crate::host::{HostOp, Polling, Sleep};
use crate::machine::{Machine, MachineError};
use crate::network::Network;
use crate::op::Op;
pub use crate::op::Pe;
use crate::packet::{Node, Packet};
use crate::time::Ps;
use planned::Planned;

/// Builds the NICs of a machine, of the kind that its file names.
pub(crate) fn build(
    machine: &Machine,
    network: &mut Network,
    pes: u32,
) -> Result<Box<dyn Nic>, MachineError> {
    match machine.kind() {
        "command-word" => {
            Ok(Box::new(command_word::CommandWordDma::build(machine, network.nodes(), pes)?))
        }
        "infiniband" if !network.has_tables() => {
            let problem = "is \"source\"; switches of kind infiniband are managed by their tables";
            Err(machine.section("switch").error("routing", problem))
        }
        "infiniband" => Ok(Box::new(infiniband::InfiniBand::build(machine, network)?)),
        "sync-network" => Ok(Box::new(sync_network::SyncNetwork::build(machine, network.nodes())?)),
        "loggp" => Ok(Box::new(loggp::LogGp::build(machine, network.nodes(), Owner::Nic)?)),
        "memory-slot" => {
            Ok(Box::new(memory_slot::MemorySlot::build(machine, network.nodes(), pes)?))
        }
        _ => {
            Err(machine.unknown_kind("command-word, infiniband, loggp, memory-slot, sync-network"))
        }
    }
}

/// Number of PEs that share a node and its NIC.
pub(crate) fn pes_per_node(machine: &Machine) -> Result<u32, MachineError> {
    match machine.kind() {
        "command-word" => command_word::processes(machine),
        "memory-slot" => memory_slot::users(machine),
        _ => Ok(1),
    }
}

/// A call of a PE, on its NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The call's name, by which it is answered and recorded.
    pub op: Op,
    /// Where the PE runs.
    pub node: Node,
    /// The operation.
    pub what: HostOp,
}

/// What hardware may have. Where it lacks gets or atomics, software on the target host does them
/// (the private module `agent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// [`HostOp::Get`].
    Get,
    /// [`HostOp::Atomic`], and signals that add.
    Atomics,
    /// [`HostOp::Group`].
    Groups,
    /// Groups for datagrams.
    Datagrams,
    /// Groups for [`GroupOp::Multicast`](crate::host::GroupOp::Multicast) that loses nothing.
    CopiedWrites,
    /// [`HostOp::Prepare`].
    Commands,
    /// [`HostOp::Key`].
    Keys,
    /// [`GroupOp::Step`](crate::host::GroupOp::Step).
    ReducedCode,
}

/// The NICs of a machine.
pub trait Nic {
    /// The kind's name, as machine files write it.
    fn kind(&self) -> &'static str;

    /// Whether the hardware has this.
    fn has(&self, feature: Feature) -> bool;

    /// The looks of this node's host at the memory into which its NIC delivers.
    fn polling(&self, node: Node) -> Polling;

    /// What waiting costs a PE whose host sleeps until its NIC interrupts. Without it, hosts look.
    fn sleep(&self) -> Option<Sleep> {
        None
    }

    /// The machine is switched on, before any program runs.
    fn start(&mut self, _cx: &mut Cx<'_>) {}

    /// All that followed from that has happened.
    ///
    /// # Errors
    /// [`MachineError`]: the machine has not come up, and never will.
    fn has_come_up(&self, _machine: &Machine) -> Result<(), MachineError> {
        Ok(())
    }

    /// A program's call.
    fn begin(&mut self, cx: &mut Cx<'_>, call: Call);

    /// The last bit of a packet has come in from the link.
    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet);

    /// A moment asked for with [`Cx::timer`] has come.
    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token);

    /// A management packet has come to a switch. Kinds that send none need not answer any.
    fn at_switch(&mut self, _cx: &mut Cx<'_>, switch: u32, packet: Packet) {
        panic!("{} has no management packets, but switch {switch} got {packet:?}", self.kind());
    }

    /// A message of the kind's own driver has come to another node's driver by the NIC.
    fn message(&mut self, _cx: &mut Cx<'_>, node: Node, number: u32) {
        panic!("drivers of {} send no messages, but {node:?} got {number}", self.kind());
    }

    /// The other PEs have heard that a PE has left. No call may wait for that PE any more, now or
    /// later. This is called once, or more often.
    fn left(&mut self, _cx: &mut Cx<'_>, _pe: Pe) {}

    /// A [droppable](Packet::droppable) packet is lost, or one copy of it: `missing` nodes will not
    /// get it. The NIC says which promises end with it ([`Cx::lost`]).
    fn dropped(&mut self, _cx: &mut Cx<'_>, packet: &Packet, _missing: u64) {
        panic!("{} sends no packets that may be lost, but lost {packet:?}", self.kind());
    }
}

/// A unit that serves one request at a time, in the order of asking.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unit {
    free: Ps,
}

impl Unit {
    /// Takes the unit for `time`, from `at` or from when it becomes free. Returns start and end.
    pub fn take(&mut self, at: Ps, time: Ps) -> (Ps, Ps) {
        let start = self.free.max(at);
        self.free = start + time;
        (start, self.free)
    }

    /// When the unit becomes free.
    pub fn free(&self) -> Ps {
        self.free
    }
}
