//! Prepared puts, an extension: the library checks and resolves the arguments once, and the program
//! starts the put many times.

use crate::calls::signal;
use crate::state::handle::{Ctx, Table, Transfer};
use crate::state::{die, get as state, or_die};
use memonet_core::SignalOp;
use memonet_core::unstable::segment::Spot;
use std::ffi::{c_int, c_void};

/// The table of prepared puts. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 65536> = Table::new();

/// A prepared put.
pub struct Made {
    to: Spot<'static>,
    from: *const u8,
    signal: Option<(Spot<'static>, SignalOp, u64)>,
}

impl Made {
    fn signal(&self) -> Option<(&Spot<'static>, SignalOp, u64)> {
        self.signal.as_ref().map(|(word, op, value)| (word, *op, *value))
    }
}

// SAFETY: `from` is read only when the program starts the transfer, from the thread that starts it.
unsafe impl Send for Made {}
// SAFETY: no method changes the fields; `from` is read only when the program starts the transfer.
unsafe impl Sync for Made {}

fn made(call: &'static str, transfer: Transfer) -> &'static Made {
    // SAFETY: programs do not free transfers that they use.
    match unsafe { ALL.get(transfer.0) } {
        Some(made) => made,
        None => die(call, "transfer: this is no transfer, or it was freed before"),
    }
}

fn keep(call: &'static str, made: Made) -> Transfer {
    or_die(call, made.to.keep_command(made.signal(), true));
    ALL.insert(made).map_or_else(|| die(call, "there are too many transfers; free some"), Transfer)
}

pub unsafe fn prepare(
    call: &'static str,
    dest: *mut c_void,
    source: *const c_void,
    bytes: usize,
    pe: c_int,
) -> Transfer {
    let state = state(call);
    let to = state.spot(call, "dest", Ctx::DEFAULT, dest as usize, bytes, pe);
    keep(call, Made { to, from: source.cast(), signal: None })
}

pub unsafe fn prepare_signal(
    call: &'static str,
    dest: *mut c_void,
    source: *const c_void,
    bytes: usize,
    sig_addr: *mut u64,
    value: u64,
    sig_op: c_int,
    pe: c_int,
) -> Transfer {
    let state = state(call);
    let to = state.spot(call, "dest", Ctx::DEFAULT, dest as usize, bytes, pe);
    let word = signal::word(call, Ctx::DEFAULT, sig_addr, pe);
    keep(
        call,
        Made { to, from: source.cast(), signal: Some((word, signal::op(call, sig_op), value)) },
    )
}

/// Puts the present contents of the source. The program does not change the source before `wait`
/// returns, or `test` gives 1.
pub unsafe fn start(call: &'static str, transfer: Transfer) {
    let _state = state(call);
    let made = made(call, transfer);
    // SAFETY: the program promises that the source still exists and has as many bytes as when it
    // prepared the transfer.
    let started = unsafe {
        match &made.signal {
            Some((word, op, value)) => made.to.put_signal_nbi(made.from, word, *op, *value),
            None => made.to.put_nbi(made.from),
        }
    };
    or_die(call, started);
}

pub unsafe fn test(call: &'static str, transfer: Transfer) -> c_int {
    let state = state(call);
    let made = made(call, transfer);
    let complete = match or_die(call, made.to.command_is_complete(made.signal())) {
        Some(complete) => complete,
        None => or_die(call, state.job.is_quiet()),
    };
    c_int::from(complete)
}

pub unsafe fn wait(call: &'static str, transfer: Transfer) {
    let state = state(call);
    let made = made(call, transfer);
    if !or_die(call, made.to.complete_command(made.signal())) {
        or_die(call, state.job.quiet());
    }
}

pub unsafe fn free(call: &'static str, transfer: Transfer) {
    let state = state(call);
    let made = made(call, transfer);
    or_die(call, state.job.quiet());
    or_die(call, made.to.keep_command(made.signal(), false));
    // SAFETY: programs do not free transfers that they use.
    unsafe { ALL.remove(transfer.0) };
}
