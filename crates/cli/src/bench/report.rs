//! The rows as a table, and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::catalog;
use super::row::Row;
use super::spec::Spec;
use super::stats::{Better, Record, Summary, sum_over_pes, summarise};

/// Names of the table's columns, for rows whose ids have up to `width` characters.
pub fn header(width: usize) -> String {
    format!(
        "{:<width$} {:<11} {:>10} {:>10} {:>10} {:>10}  {:>10} {:>10} {:>7} {:>6}  OSU row",
        "row", "unit", "min", "median", "p99", "max", "slowest PE", "limit", "ratio", "rounds"
    )
}

/// What the column of ratios says.
pub const RATIO: &str = "\
ratio: memonet over the limit beside it, what the machine itself can do; `--list` says what that is. 1.00 is the limit.
       Of times (ns, us, ms), more is slower. Of rates (M/s, MB/s), less is slower.";

/// One row, measured.
#[derive(Serialize)]
pub struct Measured {
    pub id: String,
    pub unit: &'static str,
    pub min: f64,
    pub median: f64,
    pub p99: f64,
    pub max: f64,
    /// `null` where no single PE is measured.
    pub slowest_pe: Option<usize>,
    /// Median of the limit, `null` where there is none.
    pub limit: Option<f64>,
    /// Median over the rounds of (median of memonet over median of the limit).
    pub ratio: Option<f64>,
    /// Rounds in which memonet and its limits took turns.
    pub rounds: usize,
    pub better: Better,
    pub limit_p99: Option<f64>,
    /// Name of the best of the measured limits: it is the limit.
    pub limit_is: Option<String>,
    /// Medians of all limits that were measured.
    pub limits: BTreeMap<String, f64>,
    /// The ratio to each of them.
    pub ratios: BTreeMap<String, f64>,
    /// The row of the OSU micro-benchmarks that comes closest.
    pub osu: Option<&'static str>,
    #[serde(skip)]
    pub spec: &'static Spec,
    #[serde(skip)]
    pub size: usize,
}

impl Measured {
    /// Finds the numbers of `row` among the records of its job.
    pub fn new(row: &Row, records: &[Record]) -> Result<Self> {
        let records: Vec<Record> =
            records.iter().filter(|record| record.row == row.id).cloned().collect();
        let spec = catalog::spec(row);
        let nothing = || format!("no sample of {} came back", row.id);
        let each = summarise(&records, spec.better).with_context(nothing)?;
        let Summary { min, median, p99, max, limit, ratio, limits, ratios, .. } =
            if spec.special.sums_pes {
                summarise(&sum_over_pes(&records), spec.better).with_context(nothing)?
            } else {
                each.clone()
            };
        Ok(Self {
            id: row.id.clone(),
            unit: spec.unit,
            min,
            median,
            p99,
            max,
            slowest_pe: each.slowest_pe,
            limit: limit.as_ref().map(|limit| limit.median),
            ratio,
            rounds: records.iter().map(|record| record.round).collect::<BTreeSet<_>>().len(),
            better: spec.better,
            limit_p99: limit.as_ref().map(|limit| limit.p99),
            limit_is: limit.map(|limit| limit.name),
            limits,
            ratios,
            osu: (spec.osu != "-").then_some(spec.osu),
            spec,
            size: row.size,
        })
    }
}

impl fmt::Display for Measured {
    /// The row of the table; the width given is that of the ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = f.width().unwrap_or_default();
        let or_dash = |value: Option<String>| value.unwrap_or("-".into());
        write!(
            f,
            "{:<width$} {:<11} {:>10} {:>10} {:>10} {:>10}  {:>10} {:>10} {:>7} {:>6}  {}",
            self.id,
            self.unit,
            digits(self.min),
            digits(self.median),
            digits(self.p99),
            digits(self.max),
            or_dash(self.slowest_pe.map(|pe| pe.to_string())),
            or_dash(self.limit.map(digits)),
            or_dash(self.ratio.map(|ratio| format!("{ratio:.2}"))),
            self.rounds,
            self.osu.unwrap_or("-"),
        )?;
        if self.spec.special.has_unlike_limits {
            for (name, ratio) in &self.ratios {
                write!(f, "; {ratio:.2} of {name}")?;
            }
        }
        Ok(())
    }
}

