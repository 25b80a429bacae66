//! Starts a job of this program that measures rows, and collects its samples.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};

use super::catalog;
use super::interference::Interference;
use super::part::{Part, this_program};
use super::row::{Effort, Row};
use super::spec::Setting;
use super::stats::Record;
use crate::run;

/// Measures rows of one specification with one job.
pub fn measure(rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
    // Inherited by the PEs. In append mode each of their writes goes to the end, whoever else
    // writes.
    let records = memfd_create("memonet bench", MemfdFlags::empty()).context("memfd_create")?;
    fcntl_setfl(&records, fcntl_getfl(&records)? | OFlags::APPEND)?;
    let part = Part::Pe { rows: rows.to_vec(), effort, records: records.as_raw_fd() };
    let n = rows[0].pes;
    let args = part.arguments()?.map(Into::into).into();
    let setting = catalog::spec(&rows[0]).special.setting;
    let _busy = match setting {
        Setting::Interference => Some(Interference::on_each_cpu()?),
        _ => None,
    };
    let status = run::launch(run::Spec {
        programs: vec![run::Program { n, program: this_program()?.into(), args }],
        options: options(setting),
    })?;
    // ExitCode offers no more than this.
    ensure!(status == ExitCode::SUCCESS, "the job that measures it failed, see above");
    let mut file = File::from(records);
    file.rewind()?;
    let lines = BufReader::new(file).lines();
    lines
        .map(|line| {
            serde_json::from_str(&line?).context("a PE handed over something else than samples")
        })
        .collect()
}

/// How the job is to run.
fn options(setting: Setting) -> run::Options {
    let mut options = run::Options::default();
    match setting {
        Setting::Plain | Setting::Interference => {}
        Setting::Variable(variable) => options.environment = vec![variable()],
        Setting::Machine(name) => options.simulated.machine = Some(name.into()),
    }
    options
}
