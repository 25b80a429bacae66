//! Which PEs of a job on one machine count as near, for fabrics that are tried out there.

use super::record::Record;
use crate::base::layout::MAX_PES;

/// Nodes that a job on one machine is divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mixture {
    /// PEs of each node but the last, which are near to each other; 0: all are far.
    pub nodes: usize,
    /// Whether PEs are dealt out to nodes in turn, rather than in runs.
    pub deal: bool,
    /// CPUs of every other node, from the second on; 0: as many as the others have.
    pub cpus: usize,
}

impl Mixture {
    /// Takes the setting if it is one of these; false where it is not, or cannot be.
    pub fn set(&mut self, key: &str, number: u64) -> bool {
        let possible = number <= MAX_PES as u64;
        match key {
            "nodes" if possible => self.nodes = number as usize,
            "deal" => self.deal = number != 0,
            "cpus" if possible => self.cpus = number as usize,
            _ => return false,
        }
        true
    }

    /// The nodes of a job of so many PEs, on a machine with so many CPUs.
    pub fn record(&self, npes: usize, cpus: usize) -> Record {
        if self.nodes == 0 {
            return Record::all_far();
        }
        let count = npes.div_ceil(self.nodes);
        let node = |pe: usize| if self.deal { pe % count } else { pe / self.nodes };
        let node_of: Vec<u32> = (0..npes).map(|pe| node(pe) as u32).collect();
        let other = if self.cpus == 0 { cpus } else { self.cpus };
        let cpus: Vec<usize> = (0..count).map(|n| if n % 2 == 0 { cpus } else { other }).collect();
        Record::nodes(&node_of, &cpus)
    }
}

/// Reads settings such as `delay_us=50,nodes=2` and gives each to `set`, which says whether it
/// takes it; or says what is wrong with them.
///
/// # Errors
/// A setting that is not taken, or is no number.
pub fn parse(
    settings: &str,
    mut set: impl FnMut(&str, u64) -> bool,
) -> std::result::Result<(), String> {
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("has a setting without a value ({setting:?})"))?;
        let number = value.parse().map_err(|_| format!("has {key}={value:?}, not a number"))?;
        if !set(key, number) {
            return Err(format!("has an unknown or absurd setting {setting:?}"));
        }
    }
    Ok(())
}
