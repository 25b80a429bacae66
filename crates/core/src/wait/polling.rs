//! Recognises a program that polls: that reads remote words, or completes its writes, again and
//! again, and learns nothing new.
//!
//! Where PEs share CPUs, such a program keeps the PE that it waits for from running until its time
//! slice ends, some milliseconds later. A wait yields, and so does a failed test. But a read does
//! not say what the program hopes to see. So this module guesses:
//!
//! * Of each `PERIOD` reads it looks at one. The others cost a counter. The period is odd, so a
//!   loop over 2, 4 or 8 places does not show the same place each time.
//! * `Polling::learns_nothing` keeps what was read last, in a small table by address. A read is in
//!   vain if the table has the same value for the same address. A fence or quiet with nothing to
//!   complete counts as a read of a constant.
//! * After reads in vain for `VAIN_CYCLES` cycles in a row the PE yields, once. One read of
//!   anything new begins anew.
//!
//! *A wrong guess costs little.* A program that rightly reads a few constants all the time loses
//! one yield in `VAIN_CYCLES` cycles. That is about what changing to another process and back
//! takes; so at the worst a wrong guess doubles the time, and a right one comes after no more than
//! the time that it saves. Reads of a larger table rarely find an address in the small one.
//!
//! *A write is no read in vain.* A PE that has written since it last yielded is not polling: its
//! count begins anew (`look_at_read`).
//!
//! No result depends on any of this. Threads of a PE may lose counts and overwrite each other's
//! entries; a wrong guess changes when a PE yields, and nothing else.

use crate::base::clock;
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::wait;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Of so many reads, one is looked at.
pub const PERIOD: u32 = 127;
/// Cycles of reads in vain before a yield.
const VAIN_CYCLES: u64 = 2_000;
/// Places in the table: more than most programs poll, and fewer than tables have.
const PLACES: usize = 64;
/// Failed tests in a row after which the next ones yield, where PEs share CPUs.
const FAILED_TESTS: u32 = 16;
/// A number whose products with others have no pattern in their upper bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Whether a PE of this process shares its CPU: where none does, a read costs no more than this
/// load.
static SHARED: AtomicBool = AtomicBool::new(false);

/// A number that stands for `bytes` bytes in a read that a program may repeat until it finds
/// something else. None for large reads: a program that copies much does work.
///
/// # Safety
/// `from` is readable for `bytes`.
pub unsafe fn digest(from: *const u8, bytes: usize) -> Option<u64> {
    let mut words = [0u64; 8];
    if bytes > size_of_val(&words) {
        return None;
    }
    // SAFETY: the caller's promise; there is room for so many.
    unsafe { shm::copy(words.as_mut_ptr().cast(), from, bytes) };
    Some(words.iter().fold(0, |digest: u64, word| digest.rotate_left(7).wrapping_mul(MIX) ^ word))
}

/// Whether reads are worth a look.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// What a PE that shares its CPU has read lately.
pub(crate) struct Polling {
    /// Reads until the next one that is looked at.
    left: AtomicU32,
    /// Cycle since which all reads were in vain; 0: the last one was not.
    since: AtomicU64,
    table: [Entry; PLACES],
}

#[derive(Default)]
struct Entry {
    place: AtomicU64,
    value: AtomicU64,
}

impl Default for Polling {
    fn default() -> Self {
        SHARED.store(true, Ordering::Relaxed);
        Polling {
            left: AtomicU32::new(PERIOD),
            since: AtomicU64::new(0),
            table: [const { Entry { place: AtomicU64::new(0), value: AtomicU64::new(0) } }; PLACES],
        }
    }
}

impl Polling {
    /// Counts a call that takes as long as `reads` reads of a near word; whether to look at it.
    pub(crate) fn is_due(&self, reads: u32) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let due = left <= reads;
        self.left.store(if due { PERIOD } else { left - reads }, Ordering::Relaxed);
        due
    }

    /// Whether `place` held another value, or none that is known, when it was last read. Remembers
    /// `value`.
    pub(crate) fn is_news(&self, place: usize, value: u64) -> bool {
        // The addresses of one word on several PEs differ in a few bits only.
        let hash = (place as u64).wrapping_mul(MIX) >> (64 - PLACES.ilog2());
        let entry = &self.table[hash as usize];
        let known = entry.place.load(Ordering::Relaxed) == place as u64
            && entry.value.load(Ordering::Relaxed) == value;
        entry.place.store(place as u64, Ordering::Relaxed);
        entry.value.store(value, Ordering::Relaxed);
        !known
    }

    /// Whether all reads up to this one, at cycle `now`, have been in vain for long enough.
    pub(crate) fn learns_nothing(&self, place: usize, value: u64, now: u64) -> bool {
        if self.is_news(place, value) {
            self.restart(0);
            return false;
        }
        let since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            self.restart(now);
        }
        since != 0 && now.saturating_sub(since) >= VAIN_CYCLES
    }

    /// Counts reads in vain from cycle `now` on; where that is 0, from the next one on.
    pub(crate) fn restart(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }
}

