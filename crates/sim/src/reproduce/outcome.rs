//! Results of experiments: figures beside the published ones, and curves.

/// The part of a row in the comparison with published figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The simulation predicted the figure.
    Predicted,
    /// A constant was fitted on the published figure, or chosen in knowledge of it.
    Fitted,
    /// The simulation predicted the figure, with a constant fitted on all other figures of its
    /// kind.
    LeftOut,
    /// The row shows components of the model itself.
    Input,
}

/// What a publication says of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Claim {
    /// This figure.
    Is(f64),
    /// A lower bound.
    AtLeast(f64),
    /// An upper bound.
    AtMost(f64),
    /// A range.
    Between(f64, f64),
}

impl Claim {
    /// Whether a figure keeps a bound, or lies in a range. A figure has an error instead.
    fn met(self, by: f64) -> Option<bool> {
        match self {
            Claim::Is(_) => None,
            Claim::AtLeast(least) => Some(by >= least),
            Claim::AtMost(most) => Some(by <= most),
            Claim::Between(from, to) => Some((from..=to).contains(&by)),
        }
    }
}

/// A simulated figure beside the published one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// SYSTEM.NAME, as in `data/published.toml`.
    pub id: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The simulated figure.
    pub simulated: f64,
    /// What was published, if anything was.
    pub published: Option<Claim>,
    /// The authors have not measured it: it is their estimate, their expectation or a design value.
    pub estimate: bool,
    /// The row's part in the comparison.
    pub role: Role,
    /// A remark for the reader.
    pub note: Option<String>,
    /// How the publication contradicts itself. The figure is shown as it was published.
    pub contradiction: Option<String>,
}

/// Points to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The figure that the curve belongs to.
    pub figure: &'static str,
    /// The name of the curve.
    pub label: String,
    /// The x axis, with its unit.
    pub x: &'static str,
    /// The y axis, with its unit.
    pub y: &'static str,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
}

/// The results of an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Figures.
    pub rows: Vec<Row>,
    /// Curves.
    pub curves: Vec<Curve>,
    /// Remarks for the report: rules, contradictions in the publications.
    pub notes: Vec<String>,
}

impl Row {
    /// A row with a predicted figure.
    pub fn predicted(id: impl Into<String>, unit: &'static str, simulated: f64) -> Row {
        Row {
            id: id.into(),
            unit,
            simulated,
            published: None,
            estimate: false,
            role: Role::Predicted,
            note: None,
            contradiction: None,
        }
    }

    /// Flags the published figure as contradictory. It is shown all the same.
    pub fn contradiction(self, how: impl Into<String>) -> Row {
        Row { contradiction: Some(how.into()), ..self }
    }

    /// Marks the row as one on whose figure a constant was fitted, as the machine file says too.
    pub fn fitted(self) -> Row {
        Row { role: Role::Fitted, ..self }
    }

    /// Marks the row as one of the model's components, beside what was published.
    pub fn input(self, published: Option<f64>) -> Row {
        Row { role: Role::Input, published: published.map(Claim::Is), ..self }
    }

    /// Adds a remark.
    pub fn note(self, note: impl Into<String>) -> Row {
        Row { note: Some(note.into()), ..self }
    }

    /// The relative error: how much the simulated figure exceeds the published one. Bounds and
    /// ranges have none.
    pub fn error_percent(&self) -> Option<f64> {
        match self.published? {
            Claim::Is(published) => Some((self.simulated / published - 1.0) * 100.0),
            _ => None,
        }
    }

    /// Whether a published bound is kept, or a range met.
    pub fn met(&self) -> Option<bool> {
        self.published?.met(self.simulated)
    }

    /// Whether the row is a prediction of a figure that was measured, and that nothing contradicts.
    fn counts(&self, role: Role) -> bool {
        self.role == role && !self.estimate && self.contradiction.is_none()
    }
}

