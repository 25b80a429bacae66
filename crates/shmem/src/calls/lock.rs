//! Locks.

use crate::state::{State, current, die, get, or_die, record};
use memonet_core::unstable::segment::Segment;
use std::ffi::{c_int, c_long};

const BYTES: usize = size_of::<c_long>();

fn offset(state: &State, call: &'static str, lock: *mut c_long) -> u64 {
    if !(lock as usize).is_multiple_of(BYTES) {
        die(call, format_args!("lock: {lock:p} is not aligned to a long"));
    }
    state.symmetric(call, "lock", lock as usize, BYTES)
}

/// What `operation` gives for the lock's word; false where there is none.
#[inline(always)]
fn at_once(lock: *mut c_long, operation: impl FnOnce(&Segment, u64) -> bool) -> bool {
    let Some(state) = current().filter(|_| (lock as usize).is_multiple_of(BYTES)) else {
        return false;
    };
    state.offset(lock as usize, BYTES).is_some_and(|lock| operation(&state.segment, lock))
}

#[inline(always)]
pub unsafe fn set(call: &'static str, lock: *mut c_long) {
    // SAFETY: an aligned word of the heap or of static data, which the program owns.
    if !at_once(lock, |segment, lock| unsafe { segment.lock_set_at_once(lock) }) {
        set_slowly(call, lock);
    }
}

#[cold]
#[inline(never)]
#[unsafe(link_section = "memonet_calls")]
fn set_slowly(call: &'static str, lock: *mut c_long) {
    let _call = record::call(call);
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: `offset` gives an aligned word of the heap or of static data, which the program owns.
    or_die(call, unsafe { state.segment.lock_set(lock) });
}

/// Gives 0 where this PE has taken the lock, and 1 where another PE holds it.
pub unsafe fn test(call: &'static str, lock: *mut c_long) -> c_int {
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: as in `set_slowly`.
    let taken = or_die(call, unsafe { state.segment.lock_test(lock) });
    c_int::from(!taken)
}

#[inline(always)]
pub unsafe fn clear(call: &'static str, lock: *mut c_long) {
    // SAFETY: as in `set`.
    if !at_once(lock, |segment, lock| unsafe { segment.lock_clear_at_once(lock) }) {
        clear_slowly(call, lock);
    }
}

/// Where it waits, it is for an instant: for a PE that has come, but not said so.
#[cold]
#[inline(never)]
#[unsafe(link_section = "memonet_calls")]
fn clear_slowly(call: &'static str, lock: *mut c_long) {
    let _call = record::brief(call);
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: as in `set_slowly`.
    or_die(call, unsafe { state.segment.lock_clear(lock) });
}
