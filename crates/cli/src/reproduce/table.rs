//! The rows of experiments as text, and as JSON.

use std::io::Write;

use anyhow::Result;
use memonet_sim::reproduce::{Experiment, Outcome, Role, Row, errors, errors_of};
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
        let mark = mark(row.role);
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

pub fn mark(role: Role) -> &'static str {
    match role {
        Role::Predicted => "",
        Role::Fitted => "fitted",
        Role::LeftOut => "left out",
        Role::Input => "input",
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
    let line = |what: &str, errors: Option<(f64, f64, usize)>| {
        let (median, largest, count) = errors?;
        Some(format!("{count} {what}: error {median:.1} % in the median, {largest:.1} % at most"))
    };
    let predicted = line("predicted rows with a published figure", errors(&outcome.rows));
    let left_out = line(
        "published rows left out of fitting one after the other",
        errors_of(Role::LeftOut, &outcome.rows),
    );
    predicted.into_iter().chain(left_out)
}

/// The texts of the simulated figure, the published one and the error.
pub fn cells(row: &Row) -> [String; 3] {
    let error = row.error_percent().map(|error| format!("{error:+.1} %"));
    [
        number(row.simulated),
        row.published.map(number).unwrap_or_default(),
        error.unwrap_or_default(),
    ]
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
    published: Option<f64>,
    error_percent: Option<f64>,
    role: &'a str,
    note: Option<&'a str>,
    contradiction: Option<&'a str>,
}

impl JsonRow<'_> {
    pub fn of(row: &Row) -> JsonRow<'_> {
        JsonRow {
            id: &row.id,
            unit: row.unit,
            simulated: row.simulated,
            published: row.published,
            error_percent: row.error_percent(),
            role: match row.role {
                Role::Predicted => "predicted",
                Role::LeftOut => "left_out",
                other => mark(other),
            },
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
