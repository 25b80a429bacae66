//! The figures of the published experiments.

use anyhow::Result;
use memonet_sim::reproduce::Curve;
use plotters::prelude::*;

use crate::chart::{FONT, extent, number, register_built_in_font};

/// Small, with large letters: a phone shows it at half this size.
const SIZE: (u32, u32) = (720, 600);
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 100, 0),
    RGBColor(0, 130, 80),
    RGBColor(170, 40, 120),
    RGBColor(90, 90, 90),
    RGBColor(150, 110, 0),
];

/// Width of the labels to the left of a figure, and height of a line of its legend.
const LEFT: i32 = 90;
const LINE: i32 = 26;

/// Name and SVG of each figure, in the order of their first curves.
pub fn all<'a>(curves: impl IntoIterator<Item = &'a Curve>) -> Result<Vec<(String, String)>> {
    register_built_in_font()?;
    let mut figures: Vec<(&str, Vec<&Curve>)> = Vec::new();
    for curve in curves {
        match figures.iter_mut().find(|(name, _)| *name == curve.figure) {
            Some((_, curves)) => curves.push(curve),
            None => figures.push((curve.figure, vec![curve])),
        }
    }
    figures.into_iter().map(|(name, curves)| Ok((name.to_owned(), draw(name, &curves)?))).collect()
}

/// The file name of a figure.
pub fn file_name(figure: &str) -> String {
    let words = figure.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// A number on the axis of sizes and nodes: large powers of two in K and M.
fn short(x: f64) -> String {
    match x {
        x if x >= 1048576.0 => format!("{:.0}M", x / 1048576.0),
        x if x >= 8192.0 => format!("{:.0}K", x / 1024.0),
        x => format!("{x:.0}"),
    }
}

fn draw(title: &str, curves: &[&Curve]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (head, area) = area.split_vertically(44 + LINE * curves.len().div_ceil(2) as i32);
        head.draw(&Text::new(title.to_owned(), (90, 12), (FONT, 24)))?;
        let points = curves.iter().flat_map(|curve| &curve.points);
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(60)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(
                extent(points.clone().map(|point| point.0), 1.3).log_scale().base(2.0),
                extent(points.map(|point| point.1), 1.6).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc(curves[0].x)
            .y_desc(curves[0].y)
            .x_labels(9)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| number(*y))
            .label_style((FONT, 20))
            .light_line_style(BLACK.mix(0.04))
            .bold_line_style(BLACK.mix(0.15))
            .draw()?;
        for ((number, curve), color) in (0..).zip(curves).zip(COLORS.iter().cycle()) {
            let style = color.stroke_width(2);
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), style).point_size(3))?;
            // The legend has two curves a line. It stands above the figure, where it hides none.
            let (x, y) = (LEFT + number % 2 * (SIZE.0 as i32 - LEFT) / 2, 52 + number / 2 * LINE);
            head.draw(&PathElement::new([(x, y), (x + 24, y)], color.stroke_width(4)))?;
            head.draw(&Text::new(curve.label.clone(), (x + 32, y - 10), (FONT, 19)))?;
        }
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_of_one_figure_are_drawn_together() {
        let curve = |figure, label: &str| Curve {
            figure,
            label: label.into(),
            x: "nodes",
            y: "ns",
            points: vec![(2.0, 10.0), (4.0, 20.0)],
        };
        let figures =
            all(&[curve("a: x/y", "first"), curve("b", "other"), curve("a: x/y", "second")])
                .unwrap();
        assert_eq!(figures.len(), 2);
        let (name, svg) = &figures[0];
        assert!(svg.contains("first") && svg.contains("second") && !svg.contains("other"), "{svg}");
        assert_eq!(file_name(name), "a-x-y");
    }
}
