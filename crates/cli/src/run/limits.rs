//! Limits: of open descriptors, and of the size of segments under tools that cannot stand large
//! ones.

use anyhow::{Result, bail};
use memonet_core::launch::{self, ENV_SEGMENT_SIZE};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::program::Image;
use super::spec::Options;

/// Of each PE: its pidfd and two pipes.
const PER_PE: u64 = 3;
/// Those of the launcher itself, and of a pipe's other end while a PE is started.
const OWN: u64 = 64;

/// Makes room for the descriptors of `npes` PEs. Returns the limit as it was: the PEs get that one,
/// since a larger one breaks programs that use `select`.
pub fn raise_descriptors(npes: usize) -> Result<Rlimit> {
    let before = getrlimit(Resource::Nofile);
    let needed = npes as u64 * PER_PE + OWN;
    // One more for each PE under a wrapper; without it such a PE's end shows only when its wrapper
    // ends.
    let wanted = needed + npes as u64;
    let limit = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    if limit(before.current) >= wanted {
        return Ok(before);
    }
    if limit(before.maximum) < needed {
        bail!(
            "{npes} PEs need {needed} open descriptors, but the hard limit is {}. Use fewer PEs, or raise it (`ulimit -Hn {needed}` as root, or nofile in /etc/security/limits.conf)",
            before.maximum.unwrap_or_default()
        );
    }
    setrlimit(
        Resource::Nofile,
        Rlimit { current: Some(wanted.min(limit(before.maximum))), maximum: before.maximum },
    )?;
    Ok(before)
}

/// How many PEs a hard limit has room for.
pub fn pes_by_descriptors(hard: Option<u64>) -> usize {
    let pes = hard.map_or(u64::MAX, |hard| hard.saturating_sub(OWN) / PER_PE);
    pes.min(memonet_core::layout::MAX_PES as u64) as usize
}

/// Window memory per PE under valgrind, which at the end reads all memory there is, and so creates
/// all of its pages.
const UNDER_VALGRIND: u64 = 64 << 20;
/// What each PE has for windows on a simulated machine, where addresses decide on times: not what
/// the host has. Only what is used takes memory.
const ON_A_MACHINE: u64 = 16 << 30;

/// The size of segments, where the options ask for one or a tool needs it, and what the user should
/// know of that.
pub fn segment_size(
    images: &[Image],
    options: &Options,
    simulated: bool,
) -> Result<(Option<u64>, Option<String>)> {
    let wished = options.environment.iter().rfind(|(name, _)| name == ENV_SEGMENT_SIZE);
    if let Some((_, value)) = wished {
        return Ok((Some(launch::segment_size(value)?), None));
    }
    if std::env::var_os(ENV_SEGMENT_SIZE).is_some() {
        return Ok((None, None));
    }
    if !images.iter().any(Image::is_valgrind) {
        return Ok((simulated.then_some(ON_A_MACHINE), None));
    }
    let note = format!(
        "under valgrind each PE has {} MiB for windows, not all of physical memory; {ENV_SEGMENT_SIZE} changes that",
        UNDER_VALGRIND >> 20
    );
    Ok((Some(UNDER_VALGRIND), Some(note)))
}
