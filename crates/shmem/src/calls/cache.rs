//! Calls of machines whose caches were not coherent: nothing to do, but a call too early is still
//! one.

use crate::state::get;
use std::ffi::c_void;

pub unsafe fn set_cache_inv(call: &'static str) {
    get(call);
}

pub unsafe fn set_cache_line_inv(call: &'static str, _dest: *mut c_void) {
    get(call);
}

pub unsafe fn clear_cache_inv(call: &'static str) {
    get(call);
}

pub unsafe fn clear_cache_line_inv(call: &'static str, _dest: *mut c_void) {
    get(call);
}

pub unsafe fn udcflush(call: &'static str) {
    get(call);
}

pub unsafe fn udcflush_line(call: &'static str, _dest: *mut c_void) {
    get(call);
}
