//! The type of an entry in the table: what all rows of one name have in common.

use anyhow::Result;

use memonet_core::unstable::launch::available_cpus;

use super::hosts::Hosts;
use super::row::{Effort, Row};
use super::stats::{Better, Record, Sample};
use super::toolkit::Bench;

/// What rows measure, what their limit is, and how both are measured. One job measures all rows of
/// a specification that have equally many PEs.
pub struct Spec {
    /// The first part of the rows' ids.
    pub name: &'static str,
    pub unit: &'static str,
    /// Whether higher values are better, or lower ones.
    pub better: Better,
    /// The row of the OSU micro-benchmarks that measures the same thing, or `-`.
    pub osu: &'static str,
    /// What is measured, in a few words.
    pub what: &'static str,
    /// What bounds it on any machine, and is measured in turns with it; `-` where there is no such
    /// thing.
    pub limit: &'static str,
    /// The rows that it stands for.
    pub variants: Variants,
    pub rounds: Rounds,
    pub measure: Measure,
    pub special: Special,
}

/// The rows of a specification. What distinguishes them ends their id.
#[derive(Clone, Copy)]
pub enum Variants {
    Single {
        pes: usize,
        size: usize,
    },
    /// One row for each size in bytes.
    Sizes {
        pes: usize,
        sizes: &'static [usize],
    },
    /// One row for each number of PEs; between hosts, of PEs of each host.
    Pes {
        pes: &'static [usize],
        size: usize,
    },
    /// Powers of two of PEs, up to 32 or to one for each CPU, whichever is more.
    PesUpToCpus,
    /// One row with this number of waiting PEs, and one more PE that ends the wait.
    Waiters(usize),
    /// One row for each pair of PEs, between hosts of each host, and bytes.
    PesAndSizes(&'static [(usize, usize)]),
}

/// Rounds in which memonet and its limits take turns.
#[derive(Clone, Copy)]
pub struct Rounds {
    pub full: usize,
    pub quick: usize,
}

/// The function that measures.
#[derive(Clone, Copy)]
pub enum Measure {
    /// The PEs of a job measure the rows together.
    Pes(fn(&mut Bench<'_>, &[Row]) -> Result<()>),
    /// As for [`Pes`](Self::Pes); and each PE measures `before` it joins, for `after` to compare.
    Joining { before: fn() -> Result<f64>, after: fn(&mut Bench<'_>, &[Row], f64) -> Result<()> },
    /// A process of its own takes each sample: nothing else has touched its memory.
    Process(fn(&Row, round: usize, Effort) -> Result<Sample>),
    /// The process of the command measures.
    Here(fn(&[Row], Effort) -> Result<Vec<Record>>),
    /// The PEs of a job on all hosts measure the rows together.
    PesOnHosts(fn(&mut Bench<'_>, &[Row]) -> Result<()>),
    /// The PEs of a job on all hosts and those of a job on the first host alone measure, in turns:
    /// the second is the limit of the first.
    WithAndWithoutFar(fn(&mut Bench<'_>, &[Row]) -> Result<()>),
    /// The process of the command measures jobs on these hosts.
    Hosts(fn(&Hosts, &[Row], Effort) -> Result<Vec<Record>>),
}

/// Properties of few rows; [`PLAIN`] for all others.
pub struct Special {
    /// The surroundings of the job.
    pub setting: Setting,
    /// The limits are of different kinds: the best does not stand for the others, and the table
    /// shows the ratio to each.
    pub has_unlike_limits: bool,
    /// The value of the row is the sum of what the PEs measure.
    pub sums_pes: bool,
    /// With more PEs than this, one sample takes most of a minute.
    pub most_quick_pes: usize,
}

pub const PLAIN: Special = Special {
    setting: Setting::Plain,
    has_unlike_limits: false,
    sums_pes: false,
    most_quick_pes: usize::MAX,
};

/// The surroundings of a job that measures.
#[derive(Clone, Copy)]
pub enum Setting {
    Plain,
    /// A busy process on each CPU.
    Interference,
    /// With this variable set, name and value.
    Variable(fn() -> (String, String)),
    /// On this simulated machine.
    Machine(&'static str),
}

impl Spec {
    /// How long the rows are measured.
    pub fn effort(&self, quick: bool) -> Effort {
        let Rounds { full, quick: few } = self.rounds;
        Effort { rounds: if quick { few } else { full }, quick, cpus: available_cpus() }
    }

    /// The rows of this specification, in the order of the table.
    pub fn rows(&self, cpus: usize) -> Vec<Row> {
        let row = |suffix: String, pes, size| Row {
            id: format!("{}{suffix}", self.name),
            spec: self.name.into(),
            pes,
            size,
        };
        let pes_only = |pes: usize, size| row(format!(".{pes}"), pes, size);
        match self.variants {
            Variants::Single { pes, size } => vec![row(String::new(), pes, size)],
            Variants::Sizes { pes, sizes } => {
                sizes.iter().map(|&size| row(format!(".{size}"), pes, size)).collect()
            }
            Variants::Pes { pes, size } => pes.iter().map(|&pes| pes_only(pes, size)).collect(),
            Variants::PesUpToCpus => {
                let powers = (1..).map(|power| 1 << power);
                powers.take_while(|&pes| pes <= cpus.max(32)).map(|pes| pes_only(pes, 0)).collect()
            }
            Variants::Waiters(pes) => vec![row(format!(".{pes}"), pes + 1, 0)],
            Variants::PesAndSizes(pairs) => {
                pairs.iter().map(|&(pes, size)| row(format!(".{pes}.{size}"), pes, size)).collect()
            }
        }
    }
}
