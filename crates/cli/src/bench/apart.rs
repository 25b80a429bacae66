//! Rows whose samples are each taken by a process of its own.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::catalog;
use super::part::Part;
use super::row::{Effort, Row};
use super::spec::Measure;
use super::stats::Record;
use crate::run;

/// Starts a process for each sample.
pub fn measure(rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for row in rows {
        for round in 0..effort.rounds {
            let part = Part::Sample { row: row.clone(), round, effort };
            let output = Command::new(run::this_program()?)
                .args(part.arguments()?)
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output()
                .context("cannot start the process that simulates")?;
            ensure!(
                output.status.success(),
                "the process that simulates {} failed: {}",
                row.id,
                output.status
            );
            let samples: Vec<Record> = serde_json::from_slice(&output.stdout)
                .context("the process that simulates wrote something other than samples")?;
            records.extend(samples);
        }
    }
    Ok(records)
}

/// Entry point of that process.
pub fn run(row: &Row, round: usize, effort: Effort) -> Result<()> {
    let Measure::Process(sample) = catalog::spec(row).measure else {
        bail!("{} is not measured by a process of its own", row.id);
    };
    let records = Record::of_sample(&row.id, round, sample(row, round, effort)?);
    Ok(serde_json::to_writer(std::io::stdout().lock(), &records)?)
}
