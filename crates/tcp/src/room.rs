//! Descriptors for a PE's streams.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open descriptors, as far as the hard one allows, where streams to this
/// many PEs would take more than half of it. The program keeps what it had. A stream for which
/// there is no room says so when it is made.
pub(crate) fn make_room(far_pes: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current.filter(|&soft| far_pes as u64 > soft / 2) else { return };
    let wanted = soft + far_pes as u64;
    let current = Some(maximum.map_or(wanted, |hard| wanted.min(hard)));
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}