/// The recogniser of this PE, where it shares its CPU.
#[inline]
pub(crate) fn of(pe: &Pe) -> Option<&Polling> {
    if pe.polls() { pe.waits().polling.as_deref() } else { None }
}

/// The end of a [`test`](wait::test), for calls that look in another way; `found`: whether they
/// have found something.
#[inline(always)]
pub(crate) fn has_looked(pe: &Pe, found: bool) {
    if pe.crowded() && !pe.is_simulated() {
        tested(pe, found);
    }
}

#[inline(never)]
fn tested(pe: &Pe, found: bool) {
    // Several threads may lose count, of nothing that matters.
    let failed = pe.waits().failed_tests.load(Ordering::Relaxed);
    if found {
        pe.waits().failed_tests.store(0, Ordering::Relaxed);
    } else if failed < FAILED_TESTS {
        pe.waits().failed_tests.store(failed + 1, Ordering::Relaxed);
    } else {
        wait::give_way(pe);
    }
}

/// To be called after a read of `value` at the address `place`: yields if the program seems to
/// poll.
#[cold]
#[inline(never)]
pub(crate) fn has_read(pe: &Pe, place: usize, value: u64) {
    if of(pe).is_some_and(|polling| polling.is_due(1)) {
        look_at_read(pe, place, value);
    }
}

/// [`has_read`], for a fence or quiet that had nothing to complete.
#[cold]
#[inline(never)]
pub(crate) fn has_completed_nothing(pe: &Pe) {
    // A quiet takes some 10 ns.
    if of(pe).is_some_and(|polling| polling.is_due(8)) {
        // No address of a word.
        look_at_read(pe, 1, 0);
    }
}

