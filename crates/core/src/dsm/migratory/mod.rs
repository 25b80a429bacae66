//! Data that move to the PE that locks them and stay there, for PEs that reach each other through a
//! fabric. A PE that locks again before another PE has asked sends nothing.
//!
//! [`queue`] decides which PE is in; the threads of one PE stand in a queue of their own before
//! that. This file moves the data.
//!
//! Each PE has a copy of the data, of some *version*: the number of releases that changed them.
//! Beside the copy lie *stamps*: for each block the version in which it last changed. A PE that
//! enters gets the stamps from the PE that had the data last, and the blocks that are newer than
//! its own version. Data so small that another round trip would cost more come with the stamps.
//! Nobody writes to another PE's copy, so a late message does no harm.
//!
//! Before it may change the data, a PE keeps a *twin* of them. When it leaves, blocks that differ
//! from the twin get the new version's stamp.
//!
//! **Deaths.** A copy's *seal* holds its version and says where that version lies: in the copy
//! (`CLEAN`), in its twin (`HELD`), or in neither while both are written (0; then the PE that it
//! comes from has it). The newest version that can be read is the last released one, unless the
//! memory of the PE that released it has died with it: then it is the newest that another PE has
//! got. To be sure of the last one takes a message at each release: that is what
//! [`Mutex::with_shadow`](super::Mutex::with_shadow) is for.

mod queue;

use super::diff;
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::objects::Counters;
use crate::endpoint::route::Route;
use crate::sync::tickets::{self, Mode, Tickets};
use crate::wait::limit::Patience;
use crate::wait::{self, Awaiting, Terms};
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::sync::Arc;

use queue::{Queue, Word, World};

// Offsets of the words, in bytes.
const LAST: u64 = 0;
const NEWS: u64 = 8;
const SEAL: u64 = 16;
/// State and absent of each slot, so that one get reads both.
const STATES: u64 = 32;
const NEXT: u64 = 64;
const PASSED: u64 = 80;
const THREADS: u64 = 128;
/// Version, then stamps, then data. The data are aligned to 128.
const REST: u64 = 256;

/// The most blocks: their changes are known one by one.
const BLOCKS: usize = 64;
/// Data up to this size come with their stamps, changed or not: the message is still short.
const AT_ONCE_BYTES: usize = 2048;

const CLEAN: u64 = 1;
const HELD: u64 = 2;

/// The lock as a PE sees it.
pub(super) struct Migratory {
    pe: Arc<Pe>,
    /// Where the words begin in each segment.
    offset: u64,
    home: usize,
    threads: Tickets,
    mine: UnsafeCell<Mine>,
    bytes: usize,
    block: usize,
    /// Offset of the data behind the words; their twin follows them.
    copy: u64,
}

struct Mine {
    queue: Queue,
    /// Version of this PE's copy; 0: none.
    version: Cell<u64>,
}

// SAFETY: `mine` is used only by the thread that `threads` lets in, one at a time; all other fields
// are `Sync`.
unsafe impl Sync for Migratory {}

fn room(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(128)
}

impl Migratory {
    /// Bytes of the words, the data and their twin.
    pub(super) fn size(bytes: usize, npes: usize) -> usize {
        let most = REST + 8 * (1 + BLOCKS as u64) + 128;
        most as usize + 2 * room(bytes) as usize + tickets::tail_for(npes)
    }

    /// The lock whose words and data begin at `offset` of each segment, all zero so far.
    ///
    /// # Safety
    /// [`size`](Self::size) bytes there belong to a window that outlives the lock, and nothing else
    /// uses them.
    pub(super) unsafe fn new(pe: Arc<Pe>, offset: u64, bytes: usize) -> Self {
        let block = bytes.div_ceil(BLOCKS).next_multiple_of(8).max(64);
        let home = super::home_of(offset, pe.npes());
        let copy = (REST + 8 * (1 + bytes.div_ceil(block) as u64)).next_multiple_of(128);
        let tail = copy + 2 * room(bytes);
        // SAFETY: the caller promises the room; the offset is aligned, and so are both places.
        let threads =
            unsafe { Tickets::new(pe.local(offset + THREADS), pe.local(offset + tail), &pe) };
        let mine = Mine { queue: Queue::new(pe.me() == home), version: Cell::new(0) };
        Migratory { offset, home, threads, mine: UnsafeCell::new(mine), bytes, block, copy, pe }
    }

