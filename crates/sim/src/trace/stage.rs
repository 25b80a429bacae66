//! Stages: who was busy, with what, for which call, and when.

use crate::op::{Op, Pe};
use crate::packet::Node;
use crate::time::Ps;

/// A track of the timeline: what was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// The program of a PE, and the software under it.
    Pe(Pe),
    /// The software that stands in for hardware on a PE's host.
    Agent(Pe),
    /// A part of a node's NIC, by its name.
    Nic(Node, &'static str),
    /// A link, by the node or switch that sends on it, and the port there.
    Link(Place, u16),
    /// An output port of a switch.
    Port(u32, u16),
}

/// A node or a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A node.
    Node(Node),
    /// A switch.
    Switch(u32),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Node(node) => write!(f, "node {}", node.0),
            Place::Switch(switch) => write!(f, "switch {switch}"),
        }
    }
}

/// A stage that took time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// What was busy.
    pub track: Track,
    /// The stage's name: that of the machine file's parameter, where there is one.
    pub name: &'static str,
    /// The call that the stage was for.
    pub op: Op,
    /// When the stage began.
    pub start: Ps,
    /// When the stage ended.
    pub end: Ps,
}

impl std::fmt::Display for Track {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Track::Pe(pe) => write!(f, "PE {}", pe.0),
            Track::Agent(pe) => write!(f, "agent of PE {}", pe.0),
            Track::Nic(node, part) => write!(f, "NIC {} {part}", node.0),
            Track::Link(place, port) => write!(f, "link from {place} port {port}"),
            Track::Port(switch, port) => write!(f, "switch {switch} port {port}"),
        }
    }
}
