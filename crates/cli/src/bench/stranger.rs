//! Busy processes that know nothing of memonet, one pinned to each CPU.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use memonet_core::launch::cpu_list;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::{Part, this_program};

/// What a stranger is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    cpu: usize,
    parent: u32,
}

/// Strangers at work, until dropped.
pub struct Strangers(Vec<Child>);

impl Strangers {
    /// Returns when all of them are busy.
    pub fn on_each_cpu() -> Result<Self> {
        let mut strangers = Self(Vec::new());
        for cpu in cpu_list() {
            let task = Task { cpu, parent: std::process::id() };
            let mut command = Command::new(this_program()?);
            command
                .args(Part::Stranger(task).arguments()?)
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            strangers.0.push(command.spawn().context("cannot start a busy process")?);
        }
        for stranger in &mut strangers.0 {
            if let Some(out) = &mut stranger.stdout {
                out.read_exact(&mut [0]).context("a busy process ended at once, see above")?;
            }
        }
        Ok(strangers)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for stranger in &mut self.0 {
            // Fails only for one that has already ended.
            let _ = stranger.kill();
            let _ = stranger.wait();
        }
    }
}

/// Entry point of a stranger: busy until killed, or until the bench is gone.
pub fn run(task: &Task) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Pid::from_raw(task.parent as i32) {
        return Ok(());
    }
    let mut cpus = CpuSet::new();
    cpus.set(task.cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot pin to CPU {}", task.cpu))?;
    std::io::stdout().write_all(b".")?;
    std::io::stdout().flush()?;
    loop {
        std::hint::black_box(());
    }
}
