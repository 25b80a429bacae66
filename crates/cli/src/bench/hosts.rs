//! Jobs of this program on several hosts that measure rows.

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::part::Part;
use super::row::{Effort, Ground, Row};
use super::stats::{LIBRARY, Record};
use crate::run::{self, Chosen};

/// The hosts of a bench, at least two.
pub struct Hosts {
    pub names: Vec<String>,
    pub chosen: Chosen,
}

/// The series of near rows in a job that has no far PE.
const ALONE: &str = "the same in a job on the first host alone";

impl Hosts {
    /// The hosts that the user has chosen; `None` for a bench of this machine.
    pub fn of(chosen: &Chosen) -> Result<Option<Self>> {
        let Some(names) = chosen.names()? else { return Ok(None) };
        ensure!(
            names.len() > 1,
            "a bench between hosts needs two at least: --hosts a,b. Without --hosts, the bench measures this machine"
        );
        Ok(Some(Hosts { names, chosen: chosen.clone() }))
    }

    /// `memonet run` of this program with a part, and so many PEs on each of the first `count`
    /// hosts.
    pub fn job(&self, count: usize, pes: usize, part: &Part) -> Result<Command> {
        let program = run::this_program()?;
        let mut command = Command::new(&program);
        command.arg("run").args(self.chosen.options(&self.names[..count], pes));
        command.arg(&program).args(part.arguments()?).stdin(Stdio::null());
        Ok(command)
    }

    /// Measures rows of one specification with one job on all hosts, which has this variable, name
    /// and value.
    pub fn measure(
        &self,
        rows: &[Row],
        effort: Effort,
        variable: Option<(String, String)>,
    ) -> Result<Vec<Record>> {
        self.measure_on(self.names.len(), rows, effort, variable)
    }

    fn measure_on(
        &self,
        count: usize,
        rows: &[Row],
        effort: Effort,
        variable: Option<(String, String)>,
    ) -> Result<Vec<Record>> {
        let ground = Ground { hosts: count, interface: self.chosen.interface.clone() };
        let part = Part::PeOnHosts { rows: rows.to_vec(), effort, ground };
        let mut command = self.job(count, rows[0].pes, &part)?;
        command.envs(variable);
        let output = command.stderr(Stdio::piped()).output();
        let output = output.context("cannot start memonet run")?;
        std::io::stderr().write_all(&output.stderr)?;
        ensure!(output.status.success(), "the job that measures it failed, see above");
        let lines = output.stdout.lines();
        let record = |line: std::io::Result<String>| {
            let line = line?;
            serde_json::from_str(&line)
                .with_context(|| format!("a PE wrote something other than samples: {line}"))
        };
        lines.map(record).collect()
    }

    /// Measures near rows in jobs on all hosts and in jobs on the first one alone, in turns.
    pub fn measure_near(&self, rows: &[Row], effort: Effort) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for round in 0..effort.rounds {
            let mut turns = [(LIBRARY, self.names.len()), (ALONE, 1)];
            if round % 2 > 0 {
                turns.reverse();
            }
            for (series, count) in turns {
                let once = Effort { rounds: 1, ..effort };
                let of_job = self.measure_on(count, rows, once, None)?;
                let here = |record| Record { series: series.into(), round, ..record };
                records.extend(of_job.into_iter().map(here));
            }
        }
        Ok(records)
    }
}
