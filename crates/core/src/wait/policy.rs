//! What a wait does between two looks while it stays awake: the policies, when each is chosen, and
//! why.
//!
//! | policy | chosen | why |
//! |---|---|---|
//! | [`Spin`](Policy::Spin) | each PE has a CPU of its own | the answer comes within nanoseconds, and a yield to nobody costs 0.4 us |
//! | [`Poll`](Policy::Poll) | all peers are far, and the PE has a CPU of its own | the answer comes by the fabric, which each round asks: looks between delay it |
//! | [`Yield`](Policy::Yield) | PEs share CPUs, and a PE of this CPU may have to act | the CPU goes to a PE that has something to do; a change of processes costs 1.1 us |
//! | [`YieldAfterSpin`](Policy::YieldAfterSpin) | PEs share CPUs, and none of this CPU can act | the answer comes from another CPU sooner than a yield would come back, and each CPU changes processes once less in a barrier |
//! | [`SpinForCpu`](Policy::SpinForCpu) | beside interference, where PEs share CPUs and none of this CPU can act | one PE of each CPU spins for all that sleep there: to wake a sleeper of another CPU takes longer (30 us) than all else of a barrier |
//! | [`Sleep`](Policy::Sleep) | beside interference; and where very many PEs share a CPU | a program that gets the CPU keeps it for a scheduler's slice, milliseconds, a thousand times what a barrier takes; a sleeper that is woken gets its CPU at once, as the scheduler owes it time |
//!
//! `docs/decisions.md` has the measurements.

use super::interference::Interference;
use super::{Terms, wake, yield_hint};
use crate::base::bells::this_cpu;
use crate::base::clock::cycles;
use crate::base::shm;
use crate::endpoint::pe::Pe;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Looks between two reads of the cycle counter, when spinning.
pub(crate) const LOOKS: u32 = 32;
/// Cycles of spinning before a yield to PEs of which none can act: what changing to another process
/// and back takes. With less, a broadcast is worse off than with no spinning; with twice as much,
/// nothing is better.
const SPIN_BEFORE_YIELD_CYCLES: u64 = 6_000;
/// Cycles for which a PE spins for all of its CPU, for each PE of that CPU: several times what it
/// takes PEs that sleep to wake each other.
const SPIN_FOR_CPU_CYCLES: u64 = 30_000;
/// With more PEs on each CPU than this, waits sleep at once: if all yielded, nothing else on the
/// machine would run.
pub(super) const MOST_SHARING: u64 = 64;

/// What a wait does until its next check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Looks again and again, with a pause between.
    Spin,
    /// Looks once.
    Poll,
    /// Hands the CPU to another PE, then looks.
    Yield,
    /// Looks again and again for a while, then yields.
    YieldAfterSpin {
        /// Cycle at which the spinning began.
        since: u64,
    },
    /// Spins for all PEs of this CPU, wakes them when the wait is over, or sleeps.
    SpinForCpu,
    /// Sleeps at once.
    Sleep,
}

impl Policy {
    /// The policy with which a wait that is to stay awake begins, at cycle `now`.
    #[inline(always)]
    pub(super) fn choose(
        pe: &Pe,
        terms: &Terms<'_>,
        interference: &Interference,
        now: u64,
    ) -> Policy {
        let crowded = pe.crowded();
        if cfg!(loom) || pe.pes_per_cpu() as u64 > MOST_SHARING {
            return Policy::Sleep;
        }
        if interference.is_present(now) {
            let spins = crowded && !may_need_this_cpu(pe, terms);
            return if spins { Policy::SpinForCpu } else { Policy::Sleep };
        }
        if !crowded {
            return if pe.is_all_far() { Policy::Poll } else { Policy::Spin };
        }
        let policy = Policy::of_shared_cpu(pe, terms, now);
        if yield_hint::take(pe) { Policy::Yield } else { policy }
    }

    /// The policy until the next yield, where PEs share CPUs.
    fn of_shared_cpu(pe: &Pe, terms: &Terms<'_>, now: u64) -> Policy {
        match may_need_this_cpu(pe, terms) {
            true => Policy::Yield,
            false => Policy::YieldAfterSpin { since: now },
        }
    }

    /// One round of looks; `last`: the cycle at which the round before ended. Breaks where the wait
    /// stays awake no longer.
    #[inline(always)]
    pub(super) fn round<R>(
        &mut self,
        pe: &Pe,
        terms: &Terms<'_>,
        last: u64,
        look: &mut impl FnMut() -> Option<R>,
    ) -> ControlFlow<Option<R>, Option<R>> {
        ControlFlow::Continue(match *self {
            Policy::Spin => spin(look),
            Policy::Poll => look(),
            Policy::YieldAfterSpin { since }
                if last.saturating_sub(since) < SPIN_BEFORE_YIELD_CYCLES =>
            {
                shm::pause();
                look()
            }
            Policy::Yield | Policy::YieldAfterSpin { .. } => self.yield_cpu(pe, terms, look),
            Policy::SpinForCpu => return ControlFlow::Break(spin_for_cpu(pe, terms, look)),
            Policy::Sleep => return ControlFlow::Break(None),
        })
    }

