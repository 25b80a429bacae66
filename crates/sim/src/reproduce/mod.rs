//! The published experiments, run on the simulated machines.
//!
//! An experiment is a function in this folder's file of its system. It runs programs, over the
//! library or over a NIC's own interface, and gives [`Row`]s (a figure each) and [`Curve`]s (for
//! figures to be drawn). It never sees what was published: rows are compared with that afterwards,
//! by their ids.
//!
//! To add one: write `fn() -> Result<Outcome, Error>`, and add it to [`EXPERIMENTS`]. A row whose
//! figure a constant of a machine file was fitted on says so by [`Row::fitted`]; one that only
//! shows what went in says so by [`Row::input`].

mod area;
mod dimmnet1;
mod dimmnet1_barrier;
mod dimmnet1_design;
mod dimmnet1_stages;
mod dimmnet2;
mod fagus;
mod left_out;
mod published;
mod rivals;
mod scale;
mod scc;
mod sr2201;

use crate::error::Error;
use published::published;
pub use scale::{MOST, scale};

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

/// A published experiment, or several that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its name: the system's, perhaps with more behind a dot.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    run: fn() -> Result<Outcome, Error>,
}

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "dimmnet-1.loops",
        summary: "4 bytes by one store: internal and external loop, two nodes",
        run: dimmnet1::run,
    },
    Experiment {
        name: "dimmnet-1.stages",
        summary: "what one way of 4 bytes is made of, in the environments A to E and the 133 MHz design",
        run: dimmnet1_stages::run,
    },
    Experiment {
        name: "dimmnet-1.barrier",
        summary: "barrier of two nodes, and of 2 to 64 through RHiNET-2",
        run: dimmnet1_barrier::run,
    },
    Experiment {
        name: "dimmnet-1.design",
        summary: "the 133 MHz design: remote write and bandwidth, against Memory Channel 2 and PCI-SCI",
        run: dimmnet1_design::run,
    },
    Experiment {
        name: "sr2201",
        summary: "command words: one way by both start methods, bandwidth by size",
        run: sr2201::run,
    },
    Experiment {
        name: "dimmnet-2",
        summary: "multicast by the switch against point to point and three unicasts, 8 B to 16 MB",
        run: dimmnet2::run,
    },
    Experiment {
        name: "scc",
        summary: "barriers by wires against messages; collectives in the network",
        run: scc::run,
    },
    Experiment {
        name: "fagus",
        summary: "distributed shared memory on DIMMnet-1: a message received, with its cost shares, and comm_sync",
        run: fagus::run,
    },
];

/// [`scale`], which takes minutes and so is run only when it is asked for by its name.
pub const SCALE: Experiment = Experiment {
    name: "scale",
    summary: "barriers, all-reduce and broadcast on 2 to 65,536 nodes of each kind of network; only when named",
    run: || scale(MOST, |_| ()),
};

impl Experiment {
    /// Runs it, and puts beside its rows what was published.
    ///
    /// # Errors
    /// [`Error`], of the machine file or of the run.
    pub fn run(&self) -> Result<Outcome, Error> {
        let mut outcome = (self.run)()?;
        for row in &mut outcome.rows {
            row.published = row.published.or_else(|| published(&row.id));
        }
        Ok(outcome)
    }
}

/// The experiments whose name this is, or begins with: all for `None`.
pub fn experiments(name: Option<&str>) -> Vec<Experiment> {
    let wanted = |experiment: &Experiment| {
        name.is_none_or(|name| {
            experiment
                .name
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    EXPERIMENTS.iter().copied().filter(wanted).collect()
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
    fn names() {
        assert_eq!(experiments(None).len(), EXPERIMENTS.len());
        assert_eq!(experiments(Some("dimmnet-1")).len(), 4);
        assert_eq!(experiments(Some("dimmnet-1.loops")).len(), 1);
        assert!(experiments(Some("dimm")).is_empty());
    }

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
