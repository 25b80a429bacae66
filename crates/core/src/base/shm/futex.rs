//! Sleeping on a shared word, and the fence that only sleepers pay for.

#[cfg(not(loom))]
use std::time::Duration;

/// Sleeps while the word at `p` holds `expected`, at most for `timeout`, where there is one. Wakes
/// spuriously as it likes.
///
/// # Safety
/// `p` is aligned to 4 and stays mapped during the call.
#[cfg(not(loom))]
pub(crate) unsafe fn futex_wait(p: *const u32, expected: u32, timeout: Option<Duration>) {
    use rustix::thread::futex;
    let limit = timeout.map(|timeout| futex::Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    // SAFETY: the caller promises an aligned mapped word, and the reference does not outlive the
    // call; only the kernel reads through it.
    let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(p.cast_mut()) };
    // Every outcome (woken, changed, timed out, interrupted) means the same to the caller: look
    // again.
    let _ = futex::wait(word, futex::Flags::empty(), expected, limit.as_ref());
}

/// Wakes everybody who sleeps on the word at `p`.
///
/// # Safety
/// As for [`futex_wait`].
#[cfg(not(loom))]
pub(crate) unsafe fn futex_wake(p: *const u32) {
    use rustix::thread::futex;
    // SAFETY: as in `futex_wait`; the kernel does not even read the word.
    let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(p.cast_mut()) };
    // It fails only for an address that is not mapped, which the caller excludes.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Asks the kernel to let [`announce_barrier`] of other processes order this process's accesses;
/// false where it cannot.
#[cfg(not(loom))]
pub(crate) fn register_membarrier() -> bool {
    // SAFETY: membarrier takes integers and touches no memory of the caller.
    unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0)
            == 0
    }
}

/// A full fence on every CPU that runs a registered process; so ringers need none.
#[cfg(not(loom))]
pub(crate) fn announce_barrier(membarrier: bool) {
    if membarrier {
        // SAFETY: as above. Once registering has succeeded it fails only for lack of memory, and
        // then a ring may be missed: the sleeper looks by itself before long.
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) };
    } else {
        super::full_fence();
    }
}

#[cfg(loom)]
pub(crate) use super::imp::{announce_barrier, futex_wait, futex_wake, register_membarrier};
