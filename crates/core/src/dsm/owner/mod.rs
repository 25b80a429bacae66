//! A lock whose data live at its owner, for PEs that reach each other through a fabric: the data travel with the lock, and whoever has them
//! locks again without a message.
//!
//! Every PE has the same words and a copy of the data in its part of the window. In the order of requests each PE stands behind another;
//! the last one's number is the **tail**, at the home. The first one is the **owner**: its copy is the data. It need not do anything for
//! others to take the lock away, not even run: that is what the words are for.
//!
//! | word | written by | meaning |
//! |---|---|---|
//! | tail | atomics of the fabric, at the home | who asked last, as PE number + 1 |
//! | claim | atomics of the fabric | how it was decided, when owner and successor both wanted an idle lock: version << 1, + 1 if it was `TAKEN` |
//! | state | the PE | version of its copy << 4, `UNSTAMPED`, and one of `GONE`, `IDLE`, `HELD`, `WAITING`, `ABSENT` |
//! | grant | the one before | the version with which this PE became the owner |
//! | before | the PE | who stands before it in the queue |
//! | next | the one behind | version of its copy << 16, + its number + 1; 0: nobody has come yet |
//! | poke | the one before, adds 1 | look again what the one before is doing |
//! | stamps | the PE; the one before | for each block of the data the version in which it last changed |
//!
//! A **version** is a release, or a grant by a helper (below): the count of them since the object was made, in whatever PE.
//!
//! **Lock** by the owner: state `IDLE` to `HELD`, a full fence, look at `next`: 0. By another: `WAITING`; swap itself for the tail, which gives the
//! one before; write `next` there, complete that, and look at the state there. `IDLE`: decide by compare-and-swap on the claim there; if that
//! succeeds, get the stamps, the blocks that are newer than its copy, and it owns the lock. Otherwise wait for the grant.
//! **Unlock**: with somebody in `next`, put the blocks newer than its copy, fence, put stamps with the grant as signal, and be `GONE`. Otherwise `IDLE`,
//! a full fence, and look at `next` again. **Where the owner finds `next` only after it was `IDLE`**, at lock or unlock, the other may be on its way in, so the
//! claim decides: if the owner's compare-and-swap succeeds, it keeps the lock, and the other waits; else it is `GONE`, and queues like anybody.
//! **Giving up**: who has waited long enough is `ABSENT`. It stays in the queue, and with the grant it is an idle owner. If somebody is behind, who may
//! wait for a grant that an absent PE does not give, it pokes. That one then helps it: takes the lock for it as soon as it can be had, and grants it.
//!
//! *One owner.* The swaps of the tail put all requests in one order. A PE in the queue gets the lock from the one before it alone: by grant, or
//! by taking it from an idle one. Both happen only once and never both: a PE that has been `IDLE` (or `ABSENT` with a grant, the same thing) grants only after its
//! compare-and-swap on the claim has succeeded; the other's starts from the same value of the claim, and takes only when it succeeds. Both start from
//! a value of another version: one of this version says that it is decided, as there is a release between two decisions of one PE.
//!
//! *No request is overlooked.* The owner writes its state, fences, and reads `next`; the other completes its write of `next` and then reads the state. One of them
//! sees the other. If the owner sees nobody, the other finds the owner's state: `HELD`, and will be seen at the unlock, which comes after; or `IDLE`. If the other
//! finds neither, the owner saw it. With `ABSENT` it is the same: the state, a fence, `next`; whoever is in `next` by then is poked; who comes later sees it.
//!
//! *The words are free when they are used again.* `next` gets one writer for each time a PE stands in the queue, and is cleared before the PE swaps itself for the
//! tail again. A grant is above the version of its receiver's copy, by which it is
//! noticed: who grants has just released, or counts a version for its help. A late poke does no harm.
//!
//! *What travels is right.* A block's stamp is the version of the last release that changed it. At a hand-over the owner compares its copy with the one it
//! got (the *twin*), and stamps what differs with the version it releases. A successor with version w has all blocks up to w, so those stamped later are
//! what it lacks. What is taken from an idle owner must be stamped before: data of up to [`STAMPED_AT_ONCE`] bytes are, at each unlock after a
//! change; larger ones are not, so as to keep unlocking cheap, and are then taken whole (`UNSTAMPED`).
//!
//! *Who helps* an absent PE, of which it has seen that it waits behind another with a certain version, does nothing that PE could not do. It reads
//! the claim, then the state, then `next` of that other. If `next` is that version's, it was all the time: it was written before, and is
//! cleared for good when the other is `GONE`. So if the state was idle, it can have ended meanwhile only by a decision about the claim, and then the helper's
//! compare-and-swap fails. If it succeeds, nobody else takes the lock there, and the absent PE gets a grant.
//!
//! **Failures.** A death ends all waits. Copies stay where they were when the lock moved on, so what the last living owner released, or had got, is there: `Owner::newest`.