    /// Makes the home the first owner, with `initial` as data. A barrier follows before any PE
    /// locks.
    ///
    /// # Safety
    /// No PE uses the lock yet, and `initial` is private memory as long as the data.
    pub(super) unsafe fn start(&self, initial: *const u8) -> Result<()> {
        if self.pe.me() != self.home {
            return Ok(());
        }
        // SAFETY: the copy is as long; the caller promises the source.
        unsafe { shm::copy(self.data(), initial, self.bytes) };
        (0..self.blocks()).for_each(|block| self.store(self.stamp(block), 1));
        self.store(self.version(), 1);
        self.store(SEAL, 1 << 2 | CLEAN);
        // SAFETY: the caller promises that no thread is in.
        unsafe { &*self.mine.get() }.version.set(1);
        let (last, word, open) = queue::beginning(self.home);
        self.store(place(word), open);
        // Only the fabric's atomics update this word.
        self.route(self.home, LAST).fetch_op(&self.pe, AtomicOp::Swap, last)?;
        Ok(())
    }

    fn blocks(&self) -> usize {
        self.bytes.div_ceil(self.block)
    }

    fn version(&self) -> u64 {
        REST
    }

    fn stamp(&self, block: usize) -> u64 {
        REST + 8 * (1 + block as u64)
    }

    /// This PE's copy of the data.
    #[inline(always)]
    pub(super) fn data(&self) -> *mut u8 {
        self.local(self.copy)
    }

    #[inline(always)]
    fn twin(&self) -> u64 {
        self.copy + room(self.bytes)
    }

    /// Bytes of version, stamps and data.
    #[inline(always)]
    fn all(&self) -> usize {
        (self.copy - self.version()) as usize + self.bytes
    }

    /// Address of byte `at` of this PE's part.
    #[inline(always)]
    fn local(&self, at: u64) -> *mut u8 {
        self.pe.local(self.offset + at)
    }

    fn route(&self, pe: usize, at: u64) -> Route {
        self.pe.route(pe, self.offset + at)
    }

    #[inline(always)]
    fn load(&self, at: u64) -> u64 {
        // SAFETY: an aligned word of this PE's part of the window that the lock was made of.
        unsafe { shm::load(self.local(at).cast()) }
    }

    #[inline(always)]
    fn store(&self, at: u64, value: u64) {
        // SAFETY: as in `load`.
        unsafe { shm::store(self.local(at).cast(), value) }
    }

    /// Enters, with the newest data in this PE's copy; `None` if time is up before that.
    // Out of line, so that callers on the near path stay short.
    #[inline(never)]
    pub(super) fn enter(&self, counters: &Counters, patience: Patience<'_>) -> Quick<Option<u32>> {
        patience.begin(&self.pe);
        let ticket = match patience {
            Patience::Forever => self.threads.enter(&self.pe, Mode::Exclusive)?,
            Patience::Try => match self.threads.try_enter(&self.pe, Mode::Exclusive)? {
                Some(ticket) => ticket,
                None => return Ok(None),
            },
            Patience::Within(limit) => {
                self.threads.enter_within(&self.pe, Mode::Exclusive, limit)?
            }
        };
        counters.used();
        // SAFETY: `threads` has let this thread in alone, until it leaves.
        let Mine { queue, version } = unsafe { &mut *self.mine.get() };
        let world = Here::new(self, counters, version, patience);
        let entered = queue.enter(&world);
        world.count();
        if matches!(entered, Ok(true)) {
            self.keep_twin();
            self.store(SEAL, version.get() << 2 | HELD);
            return Ok(Some(ticket));
        }
        self.threads.leave(&self.pe, ticket, Mode::Exclusive);
        entered.map(|_| None)
    }

