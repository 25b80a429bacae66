//! Raw barriers, the limits of memonet's barriers: a central counter and dissemination, each with
//! three ways to wait.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::bench::raw;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Central,
    Dissemination,
}

/// What a waiter does between two polls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    Spin,
    Yield,
    /// Sleeps, after this many polls.
    Futex(u32),
}

/// Polls before the first yield: they are cheap beside it, and notice a partner on another core.
const POLLS_BEFORE_YIELD: u32 = 4;

/// Most rounds of a dissemination.
const ROUNDS: usize = 16;
/// Words per PE that a barrier occupies: a pair of cache lines for each of `ROUNDS` rounds, the
/// counter and the gate.
pub const WORDS: usize = (ROUNDS + 2) * PAIR;
/// Two cache lines: a value in the first, its sleepers in the second.
const PAIR: usize = 32;
const LINE: usize = 16;

/// One PE's view of a barrier.
pub struct RawBarrier<'a> {
    shape: Shape,
    idle: Idle,
    pes: u32,
    phase: u32,
    counter: &'a AtomicU32,
    gate: Flag<'a>,
    /// For each round: the partner's flag, and this PE's.
    rounds: Vec<(Flag<'a>, Flag<'a>)>,
}

#[derive(Clone, Copy)]
struct Flag<'a> {
    value: &'a AtomicU32,
    /// Number of PEs that sleep, or are about to.
    sleepers: &'a AtomicU32,
}

impl<'a> RawBarrier<'a> {
    /// The barrier in `WORDS` zeroed words of each PE.
    ///
    /// # Safety
    /// Every pointer is aligned to a cache line and valid for [`WORDS`] words for `'a`. Only raw
    /// barriers at this place use those words.
    pub unsafe fn new(shape: Shape, idle: Idle, me: usize, parts: &[*mut u32]) -> Self {
        // SAFETY: all indices below are less than WORDS, so within the range that the caller
        // grants.
        let word = |pe: usize, index: usize| unsafe { raw::half_word::<'a>(parts[pe].add(index)) };
        let flag = |pe, index| Flag { value: word(pe, index), sleepers: word(pe, index + LINE) };
        let pes = parts.len();
        let steps =
            (0..ROUNDS).map(|round| (round, 1 << round)).take_while(|&(_, step)| step < pes);
        let rounds = steps
            .map(|(round, step)| (flag((me + step) % pes, round * PAIR), flag(me, round * PAIR)))
            .collect();
        Self {
            shape,
            idle,
            pes: pes as u32,
            phase: 0,
            counter: word(0, ROUNDS * PAIR),
            gate: flag(0, (ROUNDS + 1) * PAIR),
            rounds,
        }
    }

    /// One barrier.
    #[inline(always)]
    pub fn pass(&mut self) {
        self.phase += 1;
        match self.shape {
            Shape::Central => {
                if self.counter.fetch_add(1, Ordering::AcqRel) + 1 == self.pes * self.phase {
                    self.raise(self.gate, u32::MAX >> 1);
                } else {
                    self.wait(self.gate);
                }
            }
            Shape::Dissemination => {
                for &(partner, own) in &self.rounds {
                    self.raise(partner, 1);
                    self.wait(own);
                }
            }
        }
    }

    #[inline(always)]
    fn raise(&self, flag: Flag<'_>, most: u32) {
        if let Idle::Futex(_) = self.idle {
            // Sequentially consistent with the announcement in `wait`: either this PE sees the
            // sleeper, or the sleeper sees the value.
            flag.value.store(self.phase, Ordering::SeqCst);
            if flag.sleepers.load(Ordering::SeqCst) != 0 {
                raw::futex_wake(flag.value, most);
            }
        } else {
            flag.value.store(self.phase, Ordering::Release);
        }
    }

    #[inline(always)]
    fn wait(&self, flag: Flag<'_>) {
        let mut polls = 0;
        while flag.value.load(Ordering::Acquire) < self.phase {
            polls += 1;
            match self.idle {
                Idle::Spin => std::hint::spin_loop(),
                Idle::Yield if polls < POLLS_BEFORE_YIELD => {}
                Idle::Yield => rustix::thread::sched_yield(),
                Idle::Futex(before) if polls <= before => std::hint::spin_loop(),
                Idle::Futex(_) => {
                    flag.sleepers.fetch_add(1, Ordering::SeqCst);
                    let seen = flag.value.load(Ordering::SeqCst);
                    if seen < self.phase {
                        raw::futex_wait(flag.value, seen);
                    }
                    flag.sleepers.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// With every shape and way to wait, no PE leaves a barrier before all have entered it.
    #[test]
    fn holds_everyone_until_the_last() {
        const PES: usize = 5;
        for shape in [Shape::Central, Shape::Dissemination] {
            for idle in [Idle::Yield, Idle::Futex(0), Idle::Futex(50)] {
                let mut memory = vec![vec![0u32; WORDS + LINE]; PES];
                let parts: Vec<usize> =
                    memory.iter_mut().map(|part| part.as_mut_ptr() as usize).collect();
                let entered = AtomicUsize::new(0);
                std::thread::scope(|scope| {
                    for me in 0..PES {
                        let (parts, entered) = (&parts, &entered);
                        scope.spawn(move || {
                            let parts: Vec<*mut u32> =
                                parts.iter().map(|&part| part as *mut u32).collect();
                            // SAFETY: the vectors outlive the threads, and nothing else touches
                            // them meanwhile.
                            let mut barrier = unsafe { RawBarrier::new(shape, idle, me, &parts) };
                            for round in 1..=200 {
                                entered.fetch_add(1, Ordering::SeqCst);
                                barrier.pass();
                                assert!(entered.load(Ordering::SeqCst) >= round * PES);
                            }
                        });
                    }
                });
            }
        }
    }
}
