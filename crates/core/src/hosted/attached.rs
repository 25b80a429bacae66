//! A process that is a PE of a simulated machine: its side of the passage.

use super::ask::Ask;
use super::clock;
use super::fabric::{HostedFabric, Port, refused};
use super::passage::{Own, Run, peek};
use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::base::settings::ENV_MACHINE_FD;
use crate::base::settings::ENV_PE;
use crate::endpoint::ending::NOT_THE_PE;
use crate::endpoint::fabric::Fabric;
use crate::lifecycle::inherit::inherited;
use crate::lifecycle::start::Seat;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// This process's way to the machine, once it has joined.
static JOINED: OnceLock<Arc<Process>> = OnceLock::new();

/// Run when the program is loaded: it is to see the machine's time from its first line on.
extern "C" fn load() {
    let number = std::env::var(ENV_MACHINE_FD).ok().and_then(|value| value.parse().ok());
    if let Some(Ok(fd)) = number.map(inherited)
        && let Some(run) = peek(&ManuallyDrop::new(fd))
    {
        show_time(run, pe_in_environment().unwrap_or(0));
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

fn pe_in_environment() -> Option<usize> {
    std::env::var(ENV_PE).ok()?.parse().ok()
}

fn show_time(run: Run, pe: usize) {
    // Each PE has random bytes of its own; no two of a run the same.
    clock::show(run.cpu_scale, run.seed.rotate_left(32) ^ pe as u64);
}

/// Joins the simulated machine whose launcher has started this process as this PE, if it was one.
/// Returns when it is this PE's turn.
///
/// # Errors
/// [`Error::Environment`] for a descriptor that is none of a machine, and what the machine says.
pub fn join(seat: &Seat) -> Result<Option<Box<dyn Fabric>>> {
    let (me, npes) = (seat.pe(), seat.npes());
    let Some(value) = std::env::var_os(ENV_MACHINE_FD) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    let number = value.parse().map_err(|_| "is not a number");
    let fd = number.and_then(inherited).map_err(|problem| Error::Environment {
        name: ENV_MACHINE_FD,
        value,
        problem: problem.into(),
        fix: "Start the program with `memonet run --machine`, or unset it. There, a program that becomes another one with `execve` cannot have the library too",
    })?;
    let (own, run) = Own::attach(fd, me, npes)?;
    show_time(run, me);
    if let Some(complaint) = clock::complaint(me) {
        eprintln!("{complaint}");
    }
    let process = Arc::new(Process { me: me as u32, id: std::process::id(), own: Mutex::new(own) });
    // SAFETY: no block goes with it.
    let offers = unsafe { process.call(Ask::Begin, null_mut()) }?;
    let _ = JOINED.set(process.clone());
    Ok(Some(Box::new(HostedFabric::new(process, offers & 1 != 0, offers & 2 != 0))))
}

/// Has the machine let so much time pass. False where this process is not a PE of one, or not yet.
pub(super) fn sleep(time: Duration) -> bool {
    let Some(process) = JOINED.get() else { return false };
    // What the PE forks off has its memory, and is not the PE.
    // SAFETY: no block goes with it.
    process.id == std::process::id()
        && unsafe { process.call(Ask::Compute { time }, null_mut()) }.is_ok()
}

/// This process's way to the machine. One call at a time: threads of the process wait for each
/// other, in real time.
struct Process {
    me: u32,
    id: u32,
    own: Mutex<Own>,
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
            // Its parent's turn is not its own.
            return Err(Error::Misuse(NOT_THE_PE));
        }
        let own = lock(&self.own);
        // SAFETY: the caller's promise.
        let reply = unsafe { own.call(ask, clock::computed(), block) };
        let reply =
            reply.ok_or_else(|| refused("the launcher takes this process for ended".into()))?;
        clock::went_on(reply.now);
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
        // SAFETY: no block goes with it.
        unsafe { self.call(map, null_mut()) }.map(drop)
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        // It fails where the process has ended for the launcher, to which nothing matters any more.
        // SAFETY: as above.
        let _ = unsafe { self.call(Ask::Unmap { pe, region }, null_mut()) };
    }
}
