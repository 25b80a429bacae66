//! What a loop waits for: descriptors with numbers, by epoll.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// A set of descriptors.
pub fn set() -> Result<OwnedFd> {
    epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")
}

/// Adds a descriptor, which stands for `token` when it is readable.
pub fn listen(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> Result<()> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .context("epoll_ctl")
}

/// Adds a descriptor, which stands for `token` when it can be written to.
pub fn listen_for_room(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> Result<()> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::OUT)
        .context("epoll_ctl")
}

/// Takes a descriptor out of the set.
pub fn forget(epoll: &OwnedFd, fd: impl AsFd) -> Result<()> {
    epoll::delete(epoll, fd).context("epoll_ctl")
}

/// Waits until descriptors of the set are ready, and until `next` at most.
pub fn wait(epoll: &OwnedFd, next: Option<Instant>) -> Result<Vec<u64>> {
    let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
    ready(epoll, timeout.as_ref())
}

/// The descriptors of the set that are ready.
pub fn ready(epoll: &OwnedFd, timeout: Option<&Duration>) -> Result<Vec<u64>> {
    let timeout = timeout.map(|&timeout| Timespec::try_from(timeout)).transpose()?;
    let mut events = [MaybeUninit::<epoll::Event>::uninit(); 64];
    match epoll::wait(epoll, &mut events, timeout.as_ref()) {
        Ok((events, _)) => Ok(events.iter().map(|event| event.data.u64()).collect()),
        Err(Errno::INTR) => Ok(Vec::new()),
        Err(error) => Err(error).context("epoll_wait"),
    }
}
