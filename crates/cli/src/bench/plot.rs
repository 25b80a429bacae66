//! Latency and bandwidth against size, with the limits, as SVG and PNG.

use std::path::{Path, PathBuf};

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::report::Measured;
use super::row::Row;
use crate::chart::{FONT, extent, number, register_built_in_font};

const SIZE: (u32, u32) = (1280, 800);
const PUT: RGBColor = RGBColor(0, 90, 181);
const GET: RGBColor = RGBColor(220, 100, 0);
const SIGNAL: RGBColor = RGBColor(0, 130, 80);

/// The specifications that are drawn.
pub const DRAWN: [&str; 3] = ["put_bandwidth", "get_bandwidth", "put_signal"];

/// A curve of a figure; its points are bytes and value.
struct Curve {
    label: &'static str,
    color: RGBColor,
    /// Limits are dashed.
    is_limit: bool,
    points: Vec<(f64, f64)>,
}

/// Draws the measured rows into `folder`. Returns the files.
pub fn draw(folder: &Path, rows: &[Measured]) -> Result<Vec<PathBuf>> {
    register_built_in_font()?;
    let figures = [
        ("latency", "Latency", "microseconds", latency(rows)),
        ("bandwidth", "Bandwidth", "MB/s", bandwidth(rows)),
    ];
    let mut drawn = Vec::new();
    for (name, title, axis, curves) in figures {
        if curves.is_empty() {
            continue;
        }
        let (svg, png) = (folder.join(format!("{name}.svg")), folder.join(format!("{name}.png")));
        figure(SVGBackend::new(&svg, SIZE).into_drawing_area(), title, axis, &curves)?;
        figure(BitMapBackend::new(&png, SIZE).into_drawing_area(), title, axis, &curves)?;
        drawn.extend([svg, png]);
    }
    Ok(drawn)
}

/// Whether [`draw`] draws something of these rows.
pub fn can_draw(rows: &[Row]) -> bool {
    rows.iter().any(|row| DRAWN.contains(&row.spec.as_str()))
}

fn bandwidth(rows: &[Measured]) -> Vec<Curve> {
    let rate = |_, megabytes| megabytes;
    let mut curves = with_limit(rows, "put_bandwidth", PUT, "put", "memcpy to the peer", rate);
    curves.extend(with_limit(rows, "get_bandwidth", GET, "get", "memcpy from the peer", rate));
    curves
}

fn latency(rows: &[Measured]) -> Vec<Curve> {
    let one_way = |_, nanoseconds| nanoseconds / 2e3;
    let duration = |bytes, megabytes| bytes / megabytes;
    let mut curves = with_limit(
        rows,
        "put_signal",
        SIGNAL,
        "put with signal, until seen",
        "memcpy, then flag, until seen",
        one_way,
    );
    curves.extend(with_limit(
        rows,
        "put_bandwidth",
        PUT,
        "put, until it returns",
        "memcpy to the peer",
        duration,
    ));
    curves.extend(with_limit(rows, "get_bandwidth", GET, "get", "memcpy from the peer", duration));
    curves
}

/// The curves of a specification and of its limit: `value` of each size and median.
fn with_limit(
    rows: &[Measured],
    spec: &str,
    color: RGBColor,
    label: &'static str,
    limit: &'static str,
    value: impl Fn(f64, f64) -> f64,
) -> Vec<Curve> {
    let rows = || rows.iter().filter(|row| row.spec.name == spec);
    let mine = rows().map(|row| (row.size as f64, value(row.size as f64, row.median))).collect();
    let limits = rows()
        .filter_map(|row| Some((row.size as f64, value(row.size as f64, row.limit?))))
        .collect();
    let curves = [
        Curve { label, color, is_limit: false, points: mine },
        Curve { label: limit, color, is_limit: true, points: limits },
    ];
    curves.into_iter().filter(|curve| !curve.points.is_empty()).collect()
}

