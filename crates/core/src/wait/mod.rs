//! Waiting: the one loop of the library that spins, yields, sleeps, or reads a clock.
//!
//! ```text
//! look ──► spin or yield, looking ──► announce, look once more, sleep on the doorbell ──► look ...
//!   (1)                (2)                                   (3)                  rung ──► (2), with a CPU for each PE
//! ```
//!
//! 1. Most waits end at the first look.
//! 2. With a CPU for each PE a wait spins; with fewer it yields, which hands the CPU to a PE that
//!    has something to do. Where nobody on this CPU can do what is waited for, it spins a little
//!    before it yields: the answer comes from another CPU within less than it takes to come back,
//!    and this PE goes on without a change of processes. Either only pays while the CPUs belong to
//!    the job: a stranger that gets the CPU keeps it for a scheduler's slice, milliseconds, a
//!    thousand times what a barrier takes. So each round reads the cycle counter: a gap of more
//!    than `GAP` between two looks means that somebody else was running, and **all** waits of the
//!    job on this node then sleep at once for a while (the private module `strangers`). A sleeper
//!    that is woken gets its CPU at once, as the scheduler owes it time. Then, where PEs share
//!    CPUs, one PE of each CPU spins for those that sleep there.
//! 3. Sleepers cost no CPU. Signals and barriers ring them; a plain store does not, so a sleeper
//!    that waits for words looks again by itself, ever less often, down to every `LONGEST_NAP`.
//!
//! Every wait ends: with what it looks for, with [`Error::PeerFailed`] when somebody it depends on
//! is gone (a departure moves a counter that every step watches; a death rings every PE's doorbell,
//! too; who sleeps in a barrier hears of it by looking every 50 ms) or this PE is [ending
//! itself](crate::endpoint::ending), or with [`Error::Timeout`].

pub(crate) mod bells;
pub(crate) mod complete;
pub(crate) mod following;
pub(crate) mod limit;
pub mod polling;
pub(crate) mod state;
pub(crate) mod strangers;

use crate::base::clock::{cycles, monotonic_nanos};
use crate::base::error::{Cause, Error, Quick};
use crate::base::shm;
use crate::endpoint::ending;
use crate::endpoint::fabric::{Awaited, Due};
use crate::endpoint::pe::Pe;
use crate::wait::bells::Bells;
use crate::wait::limit::Limit;
use crate::wait::strangers::Strangers;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Cycles without a look that mean that something else had the CPU. At 1 to 5 GHz, 80 to 400 us;
/// where PEs share CPUs, for each of them up to [`MOST_GAPS`], as each may have a little to do.
const GAP: u64 = 400_000;
const MOST_GAPS: u64 = 4;
/// Cycles of spinning or yielding before sleeping, for each PE that shares the CPU: some ten times
/// what going to sleep and being woken costs. Less, and PEs that were woken one after the other
/// would sleep again before the last of them is up.
const PATIENCE: u64 = 400_000;
/// Cycles of spinning before a yield to PEs that have nothing to do with what is waited for: what
/// changing to another process and back takes.
const HOPE: u64 = 6_000;
/// Cycles of spinning, beside strangers, for those of other CPUs, for each PE of a CPU: some times
/// what these take who sleep and wake each other.
const HOPE_FOR_ALL: u64 = 30_000;
/// Cycles in which who spins for all of a CPU sees that the wait is over, and begins to wake them.
const GRACE: u64 = 1_500;
/// With more PEs on each CPU than this, waits sleep at once: if all yielded, nothing else on the
/// machine would run.
const MOST_SHARING: u64 = 64;
/// Looks between two reads of the cycle counter, when spinning.
pub(crate) const LOOKS: u32 = 32;
/// Looks for one's turn, and cycles from one to the next ([`looks_apart`]): some 3 us together.
const TURN_LOOKS: u32 = 64;
const APART: u64 = 60;
/// How long a sleeper that waits for words sleeps at first.
const FIRST_NAP: Duration = Duration::from_micros(50);
/// The longest that a sleeper which waits for words goes without looking by itself.
const LONGEST_NAP: Duration = Duration::from_millis(4);
/// How long a sleeper sleeps that is certain to be rung: to see who has left in order, which rings
/// nobody.
const LONG_NAP: Duration = Duration::from_millis(50);

