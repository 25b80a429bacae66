//! Data that move to whoever locks them and stay there, for PEs that reach each other through a
//! fabric: who locks again, and nobody asked meanwhile, sends nothing.
//!
//! Who is in is the business of [`chain`](super::chain); the threads of one PE stand in a queue of
//! their own before that. This file moves the data.
//!
//! Each PE has a copy of them, of some *version*: how often they were released changed. With it
//! come *stamps*: for each block of the data the version in which it last changed. Who comes in
//! gets the stamps from the PE that had them last, and the blocks that are newer than its own
//! version; data of so few bytes that another round trip would cost more are got with the stamps.
//! Nobody writes to another's copy, so whatever is late does no harm.
//!
//! Before it may change the data, a PE keeps a *twin* of them. What differs from it when it leaves
//! gets the new version's stamp.
//!
//! **Deaths.** The *seal* of a copy tells what it is worth: its version, and whether it is that
//! (`CLEAN`), or its twin is (`HELD`), or neither, as it and its twin are being made (0; then the
//! one it comes from has it). The newest of all that can be read is the last released version,
//! unless the memory of the PE that released it has died with it: then it is the newest that
//! somebody else has got. To be sure of the last one takes a message at each release: that is what
//! [`Mutex::with_shadow`](super::Mutex::with_shadow) is for.

use super::chain::{self, Chain, Word, World};
use super::diff;
use super::stats::Counters;
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::sync::tickets::{self, Mode, Tickets};
use crate::wait::limit::Patience;
use crate::wait::{self, Awaiting, Terms};
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::sync::Arc;

const LAST: u64 = 0;
const NEWS: u64 = 8;
const SEAL: u64 = 16;
/// State and absent of a slot, beside each other.
const STATES: u64 = 32;
const NEXT: u64 = 64;
const PASSED: u64 = 80;
const THREADS: u64 = 128;
/// Where version, stamps, and data begin, one behind the other; the data aligned to 128.
const REST: u64 = 256;

/// Blocks of which changes are known one by one.
const BLOCKS: usize = 64;
/// Bytes that are got at once, changed or not.
const AT_ONCE: usize = 2048;

const CLEAN: u64 = 1;
const HELD: u64 = 2;

/// The lock as a PE sees it.
pub(super) struct Migratory {
    pe: Arc<Pe>,
    /// Of the words in each segment.
    offset: u64,
    home: usize,
    threads: Tickets,
    mine: UnsafeCell<Mine>,
    bytes: usize,
    block: usize,
    /// Where the data are; their twin is behind them.
    copy: u64,
}

struct Mine {
    chain: Chain,
    /// Version of this PE's copy; 0: none.
    version: Cell<u64>,
}

// SAFETY: `mine` is used by the thread alone that is in by `threads`; all else is shared as it is.
unsafe impl Sync for Migratory {}

fn room(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(128)
}

impl Migratory {
    /// Bytes of the words, of data, and of their twin.
    pub(super) fn size(bytes: usize, npes: usize) -> usize {
        let most = REST + 8 * (1 + BLOCKS as u64) + 128;
        most as usize + 2 * room(bytes) as usize + tickets::tail_for(npes)
    }

    /// The lock whose words and data are at `offset` of the segments, zero so far.
    ///
    /// # Safety
    /// There are [`size`](Self::size) bytes, of a window that lives as long as this, and that
    /// nothing else uses.
    pub(super) unsafe fn new(pe: Arc<Pe>, offset: u64, bytes: usize) -> Self {
        let block = bytes.div_ceil(BLOCKS).next_multiple_of(8).max(64);
        let home = super::home_of(offset, pe.npes());
        let copy = (REST + 8 * (1 + bytes.div_ceil(block) as u64)).next_multiple_of(128);
        let tail = copy + 2 * room(bytes);
        // SAFETY: the caller promises the room; both places are aligned, as the offset is.
        let threads =
            unsafe { Tickets::new(pe.local(offset + THREADS), pe.local(offset + tail), pe.npes()) };
        let mine = Mine { chain: Chain::new(pe.me() == home), version: Cell::new(0) };
        Migratory { offset, home, threads, mine: UnsafeCell::new(mine), bytes, block, copy, pe }
    }

