//! Locks.

use crate::state::{State, die, get, or_die};
use std::ffi::{c_int, c_long};

#[inline(always)]
fn offset(state: &State, call: &'static str, lock: *mut c_long) -> u64 {
    if !(lock as usize).is_multiple_of(size_of::<c_long>()) {
        die(call, format_args!("lock: {lock:p} is not aligned to a long"));
    }
    state.symmetric(call, "lock", lock as usize, size_of::<c_long>())
}

pub unsafe fn set(call: &'static str, lock: *mut c_long) {
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: `offset` gives an aligned word of the heap or of static data, which the program owns.
    or_die(call, unsafe { state.segment.lock_set(lock) });
}

/// Gives 0 where this PE has taken the lock, and 1 where another PE holds it.
pub unsafe fn test(call: &'static str, lock: *mut c_long) -> c_int {
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: `offset` gives an aligned word of the heap or of static data, which the program owns.
    let taken = or_die(call, unsafe { state.segment.lock_test(lock) });
    c_int::from(!taken)
}

pub unsafe fn clear(call: &'static str, lock: *mut c_long) {
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: `offset` gives an aligned word of the heap or of static data, which the program owns.
    or_die(call, unsafe { state.segment.lock_clear(lock) });
}
