//! Starts a job of this program that measures rows, and collects its samples.

use std::io::{BufRead, BufReader, Seek};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use super::catalog;
use super::interference::Interference;
use super::part::Part;
use super::row::{Effort, Row};
use super::spec::Setting;
use super::stats::Record;
use crate::{run, shared_file};

/// Measures rows of one specification with one job.
pub fn measure(rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
    let mut records = shared_file::appended("memonet bench")?;
    let part = Part::Pe { rows: rows.to_vec(), effort, records: records.as_raw_fd() };
    let n = rows[0].pes;
    let args = part.arguments()?.map(Into::into).into();
    let setting = catalog::spec(&rows[0]).special.setting;
    let _busy = match setting {
        Setting::Interference => Some(Interference::on_each_cpu()?),
        _ => None,
    };
    let status = run::launch(run::Spec {
        programs: vec![run::Program { n, program: run::this_program()?.into(), args }],
        options: options(setting),
    })?;
    // The comparison is all that ExitCode offers.
    ensure!(status == ExitCode::SUCCESS, "the job that measures it failed, see above");
    records.rewind()?;
    let lines = BufReader::new(records).lines();
    lines
        .map(|line| serde_json::from_str(&line?).context("a PE wrote something other than samples"))
        .collect()
}

/// The options of the job.
fn options(setting: Setting) -> run::Options {
    let mut options = run::Options::default();
    match setting {
        Setting::Plain | Setting::Interference => {}
        Setting::Variable(variable) => options.environment = vec![variable()],
        Setting::Machine(name) => options.simulated.machine = Some(name.into()),
    }
    options
}
