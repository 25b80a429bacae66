//! From samples to the numbers of a row.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Which way a row improves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// What one PE measured in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub row: String,
    /// [`LIBRARY`], or the name of a limit.
    pub series: String,
    pub pe: usize,
    pub round: usize,
    /// In the row's unit.
    pub values: Vec<f64>,
}

/// Values by their series: one sample of all contenders of a row.
pub type Sample = Vec<(&'static str, f64)>;

impl Record {
    /// The records of a sample that no PE has taken.
    pub fn of_sample(row: &str, round: usize, sample: Sample) -> Vec<Self> {
        let record = |(series, value): (&str, f64)| Self {
            row: row.into(),
            series: series.into(),
            pe: PARENT,
            round,
            values: vec![value],
        };
        sample.into_iter().map(record).collect()
    }
}

/// The series that goes through memonet.
pub const LIBRARY: &str = "memonet";

/// The numbers of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub min: f64,
    pub median: f64,
    pub p99: f64,
    pub max: f64,
    /// The PE with the worst median; `None` where the launcher measured.
    pub slowest_pe: Option<usize>,
    /// The best limit: the one with the best median.
    pub limit: Option<Limit>,
    /// Median over the rounds of (median of memonet over median of the limit). A drift that is
    /// slower than a round cancels.
    pub ratio: Option<f64>,
    /// Medians of all limits that were measured.
    pub limits: BTreeMap<String, f64>,
    /// The ratio to each of them.
    pub ratios: BTreeMap<String, f64>,
}

/// The numbers of a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub name: String,
    pub median: f64,
    pub p99: f64,
}

/// Stands for a PE in records of the process that started the job.
pub const PARENT: usize = usize::MAX;

/// Summarises the records of one row; `None` if memonet was not measured.
pub fn summarise(records: &[Record], better: Better) -> Option<Summary> {
    let mine = sorted(values(records, LIBRARY, |_| true));
    if mine.is_empty() {
        return None;
    }
    let series: BTreeSet<&str> =
        records.iter().map(|r| r.series.as_str()).filter(|&s| s != LIBRARY).collect();
    let limits: BTreeMap<String, f64> = series
        .into_iter()
        .filter_map(|s| Some((s.into(), median(values(records, s, |_| true))?)))
        .collect();
    let order = |a: &f64, b: &f64| match better {
        Better::Lower => a.total_cmp(b),
        Better::Higher => b.total_cmp(a),
    };
    let limit = limits.iter().min_by(|a, b| order(a.1, b.1)).map(|(name, &median)| {
        let p99 = percentile(&sorted(values(records, name, |_| true)), 99.0);
        Limit { name: name.clone(), median, p99 }
    });
    let ratios: BTreeMap<String, f64> = limits
        .keys()
        .filter_map(|name| Some((name.clone(), median(round_ratios(records, name))?)))
        .collect();
    let ratio = limit.as_ref().and_then(|limit| ratios.get(&limit.name).copied());
    let pes: BTreeSet<usize> =
        records.iter().filter(|r| r.series == LIBRARY && r.pe != PARENT).map(|r| r.pe).collect();
    let slowest = pes
        .into_iter()
        .filter_map(|pe| Some((pe, median(values(records, LIBRARY, |r| r.pe == pe))?)))
        .max_by(|a, b| order(&a.1, &b.1));
    Some(Summary {
        min: mine[0],
        median: middle(&mine),
        p99: percentile(&mine, 99.0),
        max: mine[mine.len() - 1],
        slowest_pe: slowest.map(|(pe, _)| pe),
        limit,
        ratio,
        limits,
        ratios,
    })
}

fn round_ratios(records: &[Record], limit: &str) -> Vec<f64> {
    let rounds: BTreeSet<usize> = records.iter().map(|r| r.round).collect();
    let of = |series: &str, round| median(values(records, series, |r| r.round == round));
    rounds.into_iter().filter_map(|round| Some(of(LIBRARY, round)? / of(limit, round)?)).collect()
}

fn values(records: &[Record], series: &str, also: impl Fn(&Record) -> bool) -> Vec<f64> {
    records
        .iter()
        .filter(|r| r.series == series && also(r))
        .flat_map(|r| r.values.iter().copied())
        .collect()
}

