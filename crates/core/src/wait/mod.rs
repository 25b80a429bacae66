//! Waiting: the one loop of the library that spins, yields, sleeps, or reads a clock.
//!
//! ```text
//! first looks ──► stay awake, by a policy ──► sleep: announce, look once more, sleep ──► look ...
//!                        ▲                                                                │
//!                        └──────────── woken without an answer, a CPU for each PE ◄───────┘
//! ```
//!
//! 1. *First looks.* Most waits end here.
//! 2. *Awake.* A wait spins or yields for as long as that pays: `policy.rs` says how and why. That
//!    only holds while the CPUs belong to the job. So each round reads the cycle counter: a gap of
//!    more than `GAP_CYCLES` between two looks means that another program was running, and
//!    **all** waits of the job on this node then sleep at once for a while (`interference.rs`).
//! 3. *Asleep.* A sleeper costs no CPU. Signals and barriers wake it. A plain store does not, so a
//!    sleeper that waits for words looks again by itself, ever less often, down to once per 4 ms
//!    (`sleep.rs`).
//!
//! Every wait ends: with what it looks for; with [`Error::PeerFailed`] when a PE that it depends on
//! is gone, or this PE is [ending itself](crate::endpoint::ending); with the [fabric's
//! error](crate::endpoint::fabric::Fabric::unreachable) of a PE that it depends on and cannot
//! reach; with [`Error::Timeout`]; or with [`Error::Interrupted`] when this PE's front end asks for
//! it ([`Attention`]). Only the short waits of a PE that others wait for are not interrupted. A
//! departure moves a counter that every check reads, and a death wakes every
//! PE's doorbell, too. A PE that sleeps in a barrier sees it at its next look, within 50 ms.

pub(crate) mod answer;
mod attention;
pub(crate) mod complete;
pub(crate) mod errand;
mod interference;
pub(crate) mod limit;
mod paced;
mod policy;
pub mod polling;
pub(crate) mod pulse;
pub(crate) mod quit;
pub mod report;
mod simulated;
mod sleep;
pub(crate) mod state;
mod terms;
mod wake;
pub mod wording;
pub(crate) mod yield_hint;

pub(crate) use crate::endpoint::awaiting::Awaiting;
pub use crate::endpoint::awaiting::{Awaited, Words};
pub use attention::{Attention, Waiting};
pub(crate) use paced::{Rarely, paced_polling};
pub(crate) use policy::{LOOKS, described};
#[cfg(not(loom))]
pub(crate) use sleep::asleep;
pub(crate) use terms::Terms;

use crate::base::clock::{cycles, monotonic_nanos};
#[cfg(doc)]
use crate::base::error::Error;
use crate::base::error::Quick;
use crate::base::log::log;
use crate::endpoint::pe::Pe;
use crate::wait::interference::Interference;
use crate::wait::limit::Patience;
use crate::wait::policy::{MOST_SHARING, Policy};
use std::ops::ControlFlow;
use std::time::Duration;

/// Cycles without a look that mean that another program had the CPU. At 1 to 5 GHz, 80 to 400 us.
/// Where PEs share CPUs, for each of them, as each may have a little to do, up to [`MOST_GAPS`].
const GAP_CYCLES: u64 = 400_000;
const MOST_GAPS: u64 = 4;
/// The same for a PE that waits for a fabric alone: less than a waiting PE beside it stays awake,
/// and more than interrupts and this PE's own progress thread take.
const FAR_GAP_CYCLES: u64 = AWAKE_CYCLES / 2;
/// Cycles for which a wait stays awake, for each PE that shares the CPU: some ten times what going
/// to sleep and being woken costs. With less, PEs that were woken one after the other would sleep
/// again before the last of them is up.
const AWAKE_CYCLES: u64 = 400_000;

