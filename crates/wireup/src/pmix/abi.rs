//! What of libpmix's binary interface is used, which 4.2 and 5 have alike.

#![allow(non_camel_case_types, reason = "names as in pmix.h")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

pub(super) const SUCCESS: c_int = 0;
pub(super) const ERR_NOT_FOUND: c_int = -46;
/// The time limit of an operation has passed.
pub(super) const ERR_TIMEOUT: c_int = -24;
/// The value is with all processes.
pub(super) const GLOBAL: u8 = 3;
/// Stands for the job where a process is named.
pub(super) const RANK_WILDCARD: u32 = 0xffff_fffe;
pub(super) const LONGEST_NAME: usize = 255;
pub(super) const LONGEST_KEY: usize = 511;

pub(super) const JOB_SIZE: &CStr = c"pmix.job.size";
pub(super) const COLLECT_DATA: &CStr = c"pmix.collect";
pub(super) const IMMEDIATE: &CStr = c"pmix.immediate";
pub(super) const TIMEOUT: &CStr = c"pmix.timeout";

/// Types of values.
pub(super) mod kind {
    pub(in crate::pmix) const BOOL: u16 = 1;
    pub(in crate::pmix) const STRING: u16 = 3;
    pub(in crate::pmix) const SIZE: u16 = 4;
    pub(in crate::pmix) const INT: u16 = 6;
    pub(in crate::pmix) const INT8: u16 = 7;
    pub(in crate::pmix) const INT16: u16 = 8;
    pub(in crate::pmix) const INT32: u16 = 9;
    pub(in crate::pmix) const INT64: u16 = 10;
    pub(in crate::pmix) const UINT: u16 = 11;
    pub(in crate::pmix) const UINT8: u16 = 12;
    pub(in crate::pmix) const UINT16: u16 = 13;
    pub(in crate::pmix) const UINT32: u16 = 14;
    pub(in crate::pmix) const UINT64: u16 = 15;
    pub(in crate::pmix) const BYTE_OBJECT: u16 = 27;
    pub(in crate::pmix) const PROC_RANK: u16 = 40;
}

/// A process: the job's name, and its number there.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct pmix_proc_t {
    pub(super) nspace: [c_char; LONGEST_NAME + 1],
    pub(super) rank: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct pmix_byte_object_t {
    pub(super) bytes: *mut c_char,
    pub(super) size: usize,
}

/// What a value's type says which field of it holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union pmix_data_t {
    pub(super) flag: u8,
    pub(super) string: *mut c_char,
    pub(super) int8: i8,
    pub(super) int16: i16,
    pub(super) int32: i32,
    pub(super) int64: i64,
    pub(super) uint8: u8,
    pub(super) uint16: u16,
    pub(super) uint32: u32,
    pub(super) uint64: u64,
    pub(super) bo: pmix_byte_object_t,
    /// As large as the largest of the fields that are not used here.
    pub(super) largest: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct pmix_value_t {
    pub(super) kind: u16,
    pub(super) data: pmix_data_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct pmix_info_t {
    pub(super) key: [c_char; LONGEST_KEY + 1],
    pub(super) flags: u32,
    pub(super) value: pmix_value_t,
}

const _: () = {
    assert!(size_of::<pmix_proc_t>() == 260 && offset_of!(pmix_proc_t, rank) == 256);
    assert!(size_of::<pmix_byte_object_t>() == 16);
    assert!(size_of::<pmix_value_t>() == 32 && offset_of!(pmix_value_t, data) == 8);
    assert!(size_of::<pmix_info_t>() == 552);
    assert!(offset_of!(pmix_info_t, flags) == 512 && offset_of!(pmix_info_t, value) == 520);
};

/// Called by a thread of libpmix when an operation is done.
pub(super) type pmix_op_cbfunc_t = extern "C" fn(status: c_int, data: *mut c_void);

pub(super) type Initialized = unsafe extern "C" fn() -> c_int;
pub(super) type Init = unsafe extern "C" fn(*mut pmix_proc_t, *const pmix_info_t, usize) -> c_int;
pub(super) type Put = unsafe extern "C" fn(u8, *const c_char, *mut pmix_value_t) -> c_int;
pub(super) type Commit = unsafe extern "C" fn() -> c_int;
pub(super) type FenceNb = unsafe extern "C" fn(
    *const pmix_proc_t,
    usize,
    *const pmix_info_t,
    usize,
    pmix_op_cbfunc_t,
    *mut c_void,
) -> c_int;
pub(super) type Get = unsafe extern "C" fn(
    *const pmix_proc_t,
    *const c_char,
    *const pmix_info_t,
    usize,
    *mut *mut pmix_value_t,
) -> c_int;
pub(super) type Finalize = unsafe extern "C" fn(*const pmix_info_t, usize) -> c_int;
pub(super) type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;
