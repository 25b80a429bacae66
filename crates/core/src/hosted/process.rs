//! An attached process's way to the machine: its side of the passage.

use super::ask::Ask;
use super::clock;
use super::fabric::{Port, refused};
use super::passage::Own;
use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::endpoint::ending::NOT_THE_PE;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// This process's way to the machine, once it has joined.
static JOINED: OnceLock<Arc<Process>> = OnceLock::new();

/// Sleeps for so long in the machine's time. False if this process is not a PE of a machine, or has
/// not joined yet.
pub(super) fn sleep(time: Duration) -> bool {
    let Some(process) = JOINED.get() else { return false };
    // A process that the PE has forked off has a copy of its memory, and is not the PE.
    // SAFETY: the question has no block.
    process.id == std::process::id()
        && unsafe { process.call(Ask::Compute { time }, null_mut()) }.is_ok()
}

/// A process's way to the machine. It makes one call at a time: threads wait for each other, in
/// real time.
pub(super) struct Process {
    me: u32,
    id: u32,
    own: Mutex<Own>,
}

impl Process {
    /// This process, as PE `me`, by its passage.
    pub(super) fn new(me: u32, own: Own) -> Arc<Process> {
        Arc::new(Process { me, id: std::process::id(), own: Mutex::new(own) })
    }

    /// From now on [`sleep`] goes by this way.
    pub(super) fn joined(self: &Arc<Process>) {
        JOINED.get_or_init(|| self.clone());
    }
}

impl Port for Arc<Process> {
    fn pe(&self) -> u32 {
        self.me
    }

    fn now(&self) -> Duration {
        clock::now()
    }

    unsafe fn call(&self, ask: Ask, block: *mut u8) -> Result<u64> {
        if self.id != std::process::id() {
            // A forked process must not use its parent's turn.
            return Err(Error::misuse(NOT_THE_PE));
        }
        let own = lock(&self.own);
        // SAFETY: the caller promises the block.
        let reply = unsafe { own.call(ask, clock::computed(), block) };
        let reply =
            reply.ok_or_else(|| refused("the launcher takes this process for ended".into()))?;
        clock::resumed(reply.now);
        reply.answer.map_err(refused)
    }

    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        _base: *mut u8,
        len: usize,
        file: BorrowedFd<'_>,
    ) -> Result<()> {
        let map = Ask::Map { pe, region, len: len as u64, file: file.as_raw_fd() as u32 };
        // SAFETY: the question has no block.
        unsafe { self.call(map, null_mut()) }.map(drop)
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        // It fails only where the launcher counts the process as ended, and then does not matter.
        // SAFETY: as above.
        let _ = unsafe { self.call(Ask::Unmap { pe, region }, null_mut()) };
    }
}