/// Four significant digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 999.95 => 0,
        v if v >= 99.995 => 1,
        v if v >= 9.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// The machine that was measured, and how.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub cpus: usize,
    pub memory_mib: u64,
    pub kernel: String,
    /// Load average of the last minute before the start: how much else was running.
    pub load: f64,
    pub memonet: &'static str,
    pub quick: bool,
    /// The hosts between which was measured; none for a bench of this machine alone.
    pub hosts: Vec<String>,
}

impl Machine {
    pub fn found(quick: bool) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix(':'));
            line.unwrap_or("unknown").trim().to_owned()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 =
            memory.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cpus: memonet_core::unstable::launch::available_cpus(),
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            memonet: env!("CARGO_PKG_VERSION"),
            quick,
            hosts: Vec::new(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cpus, memory_mib, kernel, load, memonet, quick, hosts } = self;
        let between = if hosts.is_empty() { "" } else { ", between " };
        let quick = if *quick { ", quick" } else { "" };
        write!(
            f,
            "memonet {memonet} on {cpu}, {cpus} CPUs, {memory_mib} MiB, Linux {kernel}, load {load}{quick}{between}{}",
            hosts.join(", ")
        )
    }
}

#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    rows: &'a [Measured],
}

pub fn write_json(mut out: impl Write, machine: &Machine, rows: &[Measured]) -> Result<()> {
    serde_json::to_writer_pretty(&mut out, &Document { machine, rows })?;
    Ok(writeln!(out)?)
}

/// Writes what the rows measure, for `--list`.
pub fn list(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    for rows in rows.chunk_by(|a, b| a.spec == b.spec) {
        let Spec { what, unit, limit, osu, better, .. } = catalog::spec(&rows[0]);
        let better = if *better == Better::Lower { "lower" } else { "higher" };
        for row in rows {
            writeln!(out, "{}", row.id)?;
        }
        writeln!(out, "    {what} ({unit}, {better} is better)")?;
        writeln!(out, "    limit: {limit}")?;
        writeln!(out, "    OSU:   {osu}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::catalog;
    use super::super::stats::LIBRARY;
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(
            [0.1234, 9.9996, 12.345, 123.45, 1234.5, 65536.0].map(digits),
            ["0.123", "10.00", "12.35", "123.5", "1234", "65536"]
        );
    }

    fn record(row: &str, series: &str, pe: usize, value: f64) -> Record {
        Record { row: row.into(), series: series.into(), pe, round: 0, values: vec![value] }
    }

    #[test]
    fn the_json_has_the_fields_that_readers_rely_on() {
        let rows = catalog::select(catalog::rows(2), &["fetch_add".into()]);
        let records = [
            record("fetch_add", LIBRARY, 0, 6.0),
            record("fetch_add", "lock xadd", 0, 5.0),
            record("other", LIBRARY, 0, 1.0),
        ];
        let measured = Measured::new(&rows[0], &records).unwrap();
        let mut text = Vec::new();
        write_json(&mut text, &Machine::found(true), &[measured]).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(json["machine"]["cpus"].as_u64().unwrap() > 0);
        let row = &json["rows"][0];
        for (field, value) in [
            ("min", 6.0),
            ("median", 6.0),
            ("p99", 6.0),
            ("max", 6.0),
            ("limit", 5.0),
            ("ratio", 1.2),
        ] {
            assert_eq!(row[field].as_f64(), Some(value), "{field}");
        }
        assert_eq!(
            (row["id"].as_str(), row["unit"].as_str(), row["better"].as_str()),
            (Some("fetch_add"), Some("ns"), Some("lower"))
        );
        assert_eq!(row["slowest_pe"].as_u64(), Some(0));
    }

    #[test]
    fn processor_time_is_that_of_all_pes() {
        let rows = catalog::select(catalog::rows(2), &["wait_cpu".into()]);
        let records =
            [record("wait_cpu.16", LIBRARY, 1, 0.5), record("wait_cpu.16", LIBRARY, 2, 1.5)];
        let measured = Measured::new(&rows[0], &records).unwrap();
        assert_eq!(
            (measured.median, measured.slowest_pe, measured.limit, measured.ratio),
            (2.0, Some(2), None, None)
        );
    }

    #[test]
    fn a_row_without_samples_is_an_error() {
        let rows = catalog::rows(2);
        assert!(Measured::new(&rows[0], &[]).is_err());
    }
}
