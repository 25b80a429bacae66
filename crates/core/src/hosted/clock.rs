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
//! after [`FREE_READINGS`] readings without a call between them, each takes [`READING_NS`]. A
//! reading while another thread is in a call takes none: that call ends at a later time.
//!
//! Sleeps that the kernel has to do, as those before the process joins, take as long in the
//! machine's time ([`passed`]).
//!
//! **A clock never goes back.** Without `--cpu-scale` it shows one word, [`TIME`], which only
//! grows. A question charges what the word has beyond the time of the last reply. The reply's time
//! is later than that by what the call took, and the word grows by as much. What threads add to it
//! meanwhile stays, and the next question charges it. With `--cpu-scale` the CPU time is added to
//! the word. A reply moves from one to the other what the process has computed until the call, in
//! two steps, and drops what other threads have computed in the call. Clocks then show the
//! [`LATEST`] time again until it is over.
//!
//! A process that is no PE sees the kernel's clocks ([`are_kernels`]).

use super::process;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The beginning of 2000, in seconds since 1970.
pub(super) const SWITCHED_ON_S: u64 = 946_684_800;
/// Readings in a row that take no time: more than a program needs for one measurement.
const FREE_READINGS: u32 = 100;
/// Time that each further reading takes.
const READING_NS: u64 = 1000;

/// The process's time without what it has computed since it last resumed, in nanoseconds: the time
/// of the last reply, and what readings and sleeps have taken since.
static TIME: AtomicU64 = AtomicU64::new(0);
/// The time of the last reply, in nanoseconds. Changed by the thread that has the PE's turn.
static RESUMED: AtomicU64 = AtomicU64::new(0);
/// What the questions since then charge for readings and sleeps, in nanoseconds. Changed by the
/// thread that has the PE's turn.
static CHARGED: AtomicU64 = AtomicU64::new(0);
static READINGS: AtomicU32 = AtomicU32::new(0);
/// Whether a thread is in a call: the machine's time passes.
static CALLING: AtomicBool = AtomicBool::new(false);
/// The factor of CPU time, as bits of an `f64`; 0: computing takes no time.
static CPU_SCALE: AtomicU64 = AtomicU64::new(0);
/// The process's CPU time when it last resumed, in nanoseconds.
static CPU_SINCE: AtomicU64 = AtomicU64::new(0);
/// CPU time since then that questions charge, as it counts in the machine, in nanoseconds; and CPU
/// time that the process has computed between the last question and the call. Changed by the thread
/// that has the PE's turn.
static CPU_CHARGED: AtomicU64 = AtomicU64::new(0);
static CPU_LATER: AtomicU64 = AtomicU64::new(0);
/// The latest time that was shown, in nanoseconds. Only with `--cpu-scale`.
static LATEST: AtomicU64 = AtomicU64::new(0);
/// Whether this process is no PE, though its environment says so.
static KERNELS: AtomicBool = AtomicBool::new(false);

/// Starts the time of this process, at 0.
pub(super) fn start(cpu_scale: Option<f64>) {
    CPU_SCALE.store(cpu_scale.map_or(0, f64::to_bits), Ordering::Relaxed);
    resumed(Duration::ZERO);
}

/// Has this process see the kernel's clocks.
pub(super) fn show_kernels() {
    KERNELS.store(true, Ordering::Relaxed);
}

/// Whether programs get the kernel's clocks: in a process that is no PE. The machine's time does
/// not pass for it.
pub(super) fn are_kernels() -> bool {
    KERNELS.load(Ordering::Relaxed) || process::is_forked_off()
}

/// CPU time that the process has computed since it last resumed, as it counts in the machine.
fn computed() -> u64 {
    let scale = f64::from_bits(CPU_SCALE.load(Ordering::Relaxed));
    match scale > 0.0 {
        true => {
            (cpu_time().saturating_sub(CPU_SINCE.load(Ordering::Relaxed)) as f64 * scale) as u64
        }
        false => 0,
    }
}

