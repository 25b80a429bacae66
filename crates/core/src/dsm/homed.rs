//! A lock for readers and writers that reach each other through a fabric. Queue and data have a
//! home; a reader keeps its copy for the next time.
//!
//! The queue is that of [`tickets`](crate::sync::tickets): tickets, *entry* and *exit*, slots. But
//! here the fabric's atomics change the words, at the home, and no PE polls them: a PE that must
//! wait writes its slot, looks at the turn once more, and then waits for its own *wake* word to
//! change. The PE that lets it in adds to that word.
//!
//! | word | where | meaning |
//! |---|---|---|
//! | next, turn | home | as in `tickets` |
//! | version | home | number of releases that changed the data; those of version v are in buffer v mod 2 |
//! | slots | home | ticket, and PE number + 1 of the waiting PE; or that it gave up |
//! | stamps | home; a copy in each PE | for each block the version in which it last changed; 0: not yet |
//! | wake | each PE | grows when a turn may have come |
//! | inside | each PE | lower half: number of its threads that are in; upper half: number of tickets that it has drawn, or may have drawn, and that are neither in nor given up |
//!
//! **I1.** *No turn is missed.* The atomics have been applied when they return. So of a PE that
//! writes its slot and then reads the turn, and one that writes the turn and then reads the slot,
//! one sees the other.
//!
//! **I2.** *A version is seen whole.* A PE that is in, with a copy of an earlier version, gets the
//! stamps and the blocks that are newer. A writer compares its copy with what it got. It puts the
//! changed blocks into the other buffer, with the blocks that the version before changed, as that
//! buffer is two versions old; then stamps, fence, version, fence, turn. So a PE that enters sees
//! the new version whole, and a writer that dies has changed nothing of the last one.
//!
//! **I3.** *A PE's copy is not changed while it is read.* It is changed by a thread that is in
//! alone, or by one that enters after a thread was in alone: then no thread of this PE reads. Of
//! several readers that enter together the first refreshes the copy, under a lock of this process.

//!
//! **I4.** *A lost ticket keeps nobody waiting for ever.* A ticket is counted before it is drawn,
//! and until it was given up, or its turn has passed at the home. An operation that fails on the
//! way leaves it counted, as nobody knows whether it was made. No ticket behind it comes in; and
//! once its PE has left the job, the waits of all others end.

use crate::base::error::{Error, Quick, Result};
use crate::base::lock;
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::wait::limit::{Limit, Patience};
use crate::wait::{self, Awaiting, Terms};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::diff;
use crate::endpoint::recorder::objects::Counters;
use crate::sync::tickets::{EXHAUSTED, MOST, Mode, exhausted};

// Offsets of the words, in bytes.
const NEXT: u64 = 0;
const TURN: u64 = 8;
const VERSION: u64 = 16;
const WAKE: u64 = 24;
const INSIDE: u64 = 32;
const STAMPS: u64 = 128;
const BLOCKS: usize = 64;
/// This PE's copy; behind it its twin, then the home's two buffers, then the slots.
pub(super) const COPY: u64 = STAMPS + 8 * BLOCKS as u64;

/// Between two looks at the turn by a PE without a slot, which no PE can wake.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A ticket that is drawn, and a thread that is in, as they are counted in *inside*.
const DRAWN: u64 = 1 << 32;
const IN: u64 = 1;

const GAVE_UP: u64 = u64::MAX << 48;

fn entry(turn: u64) -> u32 {
    turn as u32
}

fn exit(turn: u64) -> u32 {
    (turn >> 32) as u32
}

fn may_enter(turn: u64, ticket: u32, mode: Mode) -> bool {
    ticket == if mode == Mode::Exclusive { exit(turn) } else { entry(turn) }
}

/// The lock as a PE sees it.
pub(super) struct Homed {
    pe: Arc<Pe>,
    offset: u64,
    home: usize,
    bytes: usize,
    block: usize,
    /// Bytes of the data, rounded up to whole cache line pairs.
    room: u64,
    /// Version of this PE's copy.
    version: Mutex<u64>,
}

