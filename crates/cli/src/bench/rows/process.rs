//! Clocks, and what this process has used.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// A clock that all processes share, in ns.
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// The time that this process has had a CPU, in ns: other work on the machine does not count.
pub fn cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Resident memory, KiB; counted page by page, unlike the lazy counters of `/proc/self/status`.
pub fn resident_kib() -> Result<f64> {
    kib("/proc/self/smaps_rollup", "Rss")
}

/// The most resident memory so far, KiB.
pub fn peak_kib() -> Result<f64> {
    kib("/proc/self/status", "VmHWM")
}

fn kib(path: &str, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let value = text.lines().find_map(|line| {
        line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB")?.trim().parse().ok()
    });
    value.with_context(|| format!("{path} has no line `{name}: ... kB`"))
}
