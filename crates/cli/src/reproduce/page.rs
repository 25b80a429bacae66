//! The report: one HTML page with all tables and figures, for screens of any width.

use std::fmt::Write;

use anyhow::Result;

use super::table::{Ran, cells, mark, remarks, summary};
use super::{figures, overview};

const STYLE: &str = "
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 0 1rem 3rem; color: #222; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
tr.fitted, tr.input { color: #6a6a6a; } tr.FLAGGED { color: #8a4b00; } td small { display: block; color: #8a4b00; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } p.errors { font-weight: 600; }
@media (max-width: 40rem) {
  table, tbody { display: block; } tr:first-child { display: none; }
  tr { display: grid; grid-template-columns: repeat(3, 1fr) 4rem; column-gap: .5rem; padding: .5rem 0; border-bottom: 1px solid #e4e4e4; }
  td[data-is=row] { font-size: .8rem; } table.summary tr { grid-template-columns: repeat(3, 1fr); } table.summary td { white-space: normal; }
  td, td:first-child { border: 0; padding: 0; text-align: left; } td:first-child { grid-column: 1 / -1; } td.unit { display: none; } td[data-unit]:not(:empty)::after { content: \" \" attr(data-unit); }
  td[data-is]:not(:empty)::before { content: attr(data-is) \" \"; font-size: .75rem; color: #767676; display: block; }
}";

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The report of these experiments.
pub fn page(all: &[Ran]) -> Result<String> {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>memonet reproduce</title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body>\n<h1>Published experiments, simulated</h1>\n\
         <p>The error says by how much the simulated figure exceeds the published one; a bound is met or not. Median and worst are of figures that were measured \
         and that the simulation predicts. Grey rows do not count: a constant of the machine file was fitted to them, or chosen in knowledge of them, or they show \
         inputs. Nor do rows count that are FLAGGED, as their publication contradicts itself. Estimates of the authors have errors of their own. Rows marked left \
         out are published figures, each predicted by a constant fitted to all others of its kind.</p>\n"
    );
    summary_of_all(&mut html, all)?;
    for ran in all {
        section(&mut html, ran)?;
    }
    html.push_str("</body></html>\n");
    Ok(html)
}

/// The summary that opens the page: a line for each system, and the picture.
fn summary_of_all(html: &mut String, all: &[Ran]) -> Result<()> {
    let lines = overview::table(all);
    let heads = &lines[0];
    html.push_str("<section><h2>Summary</h2><table class=\"summary\">");
    let cells: String = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    writeln!(html, "<tr>{cells}</tr>")?;
    for line in &lines[1..] {
        let cell = |(head, text): (&String, &String)| match head.as_str() {
            "system" => format!("<td>{}</td>", escaped(text)),
            head => format!("<td data-is=\"{head}\">{}</td>", escaped(text)),
        };
        let cells: String = heads.iter().zip(line).map(cell).collect();
        writeln!(html, "<tr>{cells}</tr>")?;
    }
    html.push_str("</table>\n");
    if let Some(line) = overview::left_out(all) {
        writeln!(html, "<p>{}</p>", escaped(&line))?;
    }
    if let Some(svg) = overview::picture(all)? {
        writeln!(html, "<figure>{}</figure>", scalable(&svg))?;
    }
    Ok(writeln!(html, "</section>")?)
}

fn section(html: &mut String, ran: &Ran) -> Result<()> {
    let Ran { experiment, outcome } = ran;
    writeln!(
        html,
        "<section><h2>{}</h2><p>{}</p>",
        escaped(experiment.name),
        escaped(experiment.summary)
    )?;
    html.push_str("<table><tr><th>figure</th><th>simulated</th><th>published</th><th>unit</th><th>error</th><th></th></tr>\n");
    for row in &outcome.rows {
        let [simulated, published, error] = cells(row);
        let notes: String =
            remarks(row).map(|note| format!("<small>{}</small>", escaped(&note))).collect();
        let (mark, id, unit) = (mark(row), escaped(&row.id), escaped(row.unit));
        let class = mark.replace(' ', "-");
        writeln!(
            html,
            "<tr class=\"{class}\"><td>{id}{notes}</td><td data-is=\"simulated\" data-unit=\"{unit}\">{simulated}</td><td data-is=\"published\" data-unit=\"{unit}\">{published}</td><td class=\"unit\">{unit}</td><td data-is=\"error\">{error}</td><td data-is=\"row\">{mark}</td></tr>"
        )?;
    }
    html.push_str("</table>\n");
    for line in summary(outcome) {
        writeln!(html, "<p class=\"errors\">{}</p>", escaped(&line))?;
    }
    for (_, svg) in figures::all(&outcome.curves)? {
        writeln!(html, "<figure>{}</figure>", scalable(&svg))?;
    }
    if !outcome.notes.is_empty() {
        let notes: String =
            outcome.notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
        writeln!(html, "<ul>{notes}</ul>")?;
    }
    Ok(writeln!(html, "</section>")?)
}

/// An SVG without the line that only a file needs.
fn scalable(svg: &str) -> &str {
    svg.find("<svg").map_or(svg, |start| &svg[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use memonet_sim::reproduce::{Curve, EXPERIMENTS, Outcome, Row};

    #[test]
    fn all_of_it_is_in_the_page() {
        let curve = Curve {
            figure: "a figure",
            label: "a curve".into(),
            x: "nodes",
            y: "ns",
            points: vec![(2.0, 10.0), (4.0, 20.0)],
        };
        let outcome = Outcome {
            rows: vec![Row::predicted("system.<row>", "ns", 12.0).note("a & b")],
            curves: vec![curve],
            notes: vec!["a note".into()],
        };
        let ran = Ran { experiment: EXPERIMENTS[0], outcome };
        let html = page(&[ran]).unwrap();
        for part in [
            "<h2>Summary</h2>",
            "system.&lt;row&gt;",
            "a &amp; b",
            "a note",
            "<svg",
            "a curve",
            "width=device-width",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let nothing_from_outside =
            html.matches("http").count() == html.matches("http://www.w3.org/2000/svg").count();
        assert!(nothing_from_outside, "{html}");
    }
}