mod rescue;

use crate::error::{Error, Quick, Result};
use crate::fabric::{FarAddress, SignalOp};
use crate::pe::Pe;
use crate::shm::{self, AtomicOp};
use crate::wait::{self, Terms};
use std::sync::Arc;
use std::time::Duration;

use super::diff;
use super::queue::{Mode, Tickets};
use super::stats::Counters;

const TAIL: u64 = 0;
const CLAIM: u64 = 8;
const STATE: u64 = 16;
const GRANT: u64 = 24;
const BEFORE: u64 = 32;
const NEXT: u64 = 40;
const POKE: u64 = 48;
/// The queue of this PE's threads.
pub(super) const THREADS: u64 = 56;
const STAMPS: u64 = 128;
/// Blocks of which changes are known one by one.
const BLOCKS: usize = 64;
/// Where the data begin.
pub(super) const DATA: u64 = STAMPS + 8 * BLOCKS as u64;

/// How often an absent PE is looked at by the one behind it.
const POLL: Duration = Duration::from_micros(100);

/// Data of no more than so many bytes are compared at every unlock that follows a change.
pub(super) const STAMPED_AT_ONCE: usize = 4096;

const GONE: u64 = 0;
const IDLE: u64 = 1;
const HELD: u64 = 2;
const WAITING: u64 = 3;
const ABSENT: u64 = 4;
const KIND: u64 = 7;
const UNSTAMPED: u64 = 8;

const TAKEN: u64 = 1;

fn state(kind: u64, version: u64) -> u64 {
    version << 4 | kind
}

/// The version with which the lock can be taken from a PE with these words.
fn offered(state: u64, grant: u64) -> Option<u64> {
    match state & KIND {
        IDLE => Some(state >> 4),
        ABSENT if grant > state >> 4 => Some(grant),
        _ => None,
    }
}

/// Where the twin of so many bytes of data begins.
fn twin_at(bytes: usize) -> u64 {
    DATA + (bytes as u64).next_multiple_of(128)
}

/// The lock as a PE sees it.
pub(super) struct Owner {
    pe: Arc<Pe>,
    /// Of the words in each segment.
    offset: u64,
    home: usize,
    threads: Tickets,
    /// Of the data.
    bytes: usize,
    block: usize,
}

impl Owner {
    /// The lock whose words are at `offset` of the segments, zero so far, with `bytes` of data at [`DATA`]. `threads` are the words at [`THREADS`].
    pub(super) fn new(pe: Arc<Pe>, offset: u64, bytes: usize, threads: Tickets) -> Self {
        let home = super::home_of(offset, pe.npes());
        Owner {
            block: bytes.div_ceil(BLOCKS).next_multiple_of(8).max(64),
            pe,
            offset,
            home,
            threads,
            bytes,
        }
    }