/// Errors of several rows, as absolute percentages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    /// The error in the middle.
    pub median: f64,
    /// The largest error.
    pub worst: f64,
    /// Number of rows.
    pub rows: usize,
}

/// Errors of predicted rows, without those of estimates and of contradictory figures.
pub fn errors<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<Errors> {
    errors_of(Role::Predicted, rows)
}

/// Errors of the rows of one role, without those of estimates and of contradictory figures.
pub fn errors_of<'a>(role: Role, rows: impl IntoIterator<Item = &'a Row>) -> Option<Errors> {
    errors_where(rows, |row| row.counts(role))
}

/// Errors of predicted rows whose figures their authors have not measured.
pub fn errors_of_estimates<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<Errors> {
    errors_where(rows, |row| {
        row.role == Role::Predicted && row.estimate && row.contradiction.is_none()
    })
}

/// How many published bounds and ranges are met, and of how many. Those do not count on which a
/// constant was fitted, nor contradictory ones.
pub fn bounds<'a>(rows: impl IntoIterator<Item = &'a Row>) -> (usize, usize) {
    let predicted = rows.into_iter().filter(|row| row.counts(Role::Predicted));
    let met: Vec<bool> = predicted.filter_map(Row::met).collect();
    (met.iter().filter(|&&met| met).count(), met.len())
}

fn errors_where<'a>(
    rows: impl IntoIterator<Item = &'a Row>,
    counts: impl Fn(&Row) -> bool,
) -> Option<Errors> {
    let counted = rows.into_iter().filter(|row| counts(row));
    let mut errors: Vec<f64> = counted.filter_map(Row::error_percent).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let (&worst, half) = (errors.last()?, errors.len() / 2);
    let median = match errors.len() % 2 {
        0 => (errors[half - 1] + errors[half]) / 2.0,
        _ => errors[half],
    };
    Some(Errors { median, worst, rows: errors.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(simulated: f64, published: Claim, role: Role) -> Row {
        Row { published: Some(published), role, ..Row::predicted("x", "ns", simulated) }
    }

    #[test]
    fn errors_count_what_was_predicted() {
        let flagged = row(900.0, Claim::Is(100.0), Role::Predicted).contradiction("100, and 900");
        let estimate = Row { estimate: true, ..row(130.0, Claim::Is(100.0), Role::Predicted) };
        let rows = [
            row(110.0, Claim::Is(100.0), Role::Predicted),
            row(80.0, Claim::Is(100.0), Role::Predicted),
            row(500.0, Claim::Is(100.0), Role::Fitted),
            row(500.0, Claim::AtMost(100.0), Role::Predicted),
            flagged,
            estimate,
            Row::predicted("x", "ns", 5.0),
        ];
        let Errors { median, worst, rows: count } = errors(&rows).unwrap();
        assert!((median - 15.0).abs() < 1e-9 && (worst - 20.0).abs() < 1e-9 && count == 2);
        let estimates = errors_of_estimates(&rows).unwrap();
        assert!((estimates.worst - 30.0).abs() < 1e-9 && estimates.rows == 1);
        assert_eq!(errors(&rows[2..]), None);
    }

    #[test]
    fn bounds_are_met_or_not() {
        let claims = [
            (Claim::AtLeast(10.0), true, 10.0, 9.9),
            (Claim::AtMost(10.0), true, 10.0, 10.1),
            (Claim::Between(10.0, 20.0), true, 15.0, 20.1),
        ];
        for (claim, met, inside, outside) in claims {
            let (inside, outside) =
                (row(inside, claim, Role::Predicted), row(outside, claim, Role::Predicted));
            assert_eq!((inside.met(), outside.met()), (Some(met), Some(!met)));
            assert_eq!((inside.error_percent(), outside.error_percent()), (None, None));
            assert_eq!(bounds(&[inside, outside]), (1, 2));
        }
        assert_eq!(row(1.0, Claim::Is(1.0), Role::Predicted).met(), None);
    }
}
