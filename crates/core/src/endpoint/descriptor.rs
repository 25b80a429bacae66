//! A sleep on the fabric's descriptor, in which this PE's own threads can wake the sleeper, too.
//!
//! One thread of a PE at a time sleeps so; others sleep on the doorbell, for which the fabric's
//! thread works. What wakes a sleeper of the doorbell wakes this one as well: where a thread of the
//! PE has rung the doorbell, it *nudges* the descriptor, an eventfd that is polled beside the
//! fabric's. So nothing is missed where another thread has taken from the fabric what the sleeper
//! waits for.
//!
//! *No ring of the PE's threads is missed.* A sleeper (P1) takes the place, then (P2) looks whether
//! its ticket is stale, then (P3) polls. A ringer (R1) changes the doorbell, then (R2) looks
//! whether the place is taken, and if so (R3) writes the eventfd. P1, P2, R1 and R2 have one order
//! that all threads agree on. If R1 comes before P2, the ticket is stale. If not, P1 comes before
//! R2, and the eventfd ends P3. Only the sleeper empties the eventfd, after P3: a ring that comes
//! late is a spurious wake-up of the next sleeper.

use super::fabric::Fabric;
use crate::base::doorbell::{Doorbell, Ticket};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// The place of the one thread that sleeps on the fabric's descriptor.
#[derive(Default)]
pub(crate) struct Descriptor {
    is_taken: AtomicBool,
    /// Made by the first sleeper. None where the system has no more descriptors.
    nudges: OnceLock<Option<OwnedFd>>,
}

impl Descriptor {
    /// Sleeps until the fabric's descriptor is readable, until `bell` is rung by a thread of this
    /// PE after `ticket`, or until `time` has passed. May wake spuriously. False where the caller
    /// must sleep on the doorbell.
    pub(crate) fn sleep(
        &self,
        fabric: &dyn Fabric,
        bell: Doorbell,
        ticket: Ticket,
        time: Duration,
    ) -> bool {
        // P1
        if self.is_taken.swap(true, Ordering::SeqCst) {
            return false;
        }
        let slept = self.sleep_there(fabric, bell, ticket, time);
        self.is_taken.store(false, Ordering::Release);
        slept
    }

    fn sleep_there(
        &self,
        fabric: &dyn Fabric,
        bell: Doorbell,
        ticket: Ticket,
        time: Duration,
    ) -> bool {
        let Some(fd) = fabric.wake_fd() else { return false };
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let Some(nudges) = self.nudges.get_or_init(|| eventfd(0, flags).ok()) else { return false };
        fence(Ordering::SeqCst);
        // P2
        if bell.stale(ticket) {
            return true;
        }
        let most = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut polled = [PollFd::new(&fd, PollFlags::IN), PollFd::new(nudges, PollFlags::IN)];
        // P3. An interrupted poll is a spurious wake-up.
        let _ = poll(&mut polled, Some(&most));
        if !polled[1].revents().is_empty() {
            // It is not empty, and nobody else reads it.
            let _ = rustix::io::read(nudges, &mut [0; 8]);
        }
        true
    }

    /// A thread of this PE has rung its doorbell (R1).
    #[cold]
    pub(crate) fn nudge(&self) {
        fence(Ordering::SeqCst);
        // R2. A sleeper that has not made the eventfd yet has not looked at its ticket either.
        if self.is_taken.load(Ordering::Relaxed)
            && let Some(Some(nudges)) = self.nudges.get()
        {
            // R3. It is full only if it is readable.
            let _ = rustix::io::write(nudges, &1u64.to_ne_bytes());
        }
    }
}