/// Waits until `look` gives something.
#[inline(always)]
pub(crate) fn until<R>(pe: &Pe, terms: Terms<'_>, mut look: impl FnMut() -> Option<R>) -> Quick<R> {
    match first_looks(pe, &mut look) {
        Some(found) => Ok(found),
        None => wait(pe, terms, look),
    }
}

/// The first phase of a wait: for a caller that has something to say before it waits for long.
/// Where it finds nothing, [`until`] follows.
#[inline(always)]
pub(crate) fn first_looks<R>(pe: &Pe, look: &mut impl FnMut() -> Option<R>) -> Option<R> {
    pe.wake_written();
    if pe.is_simulated() {
        return None;
    }
    let found = look();
    if found.is_some() {
        return found;
    }
    pe.send_written();
    // The answer to what was just sent: nothing may come between it and the caller, not even a
    // clock.
    if cfg!(not(loom)) && pe.spins() { policy::spin(look) } else { None }
}

/// Looks for as long as the first phase of a wait takes, in a wait that memory alone answers.
#[inline(always)]
pub(crate) fn look_awake(mut look: impl FnMut() -> bool) -> bool {
    look() || look_later(look)
}

/// [`look_awake`], for an answer to what was just stored, in a meeting: it comes later. A look
/// before that would take its line from the member that is about to write there.
#[inline(always)]
pub(crate) fn look_later(mut look: impl FnMut() -> bool) -> bool {
    policy::spin(&mut || look().then_some(())).is_some()
}

#[inline(never)]
fn wait<R>(pe: &Pe, terms: Terms<'_>, mut look: impl FnMut() -> Option<R>) -> Quick<R> {
    let _recorded = pe.recorder().and_then(|recorder| recorder.wait(&terms.awaiting));
    if pe.is_simulated() {
        return simulated::wait(pe, terms, look);
    }
    terms.patience.begin(pe);
    let mut start = cycles();
    let terms = Terms { since: start, ..terms };
    loop {
        if let Some(found) = stay_awake(pe, terms, start, &mut look)? {
            return Ok(found);
        }
        if let Some(found) = sleep::sleep(pe, terms, &mut look)? {
            return Ok(found);
        }
        start = cycles();
    }
}

/// Another program had this PE's CPU.
#[cold]
fn disturbed(pe: &Pe, interference: &Interference, now: u64) {
    log!(Trace, pe.me(), "another program had the CPU: waits sleep for a while");
    interference.seen(now);
}

/// The second phase: looks by a policy for as long as that pays, from cycle `start` on.
#[inline(always)]
fn stay_awake<R>(
    pe: &Pe,
    terms: Terms<'_>,
    mut start: u64,
    look: &mut impl FnMut() -> Option<R>,
) -> Quick<Option<R>> {
    let interference = Interference::of(pe);
    let mut policy = Policy::choose(pe, &terms, &interference, start);
    let sharing = pe.pes_per_cpu() as u64;
    let longest_cycles =
        if pe.is_all_far() { FAR_GAP_CYCLES } else { GAP_CYCLES * sharing.min(MOST_GAPS) };
    let awake_cycles = AWAKE_CYCLES * sharing;
    let mut last = start;
    while last.saturating_sub(start) < awake_cycles {
        let found = match policy.round(pe, &terms, last, look) {
            ControlFlow::Continue(found) => found,
            ControlFlow::Break(end) => return Ok(end),
        };
        let now = cycles();
        let mut gap = now.saturating_sub(last) > longest_cycles;
        if found.is_some() {
            if gap {
                disturbed(pe, &interference, now);
            }
            return Ok(found);
        }
        let moved = pe.progress();
        // What a fabric does takes its time, but finding nothing takes little.
        last = if pe.has_fabric() { cycles() } else { now };
        gap |= pe.is_all_far() && !moved && last.saturating_sub(now) > longest_cycles;
        if gap {
            disturbed(pe, &interference, last);
        }
        if let Some(found) = check_end(pe, terms, look)? {
            return Ok(Some(found));
        }
        if gap {
            break;
        }
        if moved {
            // A PE that far PEs talk to answers them faster awake, whatever it waits for.
            start = last;
        }
    }
    Ok(None)
}

