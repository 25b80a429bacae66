//! Wakes a loop whenever a PE has gone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use memonet_core::unstable::launch::{self, JobFile};
use rustix::event::{EventfdFlags, eventfd};

/// Time between two looks at whether the loop has ended.
const GLANCE: Duration = Duration::from_secs(1);

/// Readable when a PE of the job has gone: finalised, ended or died.
pub struct Departures(Arc<OwnedFd>);

impl Departures {
    /// Watches a job. By a thread, as the count is a word of the job's memory.
    pub fn watch(job: &JobFile) -> Result<Self> {
        let counted = launch::Departures::of(job)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).context("eventfd")?);
        let of_thread = Arc::downgrade(&bell);
        let watch = move || {
            let mut seen = counted.count();
            // Until the loop has ended.
            while let Some(bell) = of_thread.upgrade() {
                let now = counted.count();
                if now != seen {
                    seen = now;
                    // A counter that is full is readable too.
                    let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
                }
                drop(bell);
                counted.sleep(seen, GLANCE);
            }
        };
        std::thread::Builder::new()
            .name("departures".into())
            .stack_size(64 << 10)
            .spawn(watch)
            .context(
                "cannot start a thread: `ulimit -u`, or pids.max of the cgroup, may be too low",
            )?;
        Ok(Departures(bell))
    }

    /// Forgets those so far.
    pub fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for Departures {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