    /// Makes the home the first owner, of what it has written as its data; all have a copy. *Collective.*
    pub(super) fn start(&self, barrier: impl Fn() -> Result<()>) -> Result<()> {
        let me = self.pe.me();
        if me == self.home {
            (0..self.blocks()).for_each(|block| self.store(STAMPS + 8 * block as u64, 1));
            self.pe
                .route(me, self.offset + TAIL)
                .fetch_op(&self.pe, AtomicOp::Swap, self.number())?;
        }
        barrier()?;
        if me != self.home {
            // SAFETY: the data are `bytes` in each PE's part.
            unsafe {
                self.pe
                    .route(self.home, self.offset + DATA)
                    .get(&self.pe, self.local(DATA), self.bytes)
            }?;
        }
        self.keep_twin();
        self.store(STATE, state(if me == self.home { IDLE } else { GONE }, 1));
        barrier()
    }

    fn number(&self) -> u64 {
        self.pe.me() as u64 + 1
    }

    #[inline(always)]
    fn load(&self, word: u64) -> u64 {
        // SAFETY: an aligned word of this PE's part of the window that the lock was made of.
        unsafe { shm::load(self.pe.local(self.offset + word).cast()) }
    }

    #[inline(always)]
    fn store(&self, word: u64, value: u64) {
        // SAFETY: as in `load`.
        unsafe { shm::store(self.pe.local(self.offset + word).cast(), value) }
    }

    fn address(&self, pe: usize, at: u64) -> FarAddress {
        FarAddress {
            pe: pe as u32,
            region: 0,
            offset: self.offset + at,
        }
    }

    /// Address of byte `at` of this PE's part.
    pub(super) fn local(&self, at: u64) -> *mut u8 {
        self.pe.local(self.offset + at)
    }

    /// Bytes of the words, `bytes` of data, and their twin.
    pub(super) fn size(bytes: usize) -> usize {
        twin_at(bytes) as usize + bytes
    }

    /// Comes in; false if that needs waiting and `timeout` is zero.
    #[inline]
    pub(super) fn enter(&self, counters: &Counters, timeout: Option<Duration>) -> Quick<Option<u32>> {
        let ticket = match timeout {
            None => self.threads.enter(&self.pe, Mode::Alone)?,
            Some(Duration::ZERO) => match self.threads.try_enter(&self.pe, Mode::Alone)? {
                Some(ticket) => ticket,
                None => return Ok(None),
            },
            Some(timeout) => self.threads.enter_within(&self.pe, Mode::Alone, timeout)?,
        };
        counters.used();
        match self.own(counters, timeout) {
            Ok(()) => Ok(Some(ticket)),
            Err(error) => {
                self.threads.leave(&self.pe, ticket, Mode::Alone);
                match *error {
                    Error::Timeout { after: Duration::ZERO } => Ok(None),
                    _ => Err(error),
                }
            }
        }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.threads.poison() != 0
    }

    /// Who panicked with the lock, if somebody has.
    fn check_poison(&self) -> Quick<()> {
        match self.threads.poison() {
            0 => Ok(()),
            number => Err(super::panicked(number).into()),
        }
    }

    #[inline]
    fn own(&self, counters: &Counters, timeout: Option<Duration>) -> Quick<()> {
        self.check_poison()?;
        let seen = self.load(STATE);
        if seen & KIND == IDLE {
            self.store(STATE, seen - IDLE + HELD);
            shm::full_fence();
            if self.load(NEXT) == 0 || self.keep(seen >> 4)? {
                return Ok(());
            }
            self.be_gone(seen >> 4);
        }
        if timeout.is_some() {
            let nobody_comes = self.terms(None, |terms| terms.departed(&self.pe));
            return Err(nobody_comes.unwrap_or(Error::Timeout { after: Duration::ZERO }).into());
        }
        counters.missed();
        self.queue(counters, timeout)
    }

