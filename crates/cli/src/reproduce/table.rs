//! The rows of experiments as text, and as JSON.

use std::io::Write;

use anyhow::Result;
use memonet_sim::reproduce::{
    Claim, Errors, Experiment, Outcome, Role, Row, bounds, errors, errors_of, errors_of_estimates,
};
use serde::Serialize;

/// An experiment and its outcome.
pub struct Ran {
    pub experiment: Experiment,
    pub outcome: Outcome,
}

pub fn print(out: &mut impl Write, Ran { experiment, outcome }: &Ran) -> Result<()> {
    writeln!(out, "{}: {}", experiment.name, experiment.summary)?;
    writeln!(out, "  {:44} {:>12} {:>12} {:>8}", "", "simulated", "published", "error")?;
    for row in &outcome.rows {
        let [simulated, published, error] = cells(row);
        let mark = mark(row);
        let line = format!(
            "  {:44} {simulated:>12} {published:>12} {error:>8} {:4} {mark}",
            row.id, row.unit
        );
        writeln!(out, "{}", line.trim_end())?;
        for note in remarks(row) {
            writeln!(out, "      {note}")?;
        }
    }
    for line in summary(outcome) {
        writeln!(out, "  {line}")?;
    }
    for note in &outcome.notes {
        writeln!(out, "  * {note}")?;
    }
    Ok(writeln!(out)?)
}

/// The row's part in the comparison, in a word.
pub fn mark(row: &Row) -> &'static str {
    match (row.role, row.contradiction.is_some(), row.estimate) {
        (Role::Input, ..) => "input",
        (_, true, _) => "FLAGGED",
        (Role::Fitted, ..) => "fitted",
        (Role::LeftOut, ..) => "left out",
        (Role::Predicted, _, true) => "estimate",
        (Role::Predicted, ..) => "",
    }
}

/// The remarks on a row.
pub fn remarks(row: &Row) -> impl Iterator<Item = String> {
    let flag = row
        .contradiction
        .as_ref()
        .map(|how| format!("FLAGGED, the published figures contradict themselves: {how}"));
    flag.into_iter().chain(row.note.clone())
}

pub fn summary(outcome: &Outcome) -> impl Iterator<Item = String> {
    let line = |what: &str, errors: Option<Errors>| {
        let Errors { median, worst, rows } = errors?;
        Some(format!("{rows} {what}: error {median:.1} % in the median, {worst:.1} % at most"))
    };
    let rows = &outcome.rows;
    let bounds = match bounds(rows) {
        (_, 0) => None,
        (met, of) => Some(format!("{met} of {of} published bounds and ranges met")),
    };
    let left_out = errors_of(Role::LeftOut, rows);
    let lines = [
        line("predicted rows with a measured figure", errors(rows)),
        line("estimates of the authors", errors_of_estimates(rows)),
        bounds,
        line("published rows left out of fitting one after the other", left_out),
    ];
    lines.into_iter().flatten()
}

/// The texts of the simulated figure, what was published, and the error.
pub fn cells(row: &Row) -> [String; 3] {
    let error = match (row.error_percent(), row.met()) {
        (Some(error), _) => format!("{error:+.1} %"),
        (None, Some(met)) => if met { "met" } else { "not met" }.into(),
        (None, None) => String::new(),
    };
    [number(row.simulated), row.published.map(claim).unwrap_or_default(), error]
}

fn claim(claim: Claim) -> String {
    match claim {
        Claim::Is(value) => number(value),
        Claim::AtLeast(least) => format!("≥ {}", number(least)),
        Claim::AtMost(most) => format!("≤ {}", number(most)),
        Claim::Between(from, to) => format!("{} to {}", number(from), number(to)),
    }
}

/// A number with at least four digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

#[derive(Debug, Serialize)]
pub struct JsonRow<'a> {
    id: &'a str,
    unit: &'a str,
    simulated: f64,
    /// The published figure; a bound or a range has none.
    published: Option<f64>,
    published_at_least: Option<f64>,
    published_at_most: Option<f64>,
    error_percent: Option<f64>,
    /// Whether the bounds are met.
    met: Option<bool>,
    role: &'a str,
    /// Whether what was published is the authors' estimate.
    estimate: bool,
    note: Option<&'a str>,
    contradiction: Option<&'a str>,
}

impl JsonRow<'_> {
    pub fn of(row: &Row) -> JsonRow<'_> {
        let (figure, least, most) = match row.published {
            None => (None, None, None),
            Some(Claim::Is(value)) => (Some(value), None, None),
            Some(Claim::AtLeast(least)) => (None, Some(least), None),
            Some(Claim::AtMost(most)) => (None, None, Some(most)),
            Some(Claim::Between(least, most)) => (None, Some(least), Some(most)),
        };
        JsonRow {
            id: &row.id,
            unit: row.unit,
            simulated: row.simulated,
            published: figure,
            published_at_least: least,
            published_at_most: most,
            error_percent: row.error_percent(),
            met: row.met(),
            role: match row.role {
                Role::Predicted => "predicted",
                Role::Fitted => "fitted",
                Role::LeftOut => "left_out",
                Role::Input => "input",
            },
            estimate: row.estimate,
            note: row.note.as_deref(),
            contradiction: row.contradiction.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let shown = [1814.23, 907.04, 4.0887, 0.00071].map(number);
        assert_eq!(shown, ["1814", "907.0", "4.089", "0.00071"]);
    }
}
