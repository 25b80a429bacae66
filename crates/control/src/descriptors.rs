//! The descriptors of a process that was forked without `exec`.

use std::os::fd::RawFd;

/// Closes all descriptors of this process but the standard ones and these. It takes no lock, so it
/// works after a fork.
///
/// # Safety
/// From here on, nothing in this process uses the others, nor closes them.
pub unsafe fn close_all_but(kept: &[RawFd]) {
    let mut kept: Vec<u32> = kept.iter().map(|&fd| fd as u32).collect();
    kept.sort_unstable();
    let mut from = 3;
    for end in kept.into_iter().chain([u32::MAX]) {
        if end > from {
            // SAFETY: the caller's promise.
            unsafe { libc::close_range(from, end - u32::from(end < u32::MAX), 0) };
        }
        from = from.max(end.saturating_add(1));
    }
}
