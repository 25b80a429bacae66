//! Joins a process to a simulated machine, as one of its PEs.

use super::ask::Ask;
use super::fabric::{HostedFabric, Offers, Port};
use super::passage::{Own, Run, peek};
use super::process::Process;
use super::replaced;
use crate::base::error::{Error, Result};
use crate::base::settings::{ENV_MACHINE_FD, ENV_PE};
use crate::endpoint::ending;
use crate::endpoint::fabric::Fabric;
use crate::lifecycle::inherit::inherited;
use crate::lifecycle::start::Seat;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

/// Runs when the program is loaded, so that it sees the machine's time from its first line on.
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
    // The PEs of a run get different random bytes.
    replaced::show(run.cpu_scale, run.seed.rotate_left(32) ^ pe as u64);
}

/// Joins the simulated machine that the launcher has started this process for, if it has. Returns
/// when it is this PE's turn.
///
/// # Errors
/// [`Error::Environment`] for a descriptor that is not that of a machine; refusals of the machine.
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
    if let Some(complaint) = replaced::complaint(me) {
        eprintln!("{complaint}");
    }
    ending::mark_children()?;
    let process = Process::new(seat.clone(), own);
    // SAFETY: the question has no block.
    let offers = unsafe { process.call(Ask::Begin, null_mut()) }?;
    process.joined();
    Ok(Some(Box::new(HostedFabric::new(process, Offers::from_bits(offers)))))
}
