//! The statistics as one page, which needs nothing from outside.

use anyhow::Result;
use serde_json::{Value, json};

use super::model::{PeStats, Report};

/// What is the same in all pages.
const PAGE: &str = include_str!("page.html");

/// The page.
pub fn page(report: &Report) -> Result<String> {
    // In a script, no text may look like an end of it.
    let data = serde_json::to_string(&data(report))?.replace('<', "\\u003c");
    Ok(PAGE.replace("/*DATA*/null", &data))
}

/// The statistics as the page's script reads them.
fn data(report: &Report) -> Value {
    let kind = |name: &str| report.kinds.iter().position(|&kind| kind == name);
    let pe = |told: &PeStats| {
        let row = |one: &super::model::Operation| {
            Some(json!([one.target, kind(&one.kind)?, one.operations, one.bytes]))
        };
        let operations: Vec<Value> = told.operations.iter().filter_map(row).collect();
        json!({ "pe": told.pe, "calls": told.calls, "operations": operations, "objects": told.objects })
    };
    json!({
        "npes": report.npes,
        "simulated": report.simulated,
        "machine": report.machine,
        "kinds": report.kinds,
        "calls": report.calls(),
        "pes": report.pes.iter().map(pe).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_the_script_and_nothing_comes_from_outside() {
        let mut told = PeStats::default();
        told.calls
            .push(super::super::model::Call { name: "</script><b>".into(), ..Default::default() });
        let html = page(&Report::new(1, vec![told], None)).unwrap();
        assert_eq!(html.matches("</script>").count(), 1);
        assert!(html.contains("\\u003c/script>\\u003cb>") && !html.contains("/*DATA*/null"));
        assert!(!html.contains("http"), "{html}");
    }
}
