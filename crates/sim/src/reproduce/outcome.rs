//! What experiments give: figures beside the published ones, and curves.

/// What a row is to the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It came out.
    Predicted,
    /// A constant was fitted on it, or chosen in knowledge of it, so that it had to come out.
    Fitted,
    /// It came out of a constant that was fitted anew, on all others of its kind.
    LeftOut,
    /// It shows components that went in.
    Input,
}

/// A simulated figure beside the published one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// SYSTEM.NAME, as in `published.toml`.
    pub id: String,
    /// Of both figures.
    pub unit: &'static str,
    /// What came out.
    pub simulated: f64,
    /// What was published, where it is known.
    pub published: Option<f64>,
    /// What it is to the comparison.
    pub role: Role,
    /// What a reader should know.
    pub note: Option<String>,
    /// How what was published contradicts itself. The figure is shown as it was published.
    pub contradiction: Option<String>,
}

/// Points to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The figure that it belongs to.
    pub figure: &'static str,
    /// What it shows.
    pub label: String,
    /// What lies across, and in what unit.
    pub x: &'static str,
    /// What lies up, and in what unit.
    pub y: &'static str,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
}

/// What an experiment gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Figures.
    pub rows: Vec<Row>,
    /// Curves.
    pub curves: Vec<Curve>,
    /// What a reader of the report should know: rules, contradictions in what was published.
    pub notes: Vec<String>,
}

impl Row {
    /// A figure that came out.
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

    /// Gives what was published where it is no figure of `published.toml`.
    pub fn published(self, published: f64) -> Row {
        Row { published: Some(published), ..self }
    }

    /// Flags what was published, which is shown all the same.
    pub fn contradiction(self, how: impl Into<String>) -> Row {
        Row { contradiction: Some(how.into()), ..self }
    }

    /// Says that a constant was fitted on the published figure, which the machine file says too.
    pub fn fitted(self) -> Row {
        Row { role: Role::Fitted, ..self }
    }

    /// Says that it shows components, beside their published sum.
    pub fn input(self, published: f64) -> Row {
        Row { role: Role::Input, ..self.published(published) }
    }

    /// Says something about it.
    pub fn note(self, note: impl Into<String>) -> Row {
        Row { note: Some(note.into()), ..self }
    }

    /// By how much too much came out.
    pub fn error_percent(&self) -> Option<f64> {
        self.published.map(|published| (self.simulated / published - 1.0) * 100.0)
    }
}

/// The median and the largest of the errors of predicted rows, as percentages without sign, and how
/// many there are.
pub fn errors<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<(f64, f64, usize)> {
    errors_of(Role::Predicted, rows)
}

/// The same of rows of one role.
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
