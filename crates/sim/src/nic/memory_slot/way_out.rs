//! The way out of one NIC: its queues and units.

use super::header::Header;
use crate::host::Signal;
use crate::nic::Unit;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;
use std::collections::VecDeque;

/// A queue of requests in the NIC, each by the time at which it leaves.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    leave: VecDeque<Ps>,
    /// Requests that hosts have written, and that have not come yet.
    coming: usize,
}

impl Waiting {
    /// When the queue, of this `capacity`, has room for a request that comes at `at`.
    pub fn room(&mut self, at: Ps, capacity: usize) -> Ps {
        while self.leave.front().is_some_and(|&leaves| leaves <= at) {
            self.leave.pop_front();
        }
        // Requests leave in order, so those that must leave first stand at the front. One that is
        // still to come leaves after them, nobody knows when.
        match (self.leave.len() + self.coming).checked_sub(capacity) {
            None => at,
            Some(too_many) => {
                self.leave.get(too_many).or(self.leave.back()).map_or(at, |&left| left)
            }
        }
    }

    /// A host has written a request.
    pub fn expect(&mut self) {
        self.coming += 1;
    }

    /// Puts in an expected request, which leaves at `leaves`.
    pub fn push(&mut self, leaves: Ps) {
        self.coming -= 1;
        self.leave.push_back(leaves);
    }
}

/// The queues and units of the way out of one NIC.
#[derive(Debug, Clone, Default)]
pub struct WayOut {
    pub aotf: Waiting,
    pub botf: Waiting,
    pub transaction: Unit,
    /// The HTLB, and the stages between it and SWIF.
    pub lookup: Unit,
    pub swif: Unit,
    pub dma: Unit,
}

/// The queue that a request comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    Aotf,
    Botf,
    /// No queue: remote DMA.
    Inside,
}

/// A packet on its way out.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub node: Node,
    pub op: Op,
    pub through: Through,
    /// Whether the HTLB had to fetch the page.
    pub missed: bool,
    pub header: Header,
    pub payload: Payload,
}

/// The packets of a block that a host has still to write, and the signal behind them.
#[derive(Debug)]
pub struct Block {
    pub op: Op,
    pub packets: VecDeque<(Header, Payload)>,
    pub signal: Option<Signal>,
}
