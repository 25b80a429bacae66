//! The functions that the C header inlines, as the API's table lists them.

use std::ffi::c_void;

/// A function by the name that programs call, and by the library's own.
pub struct Names(pub *const c_void, pub *const c_void);

// SAFETY: addresses that nobody follows.
unsafe impl Sync for Names {}

impl Names {
    /// Whether programs call another function than the library's.
    fn differ(&self) -> bool {
        let [called, own] = [&self.0, &self.1].map(|name| {
            // SAFETY: a field. The loader or linker has filled it, so the compiler is not to know
            // that two functions are never one.
            unsafe { std::ptr::read_volatile(name) }
        });
        called != own
    }
}

/// Whether programs call another function than the library's in place of any of them.
pub fn are_replaced() -> bool {
    INLINED.iter().any(Names::differ)
}

include!(concat!(env!("OUT_DIR"), "/inlined.rs"));
