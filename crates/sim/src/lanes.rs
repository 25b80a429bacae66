//! Virtual lanes: several queues for one link, and which of them goes next.
//!
//! A packet has a *service*: one of 16 levels, or subnet management. Every link maps levels to
//! lanes in the same way. Each lane has buffers of its own, so a packet that waits for room stops
//! its lane alone. The packets of a lane stay in order; those of two lanes may overtake each other.
//!
//! An arbiter at each port says which lane sends when the link is free, as InfiniBand does:
//!
//! ```text
//! 1. management, whose lane comes behind those of data, and never fills
//! 2. the high table, until `lanes.limit` bytes have gone by it while the low one waited
//! 3. one packet by the low table; then the count begins again
//! ```
//!
//! Both tables are weighted round robin: a lane that is in turn sends until as many bytes as its
//! weight have gone, the last packet whole. A lane that is not ready when others are loses the rest
//! of its weight.

use crate::machine::{Machine, MachineError};
use crate::packet::Service;
use std::sync::Arc;

/// Levels of service.
const LEVELS: usize = 16;
/// Lanes that data may have: one is left for management.
const MOST_OF_DATA: u64 = 15;
/// The most lanes of a link.
pub(crate) const MOST: usize = 16;

/// The bytes of the packet that each lane could start now.
pub(crate) type Ready = [Option<u64>; MOST];

/// The lanes of a machine's links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Whether there are several. Then management has one of its own, behind the others.
    several: bool,
    limit: u64,
    /// Bytes of each lane's turn in the high table; 0 for a lane that is not in it.
    high: Vec<u64>,
    low: Vec<u64>,
    /// The lane of each level.
    levels: [u8; LEVELS],
}

impl Lanes {
    /// One lane for all.
    fn one() -> Lanes {
        Lanes { several: false, limit: 0, high: vec![0], low: vec![1], levels: [0; LEVELS] }
    }

    /// Reads the section `lanes`, which machines of kind `infiniband` may have.
    pub(crate) fn read(machine: &Machine) -> Result<Lanes, MachineError> {
        let section = machine.section("lanes");
        if machine.kind() != "infiniband" || !section.has("count") {
            return Ok(Lanes::one());
        }
        let count = section.count_up_to("count", MOST_OF_DATA)? as usize;
        let (mut high, mut low) = (Vec::new(), Vec::new());
        for lane in 0..count {
            let of_lane = section.section(&lane.to_string());
            let weight = |table: &str| match of_lane.has(table) {
                true => of_lane.bytes(table),
                false => Ok(0),
            };
            let weights = (weight("high")?, weight("low")?);
            if weights == (0, 0) {
                let problem = format!(
                    "is missing or 0, and so is lanes.{lane}.low: lane {lane} would never send; give it a turn in one of the two tables"
                );
                return Err(of_lane.error("high", problem));
            }
            high.push(weights.0);
            low.push(weights.1);
        }
        let (limit, levels) = (section.bytes("limit")?, levels_of(machine, count)?);
        Ok(Lanes { several: true, limit, high, low, levels })
    }

    /// Whether there are several lanes.
    pub(crate) fn several(&self) -> bool {
        self.several
    }

    /// Number of lanes, with that of management.
    pub(crate) fn count(&self) -> usize {
        self.high.len() + usize::from(self.several)
    }

    /// Whether this is the lane of management.
    pub(crate) fn is_management(&self, lane: u8) -> bool {
        usize::from(lane) == self.high.len()
    }

    /// The lane of a service.
    pub(crate) fn of(&self, service: Service) -> u8 {
        match service {
            Service::Management if self.several => self.high.len() as u8,
            Service::Management => 0,
            Service::Level(level) => self.levels[usize::from(level)],
        }
    }
}

/// The lane of each level: its own, if there is such a lane, unless the machine says otherwise.
fn levels_of(machine: &Machine, count: usize) -> Result<[u8; LEVELS], MachineError> {
    let section = machine.section("lanes").section("service");
    let mut levels = [0; LEVELS];
    for (level, lane) in levels.iter_mut().enumerate() {
        let name = level.to_string();
        let own = if level < count { level as u64 } else { 0 };
        let given = if section.has(&name) { section.count(&name)? } else { own };
        if given >= count as u64 {
            let problem = format!("is lane {given}, and there are {count} from 0 on (lanes.count)");
            return Err(section.error(&name, problem));
        }
        *lane = given as u8;
    }
    Ok(levels)
}

/// Whose turn it is in a table.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    lane: usize,
    /// What is left of the lane's weight.
    left: u64,
}

impl Turn {
    /// The lane that is next: the one in turn, or else the first ready one behind it.
    fn next(&self, weights: &[u64], ready: &Ready) -> Option<usize> {
        let may = |lane: &usize| weights[*lane] > 0 && ready[*lane].is_some();
        let in_turn = Some(self.lane).filter(|lane| self.left > 0 && may(lane));
        let behind = (1..=weights.len()).map(|step| (self.lane + step) % weights.len());
        in_turn.or_else(|| behind.into_iter().find(may))
    }

    /// A lane sends.
    fn take(&mut self, lane: usize, weights: &[u64], bytes: u64) {
        if lane != self.lane || self.left == 0 {
            *self = Turn { lane, left: weights[lane] };
        }
        self.left = self.left.saturating_sub(bytes);
    }
}

/// Which lane of a link sends next.
#[derive(Debug, Clone)]
pub(crate) struct Arbiter {
    lanes: Arc<Lanes>,
    high: Turn,
    low: Turn,
    /// Bytes that have gone by the high table since the low one last had its turn, or had nothing
    /// to send.
    gone: u64,
}

impl Arbiter {
    pub(crate) fn new(lanes: Arc<Lanes>) -> Arbiter {
        Arbiter { lanes, high: Turn::default(), low: Turn::default(), gone: 0 }
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Has one of the ready lanes send. Returns which.
    pub(crate) fn pick(&mut self, ready: &Ready) -> Option<u8> {
        let lanes = &*self.lanes;
        let management = lanes.high.len();
        if ready.get(management).is_some_and(Option::is_some) {
            return Some(management as u8);
        }
        let (high, low) = (self.high.next(&lanes.high, ready), self.low.next(&lanes.low, ready));
        let bytes = |lane: usize| ready[lane].expect("a lane that is next is ready");
        if low.is_none() {
            self.gone = 0;
        }
        let is_highs = self.gone == 0 || self.gone < lanes.limit;
        if let Some(lane) = high.filter(|_| is_highs || low.is_none()) {
            self.high.take(lane, &lanes.high, bytes(lane));
            self.gone = self.gone.saturating_add(bytes(lane));
            return Some(lane as u8);
        }
        let lane = low?;
        self.low.take(lane, &lanes.low, bytes(lane));
        self.gone = 0;
        Some(lane as u8)
    }
}

#[cfg(test)]
mod tests;