/// Lets the fabric work, and ends the wait when it can never succeed, has lasted too long, or is
/// interrupted.
fn check<R>(pe: &Pe, terms: Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Quick<Option<R>> {
    pe.progress();
    check_end(pe, terms, look)
}

/// The rest of a check, after the fabric has worked.
fn check_end<R>(
    pe: &Pe,
    terms: Terms<'_>,
    look: &mut impl FnMut() -> Option<R>,
) -> Quick<Option<R>> {
    match terms.departed(pe).or_else(|| terms.patience.late(pe)) {
        // A PE that has left may have done its part just before: what it wrote is visible now that
        // its departure is.
        Some(error) => look().map(Some).ok_or_else(|| error.into()),
        None if terms.is_called(pe) || answer::is_asked(pe) || quit::is_asked() => {
            attend(pe, terms, look)
        }
        None => Ok(None),
    }
}

/// Answers the launcher, and lets the front end end the wait. Its hook runs behind a look in vain,
/// and no look comes between the hook and the error: the front end relies on the end that it has
/// asked for.
#[cold]
fn attend<R>(pe: &Pe, terms: Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Quick<Option<R>> {
    let found = look();
    if found.is_some() {
        return Ok(found);
    }
    answer::answer(pe, &terms);
    if !terms.is_called(pe) {
        return Ok(None);
    }
    attention::attend(pe, &terms.awaiting).map_or(Ok(None), |error| Err(error.into()))
}

/// Looks once. A program may do so until it succeeds: where PEs share CPUs it then keeps the PE
/// that would have to act from running, for all of a scheduler's slice. So after a few tests that
/// failed, tests yield as waits do.
#[inline(always)]
pub(crate) fn test<R>(pe: &Pe, look: impl FnOnce() -> Option<R>) -> Option<R> {
    pe.progress();
    pe.wake_written();
    let found = look();
    polling::has_looked(pe, found.is_some());
    found
}

/// Lets another PE have the CPU, for calls that look once. Beside interference it sleeps a little,
/// as a wait does: a yield would give the CPU to the other program for a slice.
#[cold]
pub(crate) fn give_way(pe: &Pe) {
    if cfg!(loom) {
        return;
    }
    let (start, interference) = (cycles(), Interference::of(pe));
    let sharing = pe.pes_per_cpu() as u64;
    if sharing > MOST_SHARING || interference.is_present(start) {
        let bell = pe.control().doorbell(pe.me());
        bell.sleep(bell.announce(true, pe.control().membarrier()), sleep::FIRST_POLL);
        return;
    }
    rustix::thread::sched_yield();
    let now = cycles();
    if now.saturating_sub(start) > GAP_CYCLES * sharing.min(MOST_GAPS) {
        disturbed(pe, &interference, now);
    }
}

/// Lets another PE have the CPU, for a PE that may have more to do. Beside interference it does
/// nothing: a yield would give the CPU to the other program for a slice.
#[cold]
pub(crate) fn let_others_run(pe: &Pe) {
    let crowd = pe.pes_per_cpu() as u64 > MOST_SHARING;
    if cfg!(not(loom)) && !crowd && !Interference::of(pe).is_assumed(cycles) {
        rustix::thread::sched_yield();
    }
}

/// Nanoseconds of the PE's time, which only goes forward, for a caller that keeps deadlines of its
/// own.
pub(crate) fn nanos(pe: &Pe) -> u64 {
    if let Some(clock) = pe.clock() {
        return clock.now().as_nanos() as u64;
    }
    monotonic_nanos()
}

/// A moment in the time in which this PE lives, in which timeouts are meant; only differences mean
/// anything.
pub(crate) fn now(pe: &Pe) -> Duration {
    Duration::from_nanos(nanos(pe))
}
