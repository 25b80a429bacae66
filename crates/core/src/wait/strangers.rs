//! Whether this node's CPUs belong to the job: what its waits have learnt, shared through the
//! control page.
//!
//! A gap between two looks of a wait that spins or yields means that somebody else had the CPU.
//! After one, all waits of the job on this node sleep at once, for a *window* of cycles. When it is
//! over, the next waits *probe*: they spin or yield again. A gap within a few scheduler slices of
//! probing says that the strangers stayed, and the next window is longer; a later one is taken for
//! bad luck, and the windows begin anew.
//!
//! Nothing here must be right: races between PEs, or a word overwritten by a stray store, change
//! for how long waits sleep rather than spin, and nothing else. Times are cycles of the node's
//! clock and wrap.

use crate::base::layout::JobHeader;
use crate::base::shm;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;
use std::ops::Range;

/// Length of a window: at first, and at most. Short at first, as a PE of the job that computes
/// looks like a stranger. At most some hundredths of a second: a probe costs a slice or two, but
/// who sleeps on after PEs have computed, or after a noisy moment, pays thirty times what a barrier
/// costs.
const WINDOW: Range<u64> = 2_500_000..100_000_000;
/// Cycles of probing in which strangers who are still there show: a few slices of the scheduler.
const PROBE: u64 = 12_500_000;

/// The words of the control page.
pub(crate) struct Strangers {
    until: *mut u64,
    window: *mut u64,
    probed: *mut u64,
    probing_since: *mut u64,
}

impl Strangers {
    #[inline]
    pub(crate) fn of(pe: &Pe) -> Self {
        let at = |offset: usize| pe.control().mapping().at(offset as u64).cast::<u64>();
        Strangers {
            until: at(offset_of!(JobHeader, strangers_until)),
            window: at(offset_of!(JobHeader, strangers_window)),
            probed: at(offset_of!(JobHeader, strangers_probed)),
            probing_since: at(offset_of!(JobHeader, strangers_probing_since)),
        }
    }

    #[inline]
    fn read(word: *mut u64) -> u64 {
        // SAFETY: aligned words of the control page, which the PE that made this value keeps
        // mapped.
        unsafe { shm::load(word) }
    }

    fn write(word: *mut u64, value: u64) {
        // SAFETY: as in `read`.
        unsafe { shm::store(word, value) }
    }

    /// Whether a wait that begins `now` should sleep at once. If not, it probes.
    #[inline]
    pub(crate) fn around(&self, now: u64) -> bool {
        let until = Self::read(self.until);
        until != 0 && self.in_window_or_probe(until, now)
    }

    /// As [`around`](Self::around), for who is not about to wait.
    pub(crate) fn are_believed_in(&self, now: fn() -> u64) -> bool {
        let until = Self::read(self.until);
        until != 0 && Self::ahead(until, now())
    }

    /// A moment too far in the future is not ours: another clock's, or a stray store's.
    fn ahead(until: u64, now: u64) -> bool {
        until.wrapping_sub(now) < WINDOW.end
    }

    fn in_window_or_probe(&self, until: u64, now: u64) -> bool {
        if Self::ahead(until, now) {
            return true;
        }
        if Self::read(self.probed) != until {
            Self::write(self.probing_since, now);
            Self::write(self.probed, until);
        }
        false
    }

    /// A wait found `now` that somebody else had had its CPU.
    #[cold]
    pub(crate) fn seen(&self, now: u64) {
        let until = Self::read(self.until);
        if until != 0 && Self::ahead(until, now) {
            return;
        }
        let probing = Self::read(self.probed) == until
            && now.wrapping_sub(Self::read(self.probing_since)) < PROBE;
        let next = if until != 0 && probing {
            Self::read(self.window).saturating_mul(4).clamp(WINDOW.start, WINDOW.end - 1)
        } else {
            WINDOW.start
        };
        Self::write(self.window, next);
        Self::write(self.until, now.wrapping_add(next).max(1));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    fn windows(f: impl Fn(&Strangers) + Sync) {
        Job::threads(1, |job| f(&Strangers::of(&job.pe))).unwrap();
    }

    #[test]
    fn nobody_at_first_and_again_after_a_while() {
        windows(|s| {
            assert!(!s.around(1000));
            s.seen(1000);
            assert!(s.around(1001) && s.around(1000 + WINDOW.start - 1));
            assert!(!s.around(1000 + WINDOW.start + 1));
        });
    }

    #[test]
    fn who_stays_is_believed_for_longer_each_time() {
        windows(|s| {
            let mut now = 1000;
            let mut last = 0;
            for _ in 0..10 {
                s.seen(now);
                let length = Strangers::read(s.window);
                assert!(length > last || length == WINDOW.end - 1);
                last = length;
                // Nobody waits for long after the window: what counts is when probing began.
                now += length + 5 * PROBE;
                assert!(!s.around(now));
                now += PROBE - 1;
            }
            assert_eq!(last, WINDOW.end - 1);
        });
    }

    #[test]
    fn bad_luck_is_forgotten() {
        windows(|s| {
            let mut now = 1000;
            for _ in 0..10 {
                s.seen(now);
                assert_eq!(Strangers::read(s.window), WINDOW.start);
                now += WINDOW.start + 1;
                assert!(!s.around(now));
                now += PROBE + 1;
            }
        });
    }

    #[test]
    fn the_clock_may_wrap() {
        windows(|s| {
            s.seen(u64::MAX - 10);
            assert!(s.around(u64::MAX) && s.around(5));
            assert!(!s.around(WINDOW.start));
        });
    }
}
