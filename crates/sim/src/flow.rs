//! Back-pressure and repeats: what the ends of a link keep, so that no buffer overflows and nothing
//! is missing that a link loses or damages.
//!
//! **Back-pressure** (`switch.buffer`). Each input of a switch has a buffer, a queue; where links
//! have [lanes](crate::lanes), one for each lane, and all of this is so in each lane. A packet
//! behind another one waits, also for a port that is free (head-of-line blocking). The sender of a
//! link counts the bytes in the buffer at its far end. A packet for which there is no room does not
//! start, and stops those behind it. What leaves the buffer is told back, which takes the link's
//! delay. A packet that is longer than the buffer starts when the buffer is empty.
//!
//! **Repeats** (`link.resend_buffer`) go back N. The sender keeps what it has sent until its
//! neighbour has acknowledged that. A neighbour that misses a packet, or gets a damaged one, knows
//! so at the end of the packet, says so, and discards what follows. The sender hears of it after
//! the link's delay, and sends that packet and all later ones again. What goes back on a link is
//! never lost.
//!
//! ```text
//! sender:     0  1  2  3  4  5       2  3  4  5  6        link.loss has hit 2
//! neighbour:     0  1  x  -  -  -       2  3  4  5  6
//!                      └── told back ──┘
//! ```
//!
//! [`crossing`](crate::crossing) has the events.

use crate::events::Token;
use crate::lanes::{Arbiter, Lanes};
use crate::machine::{Machine, MachineError};
use crate::time::Ps;
use std::collections::VecDeque;
use std::sync::Arc;

/// More would take for ever to get through, where links repeat what they lose.
const MOST_LOSS_REPAIRED: f64 = 0.9;
/// The same where nodes do: a packet crosses several links, and so does its answer. The ends of a
/// channel whose questions bring nothing, 1,024 in a row, count as stuck.
const MOST_LOSS: f64 = 0.6;

/// What links and switches do so that nothing is lost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flow {
    /// Bytes of each lane's buffer at each input of a switch. Without it buffers never fill.
    pub(crate) buffer: Option<u64>,
    /// Bytes that the sender of a link keeps. Without it nothing is repeated.
    pub(crate) resend: Option<u64>,
}

impl Flow {
    pub(crate) fn read(machine: &Machine, loss: f64, switches: bool) -> Result<Self, MachineError> {
        let (link, switch) = (machine.section("link"), machine.section("switch"));
        let resend = link.has("resend_buffer").then(|| link.bytes("resend_buffer")).transpose()?;
        let (most, whose) = match resend {
            Some(_) => (MOST_LOSS_REPAIRED, "links that repeat what they lose"),
            None => (MOST_LOSS, "links whose losses nodes make good (without link.resend_buffer)"),
        };
        if loss > most {
            return Err(link.error("loss", format!("is {loss}; {whose} lose at most {most}")));
        }
        let buffered = switches && switch.has("buffer");
        let buffer = buffered.then(|| switch.bytes("buffer")).transpose()?;
        Ok(Flow { buffer, resend })
    }

    /// The sending end of a link, where links need more than a time at which they are free.
    pub(crate) fn line(&self, lanes: &Arc<Lanes>) -> Option<Box<Line>> {
        let needed = self.buffer.is_some() || self.resend.is_some() || lanes.several();
        needed.then(|| Box::new(Line::new(lanes.clone())))
    }
}

/// A packet that has started on a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    pub(crate) flight: u32,
    pub(crate) lane: u8,
    pub(crate) bytes: u64,
    /// Whether it goes into a buffer at the far end.
    pub(crate) stored: bool,
}

/// A lane at the sending end of a link.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    /// Packets that wait for the link, with the time from which they do.
    pub(crate) waiting: VecDeque<(u32, Ps)>,
    /// Bytes in the lane's buffer at the far end, or on the way there.
    there: u64,
    /// Since when, and why, the first packet that waits must not start.
    pub(crate) stopped: Option<(Ps, &'static str)>,
}

impl Lane {
    /// These bytes have left the buffer at the far end.
    pub(crate) fn room(&mut self, bytes: u64) {
        self.there = self.there.checked_sub(bytes).expect("no more leaves a buffer than came");
    }
}

/// The sending end of a link.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) lanes: Vec<Lane>,
    /// Which lane is next.
    pub(crate) arbiter: Arbiter,
    /// Bytes that have not been acknowledged.
    kept: u64,
    /// What the neighbour has not got: what was lost or damaged, or came behind one that was.
    missing: Vec<Started>,
    /// Whether an event is due at the time at which the link is free.
    pub(crate) due: bool,
    /// Plans of a NIC for the moment at which fewer packets than this wait.
    pub(crate) plans: Vec<(usize, Token)>,
}

