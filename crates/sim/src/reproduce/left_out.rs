//! Leave one out: predicts each published figure that a constant could have been fitted on, with
//! the constant that the other figures give.

use super::outcome::{Claim, Role, Row};
use super::published::published;
use crate::error::Error;

/// A published figure, and its simulation with any constant.
pub struct Figure<'a> {
    id: String,
    unit: &'static str,
    simulate: Box<dyn Fn(f64) -> Result<f64, Error> + 'a>,
}

impl<'a> Figure<'a> {
    /// `simulate` gets the constant, in its unit in the machine file.
    pub fn new(
        id: impl Into<String>,
        unit: &'static str,
        simulate: impl Fn(f64) -> Result<f64, Error> + 'a,
    ) -> Self {
        Figure { id: id.into(), unit, simulate: Box::new(simulate) }
    }

    /// The constant with which the simulation comes nearest to the published figure. A figure grows
    /// with the constant, but in steps where hosts poll, so halving finds it.
    fn wants(&self, published: f64) -> Result<f64, Error> {
        let (mut low, mut high) = (0.0, FIRST_GUESS);
        while high < MOST && (self.simulate)(high)? < published {
            (low, high) = (high, 2.0 * high);
        }
        while high - low > high / PRECISION {
            let middle = (low + high) / 2.0;
            match (self.simulate)(middle)? < published {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(high)
    }
}

/// Where the search for a constant begins, where it gives up, and how exact it is.
const FIRST_GUESS: f64 = 256.0;
const MOST: f64 = 1e6;
const PRECISION: f64 = 200.0;

/// A row for each figure: its prediction with the mean of the constants that fit the other figures.
pub fn left_out(figures: &[Figure<'_>]) -> Result<Vec<Row>, Error> {
    let published = |figure: &Figure<'_>| match published(&figure.id).map(|known| known.claim) {
        Some(Claim::Is(value)) => value,
        _ => panic!("{} is left out, and was not published as a figure", figure.id),
    };
    let wanted: Vec<f64> =
        figures.iter().map(|figure| figure.wants(published(figure))).collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for (left, figure) in figures.iter().enumerate() {
        let others = || (0..figures.len()).filter(|&other| other != left);
        let mean = others().map(|other| wanted[other]).sum::<f64>() / (figures.len() - 1) as f64;
        let (system, name) = figure.id.split_once('.').expect("ids begin with a system");
        rows.push(Row {
            role: Role::LeftOut,
            published: Some(Claim::Is(published(figure))),
            ..Row::predicted(
                format!("{system}.leave_one_out.{name}"),
                figure.unit,
                (figure.simulate)(mean)?,
            )
            .note(format!(
                "left out of fitting, which gives a constant of {mean:.4}; it alone wants {:.4}",
                wanted[left]
            ))
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_itself_has_no_say() {
        // One line that gives its published figure at 324, and one that gives it at 100 more.
        let figures = [
            Figure::new("dimmnet-1.internal_loop.D", "ns", |software| Ok(432.0 + software)),
            Figure::new("dimmnet-1.internal_loop.A", "ns", |software| Ok(494.0 + software)),
        ];
        let rows = left_out(&figures).unwrap();
        assert_eq!(rows[0].id, "dimmnet-1.leave_one_out.internal_loop.D");
        assert!((rows[0].simulated - 856.0).abs() < 3.0, "{rows:?}");
        assert!((rows[1].simulated - 818.0).abs() < 3.0, "{rows:?}");
        assert!(rows[0].note.as_ref().unwrap().contains("it alone wants 32"), "{rows:?}");
    }
}
