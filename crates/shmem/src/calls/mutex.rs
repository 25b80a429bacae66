//! Data that belong to a lock, an extension.

use crate::state::handle::{Mutex, Stats, Table};
use crate::state::lock::lock;
use crate::state::{State, check_result, die, fail, get as state, or_die};
use memonet_core::dsm;
use memonet_core::unstable::digest::Digest;
use memonet_core::{Error, Max};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// The data of a mutex or lock, aligned for any C type.
pub(super) type Data = [u128];

/// The alignment for any C type.
const ALIGN: usize = align_of::<u128>();

/// The table of mutexes. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 65536> = Table::new();

/// A mutex, with its guard while this PE holds it. The guard borrows from the `Arc`, whose contents
/// do not move.
pub struct Made {
    // The first field, so that the guard is dropped before the mutex.
    held: std::sync::Mutex<Option<dsm::Guard<'static, Data>>>,
    mutex: Arc<dsm::Mutex<Data>>,
    /// Where its variables begin, in bytes.
    variables: Box<[usize]>,
}

impl Made {
    fn held(&self) -> MutexGuard<'_, Option<dsm::Guard<'static, Data>>> {
        lock(&self.held)
    }

    /// Keeps a guard until the release, and gives the address of its data.
    fn hold(&self, mut guard: dsm::Guard<'static, Data>) -> *mut c_void {
        let data = guard.as_mut_ptr().cast();
        *self.held() = Some(guard);
        data
    }
}

