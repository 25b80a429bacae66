//! The statistics of shared objects that PEs write when they finalise.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use memonet_core::dsm::ENV_STATS_FD;

use crate::shared_file;

/// The file to which all PEs of a host append their statistics.
pub struct Stats(File);

impl Stats {
    /// Makes the file, and passes its descriptor to the PEs.
    pub fn collect(environment: &mut Vec<(String, String)>) -> Result<Stats> {
        let file = shared_file::appended("memonet stats")?;
        environment.push((ENV_STATS_FD.into(), file.as_raw_fd().to_string()));
        Ok(Stats(file))
    }

    /// What the PEs have written. PEs that died are missing.
    pub fn lines(mut self) -> Result<Vec<u8>> {
        let mut lines = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut lines).context("cannot read the statistics of shared objects")?;
        Ok(lines)
    }
}

/// A line for each object and PE, ordered by object.
pub fn table(lines: &[u8]) -> String {
    let lines = String::from_utf8_lossy(lines);
    let mut rows: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split(' ').collect())
        .filter(|row: &Vec<_>| row.len() == 8)
        .collect();
    if rows.is_empty() {
        return "memonet: no PE that ended in order has had shared objects\n".into();
    }
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    rows.sort_by_key(|row| (number(row[2]), number(row[0])));
    let mut table = format!(
        "memonet: {:<12} {:>4} {:>12} {:>12} {:>12} {:>12} {:>15}\n",
        "object", "PE", "uses", "hits", "hand-overs", "messages", "bytes"
    );
    for row in rows {
        let object = format!("{} {}", row[1], row[2]);
        table += &format!(
            "memonet: {object:<12} {:>4} {:>12} {:>12} {:>12} {:>12} {:>15}\n",
            row[0], row[3], row[4], row[5], row[6], row[7]
        );
    }
    table
}
