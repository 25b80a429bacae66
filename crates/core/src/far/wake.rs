//! Descriptors that become readable when the fabric delivers to a PE of this process.

use crate::base::lock;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The descriptors of all jobs in this process, by job and PE.
static ALL: Mutex<BTreeMap<(u64, u32), Arc<OwnedFd>>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<(u64, u32), Arc<OwnedFd>>> {
    lock(&ALL)
}

/// A PE's own descriptor.
pub(super) struct Waker {
    fd: Arc<OwnedFd>,
    key: (u64, u32),
}

impl Waker {
    pub(super) fn new(job: u64, pe: u32) -> Option<Self> {
        // Without a descriptor, sleepers poll at intervals.
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()?;
        let fd = Arc::new(fd);
        all().insert((job, pe), fd.clone());
        Some(Waker { fd, key: (job, pe) })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes it unreadable; true if it was readable.
    pub(super) fn clear(&self) -> bool {
        rustix::io::read(&*self.fd, &mut [0; 8]).is_ok()
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        all().remove(&self.key);
    }
}

/// Makes a PE's descriptor readable, if the PE is a thread of this process.
pub(super) fn wake(job: u64, pe: u32) {
    let fd = all().get(&(job, pe)).cloned();
    // A write fails only if the counter is full, and then it is readable.
    let _ = fd.map(|fd| rustix::io::write(&*fd, &1u64.to_ne_bytes()));
}