fn made(call: &'static str, mutex: Mutex) -> &'static Made {
    // SAFETY: programs do not destroy mutexes that they use.
    match unsafe { ALL.get(mutex.0) } {
        Some(made) => made,
        None => die(call, "mutex: this is no mutex, or it was destroyed before"),
    }
}

/// `bytes` of zeros.
pub(super) fn zeros(call: &'static str, bytes: usize) -> Vec<u128> {
    let mut data = Vec::new();
    let count = bytes.div_ceil(size_of::<u128>());
    if data.try_reserve_exact(count).is_err() {
        die(call, format_args!("bytes: there is no memory for {bytes} bytes of data"));
    }
    data.resize(count, 0u128);
    data
}

/// Copies `bytes` of the program's, unless there are none, to byte `at` of the data.
///
/// # Safety
/// `initial` is null, or has `bytes` bytes; the data have room for them.
pub(super) unsafe fn copy_in(data: &mut Data, at: usize, initial: *const u8, bytes: usize) {
    if !initial.is_null() {
        let to = data.as_mut_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: the caller's promise; any bytes are a value of `u128`.
        unsafe { std::ptr::copy_nonoverlapping(initial, to, bytes) };
    }
}

/// The handle of a new object; nothing where there is no memory, or no room in the table.
pub(super) fn insert<M, T, const N: usize>(
    call: &'static str,
    table: &Table<T, N>,
    new: memonet_core::Result<M>,
    made: impl FnOnce(M) -> T,
) -> Option<usize> {
    match new {
        Ok(new) => table.insert(made(new)),
        // All PEs get these errors alike.
        Err(Error::TooMany { .. } | Error::OutOfMemory { .. }) => None,
        Err(error) => fail(call, error),
    }
}

fn make(call: &'static str, state: &State, data: &Data, variables: Box<[usize]>) -> Option<usize> {
    insert(call, &ALL, dsm::Mutex::new(&state.job, data), |mutex| Made {
        held: Default::default(),
        mutex: Arc::new(mutex),
        variables,
    })
}

/// Collective over all PEs. The data begin as the `initial` of one PE, or as zeros.
pub unsafe fn create(
    call: &'static str,
    initial: *const c_void,
    bytes: usize,
    mutex: *mut Mutex,
) -> c_int {
    let state = state(call);
    check_result(call, "mutex", mutex);
    let mut data = zeros(call, bytes);
    // SAFETY: the program's source has `bytes` bytes, and the vector has room for them.
    unsafe { copy_in(&mut data, 0, initial.cast(), bytes) };
    let handle = make(call, state, &data, Box::new([0]));
    // SAFETY: the program's variable.
    unsafe { *mutex = Mutex(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// Collective over all PEs. The variables begin as the `initial` of one PE, or as zeros.
pub unsafe fn create_variables(
    call: &'static str,
    initial: *const c_void,
    bytes: *const usize,
    count: c_int,
    mutex: *mut Mutex,
) -> c_int {
    let state = state(call);
    check_result(call, "mutex", mutex);
    if count < 1 || bytes.is_null() {
        die(call, "count, bytes: give at least one variable, and the size of each");
    }
    // SAFETY: the program's array has `count` sizes.
    let sizes = unsafe { std::slice::from_raw_parts(bytes, count as usize) };
    let mut end = 0usize;
    let places: Box<[usize]> = sizes
        .iter()
        .map(|&size| {
            let place = end;
            let next = place.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGN));
            end = next.unwrap_or_else(|| {
                die(call, "bytes: the variables together are more than memory can hold")
            });
            place
        })
        .collect();
    let mut data = zeros(call, end);
    let mut from = initial.cast::<u8>();
    for (&place, &size) in places.iter().zip(sizes) {
        // SAFETY: the program's source has the bytes of all variables, and the vector has room for
        // this one at its place.
        unsafe { copy_in(&mut data, place, from, size) };
        from = if from.is_null() { from } else { from.wrapping_add(size) };
    }
    let handle = make(call, state, &data, places);
    if handle.is_some() {
        compare_sizes(call, state, sizes);
    }
    // SAFETY: the program's variable.
    unsafe { *mutex = Mutex(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// Ends the job where PEs give different sizes with one sum, which are equal data to the core.
fn compare_sizes(call: &'static str, state: &State, sizes: &[usize]) {
    let digest = Digest::new().words(sizes).value();
    // The largest, and the complement of the smallest.
    let mut both = [digest, !digest];
    or_die(call, state.job.world().all_reduce_slice(Max, &mut both));
    if both != [digest, !digest] {
        die(call, "bytes: another PE gives other sizes; all PEs give the same sizes in one order");
    }
}

/// The address of a variable, which stays the same.
pub unsafe fn variable(call: &'static str, mutex: Mutex, variable: c_int) -> *mut c_void {
    let _state = state(call);
    let made = made(call, mutex);
    match usize::try_from(variable).ok().and_then(|variable| made.variables.get(variable)) {
        Some(&place) => made.mutex.data_ptr().cast::<u8>().wrapping_add(place).cast(),
        None => die(
            call,
            format_args!(
                "variable: there is no variable {variable} in a mutex of {}",
                made.variables.len()
            ),
        ),
    }
}

/// Waits for the data. Gives their address, which is valid until the release.
pub unsafe fn acquire(call: &'static str, mutex: Mutex) -> *mut c_void {
    let _state = state(call);
    let made = made(call, mutex);
    made.hold(or_die(call, made.mutex.lock()))
}

/// As `acquire`, or null if another thread has the data.
pub unsafe fn try_acquire(call: &'static str, mutex: Mutex) -> *mut c_void {
    let _state = state(call);
    let made = made(call, mutex);
    or_die(call, made.mutex.try_lock()).map_or(std::ptr::null_mut(), |guard| made.hold(guard))
}

/// As `acquire`, or null if `seconds` pass before.
pub unsafe fn timed_acquire(call: &'static str, mutex: Mutex, seconds: f64) -> *mut c_void {
    let _state = state(call);
    let (made, limit) = (made(call, mutex), limit(call, seconds));
    in_time(call, made.mutex.lock_timeout(limit))
        .map_or(std::ptr::null_mut(), |guard| made.hold(guard))
}

/// A time limit.
pub(super) fn limit(call: &'static str, seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_else(|_| {
        die(call, format_args!("seconds: {seconds} is no time to wait; give a number from 0 on"))
    })
}

/// What a call with a time limit gives; nothing if the time was up.
pub(super) fn in_time<R>(call: &'static str, result: memonet_core::Result<R>) -> Option<R> {
    match result {
        Err(Error::Timeout { .. }) => None,
        other => Some(or_die(call, other)),
    }
}

pub unsafe fn release(call: &'static str, mutex: Mutex) {
    let _state = state(call);
    let held = made(call, mutex).held().take();
    match held {
        Some(guard) => or_die(call, guard.release()),
        None => die(call, "mutex: this PE has not acquired it; call shmemx_mutex_acquire before"),
    }
}

pub unsafe fn stats(call: &'static str, mutex: Mutex, stats: *mut Stats) {
    let _state = state(call);
    check_result(call, "stats", stats);
    // SAFETY: the program's variable.
    unsafe { *stats = made(call, mutex).mutex.stats().into() };
}

/// Each PE destroys the mutex when no PE uses it any more. The memory is free when all have.
pub unsafe fn destroy(call: &'static str, mutex: Mutex) {
    let _state = state(call);
    made(call, mutex);
    // SAFETY: programs do not destroy mutexes that they use.
    drop(unsafe { ALL.remove(mutex.0) });
}
