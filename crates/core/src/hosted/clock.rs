//! The machine's time, as an attached process keeps it between two of its calls.
//!
//! | clock | its reading |
//! |---|---|
//! | monotonic and CPU time clocks | time since the start of the run |
//! | clocks that count from 1970 | as if the machine had been switched on at the beginning of 2000 |
//! | cycle counter | nanoseconds: the processor runs at 1 GHz, on every machine |
//!
//! The time stands still while a process computes, unless it was started with `--cpu-scale`. A
//! program that reads a clock again and again until time has passed would wait for ever. Therefore,
//! after [`FREE_READINGS`] readings without a call between them, each takes [`READING_NS`].

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The beginning of 2000, in seconds since 1970.
pub(super) const SWITCHED_ON_S: u64 = 946_684_800;
/// Readings in a row that take no time: more than a program needs for one measurement.
const FREE_READINGS: u32 = 100;
/// Time that each further reading takes.
const READING_NS: u64 = 1000;

/// The process's time when it last resumed, in nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Time that readings have taken since, in nanoseconds.
static READ_FOR: AtomicU64 = AtomicU64::new(0);
static READINGS: AtomicU32 = AtomicU32::new(0);
/// The factor of CPU time, as bits of an `f64`; 0: computing takes no time.
static CPU_SCALE: AtomicU64 = AtomicU64::new(0);
/// The process's CPU time when it last resumed, in nanoseconds.
static CPU_SINCE: AtomicU64 = AtomicU64::new(0);

/// Starts the time of this process, at 0.
pub(super) fn start(cpu_scale: Option<f64>) {
    CPU_SCALE.store(cpu_scale.map_or(0, f64::to_bits), Ordering::Relaxed);
    resumed(Duration::ZERO);
}

/// Time that the process has computed since it last resumed.
pub(super) fn computed() -> Duration {
    let scale = f64::from_bits(CPU_SCALE.load(Ordering::Relaxed));
    let computed = match scale > 0.0 {
        true => {
            (cpu_time().saturating_sub(CPU_SINCE.load(Ordering::Relaxed)) as f64 * scale) as u64
        }
        false => 0,
    };
    Duration::from_nanos(computed + READ_FOR.load(Ordering::Relaxed))
}

/// The process resumes, at this time.
pub(super) fn resumed(now: Duration) {
    NOW.store(now.as_nanos() as u64, Ordering::Relaxed);
    READ_FOR.store(0, Ordering::Relaxed);
    READINGS.store(0, Ordering::Relaxed);
    if CPU_SCALE.load(Ordering::Relaxed) != 0 {
        CPU_SINCE.store(cpu_time(), Ordering::Relaxed);
    }
}

/// The process's time.
pub(super) fn now() -> Duration {
    Duration::from_nanos(NOW.load(Ordering::Relaxed)) + computed()
}

/// A reading of a clock by the program.
pub(super) fn read() -> Duration {
    if READINGS.fetch_add(1, Ordering::Relaxed) >= FREE_READINGS {
        READ_FOR.fetch_add(READING_NS, Ordering::Relaxed);
    }
    now()
}

/// The real CPU time of this process, in nanoseconds.
fn cpu_time() -> u64 {
    kernels(libc::CLOCK_PROCESS_CPUTIME_ID).as_nanos() as u64
}

/// The real time, by the kernel's monotonic clock.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(super) fn real() -> Duration {
    kernels(libc::CLOCK_MONOTONIC)
}

/// The real time of a kernel's clock.
fn kernels(clock: c_int) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By number: `clock_gettime` is replaced in this process.
    // SAFETY: the kernel writes the structure, which outlives the call.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    duration(time)
}

/// Time left until `limit` on one of the machine's clocks. Counts as a reading of that clock.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(super) fn until(clock: c_int, limit: Duration) -> Duration {
    on(clock).map_or(Duration::ZERO, |now| limit.saturating_sub(now))
}

/// Sets this thread's `errno`, and gives -1.
pub(super) fn fail(errno: c_int) -> c_int {
    // SAFETY: libc gives the address of this thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
    -1
}

pub(super) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// A length of time; zero if it is invalid.
pub(super) fn duration(time: libc::timespec) -> Duration {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos @ ..1_000_000_000)) => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}

pub(super) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() }
}

/// A reading of a clock; `None` for clocks that the machine does not have.
pub(super) fn on(clock: c_int) -> Option<Duration> {
    match clock {
        libc::CLOCK_REALTIME
        | libc::CLOCK_REALTIME_COARSE
        | libc::CLOCK_REALTIME_ALARM
        | libc::CLOCK_TAI => Some(read() + Duration::from_secs(SWITCHED_ON_S)),
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_BOOTTIME_ALARM
        | libc::CLOCK_PROCESS_CPUTIME_ID
        | libc::CLOCK_THREAD_CPUTIME_ID => Some(read()),
        _ => None,
    }
}
