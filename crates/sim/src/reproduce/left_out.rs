//! Leave one out: predicts each published figure that a constant could have been fitted on, with
//! the constant that the other figures give.

use super::outcome::{Role, Row};
use super::published::published;
use crate::error::Error;

/// A published figure, and its simulation with any constant.
pub struct Figure<'a> {
    id: &'static str,
    unit: &'static str,
    simulate: Box<dyn Fn(f64) -> Result<f64, Error> + 'a>,
}

impl<'a> Figure<'a> {
    /// `simulate` gets the constant, in its unit in the machine file.
    pub fn new(
        id: &'static str,
        unit: &'static str,
        simulate: impl Fn(f64) -> Result<f64, Error> + 'a,
    ) -> Self {
        Figure { id, unit, simulate: Box::new(simulate) }
    }

    /// The constant with which the simulation gives the published figure. It is added once or twice
    /// a message, so figures are linear in it.
    fn wants(&self, published: f64) -> Result<f64, Error> {
        const FAR: f64 = 1000.0;
        let (none, far) = ((self.simulate)(0.0)?, (self.simulate)(FAR)?);
        Ok((published - none) * FAR / (far - none))
    }
}

/// A row for each figure: its prediction with the mean of the constants that fit the other figures.
/// The note has the prediction with each of these constants alone.
pub fn left_out(figures: &[Figure<'_>]) -> Result<Vec<Row>, Error> {
    let published = |figure: &Figure<'_>| {
        published(figure.id).expect("a figure is left out only where it was published")
    };
    let wanted: Vec<f64> =
        figures.iter().map(|figure| figure.wants(published(figure))).collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for (left, figure) in figures.iter().enumerate() {
        let others = || (0..figures.len()).filter(|&other| other != left);
        let mean = others().map(|other| wanted[other]).sum::<f64>() / (figures.len() - 1) as f64;
        let mut alone = Vec::new();
        for other in others() {
            let error = ((figure.simulate)(wanted[other])? / published(figure) - 1.0) * 100.0;
            alone.push(format!("{} {error:+.1} %", short(figures[other].id)));
        }
        let (system, name) = figure.id.split_once('.').expect("ids begin with a system");
        rows.push(Row {
            role: Role::LeftOut,
            published: Some(published(figure)),
            ..Row::predicted(
                format!("{system}.leave_one_out.{name}"),
                figure.unit,
                (figure.simulate)(mean)?,
            )
            .note(format!(
                "left out of fitting, which gives a constant of {mean:.4}; fitted on one alone: {}",
                alone.join(", ")
            ))
        });
    }
    Ok(rows)
}

fn short(id: &str) -> &str {
    id.split_once('.').map_or(id, |(_, name)| name)
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
        assert!((rows[0].simulated - 856.0).abs() < 1e-6, "{rows:?}");
        assert!((rows[1].simulated - 818.0).abs() < 1e-6, "{rows:?}");
        assert!(rows[0].note.as_ref().unwrap().contains("internal_loop.A +13.2 %"), "{rows:?}");
    }
}
