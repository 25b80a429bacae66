//! Interference: busy processes without memonet, one pinned to each CPU.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use memonet_core::unstable::launch::cpu_list;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::part::Part;
use crate::run;

/// Busy processes. Dropping this value ends them.
pub struct Interference(Vec<Child>);

impl Interference {
    /// Starts one on each CPU, and returns when all are busy.
    pub fn on_each_cpu() -> Result<Self> {
        let mut all = Self(Vec::new());
        for cpu in cpu_list() {
            let part = Part::Interference { cpu, parent: std::process::id() };
            let mut command = Command::new(run::this_program()?);
            command.args(part.arguments()?).stdin(Stdio::null()).stdout(Stdio::piped());
            all.0.push(command.spawn().context("cannot start a busy process")?);
        }
        for process in &mut all.0 {
            if let Some(out) = &mut process.stdout {
                out.read_exact(&mut [0]).context("a busy process ended at once, see above")?;
            }
        }
        Ok(all)
    }
}

impl Drop for Interference {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Fails only for one that has already ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Entry point of a busy process: keeps `cpu` busy until it is killed, or until the bench with the
/// process id `parent` is gone.
pub fn run(cpu: usize, parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Pid::from_raw(parent as i32) {
        return Ok(());
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot pin to CPU {cpu}"))?;
    std::io::stdout().write_all(b".")?;
    std::io::stdout().flush()?;
    loop {
        std::hint::black_box(());
    }
}
