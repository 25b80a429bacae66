//! `--stats`: what the PEs of a run have recorded, as a table, JSON or a page.
//!
//! ```text
//! PEs ── count ──► file of records, one a host ── read at the end ──► Report ──► table, JSON, HTML
//!                        (agent: as JSON, by the control stream) ──┘
//! ```

mod html;
mod model;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use memonet_core::unstable::recorder::file::RecordFile;
pub use model::{PeStats, Report};

use crate::results::Results;

/// A form of the statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A table, on standard error.
    Table,
    /// JSON, in a file.
    Json(PathBuf),
    /// A page for browsers, in a file.
    Html(PathBuf),
}

impl Form {
    /// Whether a word behind `--stats` belongs to it, and is not the program. A word with a `:`
    /// that names no file is meant for a form, and is refused as one.
    pub fn is_meant(word: &str) -> bool {
        let is_form = word == "table" || word.starts_with("json:") || word.starts_with("html:");
        is_form || word.contains(':') && word != ":" && !Path::new(word).exists()
    }

    /// The file that it goes to.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Form::Table => None,
            Form::Json(path) | Form::Html(path) => Some(path),
        }
    }

    /// Writes it: a table on standard error, everything else into its file.
    fn write(&self, file: Option<Results>, report: &Report) -> Result<()> {
        let (text, path) = match self {
            Form::Table => {
                return std::io::stderr()
                    .write_all(table::table(report).as_bytes())
                    .context("cannot write the statistics to standard error");
            }
            Form::Json(path) => (report.json()? + "\n", path),
            Form::Html(path) => (html::page(report)?, path),
        };
        file.map_or(Ok(()), |file| file.begin()?.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write the statistics to {}", path.display()))
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Form, String> {
        match text.split_once(':') {
            None if text == "table" => Ok(Form::Table),
            Some(("json" | "html", "")) => Err(format!("{text} needs a file, as in {text}stats")),
            Some(("json", file)) => Ok(Form::Json(file.into())),
            Some(("html", file)) => Ok(Form::Html(file.into())),
            _ => Err("no form of --stats, which are `table`, `json:FILE` and `html:FILE`".into()),
        }
    }
}

/// The forms that the user wants, with their files.
pub struct Forms(Vec<(Form, Option<Results>)>);

impl Forms {
    /// Opens the files, before anything runs. `None` where the user wants no statistics.
    pub fn open(forms: &[Form]) -> Result<Option<Forms>> {
        let create = |path: &Path| {
            Results::open(path)
                .with_context(|| format!("cannot write the statistics to {}", path.display()))
        };
        let open = |form: &Form| Ok((form.clone(), form.file().map(create).transpose()?));
        let all = forms.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok((!all.is_empty()).then_some(Forms(all)))
    }

    /// Writes what a run has done in each form. Where one file cannot be written, the others are.
    pub fn write(self, report: &Report) -> Result<()> {
        let written = self.0.into_iter().map(|(form, file)| form.write(file, report));
        let failed: Vec<String> =
            written.filter_map(|done| Some(format!("{:#}", done.err()?))).collect();
        anyhow::ensure!(failed.is_empty(), "{}", failed.join("; "));
        Ok(())
    }
}

/// The file of records of the PEs of one host.
pub struct Records(RecordFile);

impl Records {
    /// Makes the file for `parts` PEs of `npes`, from `first` on, with room for `events` bytes of
    /// events each, and passes its descriptor to them.
    pub fn make(
        (npes, first, parts): (usize, usize, usize),
        events: u64,
        environment: &mut Vec<(String, String)>,
    ) -> Result<Records> {
        let file = RecordFile::create(npes, first, parts, events)?;
        let (name, value) = file.environment();
        environment.push((name.into(), value));
        Ok(Records(file))
    }

    /// The file.
    pub fn file(&self) -> &RecordFile {
        &self.0
    }

    /// What the PEs have counted, however they have ended.
    pub fn read(&self) -> Result<Vec<PeStats>> {
        let geometry = self.0.geometry();
        let all = geometry.first..geometry.first + geometry.parts;
        let read = |pe| Ok(self.0.counts(pe)?.map(|counts| PeStats::of(pe, counts)));
        all.filter_map(|pe| read(pe).transpose()).collect()
    }

    /// What the PEs have counted, for the launcher.
    pub fn encoded(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&self.read()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let file = |name: &str| PathBuf::from(name);
        for (text, form) in [
            ("table", Some(Form::Table)),
            ("json:a", Some(Form::Json(file("a")))),
            ("html:/b/c:d", Some(Form::Html(file("/b/c:d")))),
            ("json:", None),
            ("json", None),
            ("csv:a", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), form, "{text}");
        }
    }
}
