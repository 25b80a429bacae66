//! Starts a job of this program that measures rows, and collects its samples.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};

use super::catalog::{Effort, Kind, Row};
use super::stats::Record;
use super::{Part, pe, raw_udp, simulated, this_program};
use crate::run;

/// Measures rows of one kind with one job.
pub fn measure(rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
    // Inherited by the PEs. In append mode each of their writes goes to the end, whoever else
    // writes.
    let records = memfd_create("memonet bench", MemfdFlags::empty()).context("memfd_create")?;
    fcntl_setfl(&records, fcntl_getfl(&records)? | OFlags::APPEND)?;
    let task = pe::Task { rows: rows.to_vec(), effort, records: records.as_raw_fd() };
    let n = rows[0].pes;
    let args = Part::Pe(task).arguments()?.map(Into::into).into();
    let status = run::launch(run::Spec {
        programs: vec![run::Program { n, program: this_program()?.into(), args }],
        options: run::Options {
            environment: (rows[0].kind == Kind::MulticastUdp)
                .then(raw_udp::environment)
                .into_iter()
                .collect(),
            simulated: run::Simulated {
                machine: (rows[0].kind == Kind::SimulatedCall).then(|| simulated::MACHINE.into()),
                ..Default::default()
            },
            ..Default::default()
        },
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