    /// Makes the home the first owner, of `initial`, as long as the data; before anybody locks
    /// there is a barrier.
    ///
    /// # Safety
    /// Nobody uses the lock yet, and `initial` is private memory.
    pub(super) unsafe fn start(&self, initial: *const u8) -> Result<()> {
        if self.pe.me() != self.home {
            return Ok(());
        }
        // SAFETY: the copy is as long; the caller promises the source.
        unsafe { shm::copy(self.data(), initial, self.bytes) };
        (0..self.blocks()).for_each(|block| self.store(self.stamp(block), 1));
        self.store(self.version(), 1);
        self.store(SEAL, 1 << 2 | CLEAN);
        // SAFETY: the caller promises that nobody is in.
        unsafe { &*self.mine.get() }.version.set(1);
        let (last, word, open) = chain::beginning(self.home);
        self.store(place(word), open);
        // By the fabric, as all that follows.
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

    /// This PE's data.
    #[inline(always)]
    pub(super) fn data(&self) -> *mut u8 {
        self.local(self.copy)
    }

    #[inline(always)]
    fn twin(&self) -> u64 {
        self.copy + room(self.bytes)
    }

    /// Bytes of all that is got at once: version, stamps and data.
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

    /// Comes in, with the data as they are; nothing if time is up before that.
    // Out of line, so that near callers stay as short as they are.
    #[inline(never)]
    pub(super) fn enter(&self, counters: &Counters, patience: Patience<'_>) -> Quick<Option<u32>> {
        patience.begin(&self.pe);
        let ticket = match patience {
            Patience::Forever => self.threads.enter(&self.pe, Mode::Alone)?,
            Patience::Try => match self.threads.try_enter(&self.pe, Mode::Alone)? {
                Some(ticket) => ticket,
                None => return Ok(None),
            },
            Patience::Within(limit) => self.threads.enter_within(&self.pe, Mode::Alone, limit)?,
        };
        counters.used();
        // SAFETY: of this PE's threads this one is in alone, until it leaves.
        let Mine { chain, version } = unsafe { &mut *self.mine.get() };
        let world = Here::new(self, counters, version, patience);
        let entered = chain.enter(&world);
        world.count();
        if matches!(entered, Ok(true)) {
            self.keep_twin();
            self.store(SEAL, version.get() << 2 | HELD);
            return Ok(Some(ticket));
        }
        self.threads.leave(&self.pe, ticket, Mode::Alone);
        entered.map(|_| None)
    }

    /// Leaves; `changed`: the data may have been.
    #[inline(never)]
    pub(super) fn leave(&self, counters: &Counters, ticket: u32, changed: bool) -> Quick<()> {
        // SAFETY: as in `enter`.
        let Mine { chain, version } = unsafe { &mut *self.mine.get() };
        if changed {
            self.stamp_changes(version);
        }
        self.store(SEAL, version.get() << 2 | CLEAN);
        let left = chain.leave(&Here::new(self, counters, version, Patience::Forever));
        self.threads.leave(&self.pe, ticket, Mode::Alone);
        left
    }

    #[inline]
    fn keep_twin(&self) {
        // SAFETY: both are the data's length of this PE's part, and apart.
        unsafe { shm::copy(self.local(self.twin()), self.data(), self.bytes) };
    }

    /// Takes back what this PE, which is in, has changed.
    pub(super) fn restore_twin(&self) {
        // SAFETY: as in `keep_twin`.
        unsafe { shm::copy(self.data(), self.local(self.twin()), self.bytes) };
    }

    /// Gives what was changed a new version.
    fn stamp_changes(&self, version: &Cell<u64>) {
        let (new, mut changed) = (version.get() + 1, false);
        if self.all() <= AT_ONCE {
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

    /// Bytes of the data in blocks that are newer than `version`, neighbouring blocks together.
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

    /// What a wait depends on: all PEs live, and none leaves while it is in, or waits.
    fn terms<R>(&self, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        let left_free = |pe: usize| {
            (0..2).all(|slot| matches!(self.look(pe, slot), Ok(words) if !chain::is_busy(words)))
        };
        f(Terms { awaiting: Awaiting::Lock { is_free_of: &left_free }, patience })
    }

    /// Copies the newest version that can be read into `to`, after a death.
    pub(super) fn newest(&self, to: &mut [u8]) -> Quick<()> {
        loop {
            let seal = |pe: usize| self.route(pe, SEAL).load::<u64>(&self.pe);
            // Those that cannot be read have died; what the others have got counts.
            let seals = (0..self.pe.npes()).filter_map(|pe| Some((seal(pe).ok()?, pe)));
            let Some((found, pe)) =
                seals.filter(|&(seal, _)| seal != 0).max_by_key(|&(seal, _)| seal >> 2)
            else {
                let departed = |pe: usize| self.pe.control().state(pe).departed();
                let dead = (0..self.pe.npes())
                    .find_map(|pe| Some(Error::PeerFailed { pe, cause: departed(pe)? }));
                return Err(dead.expect("somebody has the data, or has died with them").into());
            };
            let at = if found & HELD != 0 { self.twin() } else { self.copy };
            // SAFETY: `to` is private memory, as long as the data.
            unsafe { self.route(pe, at).get(&self.pe, to.as_mut_ptr(), to.len()) }?;
            // If it was used meanwhile, that may have been half of something.
            if seal(pe)? == found {
                return Ok(());
            }
        }
    }
}

/// Offset of a word of the queue.
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

/// The world, for one call.
struct Here<'a> {
    owned: &'a Migratory,
    counters: &'a Counters,
    version: &'a Cell<u64>,
    patience: Patience<'a>,
    /// Operations on the fabric so far.
    sent: Cell<usize>,
}

impl<'a> Here<'a> {
    #[inline(always)]
    fn new(
        owned: &'a Migratory,
        counters: &'a Counters,
        version: &'a Cell<u64>,
        patience: Patience<'a>,
    ) -> Self {
        Here { owned, counters, version, patience, sent: Cell::new(0) }
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
        &self.owned.pe
    }

    /// Gets bytes from where they lie in `from`'s part to the same place in this PE's.
    fn get(&self, from: usize, at: u64, len: usize) -> Quick<()> {
        self.counters.sent(1, len);
        // SAFETY: `len` bytes at `at` are version, stamps or data of this PE, which nobody uses
        // until it is in.
        unsafe { self.owned.route(from, at).get(&self.owned.pe, self.owned.local(at), len) }
    }
}

impl World for Here<'_> {
    type Error = Box<Error>;

    #[inline(always)]
    fn me(&self) -> usize {
        self.owned.pe.me()
    }

    #[inline(always)]
    fn load(&self, word: Word) -> Quick<u64> {
        Ok(self.owned.load(place(word)))
    }

    #[inline(always)]
    fn store(&self, word: Word, value: u64) -> Quick<()> {
        self.owned.store(place(word), value);
        Ok(())
    }

    #[inline(always)]
    fn publish(&self, word: Word, value: u64) -> Quick<()> {
        // Not the fabric's: an exchange of the processor is a store and a fence in one.
        // SAFETY: as in `Migratory::load`.
        unsafe { shm::fetch_op(self.owned.local(place(word)), 8, AtomicOp::Swap, value) };
        Ok(())
    }

    fn swap_last(&self, position: u64) -> Quick<u64> {
        self.owned.route(self.owned.home, LAST).fetch_op(self.send(), AtomicOp::Swap, position)
    }

    fn swap_absent(&self, pe: usize, slot: usize, expected: u64, new: u64) -> Quick<u64> {
        let word = self.owned.route(pe, place(Word::Absent(slot)));
        let was = word.compare_swap(self.send(), expected, new)?;
        shm::full_fence();
        Ok(was)
    }

    fn write(&self, pe: usize, word: Word, value: u64) -> Quick<()> {
        self.owned.route(pe, place(word)).store(self.send(), value);
        Ok(())
    }

    fn complete(&self) -> Quick<()> {
        self.owned.pe.complete_writes()
    }

    fn look(&self, pe: usize, slot: usize) -> Quick<[u64; 2]> {
        self.send();
        self.owned.look(pe, slot)
    }

    fn tell(&self, pe: usize, news: u64) -> Quick<()> {
        let word = self.owned.route(pe, place(Word::News));
        word.signal(self.send(), pe, SignalOp::Set, news)
    }

    fn is_late(&self) -> Quick<bool> {
        Ok(self.patience.late(&self.owned.pe).is_some())
    }

    fn wait(&self, word: Word, wanted: impl Fn(u64) -> bool) -> Quick<Option<u64>> {
        let pe = &*self.owned.pe;
        let mut look = || Some(self.owned.load(place(word))).filter(|&value| wanted(value));
        if let Patience::Try = self.patience {
            return match wait::test(pe, look) {
                Some(value) => Ok(Some(value)),
                None => self
                    .owned
                    .terms(Patience::Try, |terms| terms.departed(pe))
                    .map_or(Ok(None), |error| Err(error.into())),
            };
        }
        match self.owned.terms(self.patience, |terms| wait::until(pe, terms, &mut look)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(*error, Error::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn bring(&self, from: usize) -> Quick<()> {
        let owned = self.owned;
        if from == owned.pe.me() {
            return Ok(());
        }
        let have = self.version.replace(0);
        owned.store(SEAL, 0);
        let head = (owned.stamp(owned.blocks()) - owned.version()) as usize;
        if owned.all() <= AT_ONCE {
            self.get(from, owned.version(), owned.all())?;
        } else {
            self.get(from, owned.version(), head)?;
            for run in owned.newer_than(have) {
                self.get(from, owned.copy + run.start as u64, run.len())?;
            }
        }
        self.version.set(owned.load(owned.version()));
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

    /// Has this thread run on a CPU that the other does not, where there are two: what one CPU does
    /// is in order for all of its threads.
    fn pin(me: usize) {
        let cpus = crate::lifecycle::launch::cpu_list();
        let mut mine = rustix::thread::CpuSet::new();
        mine.set(cpus[me % cpus.len()]);
        rustix::thread::sched_setaffinity(None, &mine).expect("a CPU of this process's mask");
    }

    /// Two that publish, and then look at the other's word: one of them sees it. The model of the
    /// queue relies on that.
    #[test]
    fn what_is_published_is_visible_before_what_follows() {
        const WORD: Word = Word::State(0);
        let words = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
        let at = [const { Apart(AtomicU64::new(0)) }; 2];
        let late = [const { Apart(AtomicU64::new(0)) }; 2];
        // Stores to what the other has just written take long, and keep those behind them in the
        // processor.
        let slow = [const { Apart(AtomicU64::new(0)) }; 8];
        let both_late = Job::threads_with(&crate::far::options(""), 2, |job| -> Result<u64> {
            let (me, other) = (job.pe(), 1 - job.pe());
            pin(me);
            let window = job.window::<CacheLine>(Migratory::size(8, 2).div_ceil(LINE))?;
            let offset = window.inner.heap_offset().expect("it is a window of the heap");
            // SAFETY: the window has that size, is kept to the end, and nothing else uses it.
            let owned = unsafe { Migratory::new(job.pe.clone(), offset, 8) };
            let (counters, version) = (Counters::default(), Cell::new(0));
            let here = Here::new(&owned, &counters, &version, Patience::Forever);
            words[me].store(owned.local(place(WORD)).cast::<u64>(), Ordering::Release);
            job.barrier()?;
            let theirs = words[other].load(Ordering::Acquire);
            let mut both_late = 0;
            for round in 1..=ROUNDS {
                at[me].0.store(2 * round, Ordering::Release);
                until_at(&at[other].0, 2 * round);
                slow.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                here.publish(WORD, round)?;
                // SAFETY: the same word of the other PE, a thread of this process, which keeps
                // it until the barrier below.
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