/// What a wait depends on, and for how long.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms<'a> {
    /// Whose death ends the wait; `None`: anybody's.
    pub(crate) members: Option<&'a [usize]>,
    /// For a barrier: whether a member that has finalised had done its part before. `None`: a word;
    /// finalised PEs end the wait once nobody else is left who could write it.
    pub(crate) arrived: Option<&'a dyn Fn(usize) -> bool>,
    /// For a barrier: where all of its members sleep.
    pub(crate) bells: Option<Bells>,
    /// When to give up.
    pub(crate) limit: Option<&'a Limit>,
}

impl Terms<'_> {
    fn words(&self) -> bool {
        self.arrived.is_none()
    }

    /// For who reports a deadlock.
    fn what(&self) -> Awaited {
        match (self.arrived, self.members) {
            (None, None) => Awaited::AnyWord,
            (None, Some(_)) => Awaited::SomeWord,
            (Some(_), None) => Awaited::Lock,
            (Some(_), Some(_)) => Awaited::Barrier,
        }
    }

    /// The error with which the wait must end where its time is up.
    fn late(&self, pe: &Pe) -> Option<Error> {
        self.limit.filter(|limit| limit.is_over(pe)).map(Limit::error)
    }

    /// The error with which the wait must end, if what it waits for has not happened.
    pub(crate) fn departed(&self, pe: &Pe) -> Option<Error> {
        if let Some(error) = ending::refusal(pe) {
            return Some(error);
        }
        // SAFETY: the header's counter lies in the mapping that `pe` holds.
        if unsafe { shm::load(pe.control().departures()) } == 0 {
            return None;
        }
        let mut left = 0;
        let mut finalized = None;
        let all = pe
            .control()
            .first_death()
            .into_iter()
            .chain(0..pe.npes())
            .filter(|&other| self.members.is_none_or(|m| m.contains(&other)));
        for other in all {
            match pe.control().state(other).departed() {
                Some(Cause::Finalized) if self.arrived.is_some_and(|arrived| arrived(other)) => {}
                Some(Cause::Finalized) => finalized = Some(other),
                // Who died is to blame, not who left because of that.
                Some(cause) => return Some(Error::PeerFailed { pe: other, cause }),
                None if other != pe.me() => left += 1,
                None => {}
            }
        }
        if self.arrived.is_some() {
            left = 0;
        }
        // Nobody else may ever write this word: waiting on would be a hang.
        (left == 0)
            .then_some(finalized)
            .flatten()
            .map(|pe| Error::PeerFailed { pe, cause: Cause::Finalized })
    }
}

/// Waits until `look` gives something.
#[inline(always)]
pub(crate) fn until<R>(pe: &Pe, terms: Terms<'_>, mut look: impl FnMut() -> Option<R>) -> Quick<R> {
    match first_looks(pe, &mut look) {
        Some(found) => Ok(found),
        None => wait(pe, terms, look),
    }
}

