//! Has PEs that share a CPU take turns quickly while they write to each other.
//!
//! A program may wait without a call: it loads a word of its own memory until another PE has
//! written that word. The library sees nothing of that. The program keeps its CPU until the
//! scheduler's slice ends, milliseconds later, and the PE that it waits for may need that CPU. What
//! the library does see is that PEs write to each other. So, where PEs share CPUs:
//!
//! * A PE that writes yields, at most once in `PERIOD_CYCLES`. It has often answered, and then has
//!   nothing to do until others have answered, too.
//! * The PE *beats* the job's pulse, a counter in the control page. While PEs beat it, a thread of
//!   the launcher wakes on each shared CPU every few hundred microseconds. The thread does nothing.
//!   But because it runs, the kernel chooses the next process anew, and prefers one that has run
//!   less. The launcher's side is [`launch::Pulse`](crate::lifecycle::pulse::Pulse).
//!
//! A PE that writes word by word has more to do, and nobody should make its writes slower. It beats
//! the pulse, but does not yield, and the library looks at few of its writes.
//!
//! Nobody beats the pulse in programs that compute, and in those that wait by calls alone; there
//! the threads sleep.
//!
//! Nothing here must be right. Threads of a PE may lose counts, and a stray store may change the
//! words of the control page: that changes when PEs take turns, and nothing else.

use crate::base::clock;
use crate::base::doorbell::Doorbell;
use crate::base::layout::JobHeader;
use crate::base::memory::Mapping;
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::pe::Pe;
use crate::wait;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Time between two beats of a PE: some times what changing to another process and back takes.
const PERIOD_CYCLES: u64 = 50_000;
/// Writes in `PERIOD_CYCLES` that mean that a PE writes word by word: more than a PE that answers
/// several others makes at once.
const DENSE_WRITES: u32 = 64;
/// A PE that writes word by word is looked at once in so many writes: each look reads the clock,
/// which takes as long as some ten writes.
const DENSE_STEP: u32 = 250;

/// The words of the control page.
pub(crate) struct Words {
    /// Counts beats, and wraps.
    beats: *mut u32,
    /// The launcher's threads sleep here while nobody beats the pulse.
    pub(crate) bell: Doorbell,
}

impl Words {
    /// # Safety
    /// The mapping holds the control page, and outlives the value.
    pub(crate) unsafe fn of(mapping: &Mapping) -> Self {
        let at = |offset: usize| mapping.at(offset as u64).cast::<u32>();
        // SAFETY: the word is aligned (asserted in `layout`), and the caller keeps it mapped.
        let bell = unsafe { Doorbell::new(at(offset_of!(JobHeader, pulse_bell))) };
        Words { beats: at(offset_of!(JobHeader, pulse)), bell }
    }

    pub(crate) fn beats(&self) -> u32 {
        // SAFETY: `of` gave the address of an aligned word that its caller keeps mapped.
        unsafe { shm::load(self.beats) }
    }

    /// Counts a beat, and wakes the launcher's threads if they sleep.
    pub(crate) fn beat(&self) {
        // SAFETY: as in `beats`.
        unsafe { shm::fetch_op(self.beats.cast(), 4, AtomicOp::Add, 1) };
        // The launcher never orders its announcements by `membarrier`.
        self.bell.ring(false);
    }
}

/// What a PE remembers of its writes.
#[derive(Default)]
pub(super) struct Writes {
    /// When the period began, in cycles.
    since: AtomicU64,
    /// Writes since then.
    count: AtomicU32,
    /// Whether the PE wrote word by word in the period before.
    dense: AtomicBool,
}

impl Writes {
    /// Counts writes. Where a period ends: whether the PE wrote word by word in it.
    fn count(&self, writes: u32, now: u64) -> Option<bool> {
        let length = now.wrapping_sub(self.since.load(Ordering::Relaxed));
        let count = self.count.load(Ordering::Relaxed).saturating_add(writes);
        if length < PERIOD_CYCLES {
            self.count.store(count, Ordering::Relaxed);
            return None;
        }
        let dense = u64::from(count) * PERIOD_CYCLES >= length.saturating_mul(DENSE_WRITES.into());
        self.dense.store(dense, Ordering::Relaxed);
        self.begin(now);
        Some(dense)
    }

