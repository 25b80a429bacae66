//! What every row needs for its measurement: turns of memonet and its limits, clocks, and samples.

use std::time::Instant;

use anyhow::Result;
use memonet::{Job, Window};

use super::row::{Effort, Ground, Row};
use super::stats::{LIBRARY, Record, thin};

/// Values kept of one PE's samples of one series in one round.
const KEPT: usize = 200;

/// The measurement of one job's rows, in one PE.
pub struct Bench<'a> {
    pub job: &'a Job,
    pub effort: Effort,
    /// On several hosts.
    ground: Option<Ground>,
    /// Number of rows that PE 0 has declared over, in a window of each PE; made when first needed.
    ended: Option<(Window<u64>, u64)>,
    records: Vec<Record>,
}

/// One of the ways that take turns: memonet, or a limit.
pub struct Contender<'a> {
    series: String,
    /// Returns samples in the row's unit; none where this PE only takes part.
    run: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
    /// Whether it never gives a CPU away: where PEs share one, each of its steps takes a time
    /// slice.
    polls: bool,
}

impl<'a> Contender<'a> {
    pub fn library(run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { series: LIBRARY.into(), run: Box::new(run), polls: false }
    }

    pub fn limit(series: impl Into<String>, run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { series: series.into(), run: Box::new(run), polls: false }
    }

    /// A limit that polls. It is left out where PEs share CPUs.
    pub fn polling(series: impl Into<String>, run: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { polls: true, ..Self::limit(series, run) }
    }
}

impl<'a> Bench<'a> {
    pub fn new(job: &'a Job, effort: Effort) -> Self {
        Self { job, effort, ground: None, ended: None, records: Vec::new() }
    }

    /// The same, on several hosts with equally many PEs each.
    pub fn on_hosts(job: &'a Job, effort: Effort, ground: Ground) -> Self {
        Self { ground: Some(ground), ..Self::new(job, effort) }
    }

    /// Whether each PE has a CPU.
    pub fn have_cpus(&self) -> bool {
        let hosts = self.ground.as_ref().map_or(1, |ground| ground.hosts);
        self.job.npes() <= self.effort.cpus * hosts
    }

    /// The first PE of the second host, if there is one.
    pub fn far_peer(&self) -> Option<usize> {
        let hosts = self.ground.as_ref().map_or(1, |ground| ground.hosts);
        (hosts > 1).then(|| self.job.npes() / hosts)
    }

    /// The network interface that the user has chosen.
    pub fn interface(&self) -> Option<String> {
        self.ground.as_ref()?.interface.clone()
    }

    /// The records of this PE.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    /// Lets the contenders take turns, so that other work on the machine disturbs all of them
    /// alike. Every other round runs backwards, so that no contender always comes first.
    pub fn interleave(&mut self, row: &Row, contenders: &mut [Contender<'_>]) -> Result<()> {
        let begun = Instant::now();
        let may_poll = self.have_cpus();
        let mut contenders: Vec<&mut Contender<'_>> =
            contenders.iter_mut().filter(|contender| may_poll || !contender.polls).collect();
        for round in 0..self.effort.rounds {
            if round > 0 && self.is_over(begun)? {
                break;
            }
            for turn in 0..contenders.len() {
                let contender = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
                let Contender { series, run, .. } = &mut *contenders[contender];
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

    /// Whether a row that began at `begun` needs no further round. PE 0 decides by its clock, and
    /// notifies all others before a barrier.
    fn is_over(&mut self, begun: Instant) -> Result<bool> {
        // The clock of a simulated machine does not say how long the user waits.
        if !self.effort.quick || self.job.fabric() == Some("sim") {
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

    /// Keeps samples until the end: writing them at once would disturb the measurement.
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

/// Nanoseconds per operation of `batches` batches, after a first batch that only warms up.
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

/// Rates, from the nanoseconds that each `amount` took: millions of operations a second, or MB a
/// second where `amount` is in bytes.
pub fn rates(amount: f64, samples: Vec<f64>) -> Vec<f64> {
    samples.into_iter().map(|ns| amount * 1e3 / ns).collect()
}

/// Turns nanoseconds into microseconds.
pub fn microseconds(samples: Vec<f64>) -> Vec<f64> {
    samples.into_iter().map(|ns| ns / 1e3).collect()
}
