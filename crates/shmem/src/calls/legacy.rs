//! Functions from before OpenSHMEM 1.2 that have no other name today.

use memonet_core::unstable::shm::Word;
use std::ffi::c_int;

const NE: c_int = 1;

/// A program may call it again and again. The end of the program finalises the library.
pub unsafe fn start_pes(call: &'static str, _npes: c_int) {
    if crate::state::current().is_none() {
        // SAFETY: the caller's promise.
        unsafe { crate::calls::setup::init(call) };
    }
}

/// Waits until the variable is no longer `cmp_value`.
pub unsafe fn wait<T: Word>(call: &'static str, ivar: *mut T, cmp_value: T) {
    // SAFETY: the caller's promise.
    unsafe { crate::calls::sync::wait_until(call, ivar, NE, cmp_value) };
}
