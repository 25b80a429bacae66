//! What is recorded: every stage that took time, for whom and by what.

mod chrome;

use crate::host::{Op, Pe};
use crate::packet::Node;
use crate::time::Ps;
use std::io::{self, Write};

/// Who was busy. A track of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// The program of a PE, and the software under it.
    Pe(Pe),
    /// The software that stands in for hardware on a PE's host.
    Agent(Pe),
    /// A part of a node's NIC, by its name.
    Nic(Node, &'static str),
    /// A link, from the node or switch and its port that send on it.
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

/// A stage that took time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Who.
    pub track: Track,
    /// What: the name of the machine file's parameter where there is one.
    pub name: &'static str,
    /// For which call.
    pub op: Op,
    /// From when,
    pub start: Ps,
    /// until when.
    pub end: Ps,
}

/// Collects stages while it is told to.
#[derive(Debug, Default)]
pub struct Recorder {
    on: bool,
    stages: Vec<Stage>,
}

impl Recorder {
    /// Begins, or ends, to keep what it is told. Costs nothing while it is off.
    pub fn keep(&mut self, on: bool) {
        self.on = on;
    }

    /// Tells of a stage.
    #[inline]
    pub fn stage(&mut self, stage: Stage) {
        if self.on && stage.start != stage.end {
            self.stages.push(stage);
        }
    }

    /// What was kept, in the order of telling.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Forgets what was kept.
    pub fn clear(&mut self) {
        self.stages.clear();
    }

    /// The time that each stage of a call took, in the order in which they began; a stage that came
    /// more than once is summed.
    pub fn breakdown(&self, op: Op) -> Vec<(&'static str, Ps)> {
        let mut stages: Vec<&Stage> = self.stages.iter().filter(|stage| stage.op == op).collect();
        stages.sort_by_key(|stage| stage.start);
        let mut sums: Vec<(&'static str, Ps)> = Vec::new();
        for stage in stages {
            let time = stage.end - stage.start;
            match sums.iter_mut().find(|(name, _)| *name == stage.name) {
                Some((_, sum)) => *sum += time,
                None => sums.push((stage.name, time)),
            }
        }
        sums
    }

    /// Writes a timeline in Chrome's trace format, which Perfetto opens.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_chrome(&self, out: &mut impl Write) -> io::Result<()> {
        chrome::write(&self.stages, out)
    }
}

impl std::fmt::Display for Track {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Track::Pe(pe) => write!(f, "PE {}", pe.0),
            Track::Agent(pe) => write!(f, "agent of PE {}", pe.0),
            Track::Nic(node, part) => write!(f, "NIC {} {part}", node.0),
            Track::Link(Place::Node(node), port) => {
                write!(f, "link from node {} port {port}", node.0)
            }
            Track::Link(Place::Switch(switch), port) => {
                write!(f, "link from switch {switch} port {port}")
            }
            Track::Port(switch, port) => write!(f, "switch {switch} port {port}"),
        }
    }
}
