//! What all experiments come to: a line for each system, and a picture of each row's simulated
//! figure against the published one.

use anyhow::Result;
use memonet_sim::reproduce::{Errors, Role, Row, bounds, errors, errors_of, errors_of_estimates};
use plotters::prelude::*;

use super::table::Ran;
use crate::chart::{FONT, register_built_in_font};

/// The errors between which the picture draws a band, as parts of one.
const BAND: f64 = 0.15;
const SIZE: (u32, u32) = (720, 420);
/// The picture's axis: simulated over published. What lies beyond stands at its edge.
const AXIS: std::ops::Range<f64> = 0.7..1.3;

/// The texts of a table: its heads, then a line for each system, then one for all.
pub fn table(all: &[Ran]) -> Vec<[String; 8]> {
    let rows: Vec<&Row> = all.iter().flat_map(|ran| &ran.outcome.rows).collect();
    let mut systems: Vec<&str> = Vec::new();
    for row in &rows {
        if !systems.contains(&system(row)) {
            systems.push(system(row));
        }
    }
    let heads =
        ["system", "rows", "median", "worst", "estimates", "bounds met", "fitted", "FLAGGED"];
    let mut lines = vec![heads.map(str::to_owned)];
    for name in systems {
        let of_system = rows.iter().copied().filter(|row| system(row) == name);
        lines.push(line(name, &of_system.collect::<Vec<_>>()));
    }
    lines.push(line("all", &rows));
    lines
}

/// The system of a row.
fn system(row: &Row) -> &str {
    row.id.split('.').next().unwrap_or_default()
}

fn line(name: &str, rows: &[&Row]) -> [String; 8] {
    let of = || rows.iter().copied();
    let percent = |error: f64| format!("{error:.1} %");
    let (rows, median, worst) = match errors(of()) {
        None => ("0".into(), String::new(), String::new()),
        Some(Errors { median, worst, rows }) => (rows.to_string(), percent(median), percent(worst)),
    };
    let estimates = errors_of_estimates(of());
    let estimates =
        estimates.map(|errors| format!("{}, worst {}", errors.rows, percent(errors.worst)));
    let bounds = match bounds(of()) {
        (_, 0) => String::new(),
        (met, of) => format!("{met} of {of}"),
    };
    let count = |counts: &dyn Fn(&Row) -> bool| of().filter(|row| counts(row)).count().to_string();
    let fitted = count(&|row| row.role == Role::Fitted && row.published.is_some());
    let flagged = count(&|row| row.contradiction.is_some());
    [name.into(), rows, median, worst, estimates.unwrap_or_default(), bounds, fitted, flagged]
}

/// How the rows that were left out of fitting came out, in a line.
pub fn left_out(all: &[Ran]) -> Option<String> {
    let rows = all.iter().flat_map(|ran| &ran.outcome.rows);
    let Errors { median, worst, rows } = errors_of(Role::LeftOut, rows)?;
    Some(format!(
        "{rows} published figures, each predicted by a constant that was fitted to all others of its kind: error {median:.1} % in the median, {worst:.1} % at most."
    ))
}

/// The picture: each row with a published figure, from left to right, at what was simulated over
/// what was published. Nothing, if no row has one.
pub fn picture(all: &[Ran]) -> Result<Option<String>> {
    register_built_in_font()?;
    let rows = all.iter().flat_map(|ran| &ran.outcome.rows);
    let shown: Vec<(&Row, f64)> = rows
        .filter(|row| !matches!(row.role, Role::Input | Role::LeftOut))
        .filter_map(|row| Some((row, 1.0 + row.error_percent()? / 100.0)))
        .collect();
    if shown.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    draw(&shown, &mut svg)?;
    Ok(Some(svg))
}

/// A row's kind in the picture: its color, and its words in the legend.
fn kind(row: &Row) -> (RGBColor, &'static str) {
    match (row.contradiction.is_some(), row.role, row.estimate) {
        (true, ..) => (RGBColor(220, 100, 0), "FLAGGED"),
        (_, Role::Fitted, _) => (RGBColor(150, 150, 150), "fitted"),
        (_, _, true) => (RGBColor(0, 130, 80), "estimate of the authors"),
        _ => (RGBColor(0, 90, 181), "measured"),
    }
}

