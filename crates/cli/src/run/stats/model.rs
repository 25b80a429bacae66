//! What is told of a run, in a form that goes to files and from host to host.

use anyhow::Result;
use memonet_core::unstable::recorder::Kind;
use memonet_core::unstable::recorder::file::{CallCount, Counts, ObjectCount, OperationCount};
use serde::{Deserialize, Serialize};

/// Raised with every change that a reader of the JSON could misread.
const VERSION: u32 = 1;

/// What a run has done.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// PEs of the job.
    pub npes: usize,
    /// Whether times are those of a simulated machine.
    pub simulated: bool,
    /// The report of that machine, line by line.
    pub machine: Vec<String>,
    /// The kinds of operations.
    pub kinds: Vec<&'static str>,
    /// The PEs that have recorded anything, by number.
    pub pes: Vec<PeStats>,
}

/// What a PE has done.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeStats {
    pub pe: usize,
    pub calls: Vec<Call>,
    pub operations: Vec<Operation>,
    pub objects: Vec<Object>,
}

/// The calls of one name.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub name: String,
    pub calls: u64,
    pub nanos: u64,
    pub waits: u64,
    pub wait_nanos: u64,
}

/// The operations of one kind on one target.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub target: usize,
    pub kind: String,
    pub operations: u64,
    pub bytes: u64,
}

/// A shared object, or an end of a channel.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub object: String,
    pub number: usize,
    pub uses: u64,
    pub hits: u64,
    pub handovers: u64,
    pub messages: u64,
    pub bytes: u64,
}

impl PeStats {
    pub fn of(pe: usize, counts: Counts) -> PeStats {
        let call = |call| {
            let CallCount { name, calls, nanos, waits, wait_nanos } = call;
            Call { name, calls, nanos, waits, wait_nanos }
        };
        let operation = |count| {
            let OperationCount { target, kind, operations, bytes } = count;
            Operation { target, kind: kind.name().into(), operations, bytes }
        };
        let object = |(number, ObjectCount { kind, stats })| Object {
            object: kind.name().into(),
            number,
            uses: stats.uses,
            hits: stats.hits,
            handovers: stats.handovers,
            messages: stats.messages,
            bytes: stats.bytes,
        };
        PeStats {
            pe,
            calls: counts.calls.into_iter().map(call).collect(),
            operations: counts.operations.into_iter().map(operation).collect(),
            objects: counts.objects.into_iter().enumerate().map(object).collect(),
        }
    }

    /// What an agent has told of its PEs, which are those of `pes`, of a job of `npes`.
    pub fn decode(bytes: &[u8], pes: std::ops::Range<usize>, npes: usize) -> Result<Vec<PeStats>> {
        let mut all: Vec<PeStats> = serde_json::from_slice(bytes)?;
        all.retain(|told| pes.contains(&told.pe));
        for told in &mut all {
            told.operations.retain(|operation| operation.target < npes);
        }
        Ok(all)
    }

    /// Operations, and their bytes.
    pub fn operations(&self) -> [u64; 2] {
        let count = |sum: [u64; 2], one: &Operation| {
            [sum[0].saturating_add(one.operations), sum[1].saturating_add(one.bytes)]
        };
        self.operations.iter().fold([0; 2], count)
    }

    /// Nanoseconds in calls, and in waits.
    pub fn nanos(&self) -> [u64; 2] {
        let count = |sum: [u64; 2], one: &Call| {
            [sum[0].saturating_add(one.nanos), sum[1].saturating_add(one.wait_nanos)]
        };
        self.calls.iter().fold([0; 2], count)
    }
}

impl Report {
    /// Of a job of `npes`, with the report of its simulated machine, if it ran on one.
    pub fn new(npes: usize, mut pes: Vec<PeStats>, machine: Option<&str>) -> Report {
        pes.sort_by_key(|told| told.pe);
        Report {
            version: VERSION,
            npes,
            simulated: machine.is_some(),
            machine: machine.unwrap_or_default().lines().map(str::to_owned).collect(),
            kinds: Kind::ALL.iter().map(|kind| kind.name()).collect(),
            pes,
        }
    }

    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// The calls of all PEs, by name, those first in which most time was spent.
    pub fn calls(&self) -> Vec<Call> {
        let mut all = std::collections::BTreeMap::<&str, Call>::new();
        for call in self.pes.iter().flat_map(|told| &told.calls) {
            let sum = all.entry(&call.name).or_default();
            sum.name.clone_from(&call.name);
            sum.calls = sum.calls.saturating_add(call.calls);
            sum.nanos = sum.nanos.saturating_add(call.nanos);
            sum.waits = sum.waits.saturating_add(call.waits);
            sum.wait_nanos = sum.wait_nanos.saturating_add(call.wait_nanos);
        }
        let mut all: Vec<Call> = all.into_values().collect();
        all.sort_by_key(|call| std::cmp::Reverse(call.nanos));
        all
    }
}
