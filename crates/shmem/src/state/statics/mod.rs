//! Static and global variables as symmetric objects.
//!
//! The library replaces the pages of the program's writable data, at their own addresses, by pages
//! of this PE's segment. A global variable is then as near as allocated memory, and a store to
//! another PE's variable is one instruction. The replacement happens when the library is loaded
//! into a PE of a job, before the program has threads. Without a launcher, the first `shmem_init`
//! does it.
//!
//! * Only data of the executable become symmetric, and data of the libraries that
//!   `MEMONET_SYMMETRIC_LIBS` names (by file name, separated by colons). The data of libc, of the
//!   loader and of this library stay private, and so do pages that the loader makes read-only after
//!   relocation (RELRO).
//! * Data of the executable stay private where it does not link the library but loads it by
//!   `dlopen`, as interpreters do ([`linked`]).
//! * The library does not copy untouched pages of zero-initialised data, so huge arrays cost
//!   nothing.
//! * A child of `fork` gets a private copy ([`forks`]): it must not change its parent's variables.

mod forks;
mod linked;
mod search;

pub use forks::watch as watch_forks;
pub use forks::{has_copies, threads};
pub use linked::is_linked;
pub use search::{ENV_LIBS, is_constant, not_loaded};

use crate::state::shared::Shared;
use memonet_core::unstable::segment::page_size;
use memonet_core::{Job, Result};
use search::{Search, search, touched_pages};
use std::sync::atomic::Ordering;

/// Puts the program's static data into the job.
///
/// # Errors
/// What [`Job::share_globals`] says.
///
/// # Safety
/// No other thread writes static data now.
pub unsafe fn share(job: &Job) -> Result<Vec<Shared>> {
    let mut shared = Vec::new();
    let all = put_into(job, &mut shared);
    // Also after an error: the ranges put there before it are shared.
    forks::copy_for_children(job, &shared);
    all.map(|()| shared)
}

/// Shares one range after the other and appends each to `shared`.
fn put_into(job: &Job, shared: &mut Vec<Shared>) -> Result<()> {
    // The first page holds the digest that PEs compare.
    let mut at = page_size();
    let Search { found, interpreter, .. } = search();
    forks::LINKED_STATICALLY.store(!interpreter, Ordering::Relaxed);
    for data in found {
        let touched = touched_pages(&data);
        let (start, page) = (data.pages.start, page_size());
        // The closure allocates nothing: in a statically linked program, the allocator's own data
        // are among the pages. SAFETY: `search` gives whole pages of the program's data, and the
        // caller promises that no other thread writes them now.
        let offset = unsafe {
            job.share_globals(data.pages.clone(), at, &|address| touched[(address - start) / page])
        }?;
        at += data.pages.len();
        shared.push(Shared { pages: data.pages, offset });
    }
    Ok(())
}

/// A number that differs between programs with different layouts of static data.
pub fn digest(shared: &[Shared]) -> u64 {
    let words = shared.iter().flat_map(|s| [s.pages.len() as u64, s.offset]);
    words.fold(1, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}