/// For quantities of a whole job: the sum, in each round, of what the PEs measured.
pub fn sum_over_pes(records: &[Record]) -> Vec<Record> {
    let mut sums: BTreeMap<(String, String, usize), f64> = BTreeMap::new();
    for record in records {
        let key = (record.row.clone(), record.series.clone(), record.round);
        *sums.entry(key).or_default() += record.values.iter().sum::<f64>();
    }
    let record =
        |((row, series, round), sum)| Record { row, series, pe: PARENT, round, values: vec![sum] };
    sums.into_iter().map(record).collect()
}

/// At most `keep` of the values: evenly spaced order statistics, with the first and the last. Their
/// distribution is that of all values.
pub fn thin(values: Vec<f64>, keep: usize) -> Vec<f64> {
    let values = sorted(values);
    if values.len() <= keep {
        return values;
    }
    (0..keep).map(|i| values[i * (values.len() - 1) / (keep - 1)]).collect()
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// The nearest-rank percentile of sorted values.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The median; `None` without values.
pub fn median(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| middle(&sorted(values)))
}

/// The median of sorted values: between the two in the middle where their number is even.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    f64::midpoint(sorted[half], sorted[sorted.len() - 1 - half])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(series: &str, pe: usize, round: usize, values: &[f64]) -> Record {
        Record { row: "r".into(), series: series.into(), pe, round, values: values.into() }
    }

    #[test]
    fn percentiles_are_order_statistics() {
        let records = [record(LIBRARY, 0, 0, &(1..=200).map(f64::from).collect::<Vec<_>>())];
        let summary = summarise(&records, Better::Lower).unwrap();
        assert_eq!(
            (summary.min, summary.median, summary.p99, summary.max),
            (1.0, 100.5, 198.0, 200.0)
        );
        assert_eq!((summary.limit, summary.ratio), (None, None));
    }

    #[test]
    fn the_best_limit_counts_in_both_directions() {
        let records =
            [record(LIBRARY, 0, 0, &[6.0]), record("a", 0, 0, &[5.0]), record("b", 0, 0, &[3.0])];
        let lower = summarise(&records, Better::Lower).unwrap();
        assert_eq!((lower.limit.unwrap().name, lower.ratio), ("b".into(), Some(2.0)));
        let higher = summarise(&records, Better::Higher).unwrap();
        assert_eq!((higher.limit.unwrap().median, higher.ratio), (5.0, Some(1.2)));
    }

    #[test]
    fn drift_between_rounds_cancels() {
        let records: Vec<_> = (0..5)
            .flat_map(|round| {
                let slow = if round < 2 { 10.0 } else { 1.0 };
                [record(LIBRARY, 0, round, &[3.0 * slow]), record("raw", 0, round, &[2.0 * slow])]
            })
            .collect();
        assert_eq!(summarise(&records, Better::Lower).unwrap().ratio, Some(1.5));
    }

    #[test]
    fn the_slowest_pe_is_the_one_with_the_worst_median() {
        let records =
            [record(LIBRARY, 0, 0, &[1.0, 1.0, 90.0]), record(LIBRARY, 1, 0, &[2.0, 2.0, 2.0])];
        assert_eq!(summarise(&records, Better::Lower).unwrap().slowest_pe, Some(1));
        assert_eq!(summarise(&records, Better::Higher).unwrap().slowest_pe, Some(0));
        assert_eq!(
            summarise(&[record(LIBRARY, PARENT, 0, &[1.0])], Better::Lower).unwrap().slowest_pe,
            None
        );
    }

    #[test]
    fn sums_are_per_round() {
        let sums = sum_over_pes(&[
            record(LIBRARY, 1, 0, &[1.0]),
            record(LIBRARY, 2, 0, &[2.0]),
            record(LIBRARY, 1, 1, &[5.0]),
        ]);
        assert_eq!(sums.iter().map(|r| r.values[0]).collect::<Vec<_>>(), [3.0, 5.0]);
    }

    #[test]
    fn thinning_keeps_the_ends_and_the_shape() {
        let thinned = thin((0..10_001).rev().map(f64::from).collect(), 101);
        assert_eq!(thinned.len(), 101);
        assert_eq!((thinned[0], thinned[50], thinned[100]), (0.0, 5000.0, 10_000.0));
    }
}
