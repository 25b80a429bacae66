//! Memory under release consistency, an extension.

use crate::state::handle::{Region, Stats, Table};
use crate::state::lock::lock;
use crate::state::{State, check_result, die, fail, get as state, or_die};
use memonet_core::Error;
use memonet_core::dsm::{self, Placement, Reading, RegionOptions, Writing};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The table of regions. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 256> = Table::new();

/// A region, with the guards of the pointers that the program has into it. The guards borrow from
/// the `Arc`, whose contents do not move.
pub struct Made {
    // The first field, so that the guards are dropped before the region.
    open: Mutex<Vec<(usize, Open)>>,
    region: Arc<dsm::Region<u8>>,
}

/// What keeps a pointer valid.
enum Open {
    Reading { _guard: Reading<'static, u8> },
    Writing { _guard: Writing<'static, u8> },
}

/// `SHMEMX_REGION_CHECKED`.
const CHECKED: c_int = 16;

fn made(call: &'static str, region: Region) -> &'static Made {
    // SAFETY: programs do not destroy regions that they use.
    match unsafe { ALL.get(region.0) } {
        Some(made) => made,
        None => die(call, "region: this is no region, or it was destroyed before"),
    }
}

/// Collective over all PEs. The region begins as zeros.
pub unsafe fn create(
    call: &'static str,
    bytes: usize,
    page: usize,
    options: c_int,
    region: *mut Region,
) -> c_int {
    let state = state(call);
    check_result(call, "region", region);
    let placement = match options & !CHECKED {
        0 => Placement::Block,
        1 => Placement::Cyclic,
        2 => Placement::FirstTouch,
        _ => die(call, "options: give one of SHMEMX_REGION_..., and SHMEMX_REGION_CHECKED or not"),
    };
    let mut wanted = RegionOptions::new().placement(placement).checked(options & CHECKED != 0);
    if page != 0 {
        wanted = wanted.page(page);
    }
    let handle = match dsm::Region::with(&state.job, bytes, wanted) {
        Ok(region) => ALL.insert(Made { open: Mutex::default(), region: Arc::new(region) }),
        // All PEs get these errors alike.
        Err(Error::TooMany { .. } | Error::OutOfMemory { .. }) => None,
        Err(error) => fail(call, error),
    };
    // SAFETY: the program's variable.
    unsafe { *region = Region(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

fn range(call: &'static str, offset: usize, bytes: usize) -> Range<usize> {
    match offset.checked_add(bytes) {
        Some(end) => offset..end,
        None => die(
            call,
            format_args!("offset: {bytes} bytes from {offset} on end beyond all addresses"),
        ),
    }
}

/// Ends the job where an array is NULL, because a slice needs an address; with all checks on, also
/// where it is not memory.
fn check_array(
    state: &State,
    call: &'static str,
    argument: &'static str,
    array: *const c_void,
    bytes: usize,
) {
    if array.is_null() {
        die(
            call,
            format_args!("{argument}: NULL has no {bytes} bytes; give the address of an array"),
        );
    }
    state.check_local(call, argument, array as usize, bytes);
}

pub unsafe fn read(
    call: &'static str,
    region: Region,
    dest: *mut c_void,
    offset: usize,
    bytes: usize,
) {
    let state = state(call);
    let part = or_die(call, made(call, region).region.read(range(call, offset, bytes)));
    if bytes > 0 {
        check_array(state, call, "dest", dest, bytes);
        // SAFETY: the program's destination has `bytes` bytes, and no other thread uses them during
        // the call. `read_into` only writes them, so they need not be initialised.
        part.read_into(offset, unsafe { std::slice::from_raw_parts_mut(dest.cast(), bytes) });
    }
}

pub unsafe fn write(
    call: &'static str,
    region: Region,
    offset: usize,
    source: *const c_void,
    bytes: usize,
) {
    let state = state(call);
    let mut part = or_die(call, made(call, region).region.write(range(call, offset, bytes)));
    if bytes > 0 {
        check_array(state, call, "source", source, bytes);
        // SAFETY: the program's source has `bytes` bytes, and no thread writes them during the
        // call.
        part.write_from(offset, unsafe { std::slice::from_raw_parts(source.cast(), bytes) });
    }
}

/// A pointer to read from until its `end`; null where the bytes do not lie together.
pub unsafe fn start_read(
    call: &'static str,
    region: Region,
    offset: usize,
    bytes: usize,
) -> *const c_void {
    let _state = state(call);
    let made = made(call, region);
    let guard = or_die(call, made.region.read(range(call, offset, bytes)));
    let Some(start) = guard.as_ptr() else { return std::ptr::null() };
    lock(&made.open).push((start.addr(), Open::Reading { _guard: guard }));
    start.cast()
}

/// A pointer to read from and write to until its `end`; null where the bytes do not lie together.
pub unsafe fn start_write(
    call: &'static str,
    region: Region,
    offset: usize,
    bytes: usize,
) -> *mut c_void {
    let _state = state(call);
    let made = made(call, region);
    let mut guard = or_die(call, made.region.write(range(call, offset, bytes)));
    let Some(start) = guard.as_mut_ptr() else { return std::ptr::null_mut() };
    lock(&made.open).push((start.addr(), Open::Writing { _guard: guard }));
    start.cast()
}

/// Ends the use of a pointer: of the last that was given, where several begin there.
pub unsafe fn end(call: &'static str, region: Region, start: *const c_void) {
    let _state = state(call);
    let mut open = lock(&made(call, region).open);
    match open.iter().rposition(|&(address, _)| address == start.addr()) {
        Some(place) => drop(open.remove(place)),
        None => die(
            call,
            format_args!(
                "start: {start:p} is no pointer into the region that is in use; give what shmemx_region_start_read or shmemx_region_start_write gave, once"
            ),
        ),
    }
}

/// Gives 0, or 1 after a data race, which it reports on standard error.
fn report(state: &State, call: &'static str, result: Result<(), Error>) -> c_int {
    match result {
        Err(error @ Error::DataRace { .. }) => {
            eprintln!("memonet: PE {}: {call}: {}", state.job.pe(), error.of_call(None));
            1
        }
        other => {
            or_die(call, other);
            0
        }
    }
}

pub unsafe fn release(call: &'static str, region: Region) -> c_int {
    let state = state(call);
    report(state, call, made(call, region).region.release())
}

pub unsafe fn acquire(call: &'static str, region: Region) -> c_int {
    let state = state(call);
    report(state, call, made(call, region).region.acquire())
}

pub unsafe fn stats(call: &'static str, region: Region, stats: *mut Stats) {
    let _state = state(call);
    check_result(call, "stats", stats);
    // SAFETY: the program's variable.
    unsafe { *stats = made(call, region).region.stats().into() };
}

/// Each PE destroys the region when no PE uses it any more. The memory is free when all have.
pub unsafe fn destroy(call: &'static str, region: Region) {
    let _state = state(call);
    made(call, region);
    // SAFETY: programs do not destroy regions that they use.
    drop(unsafe { ALL.remove(region.0) });
}