/// Time since the last reply, which the caller's question charges. Called with the PE's turn.
pub(super) fn charge() -> Duration {
    let spent = TIME.load(Ordering::Relaxed) - RESUMED.load(Ordering::Relaxed);
    let computed = computed();
    CHARGED.store(spent, Ordering::Relaxed);
    CPU_CHARGED.store(computed, Ordering::Relaxed);
    Duration::from_nanos(computed + spent)
}

/// This thread, which has the PE's turn, passes it to the machine; or has it again.
pub(super) fn set_calling(calling: bool) {
    CALLING.store(calling, Ordering::Relaxed);
    if calling {
        let later = computed().saturating_sub(CPU_CHARGED.load(Ordering::Relaxed));
        CPU_LATER.store(later, Ordering::Relaxed);
    }
}

/// The process resumes, at this time. Called with the PE's turn.
pub(super) fn resumed(now: Duration) {
    let now = now.as_nanos() as u64;
    let charged = RESUMED.load(Ordering::Relaxed) + CHARGED.load(Ordering::Relaxed);
    // The machine takes no charge of the question with which a program begins, and of questions
    // that it has refused. Then the word stays ahead of the reply, and the next question charges
    // it.
    let asked = charged + CPU_CHARGED.load(Ordering::Relaxed);
    let later = CPU_LATER.swap(0, Ordering::Relaxed);
    TIME.fetch_add(now.max(asked) - charged + later, Ordering::Relaxed);
    RESUMED.store(now, Ordering::Relaxed);
    CHARGED.store(0, Ordering::Relaxed);
    CPU_CHARGED.store(0, Ordering::Relaxed);
    READINGS.store(0, Ordering::Relaxed);
    if CPU_SCALE.load(Ordering::Relaxed) != 0 {
        CPU_SINCE.store(cpu_time(), Ordering::Relaxed);
    }
}

/// The process's time.
pub(super) fn now() -> Duration {
    let now = TIME.load(Ordering::Relaxed) + computed();
    match CPU_SCALE.load(Ordering::Relaxed) {
        0 => Duration::from_nanos(now),
        _ => Duration::from_nanos(LATEST.fetch_max(now, Ordering::Relaxed).max(now)),
    }
}

/// Time passes that the machine does not know of yet.
pub(super) fn passed(time: Duration) {
    TIME.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}

/// A reading of a clock by the program.
pub(super) fn read() -> Duration {
    if !CALLING.load(Ordering::Relaxed) && READINGS.fetch_add(1, Ordering::Relaxed) >= FREE_READINGS
    {
        TIME.fetch_add(READING_NS, Ordering::Relaxed);
    }
    now()
}

/// The real CPU time of this process, in nanoseconds.
fn cpu_time() -> u64 {
    kernels(libc::CLOCK_PROCESS_CPUTIME_ID).as_nanos() as u64
}

/// The real time, by the kernel's monotonic clock.
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

/// Time left until `limit` on a clock. Counts as a reading of that clock.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(super) fn until(clock: c_int, limit: Duration) -> Duration {
    limit.saturating_sub(on(clock).unwrap_or_else(|| kernels(clock)))
}

/// Time since the beginning of 1970. Counts as a reading.
pub(super) fn since_1970() -> Duration {
    on(libc::CLOCK_REALTIME).unwrap_or_else(|| kernels(libc::CLOCK_REALTIME))
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

/// A length of time; `None` if it is invalid.
pub(super) fn valid(time: libc::timespec) -> Option<Duration> {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos @ ..1_000_000_000)) => Some(Duration::new(seconds, nanos)),
        _ => None,
    }
}

/// A length of time; zero if it is invalid.
pub(super) fn duration(time: libc::timespec) -> Duration {
    valid(time).unwrap_or_default()
}

pub(super) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() }
}

/// A reading of a clock; `None` for clocks that the kernel has to read.
pub(super) fn on(clock: c_int) -> Option<Duration> {
    if are_kernels() {
        return None;
    }
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
