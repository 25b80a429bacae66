//! Calls that wait for a peer: how they pass the time.

use crate::hub::Hub;
use crate::peer::Peer;
use crate::shared::Shared;
use memonet_core::unstable::monotonic;
use parking_lot::MutexGuard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Looks in vain before a call sleeps, where each PE has a CPU.
const SPINS: u32 = 1000;

/// After so many rounds, a call looks whether its peer has gone, and at all streams.
const LOOKS: u32 = 64;

/// How a call that waits passes the time.
#[derive(Default)]
pub(crate) struct Patience {
    rounds: u32,
    /// Rounds in which nothing moved, since something did.
    vain: u32,
    waiting: bool,
    since: Duration,
}

impl Shared {
    /// A round of a call that waits for a peer. It reads, applies and sends for all peers meanwhile
    /// (W3), and sees whether the peer has gone.
    pub(crate) fn round<'a>(
        &'a self,
        mut hub: MutexGuard<'a, Hub>,
        pe: u32,
        patience: &mut Patience,
    ) -> MutexGuard<'a, Hub> {
        if !patience.waiting {
            patience.waiting = true;
            patience.since = monotonic();
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        self.count_poll();
        let moved = hub.pump(Some(pe));
        patience.rounds = patience.rounds.wrapping_add(1);
        patience.vain = if moved { 0 } else { patience.vain + 1 };
        let sleeps = !moved && (self.crowded || patience.vain > SPINS);
        let mut moved = moved;
        // Also where others never stop sending.
        if sleeps || patience.rounds.is_multiple_of(LOOKS) {
            hub.look_after(pe);
            moved |= hub.look_at_all();
            if hub.seat.is_asked() {
                let outstanding =
                    hub.existing(pe).map_or_else(String::new, |peer| peer.outstanding());
                let seat = hub.seat.clone();
                drop(hub);
                seat.answer(pe, patience.since, outstanding);
                return self.lock();
            }
        }
        if moved {
            MutexGuard::bump(&mut hub);
            return hub;
        }
        if !sleeps {
            drop(hub);
            std::hint::spin_loop();
            return self.lock();
        }
        hub.want_writes();
        drop(hub);
        let fd = self.pollers.fd();
        let most = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        // Interrupted, it looks once more.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&most));
        self.lock()
    }

    /// The call waits no more.
    pub(crate) fn done(&self, patience: Patience) {
        if patience.waiting {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits until `is_done` says so of a peer, or the peer is gone or has failed.
    pub(crate) fn wait<'a>(
        &'a self,
        mut hub: MutexGuard<'a, Hub>,
        pe: u32,
        is_done: impl Fn(&Peer) -> bool,
    ) -> MutexGuard<'a, Hub> {
        let mut patience = Patience::default();
        let number = hub.existing(pe).map(|peer| peer.number);
        loop {
            // One whose stream ended in order owes nothing; there may be another one since.
            let waits = hub.existing(pe).is_some_and(|peer| {
                Some(peer.number) == number && !peer.has_ended() && !is_done(peer)
            });
            if !waits {
                break;
            }
            hub = self.round(hub, pe, &mut patience);
        }
        self.done(patience);
        hub
    }
}
