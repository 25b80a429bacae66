//! Start and end of jobs on several hosts, seen from outside.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::hosts::Hosts;
use crate::bench::part::Part;
use crate::bench::row::{Effort, Row};
use crate::bench::stats::{LIBRARY, Record};

const BARE: &str = "`true` on all hosts at once";

pub fn measure(hosts: &Hosts, rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for row in rows {
        // The first round brings the programs into memory and is not counted.
        for round in 0..=effort.rounds {
            let mut samples = Vec::new();
            for job_is_next in [round % 2 == 0, round % 2 > 0] {
                samples.push(match job_is_next {
                    true => (LIBRARY, job(hosts, row.pes)?),
                    false => (BARE, bare(hosts)?),
                });
            }
            if round > 0 {
                records.extend(Record::of_sample(&row.id, round, samples));
            }
        }
    }
    Ok(records)
}

fn job(hosts: &Hosts, pes: usize) -> Result<f64> {
    let mut command = hosts.job(hosts.names.len(), pes, &Part::Join)?;
    let start = Instant::now();
    let status = command.status().context("cannot start memonet run")?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "memonet run: {status}");
    Ok(milliseconds)
}

fn bare(hosts: &Hosts) -> Result<f64> {
    let start = Instant::now();
    let begin = |host: &String| {
        let mut command = hosts.chosen.command(host, &[OsString::from("true")])?;
        command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot reach {host}"))
    };
    let children = hosts.names.iter().map(begin).collect::<Result<Vec<_>>>()?;
    for (mut child, host) in children.into_iter().zip(&hosts.names) {
        let status = child.wait()?;
        ensure!(status.success(), "`true` on {host}: {status}");
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
