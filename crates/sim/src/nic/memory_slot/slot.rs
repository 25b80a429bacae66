//! The NICs of all nodes: their state, and what they have planned.

use super::asked::Updates;
use super::chipset::Chipset;
use super::command::{LoopBack, Refusal};
use super::core::CoreProcessor;
use super::frames::{Frames, SegmentPage};
use super::groups::Groups;
use super::htlb::Htlb;
use super::memory::{NicMemory, Side};
use super::parameters::Parameters;
use super::translate::ReceiveTlb;
use super::user::{Caller, User};
use super::way_in::{Held, Wait, WayIn};
use super::way_out::{Block, Outgoing, WayOut};
use crate::machine::{Machine, MachineError};
use crate::nic::{Cx, Owner, Planned};
use crate::op::{Op, Pe};
use crate::packet::{Node, Packet, Payload};
use crate::placement::Placement;
use crate::time::Ps;
use std::collections::{BTreeMap, BTreeSet};

/// What has been planned for a moment.
#[derive(Debug)]
pub enum Due {
    /// A packet has turned round at SWIF.
    Turned(Packet),
    /// Bytes are in the NIC's memory.
    Land { address: u64, payload: Payload },
    /// The library's driver has switched the banks.
    Switched,
    /// A program has switched the banks, by this call.
    SwitchedFor(Op),
    /// A host's read samples the memory.
    Read { op: Op, at: u64, len: usize, end: Ps },
    /// A host's read samples the bank on the network's side.
    ReadAway { op: Op, at: u64, len: usize, end: Ps },
    /// The queue for which a process waits has room: a PE, or an agent.
    Room(Pe),
    /// The process has seen that.
    RoomSeen(Pe),
    /// The first look of a host that waits samples the memory.
    Look(Wait),
    /// The core processor has come to this call's update.
    Update { from: Node, op: Op },
    /// A member's arrival at a barrier lies in LLCM.
    Arrived { op: Op, group: u32 },
    /// The core processor announces that a phase of a barrier is complete.
    Announce { op: Op, group: u32 },
    /// An announcement lies in LLCM.
    Announced { group: u32, process: u32 },
    /// The slot has a request.
    Forward(Outgoing),
    /// A host has written one packet of a block, and goes on with the next.
    Write(Block),
    /// A PE's host has written all packets of a block.
    Written(Pe),
}

/// The NIC of one node.
pub struct Slot {
    pub users: Vec<User>,
    pub loop_back: LoopBack,
    /// The chipset by whose rule the NIC recovers addresses.
    pub recovers: Chipset,
    pub out: WayOut,
    pub htlb: Htlb,
    pub way_in: WayIn,
    pub core: CoreProcessor,
    pub receive_tlb: ReceiveTlb,
    /// Pages of segments that the receive TLB's table knows.
    pub registered: BTreeSet<SegmentPage>,
    pub frames: Frames,
    pub memory: NicMemory,
    /// Number of packets that were dropped, by reason.
    pub dropped: BTreeMap<Refusal, u64>,
    /// Hosts that look for a word that is not there yet.
    pub waits: Vec<Wait>,
    /// Writes that their PEs cannot see yet.
    pub held: Vec<Held>,
    /// Whether a switch of the banks is planned.
    pub switching: bool,
    /// When the last write of a node to a PE is shown. Only updates by the core processor ask for
    /// it.
    pub shown: BTreeMap<(Node, u32), Ps>,
}

/// The NICs of a machine.
pub struct MemorySlot {
    pub(super) is: Parameters,
    pub(super) slots: Vec<Slot>,
    pub(super) due: Planned<Due>,
    pub(super) groups: Groups,
    pub(super) updates: Updates,
    pub(super) placement: Placement,
    pub(super) pes: u32,
}

impl MemorySlot {
    /// Reads the sections `host`, `send` and `receive`.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn build(machine: &Machine, nodes: u32, pes: u32) -> Result<Self, MachineError> {
        let is = Parameters::read(machine)?;
        let user = |number| User::new(number, is.users, is.kick_pages(), is.htlb.sets);
        let slot = |_| Slot {
            users: (0..is.users).map(user).collect(),
            loop_back: LoopBack::Internal,
            recovers: is.chipset_rule,
            out: WayOut::default(),
            htlb: Htlb::new(is.htlb),
            way_in: WayIn::default(),
            core: CoreProcessor::default(),
            receive_tlb: ReceiveTlb::new(is.receive_tlb_entries),
            registered: BTreeSet::new(),
            frames: Frames::default(),
            memory: NicMemory::default(),
            dropped: BTreeMap::new(),
            waits: Vec::new(),
            held: Vec::new(),
            switching: false,
            shown: BTreeMap::new(),
        };
        let slots = (0..nodes).map(slot).collect();
        Ok(MemorySlot {
            slots,
            due: Planned::new(Owner::Nic),
            groups: Groups::default(),
            updates: Updates::default(),
            placement: Placement { per_node: is.users },
            is,
            pes,
        })
    }

    /// The node of a PE, if there is such a PE.
    pub(super) fn node_of(&self, pe: u32) -> Result<Node, String> {
        match pe < self.pes {
            true => Ok(self.placement.node(Pe(pe))),
            false => Err(format!("there is no PE {pe}")),
        }
    }

    /// The time of an AOTF message between the hosts of two nodes, which may be one.
    pub(super) fn message(&self, cx: &mut Cx<'_>, from: Node, to: Node) -> Ps {
        let is_inside = from == to && self.slots[from.index()].loop_back == LoopBack::Internal;
        let wire = self.is.wire_header + 8;
        let crossing = match is_inside {
            true => Some(Ps::ZERO),
            false => cx.network().crossing(from, to, wire),
        };
        // Where no way leads back, what says so is the packet that needs it.
        self.is.message(crossing.unwrap_or(self.is.link_delay))
    }

    /// The user that a call is of: a PE, also for its agent.
    pub(super) fn user(&mut self, op: Op) -> &mut User {
        let pe = op.pe.owner(self.pes);
        let node = self.placement.node(pe);
        &mut self.slots[node.index()].users[self.placement.place(pe)]
    }

    /// What is kept of the calls of a process: a PE, or an agent.
    pub(super) fn caller(&mut self, pe: Pe) -> &mut Caller {
        let is_agent = usize::from(pe.is_agent(self.pes));
        let pe = pe.owner(self.pes);
        let node = self.placement.node(pe);
        &mut self.slots[node.index()].users[self.placement.place(pe)].callers[is_agent]
    }

    pub(super) fn later(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, due: Due) {
        self.due.at(cx, at, node, due);
    }
}

impl Slot {
    /// The word that a host waits for, if it is there.
    pub fn satisfied(&mut self, wait: &Wait) -> Option<u64> {
        let mut word = [0; 8];
        let width = usize::from(wait.width);
        word[..width].copy_from_slice(&self.memory.read(Side::Host, wait.at, width));
        let word = u64::from_le_bytes(word);
        (word & wait.mask == wait.value).then_some(word)
    }
}
