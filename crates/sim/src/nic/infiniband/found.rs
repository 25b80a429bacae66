//! What a manager has found of the subnet, and how far it is.

use super::management::DATA_BYTES;
use super::topology::Topology;
use crate::packet::Node;
use std::collections::{BTreeMap, BTreeSet};

/// What a table of routes has for a LID without a port.
pub const NO_PORT: u8 = 0xff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Finding,
    Naming,
    Routing,
    /// The subnet is up.
    Settled,
}

/// What a manager has found.
#[derive(Debug)]
pub struct Discovery {
    pub phase: Phase,
    pub topology: Topology,
    /// Tables of routes as the switches have them, as far as the manager knows: a port for each
    /// LID.
    pub routes: BTreeMap<u32, Vec<u8>>,
    /// Blocks of multicast tables that may be older than they should be.
    pub stale: BTreeSet<(u32, u32)>,
    /// Whether nodes are to tell their groups once more.
    pub asks_for_groups: bool,
    /// Whether somebody did not answer, so that everything is to be found anew.
    pub doubts: bool,
    /// The node of the master, for a standby.
    pub standby_of: Option<Node>,
    /// Whether groups are to be connected and told.
    pub regroups: bool,
}

impl Discovery {
    /// A block of a switch's table of routes.
    pub fn block(&self, switch: u32, block: u32) -> [u8; DATA_BYTES] {
        let table = self.routes.get(&switch).map_or(&[][..], Vec::as_slice);
        let (blocks, _) = table.as_chunks();
        blocks.get(block as usize).copied().unwrap_or([NO_PORT; DATA_BYTES])
    }
}