    /// Begins a period.
    fn begin(&self, now: u64) {
        self.count.store(0, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    /// Writes until the next look.
    fn step(&self) -> u32 {
        let dense = self.dense.load(Ordering::Relaxed)
            || self.count.load(Ordering::Relaxed) >= DENSE_WRITES;
        if dense { DENSE_STEP } else { 1 }
    }
}

/// To be called after `writes` writes to near PEs, where PEs share CPUs. Gives the number of writes
/// after which the caller calls again.
#[cold]
#[inline(never)]
pub(crate) fn has_written(pe: &Pe, writes: u32) -> u32 {
    if cfg!(loom) || !pe.polls() {
        return DENSE_STEP;
    }
    let mine = &pe.waits().writes;
    if let Some(dense) = mine.count(writes, clock::cycles()) {
        // SAFETY: a PE's mapping begins with the control page, and `pe` keeps it.
        unsafe { Words::of(pe.control().mapping()) }.beat();
        if !dense {
            wait::let_others_run(pe);
            mine.begin(clock::cycles());
        }
    }
    mine.step()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    /// Beats, those with a yield, and looks of a PE that writes at these times.
    fn writes_at(times: impl Iterator<Item = u64>) -> (u32, u32, u32) {
        let writes = Writes::default();
        let (mut beats, mut yields, mut looks, mut step, mut left) = (0, 0, 0, 1, 1);
        for now in times {
            left -= 1;
            if left > 0 {
                continue;
            }
            looks += 1;
            if let Some(dense) = writes.count(step, now) {
                beats += 1;
                yields += u32::from(!dense);
            }
            step = writes.step();
            left = step;
        }
        (beats, yields, looks)
    }

    /// A moment at which a period has ended.
    const START: u64 = 10 * PERIOD_CYCLES;

    #[test]
    fn rare_writes_each_yield() {
        let times = (0..100).map(|i| START + i * 2 * PERIOD_CYCLES);
        assert_eq!(writes_at(times), (100, 100, 100));
    }

    #[test]
    fn quick_writes_yield_once_in_a_period() {
        // 20 writes in each period.
        let times = (0..2000).map(|i| START + i * PERIOD_CYCLES / 20);
        assert_eq!(writes_at(times), (100, 100, 2000));
    }

    #[test]
    fn answers_to_several_pes_are_not_writes_word_by_word() {
        // 16 answers within half a period, and then nothing for ten.
        let answers = |round: u64| {
            (0..16).map(move |i| START + round * 10 * PERIOD_CYCLES + i * PERIOD_CYCLES / 32)
        };
        let (beats, yields, looks) = writes_at((0..100).flat_map(answers));
        assert_eq!((beats, yields, looks), (100, 100, 1600));
    }

    #[test]
    fn writes_word_by_word_do_not_yield_and_are_hardly_looked_at() {
        let (beats, yields, looks) = writes_at((0..1_000_000).map(|i| START + i * 10));
        assert!(beats > 100, "{beats}");
        assert!(yields <= 2, "{yields}");
        assert!(looks < 5000, "{looks}");
    }

    #[test]
    fn who_stops_writing_word_by_word_yields_again() {
        let dense = (0..100_000).map(|i| START + i * 10);
        let rare = (0..1000).map(|i| START + 100_000 * 10 + i * 2 * PERIOD_CYCLES);
        let (_, yields, _) = writes_at(dense.chain(rare));
        assert!(yields >= 1000 - DENSE_STEP, "{yields}");
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let writes = Writes::default();
        assert_eq!(writes.count(1, u64::MAX), Some(false));
        assert_eq!(writes.count(u32::MAX, 5), None);
        assert_eq!(writes.count(u32::MAX, 4 + PERIOD_CYCLES), Some(true));
        assert_eq!(writes.count(1, 0), Some(false));
    }

    fn beats(job: &Job) -> u32 {
        // SAFETY: a PE's mapping begins with the control page, and `job` keeps it.
        unsafe { Words::of(job.pe.control().mapping()) }.beats()
    }

    #[test]
    fn pes_that_share_a_cpu_beat_the_pulse_and_others_do_not() {
        let cpus = crate::lifecycle::launch::available_cpus();
        for (npes, share) in [(1, false), (2 * cpus, true)] {
            let before_and_after = Job::threads(npes, |job| {
                let segment = job.segment();
                let at = job.allocate(8, 8, true).unwrap();
                job.barrier().unwrap();
                let before = beats(&job);
                job.barrier().unwrap();
                // SAFETY: the block was just allocated.
                let spot = unsafe { segment.at(0, at, 8) }.unwrap();
                spot.store(1_u64);
                job.barrier().unwrap();
                let after = beats(&job);
                job.barrier().unwrap();
                after != before
            });
            assert!(before_and_after.unwrap().iter().all(|&beaten| beaten == share), "{npes} PEs");
        }
    }
}
