//! Supersteps, an extension: bulk-synchronous programs.

use crate::state::handle::{Supersteps, Table};
use crate::state::{check_result, die, fail, get as state, or_die};
use memonet_core::Error;
use std::ffi::{c_int, c_void};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The table of supersteps. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 256> = Table::new();

/// Supersteps of bytes. Threads may put at once, while none ends the superstep.
pub type Made = RwLock<memonet_core::Supersteps<u8>>;

fn made(call: &'static str, steps: Supersteps) -> &'static Made {
    // SAFETY: programs do not destroy supersteps that they use.
    match unsafe { ALL.get(steps.0) } {
        Some(made) => made,
        None => die(call, "steps: these are no supersteps, or they were destroyed before"),
    }
}

fn shared(made: &Made) -> RwLockReadGuard<'_, memonet_core::Supersteps<u8>> {
    made.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone(made: &Made) -> RwLockWriteGuard<'_, memonet_core::Supersteps<u8>> {
    made.write().unwrap_or_else(PoisonError::into_inner)
}

/// Collective over all PEs.
pub unsafe fn create(
    call: &'static str,
    bytes: usize,
    overlapped: c_int,
    steps: *mut Supersteps,
) -> c_int {
    let state = state(call);
    check_result(call, "steps", steps);
    let made = match overlapped {
        0 => memonet_core::Supersteps::new(&state.job, bytes),
        _ => memonet_core::Supersteps::overlapped(&state.job, bytes),
    };
    let handle = match made {
        Ok(made) => ALL.insert(RwLock::new(made)),
        // All PEs get these errors alike.
        Err(Error::TooMany { .. } | Error::OutOfMemory { .. }) => None,
        Err(error) => fail(call, error),
    };
    // SAFETY: the program's variable.
    unsafe { *steps = Supersteps(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

pub unsafe fn put(
    call: &'static str,
    steps: Supersteps,
    offset: usize,
    source: *const c_void,
    bytes: usize,
    pe: c_int,
) {
    let state = state(call);
    state.check_pe(call, "pe", pe);
    state.check_local(call, "source", source as usize, bytes);
    // SAFETY: the program's source has `bytes` bytes. Other PEs may write it during the call if it
    // is symmetric, which `put_from` allows.
    let put =
        unsafe { shared(made(call, steps)).put_from(pe as usize, offset, source.cast(), bytes) };
    or_die(call, put);
}

/// What this PE has received in this superstep.
pub unsafe fn received(call: &'static str, steps: Supersteps) -> *const c_void {
    let _state = state(call);
    shared(made(call, steps)).received_ptr().cast()
}

/// Ends the superstep. Collective over all PEs.
pub unsafe fn step(call: &'static str, steps: Supersteps) {
    let _state = state(call);
    or_die(call, alone(made(call, steps)).step());
}

/// Collective over all PEs.
pub unsafe fn destroy(call: &'static str, steps: Supersteps) {
    let _state = state(call);
    made(call, steps);
    // SAFETY: programs do not destroy supersteps that they use.
    if let Some(made) = unsafe { ALL.remove(steps.0) } {
        or_die(call, made.into_inner().unwrap_or_else(PoisonError::into_inner).free());
    }
}