    /// Leaves; `changed` says that the data may differ from the twin.
    #[inline(never)]
    pub(super) fn leave(&self, counters: &Counters, ticket: u32, changed: bool) -> Quick<()> {
        // SAFETY: as in `enter`.
        let Mine { queue, version } = unsafe { &mut *self.mine.get() };
        if changed {
            self.stamp_changes(version);
        }
        self.store(SEAL, version.get() << 2 | CLEAN);
        let left = queue.leave(&Here::new(self, counters, version, Patience::Forever));
        self.threads.leave(&self.pe, ticket, Mode::Exclusive);
        left
    }

    #[inline]
    fn keep_twin(&self) {
        // SAFETY: copy and twin lie in this PE's part, do not overlap, and have the data's length.
        unsafe { shm::copy(self.local(self.twin()), self.data(), self.bytes) };
    }

    /// Undoes the changes of this PE, which is in.
    pub(super) fn restore_twin(&self) {
        // SAFETY: as in `keep_twin`.
        unsafe { shm::copy(self.data(), self.local(self.twin()), self.bytes) };
    }

    /// Stamps changed blocks with a new version.
    fn stamp_changes(&self, version: &Cell<u64>) {
        let (new, mut changed) = (version.get() + 1, false);
        if self.all() <= AT_ONCE_BYTES {
            self.store(self.version(), new);
            version.set(new);
            return;
        }
        let stamp = |block| {
            changed = true;
            self.store(self.stamp(block), new);
        };
        // SAFETY: as in `keep_twin`.
        unsafe {
            diff::changed_blocks(
                self.data(),
                self.local(self.twin()),
                self.bytes,
                self.block,
                stamp,
            )
        };
        if changed {
            self.store(self.version(), new);
            version.set(new);
        }
    }

    /// Byte ranges of blocks newer than `version`, neighbours joined.
    fn newer_than(&self, version: u64) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for block in (0..self.blocks()).filter(|&block| self.load(self.stamp(block)) > version) {
            let (start, end) = (block * self.block, ((block + 1) * self.block).min(self.bytes));
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        runs
    }

    /// State and absent of a PE's slot.
    fn look(&self, pe: usize, slot: usize) -> Quick<[u64; 2]> {
        let mut words = [0u64; 2];
        // SAFETY: private memory, as long as the two words.
        unsafe {
            self.route(pe, place(Word::State(slot))).get(&self.pe, words.as_mut_ptr().cast(), 16)
        }?;
        Ok(words)
    }

    /// Terms of waits: all PEs live, and none leaves while it is in or waits.
    fn terms<R>(&self, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        let left_free = |pe: usize| {
            (0..2).all(|slot| matches!(self.look(pe, slot), Ok(words) if !queue::is_busy(words)))
        };
        let awaiting = Awaiting::Lock { is_free_of: &left_free, holds: None, place: self.offset };
        f(Terms::new(awaiting, patience))
    }

    /// Copies the newest readable version into `to`, after a death.
    pub(super) fn newest(&self, to: &mut [u8]) -> Quick<()> {
        loop {
            let seal = |pe: usize| self.route(pe, SEAL).load::<u64>(&self.pe);
            // A seal that cannot be read is that of a dead PE.
            let seals = (0..self.pe.npes()).filter_map(|pe| Some((seal(pe).ok()?, pe)));
            let Some((found, pe)) =
                seals.filter(|&(seal, _)| seal != 0).max_by_key(|&(seal, _)| seal >> 2)
            else {
                let departed = |pe: usize| self.pe.control().state(pe).departed();
                let dead =
                    (0..self.pe.npes()).find_map(|pe| Some(self.pe.failed(pe, departed(pe)?)));
                return Err(dead.expect("somebody has the data, or has died with them").into());
            };
            let at = if found & HELD != 0 { self.twin() } else { self.copy };
            // SAFETY: `to` is private memory, as long as the data.
            unsafe { self.route(pe, at).get(&self.pe, to.as_mut_ptr(), to.len()) }?;
            // A changed seal means that the copy may have been read while it was written.
            if seal(pe)? == found {
                return Ok(());
            }
        }
    }
}