    #[cold]
    fn queue(&self, counters: &Counters, timeout: Option<Duration>) -> Quick<()> {
        let seen = self.load(STATE);
        let mut version = seen >> 4;
        if seen & KIND != GONE {
            // In the queue since it gave up.
            self.store(STATE, state(WAITING, version));
            shm::full_fence();
            if self.load(GRANT) <= version {
                return self.wait(counters, version, timeout, true);
            }
            if self.accept(counters, true)? {
                return Ok(());
            }
            version = self.load(STATE) >> 4;
        }
        // Whoever grants the lock may die when it has sent half of the data.
        self.keep_twin();
        self.store(STATE, state(WAITING, version));
        let tail = self.pe.route(self.home, self.offset + TAIL);
        let before = tail.fetch_op(&self.pe, AtomicOp::Swap, self.number())? as usize - 1;
        self.store(BEFORE, before as u64);
        let next = self.pe.route(before, self.offset + NEXT);
        next.store(&self.pe, version << 16 | self.number());
        self.pe.complete_writes()?;
        counters.sent(2, 0);
        self.wait(counters, version, timeout, false)
    }

    /// Waits for the lock; this PE is in the queue, and has told the one before.
    fn wait(&self, counters: &Counters, version: u64, timeout: Option<Duration>, mut was_absent: bool) -> Quick<()> {
        let before = self.load(BEFORE) as usize;
        let mut left = timeout;
        loop {
            let poked = self.load(POKE);
            let [claim, there, grant] = self.look_at(before)?;
            counters.sent(1, 0);
            if let Some(offer) = offered(there, grant).filter(|&offer| claim >> 1 != offer) {
                let word = self.pe.route(before, self.offset + CLAIM);
                counters.sent(1, 0);
                if word.compare_swap(&self.pe, claim, offer << 1 | TAKEN)? == claim {
                    self.take(counters, before, offer, version, there & UNSTAMPED != 0)?;
                    return Ok(());
                }
            }
            let absent = there & KIND == ABSENT && grant <= there >> 4;
            if absent {
                self.help(counters, before, there)?;
            }
            let look = || {
                let news = self.load(GRANT) > version || self.load(POKE) != poked || self.threads.poison() != 0;
                news.then_some(())
            };
            // Nobody tells when an absent one becomes the owner: it is asked.
            let patience = if absent {
                Some(left.map_or(POLL, |left| left.min(POLL)))
            } else {
                left
            };
            let ended = self.terms(patience, |terms| wait::until(&self.pe, terms, look));
            self.check_poison()?;
            if let (true, Some(waited), Err(error)) = (absent, patience, &ended)
                && matches!(**error, Error::Timeout { .. })
                && left != Some(waited)
            {
                left = left.map(|left| left - waited);
                continue;
            }
            let gave_up = match ended {
                Err(error) if matches!(*error, Error::Timeout { .. }) => Some(error),
                ended => ended.map(|()| None)?,
            };
            if gave_up.is_some() {
                was_absent = true;
                self.store(STATE, state(ABSENT, version));
                shm::full_fence();
            }
            if self.load(GRANT) > version {
                if self.accept(counters, was_absent)? {
                    return Ok(());
                }
                // The one behind was faster. Back to its end.
                return match gave_up {
                    Some(error) => Err(error),
                    None => self.queue(counters, timeout),
                };
            }
            if let Some(error) = gave_up {
                if let Some(next) = (self.load(NEXT) & 0xFFFF).checked_sub(1) {
                    self.pe
                        .route(next as usize, self.offset + POKE)
                        .signal(&self.pe, next as usize, SignalOp::Add, 1)?;
                    counters.sent(1, 0);
                }
                return Err(error);
            }
        }
    }

    fn look_at(&self, pe: usize) -> Quick<[u64; 3]> {
        let mut words = [0u64; 3];
        // SAFETY: the words are this frame's own.
        unsafe { self.pe.route(pe, self.offset + CLAIM).get(&self.pe, words.as_mut_ptr().cast(), 24) }?;
        Ok(words)
    }

