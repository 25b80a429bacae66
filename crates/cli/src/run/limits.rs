//! Limits: of open descriptors, and of the size of segments under tools that cannot handle large
//! ones.

use anyhow::{Result, bail};
use memonet_core::unstable::launch::{self, ENV_SEGMENT_SIZE};
use memonet_core::unstable::settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::program::Image;
use super::spec::Options;

/// Descriptors for each PE: its pidfd and two pipes.
const PER_PE: u64 = 3;
/// The same for an agent, which has a socket to each PE, too.
const PER_PE_OF_AGENT: u64 = 4;
/// Descriptors of streams that an agent accepts and makes for its PEs at one time.
const STREAMS: u64 = 200;
/// Descriptors for each host: a process, and pipes to and from it, some of them twice.
const PER_HOST: u64 = 8;
/// Descriptors of the launcher itself, and of the other ends of pipes while a PE is started.
const OWN: u64 = 64;

/// Raises the limit to the descriptors of `npes` PEs. Returns the limit as it was. The PEs get that
/// one, because a larger limit breaks programs that use `select`.
pub fn raise_descriptors(npes: usize) -> Result<Rlimit> {
    // One more for each PE under a wrapper. Without it, the launcher notices such a PE's end only
    // when its wrapper ends.
    raise(npes, "PEs", PER_PE, npes as u64)
}

/// The same for an agent.
pub fn raise_descriptors_of_agent(npes: usize) -> Result<Rlimit> {
    raise(npes, "PEs", PER_PE_OF_AGENT, npes as u64 + STREAMS)
}

/// Raises the limit to the descriptors of agents on so many hosts.
pub fn raise_descriptors_for_hosts(hosts: usize) -> Result<Rlimit> {
    raise(hosts, "hosts", PER_HOST, 0)
}

/// Raises the limit for so many PEs or hosts, and `more` descriptors where possible.
fn raise(count: usize, what: &str, each: u64, more: u64) -> Result<Rlimit> {
    let before = getrlimit(Resource::Nofile);
    let needed = count as u64 * each + OWN;
    let wanted = needed + more;
    let limit = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    if limit(before.current) >= wanted {
        return Ok(before);
    }
    if limit(before.maximum) < needed {
        bail!(
            "{count} {what} need {needed} open descriptors, but the hard limit is {}. Use fewer {what}, or raise it (`ulimit -Hn {needed}` as root, or nofile in /etc/security/limits.conf)",
            before.maximum.unwrap_or_default()
        );
    }
    setrlimit(
        Resource::Nofile,
        Rlimit { current: Some(wanted.min(limit(before.maximum))), maximum: before.maximum },
    )?;
    Ok(before)
}

/// Why the kernel makes no process, and what to do.
pub fn why_no_process(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "The limit on processes is reached (`ulimit -u`, or pids.max of the cgroup): raise it, or use fewer PEs"
        }
        Some(libc::ENOMEM) => "There is not enough memory",
        Some(libc::EINVAL) => "Linux 5.2 or newer is needed (for pidfd)",
        _ => "`memonet doctor` shows what this machine lacks",
    }
}

/// The number of PEs that a hard limit allows.
pub fn pes_by_descriptors(hard: Option<u64>) -> usize {
    let pes = hard.map_or(u64::MAX, |hard| hard.saturating_sub(OWN) / PER_PE);
    pes.min(memonet_core::unstable::layout::MAX_PES as u64) as usize
}

/// Bytes for windows per PE under valgrind. At the end, valgrind reads all memory, and so creates
/// all of its pages.
const VALGRIND_BYTES: u64 = 64 << 20;
/// Bytes for windows per PE on a simulated machine. Addresses decide on times there, so the number
/// must not depend on the host. Only used pages take memory.
const SIMULATED_BYTES: u64 = 16 << 30;

/// The size of segments, if the options or a tool ask for one, and a note for the user.
pub fn segment_size(
    images: &[Image],
    options: &Options,
    simulated: bool,
) -> Result<(Option<u64>, Option<String>)> {
    let wished = options.environment.iter().rfind(|(name, _)| name == ENV_SEGMENT_SIZE);
    if let Some((_, value)) = wished.filter(|(_, value)| !value.is_empty()) {
        return Ok((Some(launch::segment_size(value)?), None));
    }
    if settings::value(ENV_SEGMENT_SIZE).is_some() {
        return Ok((None, None));
    }
    if !images.iter().any(Image::is_valgrind) {
        return Ok((simulated.then_some(SIMULATED_BYTES), None));
    }
    let note = format!(
        "under valgrind each PE has {} MiB for windows, not all of physical memory; {ENV_SEGMENT_SIZE} changes that",
        VALGRIND_BYTES >> 20
    );
    Ok((Some(VALGRIND_BYTES), Some(note)))
}
