//! What a kind of NIC is.
//!
//! A kind is one file: a state machine that holds the NICs of all nodes, and does with every
//! operation what the hardware does, at the times at which the hardware does it. It reads no clock
//! and keeps no queue of its own for time: it is called, it changes its state, and it tells its
//! [`Cx`] what follows and when.
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
//! * A unit that serves one thing at a time is a [`Unit`]; who comes while it is busy waits.
//! * Every constant is a parameter of the machine file, read once in the kind's constructor. What
//!   is not read there is an error of the file.
//! * State is per node in a `Vec`, small until it is used: a machine may have 65,536.

pub mod command_word;
pub mod infiniband;
pub mod loggp;
pub mod memory_slot;
mod planned;
pub mod sync_network;

pub use crate::cx::Cx;
pub use crate::events::{Owner, Token};
use crate::host::{HostOp, Polling};
use crate::machine::{Machine, MachineError};
use crate::network::Network;
use crate::op::Op;
pub use crate::op::Pe;
use crate::packet::{Node, Packet};
use crate::time::Ps;
use planned::Planned;

/// The kinds, by the names that machine files give them.
pub(crate) fn build(machine: &Machine, network: &Network) -> Result<Box<dyn Nic>, MachineError> {
    match machine.kind() {
        "command-word" => {
            Ok(Box::new(command_word::CommandWordDma::build(machine, network.nodes())?))
        }
        "infiniband" => Ok(Box::new(infiniband::InfiniBand::build(machine, network)?)),
        "sync-network" => Ok(Box::new(sync_network::SyncNetwork::build(machine, network.nodes())?)),
        "loggp" => Ok(Box::new(loggp::LogGp::build(machine, network.nodes(), Owner::Nic)?)),
        "memory-slot" => Ok(Box::new(memory_slot::MemorySlot::build(machine, network.nodes())?)),
        _ => {
            Err(machine.unknown_kind("command-word, infiniband, loggp, memory-slot, sync-network"))
        }
    }
}

/// A call of a PE, on its NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its name, by which it is answered and recorded.
    pub op: Op,
    /// Where the PE runs.
    pub node: Node,
    /// What it wants.
    pub what: HostOp,
}

/// What hardware may have. What it has not is done by software on the target host (the private
/// module `agent`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// [`HostOp::Get`].
    Get,
    /// [`HostOp::Atomic`], and signals that add.
    Atomics,
    /// [`HostOp::Group`].
    Groups,
    /// Of that, groups for datagrams.
    Datagrams,
}

/// The NICs of a machine.
pub trait Nic {
    /// The kind's name, as machine files write it.
    fn kind(&self) -> &'static str;

    /// Whether the hardware has this.
    fn has(&self, feature: Feature) -> bool;

    /// How this host looks at the memory where its NIC delivers.
    fn polling(&self, node: Node) -> Polling;

    /// The machine is switched on, before any program runs.
    fn start(&mut self, _cx: &mut Cx<'_>) {}

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

    /// The others have heard that a PE has left: no call waits for it any more, of now or later.
    /// Told once, or more often.
    fn left(&mut self, _cx: &mut Cx<'_>, _pe: Pe) {}

    /// A packet that was [droppable](Packet::droppable) is lost, or one copy of it: `missing` nodes
    /// will not get it. Says which promises end with it ([`Cx::lost`]).
    fn dropped(&mut self, _cx: &mut Cx<'_>, packet: &Packet, _missing: u64) {
        panic!("{} sends no packets that may be lost, but lost {packet:?}", self.kind());
    }
}

/// Something that serves one thing at a time, in the order of asking.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unit {
    free: Ps,
}

impl Unit {
    /// Takes it for `time`, from `at` or when it becomes free; gives start and end.
    pub fn take(&mut self, at: Ps, time: Ps) -> (Ps, Ps) {
        let start = self.free.max(at);
        self.free = start + time;
        (start, self.free)
    }

    /// When it is free.
    pub fn free(&self) -> Ps {
        self.free
    }
}
