//! Calls for machines whose caches are not coherent. They do nothing, but a call before
//! `shmem_init` is still a mistake.

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