fn slots_for(npes: usize) -> u64 {
    (2 * npes as u64).next_power_of_two().max(64)
}

impl Homed {
    pub(super) fn new(pe: Arc<Pe>, offset: u64, bytes: usize) -> Self {
        Homed {
            home: super::home_of(offset, pe.npes()),
            block: bytes.div_ceil(BLOCKS).next_multiple_of(8).max(64),
            room: room(bytes),
            version: Mutex::new(1),
            pe,
            offset,
            bytes,
        }
    }

    /// Bytes of the words and all buffers.
    pub(super) fn size(bytes: usize, npes: usize) -> usize {
        (COPY + 4 * room(bytes) + 8 * slots_for(npes)) as usize
    }

    fn twin(&self) -> u64 {
        COPY + self.room
    }

    fn buffer(&self, version: u64) -> u64 {
        COPY + (2 + version % 2) * self.room
    }

    fn slot(&self, ticket: u32) -> Route {
        let slots = COPY + 4 * self.room;
        self.at_home(slots + 8 * (u64::from(ticket) % slots_for(self.pe.npes())))
    }

    /// Makes `initial`, as long as the data, the first version. *Collective.*
    pub(super) fn start(&self, initial: *const u8, barrier: impl Fn() -> Result<()>) -> Result<()> {
        for at in [COPY, self.buffer(0), self.buffer(1)] {
            // SAFETY: the caller's source and each of these places in this PE's part have the
            // data's length.
            unsafe { shm::copy(self.local(at), initial, self.bytes) };
        }
        self.store(VERSION, 1);
        barrier()?;
        if self.pe.me() != self.home {
            // SAFETY: the copy has the data's length, and no thread uses it before this returns.
            unsafe { self.at_home(self.buffer(1)).get(&self.pe, self.local(COPY), self.bytes) }?;
        }
        barrier()
    }

    /// Address of byte `at` of this PE's part.
    pub(super) fn local(&self, at: u64) -> *mut u8 {
        self.pe.local(self.offset + at)
    }

    fn load(&self, word: u64) -> u64 {
        // SAFETY: an aligned word of this PE's part of the window that the lock was made of.
        unsafe { shm::load(self.local(word).cast()) }
    }

    fn store(&self, word: u64, value: u64) {
        // SAFETY: as in `load`.
        unsafe { shm::store(self.local(word).cast(), value) }
    }

    fn at_home(&self, at: u64) -> Route {
        self.pe.route(self.home, self.offset + at)
    }

    fn blocks(&self) -> usize {
        self.bytes.div_ceil(self.block)
    }

    fn turn(&self) -> Quick<u64> {
        self.at_home(TURN).load(&self.pe)
    }

