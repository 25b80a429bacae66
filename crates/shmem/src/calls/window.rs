//! Restricted windows, an extension: memory that only PEs with a right from its home can reach. A
//! stray store by another PE faults at that PE, and the memory stays as it is.

use crate::state::handle::{Right, Table, Window};
use crate::state::{State, check_result, die, fail, get as state, or_die};
use memonet_core::{Access, Error};
use std::ffi::{c_int, c_void};

/// The table of restricted windows. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 256> = Table::new();

type RightFn = unsafe extern "C" fn(home: c_int, holder: c_int) -> c_int;

/// A restricted window.
pub type Made = memonet_core::Window<u8>;

fn made(call: &'static str, window: Window) -> &'static Made {
    // SAFETY: programs do not free windows that they use.
    match unsafe { ALL.get(window.0) } {
        Some(made) => made,
        None => die(call, "window: this is no window, or it was freed before"),
    }
}

/// Collective over all PEs. `right` must be the same function on each PE.
pub unsafe fn create(
    call: &'static str,
    bytes: usize,
    right: *mut Right,
    window: *mut Window,
) -> c_int {
    let state = state(call);
    check_result(call, "window", window);
    // SAFETY: C passes a pointer to a function of this type, or null, which is `None`.
    let Some(right) = (unsafe { std::mem::transmute::<*mut Right, Option<RightFn>>(right) }) else {
        die(call, "right: NULL is no function")
    };
    let access = |home: usize, holder: usize| {
        // SAFETY: `right` is the program's function, and the header gives it this type.
        match unsafe { right(home as c_int, holder as c_int) } {
            0 => Access::None,
            1 => Access::Read,
            2 => Access::Write,
            3 => Access::ReadWrite,
            other => die(
                call,
                format_args!(
                    "right: gives {other} for PE {holder} and the window of PE {home}; give one of SHMEMX_ACCESS_..."
                ),
            ),
        }
    };
    let handle = match state.job.restricted::<u8>(bytes, access) {
        Ok(made) => ALL.insert(made),
        // All PEs get these errors alike.
        Err(Error::TooMany { .. } | Error::OutOfMemory { .. }) => None,
        Err(error) => fail(call, error),
    };
    // SAFETY: the program's variable.
    unsafe { *window = Window(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// The address of this PE's own part.
pub unsafe fn local(call: &'static str, window: Window) -> *mut c_void {
    let _state = state(call);
    made(call, window).local_ptr().cast()
}

/// Gives 0, or not 0 where the access was refused; with all checks on, it prints the reason.
fn report(state: &State, call: &'static str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error @ (Error::PeerFailed { .. } | Error::System { .. })) => fail(call, error),
        Err(error) => {
            if state.check {
                eprintln!("memonet: PE {}: {call}: {}", state.job.pe(), error.of_call(None));
            }
            1
        }
    }
}

pub unsafe fn put(
    call: &'static str,
    window: Window,
    offset: usize,
    source: *const c_void,
    bytes: usize,
    pe: c_int,
) -> c_int {
    let state = state(call);
    // SAFETY: the program's source has `bytes` bytes. Other PEs may write it during the call if it
    // is symmetric, which `put_from` allows.
    let put = unsafe { made(call, window).put_from(pe as usize, offset, source.cast(), bytes) };
    report(state, call, put)
}

pub unsafe fn get(
    call: &'static str,
    window: Window,
    dest: *mut c_void,
    offset: usize,
    bytes: usize,
    pe: c_int,
) -> c_int {
    let state = state(call);
    // SAFETY: the program's destination has room for `bytes` bytes. Other PEs may write it during
    // the call if it is symmetric, which `get_to` allows.
    let got = unsafe { made(call, window).get_to(pe as usize, offset, dest.cast(), bytes) };
    report(state, call, got)
}

/// Revokes all rights to this PE's part, and waits until no PE uses one any more.
pub unsafe fn revoke(call: &'static str, window: Window) {
    let _state = state(call);
    let window = made(call, window);
    or_die(call, window.revoke());
    or_die(call, window.revoke_wait(None));
}

/// Collective over all PEs.
pub unsafe fn free(call: &'static str, window: Window) {
    let _state = state(call);
    made(call, window);
    // SAFETY: programs do not free windows that they use.
    if let Some(window) = unsafe { ALL.remove(window.0) } {
        or_die(call, window.free());
    }
}
