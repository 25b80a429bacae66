//! What the doctor says: lines for people as they come, or JSON at the end.

use serde::Serialize;

use super::Verdict::{self, Bad, Good, Poor};

/// What was found.
pub struct Report {
    json: bool,
    /// What the next lines are about: a host, or what lies between hosts.
    about: Option<String>,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    about: Option<String>,
    /// `ok`; `note`: jobs run, but could run better; `bad`: no job can run.
    verdict: &'static str,
    what: String,
    found: String,
    fix: Option<String>,
}

#[derive(Serialize)]
struct Whole<'a> {
    memonet: &'a str,
    system: &'a str,
    jobs_can_run: bool,
    summary: &'a str,
    findings: &'a [Line],
}

impl Report {
    pub fn new(json: bool) -> Self {
        Report { json, about: None, lines: Vec::new() }
    }

    /// Text for people alone.
    pub fn text(&self, text: &str) {
        if !self.json {
            println!("{text}");
        }
    }

    /// Says what the next lines are about.
    pub fn about(&mut self, what: &str) {
        self.text(what);
        self.about = Some(what.into());
    }

    pub fn line(&mut self, verdict: Verdict, what: &str, found: &str) {
        let (mark, verdict, fix) = match verdict {
            Good => ("ok  ", "ok", None),
            Poor { fix } => ("note", "note", Some(fix)),
            Bad { fix } => ("BAD ", "bad", Some(fix)),
        };
        self.text(&format!("  {mark}  {what:<14} {found}"));
        if let Some(fix) = &fix {
            self.text(&format!("        {:<14} -> {fix}", ""));
        }
        let (about, what, found) = (self.about.clone(), what.into(), found.into());
        self.lines.push(Line { about, verdict, what, found, fix });
    }

    pub fn good(&mut self, what: &str, found: &str) {
        self.line(Good, what, found);
    }

    pub fn note(&mut self, what: &str, found: &str, fix: &str) {
        self.line(Poor { fix: fix.into() }, what, found);
    }

    pub fn bad(&mut self, what: &str, found: &str, fix: &str) {
        self.line(Bad { fix: fix.into() }, what, found);
    }

    /// Whether jobs can run.
    pub fn is_good(&self) -> bool {
        self.lines.iter().all(|line| line.verdict != "bad")
    }

    /// Ends with a summary; `system`: of what this machine is.
    pub fn end(self, system: &str, summary: &str) -> serde_json::Result<()> {
        self.text(&format!("\n{summary}"));
        if self.json {
            let whole = Whole {
                memonet: env!("CARGO_PKG_VERSION"),
                system,
                jobs_can_run: self.is_good(),
                summary,
                findings: &self.lines,
            };
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
        Ok(())
    }
}