    /// Enters, with the newest data in this PE's copy; `None` if that needs waiting, and there is
    /// no patience.
    pub(super) fn enter(
        &self,
        counters: &Counters,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Quick<Option<u32>> {
        counters.used();
        counters.missed();
        patience.begin(&self.pe);
        let ticket = match patience {
            Patience::Try => match self.try_enter(mode)? {
                Some(ticket) => ticket,
                None => return Ok(None),
            },
            Patience::Within(limit) => self.enter_within(mode, limit)?,
            Patience::Forever => {
                let ticket = self.draw_any()?;
                if !may_enter(self.turn()?, ticket, mode) {
                    self.wait(ticket, mode, Patience::Forever)?;
                }
                ticket
            }
        };
        counters.sent(2, 0);
        self.count_inside(IN.wrapping_sub(DRAWN));
        if mode == Mode::Shared {
            let carry = if ticket == u32::MAX { 1 << 32 } else { 0 };
            let before =
                self.at_home(TURN).fetch_op(&self.pe, AtomicOp::Add, 1u64.wrapping_sub(carry))?;
            self.wake(ticket.wrapping_add(1))?;
            counters.sent(2, 0);
            if entry(before).wrapping_sub(exit(before)) >= MOST {
                self.leave(counters, ticket, mode, false)?;
                return Err(exhausted());
            }
        }
        self.refresh(counters)?;
        Ok(Some(ticket))
    }

    fn draw_any(&self) -> Quick<u32> {
        self.count_inside(DRAWN); // I4
        let drawn = self.at_home(NEXT).fetch_op(&self.pe, AtomicOp::Add, 1u64)?;
        if drawn & EXHAUSTED != 0 {
            self.count_inside(DRAWN.wrapping_neg());
            return Err(exhausted());
        }
        Ok(drawn as u32)
    }

    fn try_enter(&self, mode: Mode) -> Quick<Option<u32>> {
        loop {
            let [next, turn] = self.next_and_turn()?;
            if !may_enter(turn, next as u32, mode) {
                break;
            }
            if self.draw(next)? {
                return Ok(Some(next as u32));
            }
        }
        wait::test(&self.pe, || None::<()>);
        match self.terms(Patience::Forever, |terms| terms.departed(&self.pe)) {
            Some(error) => Err(error.into()),
            None => Ok(None),
        }
    }

    /// Enters within a limit, by a ticket that has a slot: only such a ticket can be given up.
    fn enter_within(&self, mode: Mode, limit: &Limit) -> Quick<u32> {
        loop {
            let [next, turn] = self.next_and_turn()?;
            let ticket = next as u32;
            let has_slot = self.has_slot(ticket, turn);
            if has_slot && self.draw(next)? {
                if !may_enter(turn, ticket, mode) {
                    self.wait(ticket, mode, Patience::Within(limit))?;
                }
                return Ok(ticket);
            }
            // If another PE drew this ticket, it tries again at once; if all slots are taken, after
            // a while.
            let pause;
            let patience = if has_slot {
                Patience::Try
            } else {
                pause = Limit::new(POLL_INTERVAL.min(limit.left(&self.pe)));
                pause.patience()
            };
            match self.terms(patience, |terms| wait::until(&self.pe, terms, || None::<()>)) {
                Err(error) if !is_timeout(&error) => return Err(error),
                _ if limit.is_over(&self.pe) => return Err(limit.error().into()),
                _ => {}
            }
        }
    }

    /// Next and turn, each as it was at some moment of the call.
    fn next_and_turn(&self) -> Quick<[u64; 2]> {
        const _: () = assert!(TURN == NEXT + 8);
        let mut words = [0u64; 2];
        // SAFETY: private memory, as long as the two words.
        unsafe { self.at_home(NEXT).get(&self.pe, words.as_mut_ptr().cast(), 16) }?;
        if words[0] & EXHAUSTED != 0 {
            return Err(exhausted());
        }
        Ok(words)
    }

    /// Draws ticket `next`; false if another PE has drawn it. After success, the turn that was read
    /// before still says whether it may enter.
    fn draw(&self, next: u64) -> Quick<bool> {
        self.count_inside(DRAWN); // I4
        let drawn = self.at_home(NEXT).compare_swap(&self.pe, next, next + 1)? == next;
        if !drawn {
            self.count_inside(DRAWN.wrapping_neg());
        }
        Ok(drawn)
    }

    /// Whether `ticket` may use its slot at this turn. Also true for a ticket that another PE has
    /// drawn and used meanwhile: then drawing it fails.
    fn has_slot(&self, ticket: u32, turn: u64) -> bool {
        (ticket.wrapping_sub(entry(turn)) as i32) < slots_for(self.pe.npes()) as i32
    }

    /// Waits for the turn of `ticket`, which has a slot if the wait may give up.
    fn wait(&self, ticket: u32, mode: Mode, patience: Patience<'_>) -> Quick<()> {
        let (mut registered, mut interrupted) = (false, None);
        loop {
            let woken = self.load(WAKE);
            let turn = self.turn()?;
            if may_enter(turn, ticket, mode) {
                return Ok(());
            }
            if !registered && ticket.wrapping_sub(exit(turn)) >= MOST {
                self.at_home(NEXT).fetch_op(&self.pe, AtomicOp::Or, EXHAUSTED)?;
                return Err(exhausted());
            }
            if !registered && self.has_slot(ticket, turn) {
                let who = (self.pe.me() as u64 + 1) << 32 | u64::from(ticket);
                // I1: the loop reads the turn after this.
                self.slot(ticket).fetch_op(&self.pe, AtomicOp::Swap, who)?;
                registered = true;
                if let Some(error) = interrupted {
                    return self.give_up(ticket, mode, error);
                }
                continue;
            }
            // A PE without a slot is not woken: it asks the home until it has one.
            let poll = Limit::new(POLL_INTERVAL);
            let until = if registered { patience } else { poll.patience() };
            let look = || (self.load(WAKE) != woken).then_some(());
            let heeds = interrupted.is_none();
            let ended = self.terms(until, |terms| {
                // A call for attention that stands would end each poll at once.
                let terms = if heeds { terms } else { terms.uninterrupted() };
                wait::until(&self.pe, terms, look)
            });
            match ended {
                Err(error) if is_timeout(&error) => {}
                Err(error) if registered => return self.give_up(ticket, mode, error),
                // Only a ticket with a slot can be given up, so it waits for one first.
                Err(error) if self.terms(patience, |terms| terms.is_own(&self.pe, &error)) => {
                    interrupted = Some(error);
                }
                ended => ended?,
            }
            // A PE that is woken again and again finds its time up here.
            if let Some(late) = patience.late(&self.pe) {
                return self.give_up(ticket, mode, late.into());
            }
        }
    }

    /// Gives up a wait; enters after all if its turn has come meanwhile.
    fn give_up(&self, ticket: u32, mode: Mode, error: Box<Error>) -> Quick<()> {
        self.slot(ticket).fetch_op(&self.pe, AtomicOp::Swap, GAVE_UP | u64::from(ticket))?;
        let turn = self.turn()?;
        if entry(turn) == ticket && self.take_mark(ticket)? {
            if may_enter(turn, ticket, mode) {
                return Ok(());
            }
            self.pass()?;
            self.wake(ticket.wrapping_add(1))?;
        }
        self.count_inside(DRAWN.wrapping_neg());
        Err(error)
    }

    /// Removes the mark of `ticket`, which gave up and which entry has reached. The PE that removes
    /// it has the turn; false if another PE did.
    fn take_mark(&self, ticket: u32) -> Quick<bool> {
        let mark = GAVE_UP | u64::from(ticket);
        Ok(self.slot(ticket).compare_swap(&self.pe, mark, 0)? == mark)
    }

    /// Uses up a turn: enters and leaves at once.
    fn pass(&self) -> Quick<()> {
        let mut seen = self.turn()?;
        loop {
            let new = u64::from(exit(seen).wrapping_add(1)) << 32
                | u64::from(entry(seen).wrapping_add(1));
            match self.at_home(TURN).compare_swap(&self.pe, seen, new)? {
                now if now == seen => return Ok(()),
                now => seen = now,
            }
        }
    }

    /// Wakes the PE that waits with `ticket`, which entry has reached. I1: the turn is written
    /// before the slot is read.
    fn wake(&self, mut ticket: u32) -> Quick<()> {
        loop {
            // Read by an atomic: plain gets are not ordered with those that write it.
            let slot = self.slot(ticket).compare_swap(&self.pe, 0u64, 0)?;
            if slot & GAVE_UP == GAVE_UP && slot as u32 == ticket {
                if !self.take_mark(ticket)? {
                    return Ok(());
                }
                self.pass()?;
                ticket = ticket.wrapping_add(1);
                continue;
            }
            let waiting = (slot >> 32) as usize;
            if slot as u32 == ticket && (1..=self.pe.npes()).contains(&waiting) {
                let word = self.pe.route(waiting - 1, self.offset + WAKE);
                word.signal(&self.pe, waiting - 1, SignalOp::Add, 1)?;
            }
            return Ok(());
        }
    }

    fn count_inside(&self, change: u64) {
        // SAFETY: as in `load`. Other PEs only read it, and no fabric updates it.
        unsafe { shm::fetch_op(self.local(INSIDE), 8, AtomicOp::Add, change) };
    }

    /// Brings this PE's copy up to date.
    fn refresh(&self, counters: &Counters) -> Quick<()> {
        let mut have = lock(&self.version);
        let now: u64 = self.at_home(VERSION).load(&self.pe)?;
        counters.sent(1, 0);
        if *have == now {
            return Ok(());
        }
        let mut stamps = vec![0u64; self.blocks()];
        // SAFETY: private memory, as long.
        unsafe {
            self.at_home(STAMPS).get(&self.pe, stamps.as_mut_ptr().cast(), 8 * stamps.len())
        }?;
        counters.sent(1, 8 * stamps.len());
        for run in self.newer_than(&stamps, *have) {
            // SAFETY: a run of this PE's copy, which no thread reads (I3).
            unsafe {
                self.at_home(self.buffer(now) + run.start as u64).get(
                    &self.pe,
                    self.local(COPY + run.start as u64),
                    run.len(),
                )
            }?;
            counters.sent(1, run.len());
        }
        if self.pe.me() != self.home {
            stamps
                .iter()
                .enumerate()
                .for_each(|(block, &stamp)| self.store(STAMPS + 8 * block as u64, stamp));
        }
        *have = now;
        counters.handed_over();
        Ok(())
    }

    fn newer_than(&self, stamps: &[u64], version: u64) -> Vec<Range<usize>> {
        let newer = stamps.iter().enumerate().filter(|&(_, &stamp)| stamp > version);
        newer
            .map(|(block, _)| block * self.block..((block + 1) * self.block).min(self.bytes))
            .collect()
    }

    /// Copies the data to the twin, before the thread that is in alone may change them.
    pub(super) fn keep_twin(&self) {
        // SAFETY: copy and twin lie in this PE's part, do not overlap, and have the data's length.
        unsafe { shm::copy(self.local(self.twin()), self.local(COPY), self.bytes) };
    }

    /// Undoes the changes of the thread that is in alone.
    pub(super) fn restore_twin(&self) {
        // SAFETY: as in `keep_twin`.
        unsafe { shm::copy(self.local(COPY), self.local(self.twin()), self.bytes) };
    }

    pub(super) fn leave(
        &self,
        counters: &Counters,
        ticket: u32,
        mode: Mode,
        changed: bool,
    ) -> Quick<()> {
        let published = if changed { self.publish(counters) } else { Ok(()) };
        let left = self.pass_on(ticket, mode);
        counters.sent(2, 0);
        match (left, published) {
            (Err(error), Err(lost)) => {
                self.pe.surface_later(*lost);
                Err(error)
            }
            (left, published) => left.and(published),
        }
    }

    /// Lets the next ones in.
    fn pass_on(&self, ticket: u32, mode: Mode) -> Quick<()> {
        let next = ticket.wrapping_add(1);
        let waiting = match mode {
            Mode::Exclusive => {
                let turn = u64::from(next) << 32 | u64::from(next);
                self.at_home(TURN).fetch_op(&self.pe, AtomicOp::Swap, turn)?;
                next
            }
            Mode::Shared => {
                entry(self.at_home(TURN).fetch_op(&self.pe, AtomicOp::Add, 1u64 << 32)?)
            }
        };
        self.count_inside(IN.wrapping_neg()); // I4
        self.wake(waiting)
    }

    /// Puts this PE's changes to the home, as a new version.
    fn publish(&self, counters: &Counters) -> Quick<()> {
        let mut have = lock(&self.version);
        let new = *have + 1;
        let mut stamps: Vec<u64> =
            (0..self.blocks()).map(|block| self.load(STAMPS + 8 * block as u64)).collect();
        let (copy, twin) = (self.local(COPY), self.local(self.twin()));
        // SAFETY: copy and twin lie in this PE's part and have the data's length.
        unsafe {
            diff::changed_blocks(copy, twin, self.bytes, self.block, |block| stamps[block] = new)
        };
        // I2: the buffer holds the version before the last.
        for run in self.newer_than(&stamps, new - 2) {
            let buffer = self.at_home(self.buffer(new) + run.start as u64);
            // SAFETY: a run of this PE's copy, which only this guard's thread may change, and which
            // lies outside of the buffers.
            unsafe { buffer.put(&self.pe, copy.wrapping_add(run.start), run.len()) }?;
            counters.sent(1, run.len());
        }
        // SAFETY: private memory, as long as the stamps.
        unsafe { self.at_home(STAMPS).put(&self.pe, stamps.as_ptr().cast(), 8 * stamps.len()) }?;
        if self.pe.me() != self.home {
            stamps
                .iter()
                .enumerate()
                .for_each(|(block, &stamp)| self.store(STAMPS + 8 * block as u64, stamp));
        }
        // I2. At a near home, stores become visible in their order.
        if let Route::Far(_) = self.at_home(VERSION) {
            self.pe.fabric().fence()?;
        }
        self.at_home(VERSION).store(&self.pe, new);
        self.pe.complete_writes()?;
        counters.sent(2, 8 * stamps.len());
        *have = new;
        Ok(())
    }

    /// Copies the last released version into `to`, after a death.
    pub(super) fn released(&self, to: &mut [u8]) -> Quick<()> {
        let mut read = || -> Quick<()> {
            loop {
                let version: u64 = self.at_home(VERSION).load(&self.pe)?;
                // SAFETY: `to` is private memory, as long as the data.
                unsafe {
                    self.at_home(self.buffer(version)).get(&self.pe, to.as_mut_ptr(), to.len())
                }?;
                if self.at_home(VERSION).load::<u64>(&self.pe)? == version {
                    return Ok(());
                }
            }
        };
        read().map_err(|error| match self.pe.control().state(self.home).departed() {
            Some(cause) => self.pe.failed(self.home, cause).into(),
            None => error,
        })
    }

    /// Terms of waits: all PEs live, and none leaves while it is in, or has a ticket (I4).
    fn terms<R>(&self, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        let inside = |pe: usize| self.pe.route(pe, self.offset + INSIDE).load::<u64>(&self.pe);
        let left_free = |pe: usize| matches!(inside(pe), Ok(0));
        let holds = |pe: usize| !matches!(inside(pe), Ok(inside) if inside % DRAWN == 0);
        let awaiting =
            Awaiting::Lock { is_free_of: &left_free, holds: Some(&holds), place: self.offset };
        f(Terms::new(awaiting, patience))
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error, Error::Timeout { .. })
}

fn room(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(128)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::data::{CacheLine, LINE};
    use super::*;
    use crate::base::error::Cause;
    use crate::job::Job;

    /// A PE has drawn a ticket, and then could not reach the home any more. When it has left, the
    /// waits behind its ticket end. A ticket that was given up ends no wait.
    #[test]
    fn a_pe_that_leaves_with_a_ticket_ends_the_waits_behind_it() {
        for loses in [false, true] {
            let job = Job::threads_with(&crate::far::options(""), 2, |job| -> Result<()> {
                let size = Homed::size(8, 2).div_ceil(LINE);
                let window = job.window::<CacheLine>(size)?;
                let offset = window.inner.heap_offset().expect("it is a window of the heap");
                let (counters, homed) = (Counters::own(), Homed::new(job.pe.clone(), offset, 8));
                homed.start((&raw const offset).cast(), || job.barrier())?;
                let enter = || homed.enter(&counters, Mode::Exclusive, Patience::Forever);
                if job.pe() == 0 {
                    let ticket = enter()?.expect("it waits");
                    let limit = Limit::new(Duration::ZERO);
                    let late = homed.enter(&counters, Mode::Exclusive, Patience::Within(&limit));
                    assert!(matches!(late, Err(error) if is_timeout(&error)));
                    homed.leave(&counters, ticket, Mode::Exclusive, false)?;
                    if loses {
                        homed.draw_any()?;
                    }
                }
                job.barrier()?;
                if job.pe() == 1 {
                    match enter().map_err(|error| *error) {
                        Ok(_) => assert!(!loses),
                        Err(Error::PeerFailed { pe: 0, cause: Cause::Finalized, .. }) if loses => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            });
            job.unwrap().into_iter().for_each(|result| result.unwrap());
        }
    }
}
