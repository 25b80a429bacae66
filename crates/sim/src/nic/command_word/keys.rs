//! Access keys of a process's memory: those that its NIC compares with the keys of packets, and
//! those that its own command words carry.
//!
//! A packet is admitted by the receive area that touches its range, the last made of those, or,
//! where none does, by the keys of its region. A part of a restricted window has the keys of its
//! grants. It has several while rights that were revoked may still be in use.

use crate::op::Pe;
use std::collections::BTreeMap;
use std::ops::Range;

/// A receive area of the program's.
#[derive(Debug, Clone)]
pub(super) struct Area {
    pub(super) region: u32,
    pub(super) range: Range<u64>,
    pub(super) key: u32,
}

/// The keys of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    areas: Vec<Area>,
    /// Keys that regions of this process admit; those without have the job's.
    admitted: BTreeMap<u32, Vec<u32>>,
    /// Keys that the library's words to regions of PEs carry; others carry the job's.
    carried: BTreeMap<(u32, u32), u32>,
}

impl Keys {
    pub(super) fn allow(&mut self, area: Area) {
        self.areas.push(area);
    }

    /// Has the library's words to a region of a PE carry a key.
    pub(super) fn carry(&mut self, pe: u32, region: u32, key: u32) {
        self.carried.insert((pe, region), key);
    }

    /// Has a region of this process admit a key, beside others or alone. Whether that is new.
    pub(super) fn admit_new(&mut self, region: u32, key: u32, only: bool) -> bool {
        let keys = self.admitted.entry(region).or_default();
        let before = keys.clone();
        keys.retain(|&old| !only && old != key);
        keys.push(key);
        *keys != before
    }

    /// The key that the library's words to a region of a PE carry.
    pub(super) fn carried(&self, pe: u32, region: u32) -> u32 {
        self.carried.get(&(pe, region)).copied().unwrap_or_else(|| job_key(pe, region))
    }

    /// Whether this key allows writes to all of a range of the memory of `pe`, whose keys these
    /// are. Without a key it is the process itself that writes, and all but receive areas allow
    /// that.
    pub(super) fn admit(&self, pe: Pe, region: u32, range: Range<u64>, key: Option<u32>) -> bool {
        let touching = |area: &&Area| {
            area.region == region && area.range.start < range.end && range.start < area.range.end
        };
        match (self.areas.iter().rev().find(touching), self.admitted.get(&region)) {
            (Some(Area { range: all, key: its, .. }), _) => {
                all.start <= range.start && range.end <= all.end && Some(*its) == key
            }
            (None, Some(keys)) => key.is_none_or(|key| keys.contains(&key)),
            (None, None) => key.is_none_or(|key| key == job_key(pe.0, region)),
        }
    }
}

/// The job's key of a region. It differs from PE to PE.
fn job_key(pe: u32, region: u32) -> u32 {
    (pe ^ region.rotate_left(16)).wrapping_mul(0x9E37_79B1) ^ 0x5201
}
