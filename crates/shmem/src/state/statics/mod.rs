//! Static and global variables as symmetric objects.
//!
//! The pages of the program's writable data are replaced, at their own addresses, by pages of this
//! PE's segment: a global variable is then as near as allocated memory, and a store to another PE's
//! is one instruction. It happens when the library is loaded into a PE of a job, before the program
//! has threads; in a program without a launcher, in its first `shmem_init`.
//!
//! * Only the executable's own data, and libraries named in `MEMONET_SYMMETRIC_LIBS` (separated by
//!   colons, by file name): libc, the loader and this library keep theirs. What the loader makes
//!   read-only after relocating (RELRO) stays as it is.
//! * Untouched pages of zero-initialised data are not copied, so huge arrays cost nothing.
//! * A process that the program forks off gets a private copy ([`forks`]): it must not change its
//!   parent's variables.

mod forks;
mod search;

pub use forks::{has_copies, threads};
pub use search::{ENV_LIBS, is_constant, not_loaded};

use crate::state::shared::Shared;
use memonet_core::segment::page_size;
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
    // Also where there was no room for all: what has been put there is shared.
    forks::copy_for_children(job, &shared);
    all.map(|()| shared)
}

/// Notes what it has put there, one after the other.
fn put_into(job: &Job, shared: &mut Vec<Shared>) -> Result<()> {
    // The first page tells the others what kind of program this is.
    let mut at = page_size();
    let Search { found, interpreter, .. } = search();
    forks::LINKED_STATICALLY.store(!interpreter, Ordering::Relaxed);
    for data in found {
        let touched = touched_pages(&data);
        let (start, page) = (data.pages.start, page_size());
        // Nothing is allocated in here: where the program is linked statically, the allocator's own
        // data are among the pages. SAFETY: whole pages of the program's data; the caller promises
        // that nobody writes them now.
        let offset = unsafe {
            job.share_globals(data.pages.clone(), at, &|address| touched[(address - start) / page])
        }?;
        at += data.pages.len();
        shared.push(Shared { pages: data.pages, offset });
    }
    Ok(())
}

/// A number that differs between programs whose static data is laid out differently.
pub fn digest(shared: &[Shared]) -> u64 {
    let words = shared.iter().flat_map(|s| [s.pages.len() as u64, s.offset]);
    words.fold(1, |hash: u64, word| {
        (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}