/// Offset of a word of the queue, in bytes.
#[inline(always)]
fn place(word: Word) -> u64 {
    match word {
        Word::State(slot) => STATES + 16 * slot as u64,
        Word::Absent(slot) => STATES + 8 + 16 * slot as u64,
        Word::Next(slot) => NEXT + 8 * slot as u64,
        Word::Passed(slot) => PASSED + 8 * slot as u64,
        Word::News => NEWS,
    }
}

/// The [`World`] of one call.
struct Here<'a> {
    lock: &'a Migratory,
    counters: &'a Counters,
    version: &'a Cell<u64>,
    patience: Patience<'a>,
    /// Operations on the fabric so far.
    sent: Cell<usize>,
}

impl<'a> Here<'a> {
    #[inline(always)]
    fn new(
        lock: &'a Migratory,
        counters: &'a Counters,
        version: &'a Cell<u64>,
        patience: Patience<'a>,
    ) -> Self {
        Here { lock, counters, version, patience, sent: Cell::new(0) }
    }

    #[inline(always)]
    fn count(&self) {
        if self.sent.get() > 0 {
            self.counters.missed();
            self.counters.sent(self.sent.get(), 0);
        }
    }

    fn send(&self) -> &Pe {
        self.sent.set(self.sent.get() + 1);
        &self.lock.pe
    }

    /// Gets `len` bytes at `at` of `from`'s part into the same place of this PE's part.
    fn get(&self, from: usize, at: u64, len: usize) -> Quick<()> {
        self.counters.sent(1, len);
        // SAFETY: `len` bytes at `at` are version, stamps or data of this PE's copy, which no
        // thread uses before this call has entered.
        unsafe { self.lock.route(from, at).get(&self.lock.pe, self.lock.local(at), len) }
    }
}

