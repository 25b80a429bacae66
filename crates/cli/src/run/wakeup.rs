//! Wakes the launcher's loop from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that becomes readable when a thread wakes the loop.
pub struct Wakeup(OwnedFd);

impl Wakeup {
    pub fn new() -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags).context("eventfd")?))
    }

    /// Another handle to the same descriptor.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone().context("dup")?))
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        // It cannot fail: the counter is emptied long before it is full.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Forgets all wake-ups so far, if there were any.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
