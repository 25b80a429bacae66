//! What one line of the table is, and how long it is measured.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub id: String,
    /// Name of the row's specification in the catalog.
    pub spec: String,
    /// PEs of the job that measures it; in a bench of several hosts, of each host.
    pub pes: usize,
    /// Bytes of one operation, 0 where that means nothing.
    pub size: usize,
}

/// Where the PEs of a job on several hosts are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ground {
    /// Hosts, with equally many PEs each.
    pub hosts: usize,
    /// The network interface that the user has chosen.
    pub interface: Option<String>,
}

/// How long something is measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Effort {
    /// Rounds in which memonet and its limits take turns.
    pub rounds: usize,
    /// Whether fewer rounds suffice where a round takes long.
    pub quick: bool,
    /// CPUs that the PEs of a host may use together. A PE that is bound sees its own alone.
    pub cpus: usize,
}

/// A quick row that has lasted so long begins no further round: on a loaded machine, a round may
/// take seconds.
const QUICK_ROW: Duration = Duration::from_millis(200);
/// A quick sample has this part of the operations of a whole one.
const QUICK_PART: usize = 8;

impl Effort {
    /// Whether a row that has had a round, and that began at `begun`, needs no further one.
    pub fn is_spent(self, begun: Instant) -> bool {
        self.quick && begun.elapsed() > QUICK_ROW
    }

    /// How many operations a sample has that has `operations` when the bench is not quick.
    pub fn of(self, operations: usize) -> usize {
        if self.quick { operations.div_ceil(QUICK_PART) } else { operations }
    }
}