impl World for Here<'_> {
    type Error = Box<Error>;

    #[inline(always)]
    fn me(&self) -> usize {
        self.lock.pe.me()
    }

    #[inline(always)]
    fn load(&self, word: Word) -> Quick<u64> {
        Ok(self.lock.load(place(word)))
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u64) -> Quick<()> {
        self.lock.store(place(word), value);
        Ok(())
    }

    #[inline(always)]
    fn publish(&self, word: Word, value: u64) -> Quick<()> {
        // The fabric never updates these words; the processor's exchange is a store and a fence in
        // one.
        // SAFETY: as in `Migratory::load`.
        unsafe { shm::fetch_op(self.lock.local(place(word)), 8, AtomicOp::Swap, value) };
        Ok(())
    }

    fn swap_last(&self, position: u64) -> Quick<u64> {
        self.lock.route(self.lock.home, LAST).fetch_op(self.send(), AtomicOp::Swap, position)
    }

    fn swap_absent(&self, pe: usize, slot: usize, expected: u64, new: u64) -> Quick<u64> {
        let word = self.lock.route(pe, place(Word::Absent(slot)));
        let was = word.compare_swap(self.send(), expected, new)?;
        shm::full_fence();
        Ok(was)
    }

    fn write(&self, pe: usize, word: Word, value: u64) -> Quick<()> {
        self.lock.route(pe, place(word)).store(self.send(), value);
        Ok(())
    }

    fn complete(&self) -> Quick<()> {
        self.lock.pe.complete_writes()
    }

    fn look(&self, pe: usize, slot: usize) -> Quick<[u64; 2]> {
        self.send();
        self.lock.look(pe, slot)
    }

    fn notify(&self, pe: usize, news: u64) -> Quick<()> {
        let word = self.lock.route(pe, place(Word::News));
        word.signal(self.send(), pe, SignalOp::Set, news)
    }

    fn is_late(&self) -> Quick<bool> {
        Ok(self.patience.late(&self.lock.pe).is_some())
    }

    fn wait(&self, word: Word, wanted: impl Fn(u64) -> bool) -> Quick<Option<u64>> {
        let pe = &*self.lock.pe;
        let mut look = || Some(self.lock.load(place(word))).filter(|&value| wanted(value));
        if let Patience::Try = self.patience {
            return match wait::test(pe, look) {
                Some(value) => Ok(Some(value)),
                None => self
                    .lock
                    .terms(Patience::Try, |terms| terms.departed(pe))
                    .map_or(Ok(None), |error| Err(error.into())),
            };
        }
        match self.lock.terms(self.patience, |terms| wait::until(pe, terms, &mut look)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(*error, Error::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fetch(&self, from: usize) -> Quick<()> {
        let lock = self.lock;
        if from == lock.pe.me() {
            return Ok(());
        }
        let have = self.version.replace(0);
        lock.store(SEAL, 0);
        let head = (lock.stamp(lock.blocks()) - lock.version()) as usize;
        if lock.all() <= AT_ONCE_BYTES {
            self.get(from, lock.version(), lock.all())?;
        } else {
            self.get(from, lock.version(), head)?;
            for run in lock.newer_than(have) {
                self.get(from, lock.copy + run.start as u64, run.len())?;
            }
        }
        self.version.set(lock.load(lock.version()));
        self.counters.handed_over();
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::super::data::{CacheLine, LINE};
    use super::*;
    use crate::job::Job;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    const ROUNDS: u64 = 20_000;

    #[repr(align(128))]
    struct Apart(AtomicU64);

    fn until_at(word: &AtomicU64, wanted: u64) {
        for look in 1.. {
            if word.load(Ordering::Acquire) >= wanted {
                return;
            }
            if look % 256 == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Pins the two threads to different CPUs, where there are two: threads of one CPU see its
    /// accesses in order.
    fn pin(me: usize) {
        let cpus = crate::lifecycle::launch::cpu_list();
        let mut mine = rustix::thread::CpuSet::new();
        mine.set(cpus[me % cpus.len()]);
        rustix::thread::sched_setaffinity(None, &mine).expect("a CPU of this process's mask");
    }

    /// Of two PEs that publish and then read each other's word, one sees the other's value. The
    /// model of the queue relies on that.
    #[test]
    fn what_is_published_is_visible_before_what_follows() {
        const WORD: Word = Word::State(0);
        let words = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
        let at = [const { Apart(AtomicU64::new(0)) }; 2];
        let late = [const { Apart(AtomicU64::new(0)) }; 2];
        // Stores to lines that the other PE has just written take long, and hold back the stores
        // behind them.
        let slow = [const { Apart(AtomicU64::new(0)) }; 8];
        let both_late = Job::threads_with(&crate::far::options(""), 2, |job| -> Result<u64> {
            let (me, other) = (job.pe(), 1 - job.pe());
            pin(me);
            let window = job.window::<CacheLine>(Migratory::size(8, 2).div_ceil(LINE))?;
            let offset = window.inner.heap_offset().expect("it is a window of the heap");
            // SAFETY: the window has that size, outlives the lock, and nothing else uses it.
            let lock = unsafe { Migratory::new(job.pe.clone(), offset, 8) };
            let (counters, version) = (Counters::own(), Cell::new(0));
            let here = Here::new(&lock, &counters, &version, Patience::Forever);
            words[me].store(lock.local(place(WORD)).cast::<u64>(), Ordering::Release);
            job.barrier()?;
            let theirs = words[other].load(Ordering::Acquire);
            let mut both_late = 0;
            for round in 1..=ROUNDS {
                at[me].0.store(2 * round, Ordering::Release);
                until_at(&at[other].0, 2 * round);
                slow.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                here.publish(WORD, round)?;
                // SAFETY: this word of the other PE, a thread of this process, stays mapped until
                // the barrier below.
                let seen = unsafe { shm::load(theirs) };
                late[me].0.store(u64::from(seen != round), Ordering::Relaxed);
                at[me].0.store(2 * round + 1, Ordering::Release);
                until_at(&at[other].0, 2 * round + 1);
                both_late +=
                    late[me].0.load(Ordering::Relaxed) & late[other].0.load(Ordering::Relaxed);
            }
            job.barrier()?;
            Ok(both_late)
        });
        for found in both_late.unwrap() {
            assert_eq!(
                found.unwrap(),
                0,
                "rounds in which neither saw what the other had published"
            );
        }
    }
}