impl Line {
    fn new(lanes: Arc<Lanes>) -> Line {
        Line {
            lanes: vec![Lane::default(); lanes.count()],
            arbiter: Arbiter::new(lanes),
            kept: 0,
            missing: Vec::new(),
            due: false,
            plans: Vec::new(),
        }
    }

    /// Number of packets that wait for the link.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.waiting.len()).sum()
    }

    /// Why a lane's packet of so many bytes must not start now, if it must not. `stored` says
    /// whether it goes into a buffer at the far end.
    pub(crate) fn stops(
        &self,
        flow: Flow,
        lane: u8,
        bytes: u64,
        stored: bool,
    ) -> Option<&'static str> {
        let (there, fills) =
            (self.lanes[usize::from(lane)].there, !self.arbiter.lanes().is_management(lane));
        let full = |used: u64, size: Option<u64>| {
            size.is_some_and(|size| used > 0 && used.saturating_add(bytes) > size)
        };
        match (stored && fills && full(there, flow.buffer), full(self.kept, flow.resend)) {
            (true, _) => Some("no room"),
            (false, true) => Some("unacknowledged"),
            (false, false) => None,
        }
    }

    /// A packet starts.
    pub(crate) fn start(&mut self, flow: Flow, lane: u8, bytes: u64, stored: bool) {
        self.lanes[usize::from(lane)].there += if stored { bytes } else { 0 };
        self.kept += if flow.resend.is_some() { bytes } else { 0 };
    }

    /// The neighbour has acknowledged these bytes.
    pub(crate) fn acknowledged(&mut self, bytes: u64) {
        self.kept = self.kept.checked_sub(bytes).expect("no more is acknowledged than was sent");
    }

    /// Whether the neighbour discards what starts now.
    pub(crate) fn discards(&self) -> bool {
        !self.missing.is_empty()
    }

    /// The neighbour will not get this packet, which has started.
    pub(crate) fn miss(&mut self, started: Started) {
        self.missing.push(started);
    }

    /// The sender hears at `now` that a packet is missing: that one and all later ones wait again,
    /// before all others of their lanes. Returns their number.
    pub(crate) fn go_back(&mut self, now: Ps) -> u64 {
        let missing = std::mem::take(&mut self.missing);
        for &Started { flight, lane, bytes, stored } in missing.iter().rev() {
            self.acknowledged(bytes);
            let lane = &mut self.lanes[usize::from(lane)];
            if stored {
                lane.room(bytes);
            }
            lane.waiting.push_front((flight, now));
        }
        missing.len() as u64
    }
}

/// A lane's buffer at an input of a switch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    /// The packets in it, in the order of coming; the first one is being sent on.
    packets: VecDeque<Stored>,
    /// Copies of the first packet that have not left.
    pub(crate) copies: usize,
}

/// A packet in a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) flight: u32,
    pub(crate) bytes: u64,
    /// When the switch knows where to send it.
    pub(crate) ready: Ps,
}

impl Input {
    /// Takes a packet in. True, when it is the only one.
    pub(crate) fn put(&mut self, packet: Stored) -> bool {
        self.packets.push_back(packet);
        self.packets.len() == 1
    }

    pub(crate) fn first(&self) -> Option<Stored> {
        self.packets.front().copied()
    }

    /// A copy of the first packet has left. Returns the packet's bytes, when it was the last copy.
    pub(crate) fn left(&mut self) -> Option<u64> {
        self.copies -= 1;
        (self.copies == 0).then(|| self.packets.pop_front().expect("it was in the buffer").bytes)
    }

    /// The first packet goes nowhere.
    pub(crate) fn drop_first(&mut self) -> u64 {
        self.packets.pop_front().expect("it was in the buffer").bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buffer of a lane fills by that lane's packets alone, and management's never does.
    #[test]
    fn each_lane_has_its_own_buffer() {
        let machine = Machine::load("dimmnet-2/lanes").unwrap();
        let flow = Flow::read(&machine, 0.0, true).unwrap();
        let mut line = flow.line(&Arc::new(Lanes::read(&machine).unwrap())).unwrap();
        let (buffer, management) = (flow.buffer.unwrap(), 2);
        for lane in [0, management] {
            assert_eq!(line.stops(flow, lane, buffer, true), None);
            line.start(flow, lane, buffer, true);
        }
        let stops: Vec<_> = (0..3).map(|lane| line.stops(flow, lane, 1, true)).collect();
        assert_eq!(stops, [Some("no room"), None, None]);
        assert_eq!(line.stops(flow, 0, 1, false), None, "it goes into no buffer");
        line.lanes[0].room(1);
        assert_eq!(line.stops(flow, 0, 1, true), None);
    }
}