/// [`has_read`], for one of [`PERIOD`] reads.
#[cold]
#[inline(never)]
pub(crate) fn look_at_read(pe: &Pe, place: usize, value: u64) {
    let Some(polling) = of(pe) else { return };
    if !polling.learns_nothing(place, value, clock::cycles()) {
        return;
    }
    let wrote = pe.may_have_written();
    pe.progress();
    pe.wake_written();
    // Live remotes keep their marks set, which says nothing.
    if wrote && !pe.may_have_written() {
        return polling.restart(0);
    }
    wait::give_way(pe);
    polling.restart(clock::cycles());
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::compare::Cmp;
    use crate::job::Job;
    use crate::lifecycle::start::JobOptions;
    use crate::multicast::MulticastOptions;
    use std::sync::atomic::AtomicUsize;

    /// How often a PE that reads so many times, each after `apart` cycles, would yield.
    fn yields(reads: usize, apart: u64, mut read: impl FnMut(usize) -> (usize, u64)) -> usize {
        let polling = Polling::default();
        let mut found = 0;
        for i in 0..reads {
            let (place, value) = read(i);
            let now = 1 + i as u64 * apart;
            if polling.is_due(1) && polling.learns_nothing(place, value, now) {
                polling.restart(now);
                found += 1;
            }
        }
        found
    }

    const READS: usize = 100_000;

    #[test]
    fn a_program_that_reads_the_same_again_and_again_yields() {
        for places in [1, 2, 3, 7, 8, 16] {
            let times = yields(READS, 100, |i| (4096 * (i % places), 5));
            assert!(times > READS / 1000, "{places} places: {times}");
        }
        // It takes its time where reads are quick.
        assert!(yields(READS, 1, |_| (4096, 5)) <= READS / VAIN_CYCLES as usize);
    }

    #[test]
    fn a_program_that_learns_something_does_not() {
        let counter = |i: usize| (4096, i as u64 / 50);
        assert_eq!(yields(READS, 100, counter), 0);
        // Beside a constant.
        assert!(yields(READS, 100, |i| if i % 2 == 0 { (8, 0) } else { counter(i) }) < 10);
    }

    #[test]
    fn a_program_that_reads_a_table_does_not() {
        assert_eq!(yields(READS, 100, |i| (8 * (i % 1000), 7)), 0);
        let mut x = 88_172_645_463_325_252_u64;
        let random = |_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (8 * (x % 1000) as usize, 7)
        };
        assert!(yields(READS, 100, random) < 20);
    }

    const LOOKS: usize = 500_000;
    const TURNS: i64 = 200;

    /// How often this thread has given up or lost its CPU.
    fn turns() -> i64 {
        // SAFETY: zeros are a value of it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: writes into it.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        usage.ru_nvcsw + usage.ru_nivcsw
    }

    /// Has two PEs share a CPU and look in vain, in a way that `make` makes, until both have had
    /// many turns; or one has not, though it has looked very often.
    fn assert_gives_way<W: FnMut()>(
        fabric: Option<&str>,
        how: &str,
        make: impl Fn(&Job) -> W + Sync,
    ) {
        let options = fabric.map_or_else(JobOptions::new, crate::far::options);
        let content = AtomicUsize::new(0);
        let run = || {
            let mut mine = rustix::thread::CpuSet::new();
            let all = rustix::thread::sched_getaffinity(None).unwrap();
            mine.set((0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap());
            rustix::thread::sched_setaffinity(None, &mine).unwrap();
            Job::threads_with(&options, 2, |job| {
                let mut look = make(&job);
                job.barrier().unwrap();
                let (before, mut looks) = (turns(), 0);
                while looks < LOOKS && (looks % 256 > 0 || turns() - before < TURNS) {
                    look();
                    looks += 1;
                }
                content.fetch_add(1, Ordering::Relaxed);
                while content.load(Ordering::Relaxed) < 2 {
                    look();
                }
                looks
            })
        };
        let looks = std::thread::scope(|scope| scope.spawn(run).join()).unwrap().unwrap();
        assert!(looks.iter().all(|&looks| looks < LOOKS), "{how} {fabric:?}: {looks:?}");
    }

    #[test]
    fn a_program_that_looks_in_vain_gives_way() {
        let remote = |job: &Job| {
            let window = job.window::<u64>(4).unwrap();
            window.remote(1 - job.pe(), 1).unwrap()
        };
        let window = |job: &Job| (job.window::<u64>(4).unwrap(), 1 - job.pe());
        for fabric in [None, Some("")] {
            assert_gives_way(fabric, "load", |job| {
                let remote = remote(job);
                move || drop(remote.load())
            });
            assert_gives_way(fabric, "fetch", |job| {
                let remote = remote(job);
                move || drop(remote.fetch())
            });
            assert_gives_way(fabric, "compare_swap", |job| {
                let remote = remote(job);
                move || drop(remote.compare_swap(1, 2))
            });
            assert_gives_way(fabric, "swap", |job| {
                let remote = remote(job);
                move || drop(remote.swap(0))
            });
            assert_gives_way(fabric, "read", |job| {
                let (window, _) = window(job);
                move || _ = window.read(2)
            });
            assert_gives_way(fabric, "get_one", |job| {
                let (window, other) = window(job);
                move || drop(window.get_one(other, 2))
            });
            assert_gives_way(fabric, "get", |job| {
                let (window, other) = window(job);
                move || drop(window.get(other, 0, &mut [0; 4]))
            });
            assert_gives_way(fabric, "test_until", |job| {
                let (window, _) = window(job);
                move || _ = window.test_until(2, Cmp::Ne, 0)
            });
            assert_gives_way(fabric, "try_recv", |job| {
                let mut channel = job.multicast::<u8>(0, &[1], MulticastOptions::new()).unwrap();
                let (window, writes, mut block) = (window(job).0, job.pe() == 0, Vec::new());
                move || match writes {
                    true => _ = window.read(2),
                    false => drop(channel.try_recv(&mut block)),
                }
            });
        }
        assert_gives_way(None, "quiet", |job| {
            let job = job.clone();
            move || drop(job.quiet())
        });
        assert_gives_way(None, "fence", |job| {
            let job = job.clone();
            move || drop(job.fence())
        });
    }
}
