//! A process that is a PE of a simulated machine: its side of the passage.

use super::ask::Ask;
use super::fabric::{HostedFabric, Port, refused};
use super::passage::{ENV_FD, Own};
use crate::error::{Error, Result};
use crate::fabric::Fabric;
use crate::job::inherited;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// This process's time, in nanoseconds, when it last went on.
static NOW: AtomicU64 = AtomicU64::new(0);

/// Joins the simulated machine whose launcher has started this process as PE `me`, if it was one. Returns when it is this PE's turn.
pub(crate) fn join(me: usize, npes: usize) -> Result<Option<Box<dyn Fabric>>> {
    let Some(value) = std::env::var_os(ENV_FD) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    let number = value.parse().map_err(|_| "is not a number");
    let fd = number.and_then(inherited).map_err(|problem| Error::Environment {
        name: ENV_FD,
        value,
        problem: problem.into(),
        fix: "Start the program with `memonet run --machine`, or unset it",
    })?;
    let process = Process {
        me: me as u32,
        own: Mutex::new(Own::attach(fd, me, npes)?),
    };
    // SAFETY: no block goes with it.
    let groups = unsafe { process.call(Ask::Begin, null_mut()) }? != 0;
    Ok(Some(Box::new(HostedFabric::new(process, groups))))
}

/// This process's way to the machine. One call at a time: threads of the process wait for each other, in real time.
struct Process {
    me: u32,
    own: Mutex<Own>,
}

impl Port for Process {
    fn pe(&self) -> u32 {
        self.me
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(NOW.load(Ordering::Relaxed))
    }

    unsafe fn call(&self, ask: Ask, block: *mut u8) -> Result<u64> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        let reply = unsafe { own.call(ask, Duration::ZERO, block) };
        let reply = reply.ok_or_else(|| refused("the launcher takes this process for ended".into()))?;
        NOW.store(reply.now.as_nanos() as u64, Ordering::Relaxed);
        reply.answer.map_err(refused)
    }

    unsafe fn map_region(&self, _pe: u32, _region: u32, _base: *mut u8, _len: usize) {}

    fn unmap_region(&self, _pe: u32, _region: u32) {}
}
