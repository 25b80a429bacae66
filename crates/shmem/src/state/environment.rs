//! The environment variables of the standard. With some of them, a user asks the library about
//! itself.

use crate::state::library::State;
use memonet_core::unstable::settings::{self, Setting};
use std::ffi::OsString;
use std::sync::Once;

/// The name that `shmem_info_get_name` gives.
pub const VENDOR: &str = concat!("memonet ", env!("CARGO_PKG_VERSION"));

/// The standard's variable for the size of the symmetric heap, and its old name. The value is a
/// limit; without it, only memory limits the heap.
pub const ENV_LIMIT: [&str; 2] = ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE"];

/// The value of a variable under its present name, or else under its old one, with the name that is
/// set.
pub fn standard(names: [&'static str; 2]) -> Option<(&'static str, OsString)> {
    names.into_iter().find_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Prints what the user asks for, and what the user must know, once in a process. All PEs have
/// joined the job.
pub fn tell(state: &State) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        if let Some(why) = state.job.why_apart() {
            eprintln!("memonet: PE {}: {why}", state.job.pe());
        }
        let first = state.job.pe() == 0;
        if first && standard(["SHMEM_VERSION", "SMA_VERSION"]).is_some() {
            eprintln!("memonet: {}, OpenSHMEM 1.6", VENDOR);
        }
        if first && standard(["SHMEM_INFO", "SMA_INFO"]).is_some() {
            for Setting { name, what } in settings::all() {
                let value = std::env::var_os(name);
                let now = value.map_or("unset".to_owned(), |value| format!("is {value:?}"));
                eprintln!("memonet: {name} ({now}): {what}");
            }
            eprintln!("memonet: SMA_ in place of SHMEM_ is deprecated, and works. `memonet doctor` tells about this machine");
        }
        if standard(["SHMEM_DEBUG", "SMA_DEBUG"]).is_some() {
            eprintln!("memonet: PE {}: {}", state.job.pe(), state.describe());
        }
    });
}
