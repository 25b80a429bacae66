//! The processes that a bench starts: this program again, with a part to play.

use std::os::fd::RawFd;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::row::{Effort, Ground, Row};

/// What a process of the bench does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Part {
    /// A PE of the job that measures `rows`, all of one specification. It appends what it has
    /// measured to the file behind the descriptor `records`.
    Pe { rows: Vec<Row>, effort: Effort, records: RawFd },
    /// The same on several hosts. It writes what it has measured to standard output.
    PeOnHosts { rows: Vec<Row>, effort: Effort, ground: Ground },
    /// Keeps a CPU busy until `parent` is gone.
    Interference { cpu: usize, parent: u32 },
    /// Joins its job and ends.
    Join,
    /// Takes one sample and writes it to standard output.
    Sample { row: Row, round: usize, effort: Effort },
}

/// First argument of the processes that a bench starts. The parser of the command line never sees
/// it: the pages that the parser touches would count as memory of a PE.
const PART: &str = "bench-part";

impl Part {
    /// The arguments that make this program play the part.
    pub fn arguments(&self) -> Result<[String; 2]> {
        Ok([PART.into(), serde_json::to_string(self)?])
    }

    /// The part that this process was started for, if a bench started it.
    pub fn of_this_process() -> Option<Result<Self>> {
        let mut args = std::env::args_os().skip(1);
        (args.next()? == PART).then(|| {
            let task = args.next().unwrap_or_default();
            Ok(serde_json::from_str(&task.to_string_lossy())?)
        })
    }
}