    #[inline(always)]
    fn yield_cpu<R>(
        &mut self,
        pe: &Pe,
        terms: &Terms<'_>,
        look: &mut impl FnMut() -> Option<R>,
    ) -> Option<R> {
        rustix::thread::sched_yield();
        let found = look();
        if found.is_none() {
            *self = Policy::of_shared_cpu(pe, terms, cycles());
        }
        found
    }
}

/// How a PE's waits stay awake, in words.
pub(crate) fn described(pe: &Pe) -> String {
    match pe.pes_per_cpu() {
        sharing if sharing as u64 > MOST_SHARING => {
            format!("waits sleep at once: {sharing} PEs share a CPU")
        }
        1 if pe.is_all_far() => "waits ask the fabric again and again: all peers are far".into(),
        1 => "waits spin: each PE has a CPU of its own".into(),
        sharing => format!("waits yield: up to {sharing} PEs share a CPU"),
    }
}

/// [`LOOKS`] looks, each after a pause.
#[inline(always)]
pub(super) fn spin<R>(look: &mut impl FnMut() -> Option<R>) -> Option<R> {
    for _ in 0..LOOKS {
        shm::pause();
        let found = look();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Spins for all PEs of this CPU, and wakes them when the wait is over.
#[cold]
fn spin_for_cpu<R>(pe: &Pe, terms: &Terms<'_>, look: &mut impl FnMut() -> Option<R>) -> Option<R> {
    let members = terms.awaiting.members()?;
    let here = pe.control().cpu_of(pe.me());
    let (start, patience) = (cycles(), SPIN_FOR_CPU_CYCLES * pe.pes_per_cpu() as u64);
    while cycles().saturating_sub(start) < patience {
        shm::pause();
        let found = look();
        if found.is_some() {
            match terms.awaiting.bells() {
                Some(bells) => bells.of(here).ring_ordered(),
                None => wake::wake_on_cpu(pe, here, members),
            }
            return found;
        }
    }
    None
}

/// Whether another PE of this CPU may have to act before the wait can end. Says on which CPU this
/// PE is.
fn may_need_this_cpu(pe: &Pe, terms: &Terms<'_>) -> bool {
    let here = this_cpu();
    pe.control().say_cpu(pe.me(), here);
    may_need(pe, terms, here)
}

/// Whether another PE on CPU `here` may have to act before the wait can end. A hint: PEs may have
/// moved since they said where they are, and a PE that has done its part for this wait may have
/// more to do. So spinning before a yield ends after a while.
fn may_need(pe: &Pe, terms: &Terms<'_>, here: u32) -> bool {
    let awaiting = &terms.awaiting;
    let (Some(members), Some(done), false) = (awaiting.members(), awaiting.done(), pe.has_fabric())
    else {
        return true;
    };
    let may_be_here =
        |other: usize| matches!(pe.control().cpu_of(other), cpu if cpu == here || cpu == 0);
    // The member that was missing last time is the likeliest to be missing again, as PEs that yield
    // take turns.
    let last = pe.waits().missed.load(Ordering::Relaxed).min(members.len());
    let missing = (last..members.len())
        .chain(0..last)
        .find(|&at| members[at] != pe.me() && may_be_here(members[at]) && !done(members[at]));
    if let Some(at) = missing {
        pe.waits().missed.store(at, Ordering::Relaxed);
    }
    missing.is_some()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::endpoint::awaiting::Awaiting;
    use crate::endpoint::calls::TeamCall;
    use crate::job::Job;

    #[test]
    fn a_pe_of_this_cpu_that_has_not_arrived_is_needed_here() {
        let needed = |cpus: [u32; 4], late: &'static [usize], members: &'static [usize]| {
            let all = Job::threads(4, |job| {
                if job.pe() != 1 {
                    return None;
                }
                (0..4).for_each(|pe| job.pe.control().say_cpu(pe, cpus[pe]));
                let done = |pe: usize| !late.contains(&pe);
                let meeting = TeamCall { slot: 0, number: 1 };
                let terms = Terms::forever(Awaiting::Step { members, done: &done, meeting });
                let first = may_need(&job.pe, &terms, cpus[1]);
                // The next search begins at the member that this one found.
                assert_eq!(may_need(&job.pe, &terms, cpus[1]), first);
                let words = Terms::forever(Awaiting::WordOf(members, None));
                assert!(may_need(&job.pe, &words, cpus[1]), "any PE may write a word");
                Some(first)
            });
            all.unwrap()[1].unwrap()
        };
        const ALL: &[usize] = &[0, 1, 2, 3];
        assert!(needed([1, 2, 1, 2], &[3], ALL));
        assert!(needed([1, 2, 1, 2], &[0, 3], &[3, 1, 0]));
        assert!(!needed([1, 2, 1, 2], &[0, 1, 2], ALL), "they have CPU 1 for themselves");
        assert!(!needed([2, 2, 2, 2], &[1], ALL), "no PE waits for itself");
        assert!(!needed([2, 2, 2, 2], &[3], &[0, 1]), "no member");
        assert!(needed([1, 2, 0, 1], &[2], ALL), "it may be anywhere");
    }
}
