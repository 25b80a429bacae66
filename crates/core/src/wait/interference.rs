//! Interference: whether other programs use this node's CPUs. The job's waits on a node share what
//! they have learnt, through the control page.
//!
//! A gap between two looks of a wait that spins or yields means that another program had the CPU.
//! After a gap, all waits of the job on this node sleep at once, for a *window* of cycles. When the
//! window is over, the next waits *probe*: they spin or yield again. A gap within a few scheduler
//! slices of probing means that the interference stays, and the next window is longer. A later gap
//! counts as bad luck, and the windows begin anew.
//!
//! No result depends on these words. A race between PEs, or a word that a stray store has
//! overwritten, changes how long waits sleep instead of spinning, and nothing else. Times are
//! cycles of the node's clock and wrap.

use crate::base::layout::JobHeader;
use crate::base::shm;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;
use std::ops::Range;

/// Length of a window: at first, and at most. Short at first, because a PE of the job that computes
/// looks like interference. At most some hundredths of a second: a probe costs a slice or two, but
/// a wait that sleeps on after PEs have computed, or after a noisy moment, pays thirty times what a
/// barrier costs.
const WINDOW_CYCLES: Range<u64> = 2_500_000..100_000_000;
/// Cycles of probing within which interference that stays shows itself: a few slices of the
/// scheduler.
const PROBE_CYCLES: u64 = 12_500_000;

/// The words of the control page.
pub(crate) struct Interference {
    until: *mut u64,
    window: *mut u64,
    probed: *mut u64,
    probing_since: *mut u64,
}

impl Interference {
    #[inline]
    pub(crate) fn of(pe: &Pe) -> Self {
        let at = |offset: usize| pe.control().mapping().at(offset as u64).cast::<u64>();
        Interference {
            until: at(offset_of!(JobHeader, interference_until)),
            window: at(offset_of!(JobHeader, interference_window)),
            probed: at(offset_of!(JobHeader, interference_probed)),
            probing_since: at(offset_of!(JobHeader, interference_probing_since)),
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
    pub(crate) fn is_present(&self, now: u64) -> bool {
        let until = Self::read(self.until);
        until != 0 && self.in_window_or_probe(until, now)
    }

    /// [`is_present`](Self::is_present), for a PE that is not about to wait: it does not probe.
    pub(crate) fn is_assumed(&self, now: fn() -> u64) -> bool {
        let until = Self::read(self.until);
        until != 0 && Self::ahead(until, now())
    }

    /// Whether a window is under way. A moment too far in the future comes from another clock or a
    /// stray store, and counts as past.
    fn ahead(until: u64, now: u64) -> bool {
        until.wrapping_sub(now) < WINDOW_CYCLES.end
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

    /// A wait found `now` that another program had had its CPU: begins a window.
    #[cold]
    pub(crate) fn seen(&self, now: u64) {
        let until = Self::read(self.until);
        if until != 0 && Self::ahead(until, now) {
            return;
        }
        let probing = Self::read(self.probed) == until
            && now.wrapping_sub(Self::read(self.probing_since)) < PROBE_CYCLES;
        let next = if until != 0 && probing {
            Self::read(self.window)
                .saturating_mul(4)
                .clamp(WINDOW_CYCLES.start, WINDOW_CYCLES.end - 1)
        } else {
            WINDOW_CYCLES.start
        };
        Self::write(self.window, next);
        Self::write(self.until, now.wrapping_add(next).max(1));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    fn windows(f: impl Fn(&Interference) + Sync) {
        Job::threads(1, |job| f(&Interference::of(&job.pe))).unwrap();
    }

    #[test]
    fn none_at_first_and_none_again_after_a_window() {
        windows(|s| {
            assert!(!s.is_present(1000));
            s.seen(1000);
            assert!(s.is_present(1001) && s.is_present(1000 + WINDOW_CYCLES.start - 1));
            assert!(!s.is_present(1000 + WINDOW_CYCLES.start + 1));
        });
    }

    #[test]
    fn windows_grow_while_interference_stays() {
        windows(|s| {
            let mut now = 1000;
            let mut last = 0;
            for _ in 0..10 {
                s.seen(now);
                let length = Interference::read(s.window);
                assert!(length > last || length == WINDOW_CYCLES.end - 1);
                last = length;
                // No PE waits for long after the window: what counts is when probing began.
                now += length + 5 * PROBE_CYCLES;
                assert!(!s.is_present(now));
                now += PROBE_CYCLES - 1;
            }
            assert_eq!(last, WINDOW_CYCLES.end - 1);
        });
    }

    #[test]
    fn bad_luck_is_forgotten() {
        windows(|s| {
            let mut now = 1000;
            for _ in 0..10 {
                s.seen(now);
                assert_eq!(Interference::read(s.window), WINDOW_CYCLES.start);
                now += WINDOW_CYCLES.start + 1;
                assert!(!s.is_present(now));
                now += PROBE_CYCLES + 1;
            }
        });
    }

    #[test]
    fn the_clock_may_wrap() {
        windows(|s| {
            s.seen(u64::MAX - 10);
            assert!(s.is_present(u64::MAX) && s.is_present(5));
            assert!(!s.is_present(WINDOW_CYCLES.start));
        });
    }
}