fn draw(shown: &[(&Row, f64)], svg: &mut String) -> Result<()> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (head, area) = area.split_vertically(70);
    let title = format!("{} rows: simulated over published", shown.len());
    head.draw(&Text::new(title, (90, 12), (FONT, 24)))?;
    let mut left = 90;
    for (color, words) in legend(shown) {
        head.draw(&Circle::new((left, 54), 5, color.filled()))?;
        head.draw(&Text::new(words, (left + 10, 44), (FONT, 19)))?;
        left += 24 + 10 * words.len() as i32;
    }
    let end = shown.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(80)
        .build_cartesian_2d(-1.0..end, AXIS)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc("rows, in the order of the tables")
        .y_desc("simulated / published")
        .y_labels(7)
        .label_style((FONT, 20))
        .bold_line_style(BLACK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (level, style) in [
        (1.0, BLACK.stroke_width(2)),
        (1.0 - BAND, BLACK.mix(0.5).stroke_width(1)),
        (1.0 + BAND, BLACK.mix(0.5).stroke_width(1)),
    ] {
        chart.draw_series(LineSeries::new([(-1.0, level), (end, level)], style))?;
    }
    chart.draw_series(shown.iter().enumerate().map(|(place, &(row, ratio))| {
        let inside = ratio.clamp(AXIS.start, AXIS.end);
        Circle::new((place as f64, inside), 4, kind(row).0.filled())
    }))?;
    area.present()?;
    Ok(())
}

/// Colors and words of the kinds that are shown, each once.
fn legend(shown: &[(&Row, f64)]) -> Vec<(RGBColor, &'static str)> {
    let mut kinds: Vec<(RGBColor, &'static str)> = Vec::new();
    for (row, _) in shown {
        if !kinds.iter().any(|&(_, words)| words == kind(row).1) {
            kinds.push(kind(row));
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use memonet_sim::reproduce::{Claim, EXPERIMENTS, Outcome};

    fn ran() -> [Ran; 1] {
        let row = |id: &str, simulated| Row {
            published: Some(Claim::Is(100.0)),
            ..Row::predicted(id, "ns", simulated)
        };
        let rows = vec![
            row("one.a", 104.0),
            row("one.b", 110.0),
            row("two.a", 300.0).contradiction("100, and 300"),
            row("two.b", 100.0).fitted(),
            Row { estimate: true, ..row("two.c", 120.0) },
            Row { published: Some(Claim::AtMost(9.0)), ..Row::predicted("two.d", "ns", 10.0) },
            Row::predicted("two.e", "ns", 10.0),
        ];
        [Ran { experiment: EXPERIMENTS[0], outcome: Outcome { rows, ..Outcome::default() } }]
    }

    #[test]
    fn each_system_has_a_line_and_all_have_one() {
        let lines = table(&ran());
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1], ["one", "2", "7.0 %", "10.0 %", "", "", "0", "0"]);
        assert_eq!(lines[2], ["two", "0", "", "", "1, worst 20.0 %", "0 of 1", "1", "1"]);
        assert_eq!(lines[3][..4], ["all", "2", "7.0 %", "10.0 %"]);
    }

    #[test]
    fn the_picture_has_each_row_with_a_figure() {
        let svg = picture(&ran()).unwrap().expect("there are figures");
        let in_legend = 4;
        assert_eq!(svg.matches("<circle").count(), 5 + in_legend, "{svg}");
        assert!(svg.contains("5 rows") && svg.contains("FLAGGED") && svg.contains("estimate"));
        let none = Outcome { rows: vec![Row::predicted("x", "ns", 1.0)], ..Outcome::default() };
        let none = [Ran { experiment: EXPERIMENTS[0], outcome: none }];
        assert_eq!(picture(&none).unwrap(), None);
    }
}
