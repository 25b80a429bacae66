//! The last phase of a wait: it announces itself, looks once more, and sleeps.

#[cfg(not(loom))]
use super::Awaiting;
use super::interference::Interference;
use super::{Terms, check};
use crate::base::bells::this_cpu;
use crate::base::clock::{cycles, monotonic_nanos};
use crate::base::doorbell::Doorbell;
use crate::base::error::Quick;
use crate::base::log::log;
use crate::endpoint::pe::Pe;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// First poll interval of a sleeper that nobody may wake.
pub(super) const FIRST_POLL: Duration = Duration::from_micros(50);
/// Longest poll interval of a sleeper that nobody may wake.
const LONGEST_POLL: Duration = Duration::from_millis(4);
/// Poll interval of a sleeper that is certain to be woken: it looks for PEs that have left in
/// order, which wakes nobody.
const DEPARTURE_POLL: Duration = Duration::from_millis(50);

/// Sleeps until `look` gives something. Gives nothing where staying awake is better: a sleeper that
/// was woken, though not with the answer, is being worked for, and would have its CPU for itself.
/// If it slept again at once, each quiet of a PE that writes to it would have to wake it.
///
/// The doorbell's proof ([`crate::base::doorbell`]) needs three steps of a sleeper, in this order:
/// S1 it announces itself, S2 it looks, S3 it sleeps on the ticket of S1.
#[cold]
pub(super) fn sleep<R>(
    pe: &Pe,
    terms: Terms<'_>,
    look: &mut impl FnMut() -> Option<R>,
) -> Quick<Option<R>> {
    let mut poll = Poll::new(pe, &terms);
    let bell = bell_of(pe, &terms, &poll);
    log!(Trace, pe.me(), "sleeps, and waits for {}", terms.awaiting.plain());
    loop {
        let ticket = bell.announce(terms.awaiting.is_word(), pe.control().membarrier()); // S1
        if let Some(found) = check_and_look(pe, terms, look)? {
            return Ok(Some(found)); // S2
        }
        loop {
            pe.sleep(bell, ticket, terms.patience.shorten(pe, poll.time_to_next())); // S3
            if let Some(found) = check_and_look(pe, terms, look)? {
                return Ok(Some(found));
            }
            if bell.stale(ticket) {
                if cfg!(not(loom)) && !pe.crowded() && !Interference::of(pe).is_present(cycles()) {
                    return Ok(None);
                }
                break;
            }
            poll.lengthen(pe);
        }
    }
}

/// Sleeps until `look` gives something, and depends on no PE: for a thread of the library, which
/// does not stay awake. The steps are those of [`sleep`].
#[cfg(not(loom))]
pub(crate) fn asleep<R>(pe: &Pe, mut look: impl FnMut() -> Option<R>) -> R {
    let terms = Terms::forever(Awaiting::WordOf(&[], None));
    let bell = pe.control().doorbell(pe.me());
    loop {
        let mut poll = Poll::new(pe, &terms);
        let ticket = bell.announce(true, pe.control().membarrier()); // S1
        while !bell.stale(ticket) {
            pe.progress();
            if let Some(found) = look() {
                return found; // S2
            }
            pe.sleep(bell, ticket, poll.time_to_next()); // S3
            poll.lengthen(pe);
        }
    }
}

/// Where the wait sleeps: on a bell of its barrier, if all that it waits for rings that, or on this
/// PE's doorbell.
fn bell_of(pe: &Pe, terms: &Terms<'_>, poll: &Poll) -> Doorbell {
    let bells = terms.awaiting.bells().filter(|_| !poll.is_needed && !pe.has_relays());
    // Under loom each PE has a CPU of its own, so that not all sleep on one bell.
    let here = || if cfg!(loom) { pe.me() as u32 } else { this_cpu() };
    bells.map_or_else(|| pe.control().doorbell(pe.me()), |bells| bells.of(here()))
}

/// What the check lets work may bring what is waited for, so the look comes after it.
fn check_and_look<R>(
    pe: &Pe,
    terms: Terms<'_>,
    look: &mut impl FnMut() -> Option<R>,
) -> Quick<Option<R>> {
    match check(pe, terms, look)? {
        None => Ok(look()),
        found => Ok(found),
    }
}

/// After what time a sleeper looks by itself.
struct Poll {
    /// Whether what is waited for may happen without a wake-up.
    is_needed: bool,
    interval: Duration,
    /// Datagrams received so far.
    heard: u32,
}

impl Poll {
    fn new(pe: &Pe, terms: &Terms<'_>) -> Self {
        // A plain store wakes nobody, a fabric may deliver without a wake-up, and a socket has
        // none.
        let is_needed = terms.awaiting.is_word()
            || pe.has_fabric()
            || pe.progress.sockets.load(Ordering::Relaxed) > 0;
        Poll {
            is_needed,
            interval: if is_needed { FIRST_POLL } else { DEPARTURE_POLL },
            heard: pe.progress.heard.load(Ordering::Relaxed),
        }
    }

    fn time_to_next(&self) -> Duration {
        if self.interval == LONGEST_POLL { to_common_time(LONGEST_POLL) } else { self.interval }
    }

    /// The sleeper has looked in vain. Where datagrams have come, more do soon.
    fn lengthen(&mut self, pe: &Pe) {
        if !self.is_needed {
            return;
        }
        let heard = pe.progress.heard.load(Ordering::Relaxed);
        let quiet = heard == self.heard;
        self.interval = if quiet { (self.interval * 2).min(LONGEST_POLL) } else { FIRST_POLL };
        self.heard = heard;
    }
}

/// Time until the next multiple of `interval`: sleepers that look at one moment share a timer's
/// interrupt, and one end of the CPU's idling.
fn to_common_time(interval: Duration) -> Duration {
    interval - Duration::from_nanos(monotonic_nanos() % interval.as_nanos() as u64)
}