/// The beginning of a wait: for those who have something to say before they wait for long. Where it
/// finds nothing, [`until`] follows.
#[inline(always)]
pub(crate) fn first_looks<R>(pe: &Pe, look: &mut impl FnMut() -> Option<R>) -> Option<R> {
    pe.ring_written();
    if pe.is_simulated() {
        return None;
    }
    let found = look();
    if found.is_some() {
        return found;
    }
    // The answer to what was just sent: nothing may come between it and the caller, not even a
    // clock.
    if cfg!(not(loom)) && !pe.crowded() {
        for _ in 0..LOOKS {
            shm::pause();
            let found = look();
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// The beginning of a wait for one's turn with what PEs hand to each other. Where it finds nothing,
/// [`until`] follows.
///
/// Who hands over has more to write to the lines that are looked at: at the least, that it wants
/// its turn again. A look in between takes the line away from it, and the next one then waits for
/// what comes late. So looks are [`APART`] by the clock, as a `pause` takes from 30 to 140 cycles;
/// and there are enough of them for some turns of others, so that none of what a longer wait does
/// comes between.
#[inline(always)]
pub(crate) fn looks_apart<R>(pe: &Pe, mut look: impl FnMut() -> Option<R>) -> Option<R> {
    pe.ring_written();
    if cfg!(loom) || pe.crowded() || pe.is_simulated() {
        return None;
    }
    let mut last = cycles();
    for _ in 0..TURN_LOOKS {
        loop {
            shm::pause();
            let now = cycles();
            if now.wrapping_sub(last) >= APART {
                last = now;
                break;
            }
        }
        let found = look();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Looks once. A program may do so until it succeeds: where PEs share CPUs it then keeps the one
/// that would have to act from running, for all of a scheduler's slice; so after a few that failed,
/// tests yield as waits do.
#[inline(always)]
pub(crate) fn test<R>(pe: &Pe, look: impl FnOnce() -> Option<R>) -> Option<R> {
    pe.progress();
    pe.ring_written();
    let found = look();
    polling::has_looked(pe, found.is_some());
    found
}

/// Lets another PE have the CPU, for calls that look once. Beside strangers it sleeps a little, as
/// a wait does: they would keep the CPU.
#[cold]
pub(crate) fn give_way(pe: &Pe) {
    if cfg!(loom) {
        return;
    }
    let (start, strangers) = (cycles(), Strangers::of(pe));
    let sharing = pe.pes_per_cpu() as u64;
    if sharing > MOST_SHARING || strangers.around(start) {
        let bell = pe.control().doorbell(pe.me());
        bell.sleep(bell.announce(true, pe.control().membarrier()), FIRST_NAP);
        return;
    }
    rustix::thread::sched_yield();
    let now = cycles();
    if now.saturating_sub(start) > GAP * sharing.min(MOST_GAPS) {
        strangers.seen(now);
    }
}

/// Nanoseconds of the PE's time, which only goes forward, for what keeps deadlines of its own.
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

/// The same in virtual time, where a look has its price and nobody spins.
#[cold]
#[inline(never)]
fn simulated<R>(pe: &Pe, terms: Terms<'_>, mut look: impl FnMut() -> Option<R>) -> Quick<R> {
    let clock = pe.clock().expect("only a fabric with a clock simulates");
    let deadline = terms.limit.map(|limit| limit.deadline(pe));
    clock.look();
    loop {
        // First, as what they take in may be what this waits for, and nothing else would tell of
        // that.
        let relays = pe.relay_news();
        if let Some(found) = look() {
            return Ok(found);
        }
        if let Some(error) = terms.departed(pe).or_else(|| terms.late(pe)) {
            // As in `check`.
            return look().ok_or_else(|| error.into());
        }
        let end = deadline.map(|at| Due { at, vain: false });
        clock.park(Due::first(end, relays), terms.what())?;
    }
}

#[inline(never)]
fn wait<R>(pe: &Pe, terms: Terms<'_>, mut look: impl FnMut() -> Option<R>) -> Quick<R> {
    if pe.is_simulated() {
        return simulated(pe, terms, look);
    }
    if let Some(limit) = terms.limit {
        limit.begin(pe);
    }
    loop {
        if let Some(found) = spin(pe, terms, &mut look)? {
            return Ok(found);
        }
        if let Some(found) = sleep(pe, terms, &mut look)? {
            return Ok(found);
        }
    }
}

/// Spins or yields for as long as that pays.
#[inline(always)]
fn spin<R>(pe: &Pe, terms: Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Quick<Option<R>> {
    let (start, strangers) = (cycles(), Strangers::of(pe));
    let sharing = pe.pes_per_cpu() as u64;
    let crowded = pe.crowded();
    if cfg!(loom) || sharing > MOST_SHARING {
        return Ok(None);
    }
    if strangers.around(start) {
        return Ok(if crowded { spin_for_all(pe, &terms, look) } else { None });
    }
    let mut last = start;
    let (patience, most) = (PATIENCE * sharing, GAP * sharing.min(MOST_GAPS));
    let mut hope = if crowded { hope(pe, &terms) } else { 0 };
    if crowded && following::gives_way(pe) {
        hope = 0;
    }
    let mut since = start;
    while last.saturating_sub(start) < patience {
        let mut found = None;
        if crowded && last.saturating_sub(since) >= hope {
            rustix::thread::sched_yield();
            found = look();
            if found.is_none() {
                (hope, since) = (self::hope(pe, &terms), cycles());
            }
        } else if crowded {
            shm::pause();
            found = look();
        } else {
            for _ in 0..LOOKS {
                shm::pause();
                found = look();
                if found.is_some() {
                    break;
                }
            }
        }
        let now = cycles();
        let gap = now.saturating_sub(last) > most;
        if gap {
            strangers.seen(now);
        }
        if found.is_some() {
            return Ok(found);
        }
        if let Some(found) = check(pe, terms, look)? {
            return Ok(Some(found));
        }
        if gap {
            break;
        }
        last = now;
    }
    Ok(None)
}

/// Beside strangers, one PE of each CPU, the last there to arrive, spins for all that sleep there,
/// and wakes them: waking who sleeps on another CPU takes longer than all else of a barrier.
#[cold]
fn spin_for_all<R>(pe: &Pe, terms: &Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Option<R> {
    let (Some(members), 1..) = (terms.members, hope(pe, terms)) else {
        return None;
    };
    let here = pe.control().cpu_of(pe.me());
    let (start, patience) = (cycles(), HOPE_FOR_ALL * pe.pes_per_cpu() as u64);
    while cycles().saturating_sub(start) < patience {
        shm::pause();
        let found = look();
        if found.is_some() {
            match terms.bells {
                Some(bells) => bells.of(here).ring_ordered(),
                None => ring_at(pe, here, members),
            }
            return found;
        }
    }
    None
}

/// Rings those of `members` who sleep on CPU `here`.
fn ring_at(pe: &Pe, here: u32, members: &[usize]) {
    let control = pe.control();
    let there = members.iter().filter(|&&other| control.cpu_of(other) == here);
    there.for_each(|&other| control.doorbell(other).ring_ordered());
}

/// The other half of [`spin_for_all`], for who is about to ring `targets`: rings those on other
/// CPUs, but leaves them a moment to who is awake there. No wake-up depends on anybody else: after
/// that moment all are rung as ever, and who was rung twice looks twice.
pub(crate) fn ring_elsewhere(pe: &Pe, targets: impl Iterator<Item = usize> + Clone) {
    if Strangers::of(pe).are_believed_in(cycles) {
        ring_beyond(pe, this_cpu(), targets);
    }
}

fn ring_beyond(pe: &Pe, here: u32, targets: impl Iterator<Item = usize> + Clone) {
    let control = pe.control();
    let asleep = |target: usize| control.doorbell(target).is_announced();
    let start = cycles();
    for target in targets.clone() {
        let there = control.cpu_of(target);
        if there == here || !asleep(target) {
            continue;
        }
        if targets.clone().any(|other| control.cpu_of(other) == there && !asleep(other)) {
            for_a_moment(start, || !asleep(target));
        }
        control.doorbell(target).ring_ordered();
    }
}

/// Waits for those who are awake on other CPUs to wake theirs, until `done` or for [`GRACE`] from
/// `start` on.
pub(crate) fn for_a_moment(start: u64, done: impl Fn() -> bool) {
    while cfg!(not(loom)) && !done() && cycles().saturating_sub(start) < GRACE {
        shm::pause();
    }
}

/// One more than the number of the CPU that this thread is on, or was a moment ago.
pub(crate) fn this_cpu() -> u32 {
    if cfg!(loom) { 1 } else { rustix::thread::sched_getcpu() as u32 + 1 }
}

/// For how many cycles a wait had better spin before it yields.
fn hope(pe: &Pe, terms: &Terms<'_>) -> u64 {
    let here = this_cpu();
    pe.control().say_cpu(pe.me(), here);
    if may_need(pe, terms, here) { 0 } else { HOPE }
}

/// Whether somebody else on CPU `here` may have to do what is waited for. A hint: PEs may have
/// moved since they said where they are, and who has done its part for this wait may have others to
/// do. So hope ends, and then a PE yields as ever.
fn may_need(pe: &Pe, terms: &Terms<'_>, here: u32) -> bool {
    let (Some(members), Some(arrived), false) = (terms.members, terms.arrived, pe.has_far()) else {
        return true;
    };
    let may_be_here =
        |other: usize| matches!(pe.control().cpu_of(other), cpu if cpu == here || cpu == 0);
    // Who was missing last time is the likeliest to be missing again, as PEs that yield take turns.
    let last = pe.waits().missed.load(Ordering::Relaxed).min(members.len());
    let missing = (last..members.len())
        .chain(0..last)
        .find(|&at| members[at] != pe.me() && may_be_here(members[at]) && !arrived(members[at]));
    if let Some(at) = missing {
        pe.waits().missed.store(at, Ordering::Relaxed);
    }
    missing.is_some()
}

/// Sleeps. Nothing, where spinning is better: whoever was rung, though not with the answer, is
/// being worked for, and would have its CPU for itself. If it slept again at once, each quiet of a
/// PE that writes to it would have to wake it.
#[cold]
fn sleep<R>(pe: &Pe, terms: Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Quick<Option<R>> {
    // A fabric may deliver without ringing.
    let looks = terms.words() || pe.has_far() || pe.progress.sockets.load(Ordering::Relaxed) > 0;
    let bells = terms.bells.filter(|_| !looks && !pe.has_relays());
    // Under loom each PE has a CPU of its own, so that not all sleep on one bell.
    let here = || if cfg!(loom) { pe.me() as u32 } else { this_cpu() };
    let bell = bells.map_or_else(|| pe.control().doorbell(pe.me()), |bells| bells.of(here()));
    let mut nap = if looks { FIRST_NAP } else { LONG_NAP };
    let mut heard = pe.progress.heard.load(Ordering::Relaxed);
    loop {
        let ticket = bell.announce(terms.words(), pe.control().membarrier());
        // What it lets work may bring what is waited for: the look comes after it.
        if let Some(found) = check(pe, terms, look)? {
            return Ok(Some(found));
        }
        if let Some(found) = look() {
            return Ok(Some(found));
        }
        loop {
            let left = terms.limit.map(|limit| limit.left(pe));
            let time = if nap == LONGEST_NAP { until_common_time(nap) } else { nap };
            bell.sleep(ticket, left.map_or(time, |left| left.min(time)));
            if let Some(found) = check(pe, terms, look)? {
                return Ok(Some(found));
            }
            if let Some(found) = look() {
                return Ok(Some(found));
            }
            if bell.stale(ticket) {
                if cfg!(not(loom)) && !pe.crowded() && !Strangers::of(pe).around(cycles()) {
                    return Ok(None);
                }
                break;
            }
            if looks {
                // Where datagrams come, more do soon.
                let now = pe.progress.heard.load(Ordering::Relaxed);
                nap = if now == heard { (nap * 2).min(LONGEST_NAP) } else { FIRST_NAP };
                heard = now;
            }
        }
    }
}

/// Time until the next multiple of `nap`: sleepers that look at the same moment share a timer's
/// interrupt, and one end of the CPU's idling.
fn until_common_time(nap: Duration) -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let past = now.tv_nsec as u64 + now.tv_sec as u64 % 60 * 1_000_000_000;
    nap - Duration::from_nanos(past % nap.as_nanos() as u64)
}

/// Lets the fabric work, and ends the wait when it can never succeed or has lasted too long.
fn check<R>(pe: &Pe, terms: Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Quick<Option<R>> {
    pe.progress();
    match terms.departed(pe).or_else(|| terms.late(pe)) {
        // Whoever left may have done its part just before: what it wrote is visible now that its
        // departure is.
        Some(error) => look().map(Some).ok_or_else(|| error.into()),
        None => Ok(None),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    #[test]
    fn looks_for_a_turn_end() {
        let looks = Job::threads(1, |job| {
            let mut looks = 0;
            let nothing = looks_apart(&job.pe, || {
                looks += 1;
                None::<()>
            });
            assert_eq!(nothing, None);
            assert_eq!(looks_apart(&job.pe, || Some(7)), Some(7));
            looks
        });
        assert_eq!(looks.unwrap(), [TURN_LOOKS], "it has a CPU");
    }

    #[test]
    fn who_shares_the_cpu_and_has_not_arrived_is_needed_there() {
        let needed = |cpus: [u32; 4], late: &'static [usize], members: &'static [usize]| {
            let all = Job::threads(4, |job| {
                if job.pe() != 1 {
                    return None;
                }
                (0..4).for_each(|pe| job.pe.control().say_cpu(pe, cpus[pe]));
                let terms = Terms {
                    members: Some(members),
                    arrived: Some(&|pe| !late.contains(&pe)),
                    ..Terms::default()
                };
                let first = may_need(&job.pe, &terms, cpus[1]);
                // Whom it found then is where it looks first.
                assert_eq!(may_need(&job.pe, &terms, cpus[1]), first);
                let words = Terms { arrived: None, ..terms };
                assert!(may_need(&job.pe, &words, cpus[1]), "anybody may write a word");
                Some(first)
            });
            all.unwrap()[1].unwrap()
        };
        const ALL: &[usize] = &[0, 1, 2, 3];
        assert!(needed([1, 2, 1, 2], &[3], ALL));
        assert!(needed([1, 2, 1, 2], &[0, 3], &[3, 1, 0]));
        assert!(!needed([1, 2, 1, 2], &[0, 1, 2], ALL), "they have CPU 1 for themselves");
        assert!(!needed([2, 2, 2, 2], &[1], ALL), "nobody waits for itself");
        assert!(!needed([2, 2, 2, 2], &[3], &[0, 1]), "no member");
        assert!(needed([1, 2, 0, 1], &[2], ALL), "it may be anywhere");
    }

    /// Who of PEs 1 to 3, on CPUs 1, 2 and 2, still sleeps after `f` at PE 0 on CPU 1, if only
    /// `sleepers` did before.
    fn still_asleep(sleepers: &[usize], f: fn(&Pe)) -> Vec<usize> {
        let all = Job::threads(4, |job| {
            if job.pe() != 0 {
                return Vec::new();
            }
            let control = job.pe.control();
            (0..4).for_each(|pe| control.say_cpu(pe, [1, 1, 2, 2][pe]));
            for &sleeper in sleepers {
                control.doorbell(sleeper).announce(false, control.membarrier());
            }
            f(&job.pe);
            (1..4).filter(|&pe| control.doorbell(pe).is_announced()).collect()
        });
        all.unwrap().swap_remove(0)
    }

    #[test]
    fn who_spins_for_all_of_its_cpu_wakes_no_others() {
        assert_eq!(still_asleep(&[1, 2, 3], |pe| ring_at(pe, 1, &[0, 1, 2, 3])), [2, 3]);
        assert_eq!(still_asleep(&[1, 2, 3], |pe| ring_at(pe, 2, &[0, 1, 3])), [1, 2]);
    }

    #[test]
    fn whom_nobody_wakes_on_its_own_cpu_is_rung_from_elsewhere() {
        assert_eq!(still_asleep(&[1, 2, 3], |pe| ring_beyond(pe, 1, 1..4)), [1]);
        // PE 3 could, and does not.
        assert_eq!(still_asleep(&[1, 2], |pe| ring_beyond(pe, 1, 1..4)), [1]);
    }
}
