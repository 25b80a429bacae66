//! Clocks of this machine. Only differences of their values mean anything.
//!
//! A PE may live in a time of its own: limits of calls are in that
//! ([`wait::now`](crate::wait::now)).

use std::time::Duration;

/// A moment in cycles of this node's clock; only differences mean anything.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
    {
        // SAFETY: every x86-64 processor has the instruction; it reads a counter.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(any(not(target_arch = "x86_64"), loom, miri))]
    {
        // As if at 2.5 GHz.
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64 * 5 / 2
    }
}

/// Reads a clock of the system: by libc, which finds it under tools such as Valgrind, too, where
/// the kernel's page of functions is not what it seems.
fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a variable of that type. Each Linux has the clocks that this is called for.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The clock that only goes forward.
pub fn monotonic() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// [`monotonic`] in nanoseconds.
pub(crate) fn monotonic_nanos() -> u64 {
    monotonic().as_nanos() as u64
}

/// A moment to within some milliseconds, for next to nothing; only differences mean anything.
pub(crate) fn rough_now() -> Duration {
    read(libc::CLOCK_MONOTONIC_COARSE)
}