    /// Does for `absent`, whose state was seen to be `there`, what it will not do now: takes the lock from the one before it, if that is
    /// idle, and grants it to it. Whether it has.
    #[cold]
    fn help(&self, counters: &Counters, absent: usize, there: u64) -> Quick<bool> {
        let before = self.pe.route(absent, self.offset + BEFORE).load::<u64>(&self.pe)? as usize;
        let word = |word: u64| self.pe.route(before, self.offset + word);
        // In this order: see "who helps" above.
        let claim = word(CLAIM).load::<u64>(&self.pe)?;
        let [_, state, grant] = self.look_at(before)?;
        let next = word(NEXT).load::<u64>(&self.pe)?;
        counters.sent(4, 0);
        if next != (there >> 4 << 16) | (absent as u64 + 1) {
            return Ok(false);
        }
        let Some(version) = offered(state, grant).filter(|&version| claim >> 1 != version) else {
            return match state & KIND {
                ABSENT => self.help(counters, before, state),
                _ => Ok(false),
            };
        };
        counters.sent(1, 0);
        if word(CLAIM).compare_swap(&self.pe, claim, version << 1 | TAKEN)? != claim {
            return Ok(false);
        }
        let (mut data, mut stamps) = (vec![0u8; self.bytes], vec![version; self.blocks()]);
        // SAFETY: both are private memory.
        unsafe {
            word(DATA).get(&self.pe, data.as_mut_ptr(), data.len())?;
            if state & UNSTAMPED == 0 {
                word(STAMPS).get(&self.pe, stamps.as_mut_ptr().cast(), 8 * stamps.len())?;
            }
        }
        let (len, fabric) = (8 * stamps.len(), self.pe.fabric());
        // SAFETY: as above.
        unsafe {
            fabric.put(self.address(absent, DATA), data.as_ptr(), data.len())?;
            fabric.fence()?;
            let (stamps_at, grant_at) = (self.address(absent, STAMPS), self.address(absent, GRANT));
            fabric.put_signal(stamps_at, stamps.as_ptr().cast(), len, grant_at, SignalOp::Set, version + 1)?;
        }
        counters.sent(4, 2 * (data.len() + len));
        Ok(true)
    }

    /// Becomes the owner by the grant that has come; false if the one behind has taken that away.
    fn accept(&self, counters: &Counters, was_absent: bool) -> Quick<bool> {
        let version = self.load(GRANT);
        self.store(STATE, state(HELD, version));
        if was_absent {
            shm::full_fence();
            if self.load(NEXT) != 0 && !self.keep(version)? {
                self.be_gone(version);
                return Ok(false);
            }
        }
        counters.handed_over();
        self.keep_twin();
        Ok(true)
    }

    /// Decides that this PE keeps the lock; false if the one behind has taken it.
    #[cold]
    fn keep(&self, version: u64) -> Quick<bool> {
        let claim = self.load(CLAIM);
        if claim >> 1 == version {
            return Ok(claim & TAKEN == 0);
        }
        let word = self.pe.route(self.pe.me(), self.offset + CLAIM);
        Ok(word.compare_swap(&self.pe, claim, version << 1)? == claim)
    }

    /// The lock is another's.
    fn be_gone(&self, version: u64) {
        self.store(NEXT, 0);
        self.store(STATE, state(GONE, version));
    }

    fn blocks(&self) -> usize {
        self.bytes.div_ceil(self.block)
    }

    fn stamp(&self, block: usize) -> u64 {
        self.load(STAMPS + 8 * block as u64)
    }

