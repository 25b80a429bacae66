//! Restricted windows: an extension. Memory that only those PEs reach whom its home gives the
//! right; a stray store by any other faults there, and leaves the memory untouched.

use crate::state::handle::{Right, Table, Window};
use crate::state::{State, check_result, die, get as state, or_die};
use memonet_core::{Access, Error};
use std::ffi::{c_int, c_void};

/// Restricted windows that the program has made. A static object, as most of its pages are never
/// touched.
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

/// Collective over all PEs; `right` must be the same function on each.
pub unsafe fn create(
    call: &'static str,
    bytes: usize,
    right: *mut Right,
    window: *mut Window,
) -> c_int {
    let state = state(call);
    check_result(call, "window", window);
    // SAFETY: a pointer to a function, as C hands it over; null is none.
    let Some(right) = (unsafe { std::mem::transmute::<*mut Right, Option<RightFn>>(right) }) else {
        die(call, "right: NULL is no function")
    };
    let access = |home: usize, holder: usize| {
        // SAFETY: the program's function, of the type that the header asks for.
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
        // Equal on all PEs.
        Err(Error::TooMany { .. } | Error::OutOfMemory { .. }) => None,
        Err(error) => die(call, error),
    };
    // SAFETY: the program's variable.
    unsafe { *window = Window(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// This PE's own part.
pub unsafe fn local(call: &'static str, window: Window) -> *mut c_void {
    let _state = state(call);
    made(call, window).local_ptr().cast()
}

/// 0, or the reason why the access was refused on standard error, and not 0.
fn told(state: &State, call: &'static str, result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error @ (Error::PeerFailed { .. } | Error::System { .. })) => die(call, error),
        Err(error) => {
            if state.check {
                eprintln!("memonet: PE {}: {call}: {error}", state.job.pe());
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
    // SAFETY: the program's source has so many bytes. It may be symmetric, so that others may write
    // it meanwhile.
    let put = unsafe { made(call, window).put_from(pe as usize, offset, source.cast(), bytes) };
    told(state, call, put)
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
    // SAFETY: the program's destination has room for so many bytes. It may be symmetric, so that
    // others may write it meanwhile.
    let got = unsafe { made(call, window).get_to(pe as usize, offset, dest.cast(), bytes) };
    told(state, call, got)
}

/// Takes back all rights to this PE's part, and waits until nobody uses one any more.
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
    // SAFETY: programs do not free what they use.
    if let Some(window) = unsafe { ALL.remove(window.0) } {
        or_die(call, window.free());
    }
}
