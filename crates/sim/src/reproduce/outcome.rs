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

/// A simulated figure beside the published one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// SYSTEM.NAME, as in `published.toml`.
    pub id: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The simulated figure.
    pub simulated: f64,
    /// The published figure, if it is known.
    pub published: Option<f64>,
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
            role: Role::Predicted,
            note: None,
            contradiction: None,
        }
    }

    /// Adds a published figure that is not in `published.toml`.
    pub fn published(self, published: f64) -> Row {
        Row { published: Some(published), ..self }
    }

    /// Flags the published figure as contradictory. It is shown all the same.
    pub fn contradiction(self, how: impl Into<String>) -> Row {
        Row { contradiction: Some(how.into()), ..self }
    }

    /// Marks the row as one on whose figure a constant was fitted, as the machine file says too.
    pub fn fitted(self) -> Row {
        Row { role: Role::Fitted, ..self }
    }

    /// Marks the row as one of the model's components, beside their published sum.
    pub fn input(self, published: f64) -> Row {
        Row { role: Role::Input, ..self.published(published) }
    }

    /// Adds a remark.
    pub fn note(self, note: impl Into<String>) -> Row {
        Row { note: Some(note.into()), ..self }
    }

    /// The relative error: how much the simulated figure exceeds the published one.
    pub fn error_percent(&self) -> Option<f64> {
        self.published.map(|published| (self.simulated / published - 1.0) * 100.0)
    }
}

/// Median and maximum of the errors of predicted rows, as absolute percentages, and the number of
/// these rows.
pub fn errors<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<(f64, f64, usize)> {
    errors_of(Role::Predicted, rows)
}

/// Median and maximum of the errors of rows of one role, as absolute percentages, and the number of
/// these rows.
pub fn errors_of<'a>(
    role: Role,
    rows: impl IntoIterator<Item = &'a Row>,
) -> Option<(f64, f64, usize)> {
    let predicted = rows.into_iter().filter(|row| row.role == role);
    let mut errors: Vec<f64> = predicted.filter_map(Row::error_percent).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let (&largest, half) = (errors.last()?, errors.len() / 2);
    let median = match errors.len() % 2 {
        0 => (errors[half - 1] + errors[half]) / 2.0,
        _ => errors[half],
    };
    Some((median, largest, errors.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_what_was_predicted() {
        let row = |simulated, published, role| Row {
            published: Some(published),
            role,
            ..Row::predicted("x", "ns", simulated)
        };
        let rows = [
            row(110.0, 100.0, Role::Predicted),
            row(80.0, 100.0, Role::Predicted),
            row(500.0, 100.0, Role::Fitted),
            Row::predicted("x", "ns", 5.0),
        ];
        let (median, largest, count) = errors(&rows).unwrap();
        assert!((median - 15.0).abs() < 1e-9 && (largest - 20.0).abs() < 1e-9 && count == 2);
        assert_eq!(errors(&rows[2..]), None);
    }
}
