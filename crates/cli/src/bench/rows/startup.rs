//! Start-up and end of whole jobs, seen from outside.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::part::Part;
use crate::bench::row::{Effort, Row};
use crate::bench::stats::{LIBRARY, Record};
use crate::run;

/// A program that does nothing.
const NOTHING: &str = "/bin/true";

pub fn measure(rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let bare = Path::new(NOTHING).exists();
    for row in rows {
        // The first round brings the programs into memory and is not counted.
        let begun = Instant::now();
        for round in 0..=effort.rounds {
            if round > 1 && effort.is_spent(begun) {
                break;
            }
            let mut samples = Vec::new();
            if bare {
                samples.push(("posix_spawn of `true`", bare_loop(row.pes)?));
            }
            samples.push((LIBRARY, job(row.pes)?));
            if round > 0 {
                records.extend(Record::of_sample(&row.id, round, samples));
            }
        }
    }
    Ok(records)
}

fn job(pes: usize) -> Result<f64> {
    let program = run::this_program()?;
    let mut command = Command::new(&program);
    command
        .args(["run", "-n", &pes.to_string()])
        // Also in an allocation of several hosts, the row is one of this machine.
        .env_remove("SLURM_JOB_NODELIST")
        .arg(&program)
        .args(Part::Join.arguments()?)
        .stdin(Stdio::null());
    let start = Instant::now();
    let status = command.status().context("cannot start memonet run")?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "memonet run: {status}");
    Ok(milliseconds)
}

/// Without work between fork and exec, as here, std starts processes by `posix_spawn`.
fn bare_loop(processes: usize) -> Result<f64> {
    let start = Instant::now();
    let children =
        (0..processes).map(|_| Command::new(NOTHING).spawn()).collect::<Result<Vec<_>, _>>();
    for mut child in children.with_context(|| format!("cannot start {NOTHING}"))? {
        child.wait()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
