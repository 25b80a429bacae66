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
    // SAFETY: `offset` gives words of the heap and of static data, the program's own.
    or_die(call, unsafe { state.segment.lock_set(lock) });
}

/// 0 where the lock was free and is now this PE's, 1 where it was not.
pub unsafe fn test(call: &'static str, lock: *mut c_long) -> c_int {
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: as in `set`.
    let taken = or_die(call, unsafe { state.segment.lock_test(lock) });
    c_int::from(!taken)
}

pub unsafe fn clear(call: &'static str, lock: *mut c_long) {
    let state = get(call);
    let lock = offset(state, call, lock);
    // SAFETY: `offset` gives words of the heap and of static data, the program's own.
    or_die(call, unsafe { state.segment.lock_clear(lock) });
}