fn figure<B: DrawingBackend>(
    area: DrawingArea<B, Shift>,
    title: &str,
    axis: &str,
    curves: &[Curve],
) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let points = curves.iter().flat_map(|curve| &curve.points);
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!("{title} between two PEs against size (dashed: physical limit)"),
            (FONT, 30),
        )
        .margin(20)
        .x_label_area_size(60)
        .y_label_area_size(100)
        .build_cartesian_2d(
            extent(points.clone().map(|point| point.0), 1.4).log_scale().base(2.0),
            extent(points.map(|point| point.1), 1.6).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("bytes")
        .y_desc(axis)
        .x_labels(14)
        .x_label_formatter(&|&size| bytes(size))
        .y_label_formatter(&|value| number(*value))
        .label_style((FONT, 20))
        .light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for curve in curves {
        let style = curve.color.stroke_width(2);
        let points = curve.points.iter().copied();
        if curve.is_limit {
            chart
                .draw_series(DashedLineSeries::new(points, 7, 5, style))?
                .label(curve.label)
                .legend(move |(x, y)| {
                    EmptyElement::at((x, y))
                        + PathElement::new([(0, 0), (11, 0)], style)
                        + PathElement::new([(17, 0), (28, 0)], style)
                });
        } else {
            chart
                .draw_series(LineSeries::new(points, style).point_size(3))?
                .label(curve.label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 28, y)], style));
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .legend_area_size(40)
        .label_font((FONT, 20))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A number of bytes, with a binary prefix.
fn bytes(size: f64) -> String {
    const PREFIXES: [(f64, &str); 2] = [(1048576.0, " Mi"), (1024.0, " Ki")];
    match PREFIXES.iter().find(|(unit, _)| size >= *unit) {
        Some((unit, prefix)) => number(size / unit) + prefix,
        None => number(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{catalog, stats};

    fn measured(filter: &str) -> Vec<Measured> {
        let rows = catalog::select(catalog::rows(2), &[filter.into()]);
        let sample = |row: &Row, series: &str, slower: f64| {
            let ns = 2.0 + row.size as f64 / 20.0;
            let value =
                if row.spec == "put_signal" { 200.0 + ns } else { row.size as f64 * 1e3 / ns };
            stats::Record {
                row: row.id.clone(),
                series: series.into(),
                pe: 0,
                round: 0,
                values: vec![value * slower],
            }
        };
        let measure = |row| {
            Measured::new(row, &[sample(row, stats::LIBRARY, 0.9), sample(row, "memcpy", 1.0)])
                .unwrap()
        };
        rows.iter().map(measure).collect()
    }

    #[test]
    fn both_figures_are_drawn_in_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        let rows: Vec<_> = ["put_", "get_"].into_iter().flat_map(measured).collect();
        let drawn = draw(folder.path(), &rows).unwrap();
        let names: Vec<_> =
            drawn.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["latency.svg", "latency.png", "bandwidth.svg", "bandwidth.png"]);
        let svg = std::fs::read_to_string(&drawn[2]).unwrap();
        assert!(svg.contains("memcpy to the peer") && svg.contains("32 Mi"), "{svg}");
        assert!(std::fs::read(&drawn[3]).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn sizes_between_powers_of_two_have_their_own_labels() {
        assert_eq!(
            [8.0, 1024.0, 2896.3, 3.0 * 1048576.0].map(bytes),
            ["8", "1 Ki", "2.83 Ki", "3 Mi"]
        );
    }

    #[test]
    fn rows_without_a_size_cannot_be_drawn() {
        let folder = tempfile::tempdir().unwrap();
        assert!(draw(folder.path(), &measured("barrier.2")).unwrap().is_empty());
        let of = |filter: &str| catalog::select(catalog::rows(2), &[filter.into()]);
        assert!(!can_draw(&of("barrier.2")) && can_draw(&of("put_signal")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
