//! Locks.

use crate::state::{die, get, or_die};
use std::ffi::{c_int, c_long};

fn offset(call: &'static str, lock: *mut c_long) -> u64 {
    let state = get(call);
    if !(lock as usize).is_multiple_of(size_of::<c_long>()) {
        die(call, format_args!("lock: {lock:p} is not aligned to a long"));
    }
    state.symmetric(call, "lock", lock as usize, size_of::<c_long>())
}

pub unsafe fn set(call: &'static str, lock: *mut c_long) {
    or_die(call, get(call).job.lock_set(offset(call, lock)));
}

/// 0 where the lock was free and is now this PE's, 1 where it was not.
pub unsafe fn test(call: &'static str, lock: *mut c_long) -> c_int {
    c_int::from(!or_die(call, get(call).job.lock_test(offset(call, lock))))
}

pub unsafe fn clear(call: &'static str, lock: *mut c_long) {
    or_die(call, get(call).job.lock_clear(offset(call, lock)));
}