    /// Bytes of the data in blocks that are newer than `version`, neighbouring blocks together.
    fn newer_than(&self, version: u64) -> Vec<std::ops::Range<usize>> {
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for block in (0..self.blocks()).filter(|&block| self.stamp(block) > version) {
            let (start, end) = (block * self.block, ((block + 1) * self.block).min(self.bytes));
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        runs
    }

    /// Gets what this PE lacks from `from`, which is idle and will stay as it is.
    fn take(&self, counters: &Counters, from: usize, version: u64, have: u64, whole: bool) -> Quick<()> {
        let get = |at: u64, len: usize| {
            counters.sent(1, len);
            // SAFETY: `len` bytes at `at` are this PE's stamps, or its data, which nobody uses until this PE owns the lock.
            unsafe { self.pe.route(from, self.offset + at).get(&self.pe, self.local(at), len) }
        };
        if whole {
            (0..self.blocks()).for_each(|block| self.store(STAMPS + 8 * block as u64, version));
            get(DATA, self.bytes)?;
        } else {
            get(STAMPS, 8 * self.blocks())?;
            for run in self.newer_than(have) {
                get(DATA + run.start as u64, run.len())?;
            }
        }
        self.store(STATE, state(HELD, version));
        counters.handed_over();
        self.keep_twin();
        Ok(())
    }

    fn keep_twin(&self) {
        // SAFETY: data and twin are `bytes` each of this PE's part, and apart.
        unsafe { shm::copy(self.local(twin_at(self.bytes)), self.local(DATA), self.bytes) };
    }

    /// Stamps all blocks that differ from the twin.
    fn stamp_changes(&self, version: u64) {
        let (data, twin) = (self.local(DATA), self.local(twin_at(self.bytes)));
        let stamp = |block| self.store(STAMPS + 8 * block as u64, version);
        // SAFETY: as in `keep_twin`.
        unsafe { diff::changed_blocks(data, twin, self.bytes, self.block, stamp) };
    }

    /// Leaves; `changed`: the data may have been.
    #[inline]
    pub(super) fn leave(&self, counters: &Counters, ticket: u32, changed: bool) -> Quick<()> {
        let seen = self.load(STATE);
        let (version, mut unstamped) = ((seen >> 4) + 1, seen & UNSTAMPED);
        if changed {
            if self.bytes <= STAMPED_AT_ONCE {
                self.stamp_changes(version);
            } else {
                unstamped = UNSTAMPED;
            }
        }
        let mut left = Ok(());
        let mut next = self.load(NEXT);
        if next == 0 {
            self.store(STATE, state(IDLE, version) | unstamped);
            shm::full_fence();
            next = self.load(NEXT);
            if next != 0 {
                match self.keep(version) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.be_gone(version);
                        next = 0;
                    }
                    Err(error) => {
                        left = Err(error);
                        next = 0;
                    }
                }
            }
        }
        if next != 0 {
            left = self.hand_over(counters, next, version, unstamped != 0);
        }
        self.threads.leave(&self.pe, ticket, Mode::Alone);
        left
    }

    #[cold]
    fn hand_over(&self, counters: &Counters, next: u64, version: u64, unstamped: bool) -> Quick<()> {
        if unstamped {
            self.stamp_changes(version);
        }
        let to = (next & 0xFFFF) as usize - 1;
        let fabric = self.pe.fabric();
        let runs = self.newer_than(next >> 16);
        let mut bytes = 0;
        for run in &runs {
            let at = DATA + run.start as u64;
            // SAFETY: the run lies in this PE's data, which nobody changes while it has the lock.
            unsafe { fabric.put(self.address(to, at), self.local(at), run.len()) }?;
            bytes += run.len();
        }
        fabric.fence()?;
        self.be_gone(version);
        let (stamps, len) = (self.address(to, STAMPS), 8 * self.blocks());
        // SAFETY: the stamps are this PE's.
        unsafe { fabric.put_signal(stamps, self.local(STAMPS), len, self.address(to, GRANT), SignalOp::Set, version) }?;
        counters.sent(runs.len() + 1, bytes + len);
        Ok(())
    }

    /// Tells everybody that this PE panicked while it changed the data, and gives up the lock for ever.
    pub(super) fn poison(&self, ticket: u32) {
        for pe in 0..self.pe.npes() {
            let word = self.pe.route(pe, self.offset + THREADS + super::queue::POISON as u64);
            word.store(&self.pe, self.pe.me() as u32 + 1);
        }
        self.pe.flush_far();
        self.threads.leave(&self.pe, ticket, Mode::Alone);
    }

    /// Waits for a lock end when any PE dies, or leaves with it.
    fn terms<R>(&self, timeout: Option<Duration>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        let left_free = |pe: usize| {
            let there = self.pe.route(pe, self.offset + STATE).load::<u64>(&self.pe);
            !matches!(there, Ok(state) if matches!(state & KIND, HELD | WAITING))
        };
        f(Terms {
            members: None,
            arrived: Some(&left_free),
            timeout,
        })
    }
}
