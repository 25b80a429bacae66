//! Locks.

use crate::state::{State, die, get, or_die};
use std::collections::HashMap;
use std::ffi::{c_int, c_long};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// With all checks on: the locks that this PE holds, and which thread took them.
#[derive(Default)]
pub struct Held(Mutex<HashMap<u64, ThreadId>>);

impl Held {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<u64, ThreadId>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

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
    if state.check {
        return set_checked(state, call, lock);
    }
    or_die(call, state.segment.lock_set(lock));
}

#[cold]
fn set_checked(state: &State, call: &'static str, lock: u64) {
    let mine = || thread::current().id();
    // Another thread of this PE may give it back.
    if state.locks.with(|held| held.get(&lock) == Some(&mine())) {
        die(
            call,
            "lock: this PE has it already, and would wait for itself: call shmem_clear_lock before",
        );
    }
    or_die(call, state.segment.lock_set(lock));
    state.locks.with(|held| held.insert(lock, mine()));
}

/// 0 where the lock was free and is now this PE's, 1 where it was not.
pub unsafe fn test(call: &'static str, lock: *mut c_long) -> c_int {
    let state = get(call);
    let lock = offset(state, call, lock);
    let taken = or_die(call, state.segment.lock_test(lock));
    if state.check && taken {
        state.locks.with(|held| held.insert(lock, thread::current().id()));
    }
    c_int::from(!taken)
}

pub unsafe fn clear(call: &'static str, lock: *mut c_long) {
    let state = get(call);
    let lock = offset(state, call, lock);
    if state.check {
        state.locks.with(|held| held.remove(&lock));
    }
    or_die(call, state.segment.lock_clear(lock));
}
