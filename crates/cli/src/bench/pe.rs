//! The side of the bench that runs in the PEs: rounds, clocks, and the way back of the samples.

use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use anyhow::{Context, Result};
use memonet::{Job, Window};
use serde::{Deserialize, Serialize};

use super::catalog::{Effort, Kind, Row};
use super::stats::{LIBRARY, Record, thin};
use super::{barriers, blocks, collectives, handover, multicast, shared, waits, words};

/// Values kept of one PE's samples of one series in one round.
const KEPT: usize = 200;

/// What the PEs are told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// The rows to measure, all of one kind.
    pub rows: Vec<Row>,
    pub effort: Effort,
    /// Descriptor of the file that takes the records.
    pub records: RawFd,
}

/// Entry point of a PE.
pub fn run(task: &Task) -> Result<()> {
    let rows = &task.rows;
    let kind = rows[0].kind;
    let before = (kind == Kind::Memory).then(waits::resident_kib).transpose()?;
    let job = memonet::init()?;
    let mut bench = Bench { job: &job, effort: task.effort, ended: None, records: Vec::new() };
    match kind {
        Kind::PingPong => words::ping_pong(&mut bench, rows)?,
        Kind::StoreRate => words::store_rate(&mut bench, rows)?,
        Kind::PutNbiRate => words::put_nbi_rate(&mut bench, rows)?,
        Kind::FetchAdd => words::fetch_add(&mut bench, rows)?,
        Kind::PutSignal => blocks::put_signal(&mut bench, rows)?,
        Kind::PutBandwidth => blocks::bandwidth(&mut bench, rows, blocks::Direction::Put)?,
        Kind::GetBandwidth => blocks::bandwidth(&mut bench, rows, blocks::Direction::Get)?,
        Kind::Barrier | Kind::BarrierBusy => barriers::measure(&mut bench, rows, kind)?,
        Kind::Broadcast | Kind::AllReduce => collectives::measure(&mut bench, rows, kind)?,
        Kind::MulticastLatency
        | Kind::MulticastRate
        | Kind::MulticastBandwidth
        | Kind::MulticastInPlace
        | Kind::MulticastUdp => {
            multicast::measure(&mut bench, rows, kind)?;
        }
        Kind::Mutex | Kind::MutexContended => shared::mutex(&mut bench, rows, kind)?,
        Kind::MutexKept => shared::kept(&mut bench, rows)?,
        Kind::RegionMerge => shared::merge(&mut bench, rows)?,
        Kind::WaitCpu | Kind::WaitStoreLatency => waits::plain_store(&mut bench, rows, kind)?,
        Kind::WaitSignalLatency => waits::signal(&mut bench, rows)?,
        Kind::Memory => waits::memory(&mut bench, rows, before.unwrap_or_default())?,
        Kind::SimulatedCall => handover::measure(&mut bench, rows)?,
        // Not by PEs.
        Kind::Startup
        | Kind::MutexHandOver
        | Kind::MutexFetched
        | Kind::SimulatedEvents
        | Kind::SimulatedBarrier
        | Kind::SimulatedBarrierMemory => {}
    }
    let records = bench.records;
    send(task.records, &records).context("cannot hand the samples to `memonet bench`")?;
    job.barrier()?;
    Ok(())
}

/// One line of JSON per record, all in one write: the file is in append mode, so PEs do not mix.
fn send(records_fd: RawFd, records: &[Record]) -> Result<()> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record)?;
        lines.push(b'\n');
    }
    // SAFETY: the parent opened the descriptor for this process, and nothing else here uses it.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(records_fd) });
    file.write_all(&lines)?;
    Ok(())
}

/// The measurement of one job's rows, in one PE.
pub struct Bench<'a> {
    pub job: &'a Job,
    pub effort: Effort,
    /// By how many rows PE 0 has said that they are over, made when it is needed.
    ended: Option<(Window<u64>, u64)>,
    records: Vec<Record>,
}

/// One way to do what a row measures.
pub struct Contender<'a> {
    series: String,
    /// Returns samples in the row's unit; none where this PE only takes part.
    run: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

impl<'a> Contender<'a> {
    pub fn library(run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { series: LIBRARY.into(), run: Box::new(run) }
    }

    pub fn limit(series: impl Into<String>, run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { series: series.into(), run: Box::new(run) }
    }
}

impl Bench<'_> {
    /// Lets the contenders run in turns, so that what disturbs the machine disturbs all alike;
    /// every other round backwards, so that none always comes first.
    pub fn interleave(&mut self, row: &Row, contenders: &mut [Contender<'_>]) -> Result<()> {
        let begun = Instant::now();
        for round in 0..self.effort.rounds {
            // The time of a simulated machine is not the user's.
            if round > 0 && row.kind != Kind::SimulatedCall && self.is_over(begun)? {
                break;
            }
            for turn in 0..contenders.len() {
                let contender = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
                let Contender { series, run } = &mut contenders[contender];
                self.job.barrier()?;
                let values = run()?;
                self.record(row, series, round, values);
            }
        }
        if let Some((_, rows)) = &mut self.ended {
            *rows += 1;
        }
        self.job.barrier()?;
        Ok(())
    }

    /// Whether a row that was begun then needs no further round. PE 0 looks at its clock, and tells
    /// all others before a barrier.
    fn is_over(&mut self, begun: Instant) -> Result<bool> {
        if !self.effort.quick {
            return Ok(false);
        }
        if self.ended.is_none() {
            self.ended = Some((self.job.window(1)?, 0));
        }
        let Some((window, rows)) = &self.ended else { return Ok(false) };
        if self.job.pe() == 0 && self.effort.is_spent(begun) {
            for pe in 0..self.job.npes() {
                window.put_one(pe, 0, rows + 1)?;
            }
        }
        self.job.barrier()?;
        Ok(window.read(0) == rows + 1)
    }

    /// Keeps samples until the end: writing them meanwhile would disturb.
    pub fn record(&mut self, row: &Row, series: &str, round: usize, values: Vec<f64>) {
        if !values.is_empty() {
            let values = thin(values, KEPT);
            self.records.push(Record {
                row: row.id.clone(),
                series: series.into(),
                pe: self.job.pe(),
                round,
                values,
            });
        }
    }
}

/// Nanoseconds per operation of `batches` batches, after one that only warms up.
#[inline(always)]
pub fn time_batches(
    batches: usize,
    operations: usize,
    mut batch: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<f64>> {
    batch(operations)?;
    let mut samples = Vec::with_capacity(batches);
    for _ in 0..batches {
        let start = Instant::now();
        batch(operations)?;
        samples.push(start.elapsed().as_nanos() as f64 / operations as f64);
    }
    Ok(samples)
}

/// As [`time_batches`], for loops of single operations.
#[inline(always)]
pub fn time_each(
    batches: usize,
    operations: usize,
    mut operation: impl FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    time_batches(batches, operations, |count| {
        for _ in 0..count {
            operation()?;
        }
        Ok(())
    })
}

/// Turns nanoseconds per operation into operations per microsecond.
pub fn millions_per_second(samples: Vec<f64>) -> Vec<f64> {
    samples.into_iter().map(|ns| 1e3 / ns).collect()
}
