//! The functions that the C header inlines, as the API's table lists them.

use std::ffi::c_void;

/// Two addresses of a function: by the name that programs call, and by a name that only the library
/// has.
pub struct Names(pub *const c_void, pub *const c_void);

// SAFETY: the addresses are compared and never dereferenced.
unsafe impl Sync for Names {}

impl Names {
    /// Whether programs call a function other than the library's.
    fn differ(&self) -> bool {
        let [called, own] = [&self.0, &self.1].map(|name| {
            // SAFETY: `name` borrows a field. The read is volatile because the loader fills in the
            // address: the compiler would assume that two functions have different addresses.
            unsafe { std::ptr::read_volatile(name) }
        });
        called != own
    }
}

/// Whether a tool has replaced any of these functions.
pub fn are_replaced() -> bool {
    INLINED.iter().any(Names::differ)
}

include!(concat!(env!("OUT_DIR"), "/inlined.rs"));
