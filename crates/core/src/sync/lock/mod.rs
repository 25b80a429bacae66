//! Locks: fair but for a bound, each in one 8-byte word of every segment, at one offset. The words
//! are zero while no PE uses the lock.
//!
//! PEs that want a lock stand in a queue (that of Mellor-Crummey and Scott). Each has the number of
//! the PE behind it in its own word. The last one's number stands in the word of the lock's
//! **home**, a PE that follows from the offset. A waiting PE looks at its own word alone, and a
//! hand-over touches two words.
//!
//! | bytes | name | owner | meaning |
//! |---|---|---|---|
//! | 0-3 | tail | the home | last in the queue, as PE number + 1; 0: no PE holds the lock or waits for it |
//! | 4-5 | next | each PE | the PE behind this one, as PE number + 1; 0: none is known here |
//! | 6 | state | each PE | 0 `IDLE`; 1 `HELD`: this PE has the lock, as it found itself or as the PE before wrote; 2 `BROKEN`: the PE before found that this is no lock; `KEPT`, with a number of turns: this PE keeps the lock for the PE behind; `HELD_AGAIN`, with that number: it has it again; 3 `TAKEN`: the PE behind takes it |
//! | 7 | claim | each PE | 0 `FREE`; 1 `CLAIMED`: a thread of this PE holds the lock or is in the queue; 2 `QUEUED`: and other threads may wait for the claim |
//!
//! **Set**: claim; swap this PE's number into the tail. If the tail was 0, the lock is held.
//! Otherwise write this PE into the old tail's `next`, and wait for `HELD`. **Clear**: complete all
//! writes. If no PE is known behind, swap the tail from this PE back to 0. If a PE is behind, or
//! turns out to be because the tail has changed, write `HELD` into its `state`. In both cases make
//! this PE's own words idle, and then give up the claim.
//!
//! **Keep**: where a near PE is behind, a PE that clears does not write `HELD` there, but `KEPT`
//! into its own state, and rings. If it sets the lock again before the PE behind has taken it, one
//! compare-and-swap of its own state gives it back; up to [`RUN`] turns in all. The PE behind, when
//! it has seen one and the same `KEPT` twice or would sleep, compare-and-swaps it for `TAKEN`;
//! makes `next` and then that state idle; and has the lock. How often the lines of a lock and of
//! its data go to another CPU is nearly all that contention costs, and a PE that comes back finds
//! them where they are.
//!
//! **Proof.**
//!
//! * L1: *One PE at a time has the lock.* The swaps of the tail put all PEs in one order, with one
//!   before and one behind each. A PE that finds 0 has the lock at once: only the last holder
//!   writes 0, and only where no PE came behind. Any other PE is let in by the one before it alone,
//!   as that one leaves.
//! * L2: *No hand-over is lost.* When the compare-and-swap of a leaving PE fails, another PE has
//!   swapped itself behind it. Its link may be late, but is on its way, so the leaving PE waits for
//!   it. If the PE behind died in between, that wait ends as all waits do. When the
//!   compare-and-swap succeeds, no PE is behind, and no link will come.
//! * L3: *What arrives in `next` and `state` belongs to this turn.* Each link and each grant is
//!   read before its reader gives up its claim and so can come again, and by then `next` and
//!   `state` are idle. They become idle only after the hand-over, because the next PE waits for the
//!   hand-over: the PE behind has written to these words, so their line is in its cache, and a
//!   store before the hand-over would have to fetch it first.
//! * L4: *The next holder sees what the last one wrote.* Clear completes all writes before it
//!   touches the tail or the next PE's `state`; a PE that has read either reads these writes. Near,
//!   stores keep their order; far, quiet comes before the grant.
//! * L5: *Each word has one updater.* The tail is updated by the atomics of the fabric that leads
//!   to the home, or, where that is mapped, by the processor's, for all PEs alike. A fabric's
//!   atomics never touch the other words. `next` has one writer at a time, the PE behind; `state`
//!   has the PE before and then its owner; `claim` has the owner's threads.
//! * L6: *A kept lock goes to one PE, and is not forgotten.* Of the compare-and-swaps of the owner
//!   and of the PE behind, one succeeds, and nobody else writes a state that is `KEPT`. The owner
//!   rings after it has written that, so the PE behind looks (the
//!   [doorbell](crate::base::doorbell)'s proof), and finds the lock kept, held again, or given to
//!   it. An owner that comes back and finds `TAKEN` waits for `IDLE`, so that L3 holds for it. As
//!   the turns are counted, the PE behind waits for at most [`RUN`] of them.
//! * L7: *No number comes back too early (ABA).* The tail could be this PE's number after other PEs
//!   have come and gone only if this PE queued again while it leaves. Its claim keeps its own
//!   threads out until it has left.
//!
//! **Threads.** The queue orders PEs. Of a PE's threads, the one with the claim takes part; the
//! others wait in a line of this process, in the order in which they came. A thread that leaves
//! first hands over the lock, and only then gives the claim to the next thread, so a PE with many
//! threads does not keep the lock from other PEs.
//!
//! * L8: *No thread is left in the line.* `QUEUED` is set, and cleared where the line is found
//!   empty, under the mutex of the line. So it is set whenever a thread is in the line, and a
//!   thread that gives up a claim that is only `CLAIMED` leaves none behind.
//! * L9: *A PE's only thread may replace the claim by a load and a store.* No other thread exists
//!   to write in between. A thread that it starts later finds what it stored. Other PEs look at the
//!   claim of a PE that has left, and find what it stored before.
//!
//! **Cost.** Two PEs on two CPUs take turns, each adding to a word. Per turn two lines go from one
//! CPU to the other: that of the PE's own word, to which the PE behind has written, and that of the
//! data. The same loads and stores in bare C take as long as a ticket lock whose three words have a
//! line each (0.95 to 1.05 of its time, over many places of the words), and with [paced
//! polling](crate::wait::paced_polling) 0.8 to 0.9 of it. Called from C this takes 160 ns where
//! that takes 180; 185 where the word is changed by `shmem_long_g` and `shmem_long_p`, whose
//! targets are checked for sleepers at the end (240 with looks one `pause` apart). A queue whose
//! members look at the word of the one before has nothing to read and no compare-and-swap when it
//! leaves: in bare C it also takes 0.8 to 0.9 of the ticket lock's time; without contention it
//! takes 9 ns, where this takes 18 in bare C. It would serve near PEs only.
//!
//! That is without keeping, and by the general calls. In turns that are kept, and without
//! contention, the instructions count: the general calls have 360 of them, [those that do nothing
//! else](AtOnce) 170, and take 13 ns from C instead of 33.
//!
//! **Failures.** L10: *An atomic whose answer is lost keeps nobody waiting for ever.* Where one of
//! the tail fails, nobody knows whether it was made: this PE may be in the queue, and another one
//! behind it. So it keeps its claim. Its own waits for the lock then end with the fabric's error,
//! and those of the others once it has left the job.
//!
//! A release is not interrupted: the PE behind waits for it, and the wait of L2 is short. A wait
//! that fails leaves a [place](super::left_place) behind.
//!
//! A death ends all waits. So does a PE that finalises with a claim, as it can never
//! hand over. A word that was not zero at first is found out by its numbers, and from then on is no
//! lock for any PE: the PE that finds out writes `BROKEN` to the one behind.

mod at_once;

pub(crate) use at_once::AtOnce;

use super::left_place::Place;
use crate::base::error::{Error, Quick};
use crate::base::shm::{self, AtomicOp, Word};
use crate::endpoint::ending;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::wait::{self, Awaiting, Rarely, Terms};
use std::cell::Cell;
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

const TAIL: u64 = 0;
const NEXT: u64 = 4;
const STATE: u64 = 6;
const CLAIM: u64 = 7;

const IDLE: u8 = 0;
const HELD: u8 = 1;
const BROKEN: u8 = 2;
/// The PE behind takes a lock that was kept.
const TAKEN: u8 = 3;
/// The PE keeps the lock for the PE behind; to which the turns are added that it has had.
const KEPT: u8 = 0x40;
/// The PE holds a lock that it has kept; to which the turns are added that it has had.
const HELD_AGAIN: u8 = 0x80;

/// PEs of a job with locks: a number has room in `next`.
const MOST_PES: usize = u16::MAX as usize;

/// Turns in a row that a PE may have while a near PE waits behind it (L6).
pub(crate) const RUN: u8 = if cfg!(loom) { 2 } else { 16 };

/// The turns that a PE which holds the lock has had in a row; `None` if it does not hold it.
#[inline(always)]
fn turns_held(state: u8) -> Option<u8> {
    match state {
        HELD => Some(1),
        again if again & HELD_AGAIN != 0 => Some(again & !HELD_AGAIN),
        _ => None,
    }
}

/// Whether this state says that the PE keeps the lock for the one behind.
#[inline(always)]
fn is_kept(state: u8) -> bool {
    state & KEPT != 0 && state & HELD_AGAIN == 0
}

/// The state of a PE that takes up what it has kept.
#[inline(always)]
fn held_again(kept: u8) -> u8 {
    HELD_AGAIN | ((kept & !KEPT) + 1)
}

/// The tail of a word that turned out to be no lock: no PE has this number.
const NO_TAIL: u32 = u32::MAX;

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const QUEUED: u8 = 2;

/// Threads of this PE that wait for a claim, for all locks, in the order in which they came.
#[derive(Default)]
pub(crate) struct LocalQueue(Mutex<Vec<Waiter>>);

struct Waiter {
    /// The lock's offset.
    offset: u64,
    /// Set when this thread has the claim.
    turn: Arc<AtomicBool>,
}

impl LocalQueue {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiter>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Layer for LocalQueue {
    fn new(_pe: &Pe) -> Self {
        Self::default()
    }
}

/// A lock, as a PE reaches it.
pub(crate) struct Queue<'a> {
    pe: &'a Pe,
    offset: u64,
    /// This PE's own word.
    own: *mut u8,
    /// Where a wait has failed, and its place stays in the queue: the PE before.
    abandoned_behind: Cell<Option<usize>>,
}

impl<'a> Queue<'a> {
    /// The lock in the words at `offset`, which are aligned and lie in the segments.
    #[inline]
    pub(crate) fn new(pe: &'a Pe, offset: u64) -> Self {
        Queue { pe, offset, own: pe.local(offset), abandoned_behind: Cell::new(None) }
    }

    /// Waits for the lock.
    #[inline]
    pub(crate) fn set(&self) -> Quick<()> {
        self.pe.may_lock(self.offset)?;
        self.wait()?;
        self.pe.locked(self.offset);
        Ok(())
    }

    #[inline]
    fn wait(&self) -> Quick<()> {
        self.check()?;
        self.claim()?;
        let state = self.read::<u8>(STATE);
        if state != IDLE && self.hold_again(state)? {
            return Ok(());
        }
        match self.tail().fetch_op(self.pe, AtomicOp::Swap, self.number()) {
            Ok(0) => {
                self.write(STATE, HELD);
                Ok(())
            }
            Ok(before) => self.wait_behind(before),
            Err(error) => Err(error), // L10
        }
    }

    #[cold]
    fn give_up<R>(&self, error: Box<Error>) -> Quick<R> {
        self.unclaim();
        Err(error)
    }

    /// Takes the lock if that needs no waiting.
    pub(crate) fn test(&self) -> Quick<bool> {
        self.check()?;
        if self.claim_now()? {
            let state = self.read::<u8>(STATE);
            if is_kept(state) {
                if self.hold_again(state)? {
                    self.pe.locked(self.offset);
                    return Ok(true);
                }
                self.unclaim();
                return Ok(false);
            }
            match self.tail().compare_swap(self.pe, 0, self.number()) {
                Ok(0) => {
                    self.write(STATE, HELD);
                    self.pe.locked(self.offset);
                    return Ok(true);
                }
                Ok(_) => self.unclaim(),
                Err(error) => return Err(error), // L10
            }
        }
        // A program may try until it succeeds. Such a loop is a wait, and ends like one.
        wait::test(self.pe, || None::<()>);
        match self.terms(|terms| terms.departed(self.pe)) {
            Some(error) => Err(error.into()),
            None => Ok(false),
        }
    }

    /// Completes this PE's writes, and hands the lock to the next PE.
    #[inline]
    pub(crate) fn clear(&self) -> Quick<()> {
        ending::refuse_child(self.pe)?;
        let Some(turns) = turns_held(self.read(STATE)) else {
            return Err(Error::misuse("this PE does not hold the lock that it is to clear").into());
        };
        self.pe.unlocked(self.offset);
        self.hand_over(turns)
    }

    /// Takes up the lock that this PE has kept, unless the PE behind has taken it. Then waits until
    /// that needs this PE's word no more.
    #[cold]
    fn hold_again(&self, state: u8) -> Quick<bool> {
        match state {
            TAKEN => {}
            kept if is_kept(kept) => {
                if self.replace_state(self.own, kept, held_again(kept)) {
                    return Ok(true);
                }
            }
            _ => return self.give_up(no_lock()),
        }
        let is_idle = || (self.read::<u8>(STATE) == IDLE).then_some(());
        match self.terms(|terms| wait::until(self.pe, terms, is_idle)) {
            Ok(()) => Ok(false),
            Err(error) => self.give_up(error),
        }
    }

    /// Replaces the state in a word of a near PE.
    fn replace_state(&self, word: *mut u8, old: u8, new: u8) -> bool {
        // SAFETY: an aligned part of a word in a mapped segment, as `new`'s caller promised.
        let seen = unsafe {
            shm::compare_swap_sized(word.wrapping_add(STATE as usize), 1, old.into(), new.into())
        };
        seen as u8 == old
    }

    /// Takes the lock that the PE before keeps, if it does.
    fn take_kept(&self, before: usize) -> bool {
        let Route::Near(word) = self.word(before, 0) else { return false };
        let state = match self.word(before, STATE).load::<u8>(self.pe) {
            Ok(state) if is_kept(state) => state,
            _ => return false,
        };
        if !self.replace_state(word, state, TAKEN) {
            return false;
        }
        // L3: its state comes last, as it waits for that before it uses its word again.
        self.word(before, NEXT).store(self.pe, 0u16);
        self.notify(before, STATE, IDLE);
        self.write(STATE, HELD);
        true
    }

    #[inline]
    fn hand_over(&self, turns: u8) -> Quick<()> {
        // L4. A write that failed is this PE's error: the others must not wait for ever.
        let written = self.pe.complete_without_waking();
        let next = match self.read::<u16>(NEXT) {
            0 => match self.leave_tail() {
                Ok(next) => next,
                Err(error) => return self.fail_to_leave(error, written),
            },
            next => next,
        };
        let mut granted = Ok(());
        if next != 0 && turns < RUN && self.keep_for(next, turns) {
            // It is the next PE's, unless this one comes back before that takes it.
        } else if next != 0 {
            granted = self.other(next.into()).map(|next| self.notify(next, STATE, HELD));
            // L3: after the hand-over, before the claim is given up.
            self.write(NEXT, 0u16);
            self.write(STATE, IDLE);
        } else {
            self.write(STATE, IDLE);
        }
        self.unclaim();
        self.pe.wake_written();
        match granted {
            Ok(()) => written,
            Err(error) => self.fail_to_leave(error, written),
        }
    }

    /// Leaves the queue, of which this PE knows no member behind it. Gives one that has come after
    /// all; 0 for none.
    #[inline]
    fn leave_tail(&self) -> Quick<u16> {
        match self.tail().compare_swap(self.pe, self.number(), 0)? == self.number() {
            true => Ok(0),
            false => self.wait_for_link(), // L2
        }
    }

    /// The error of a release that cannot hand over; that of earlier writes comes later. Where the
    /// tail does not answer, the PE keeps its claim (L10).
    #[cold]
    fn fail_to_leave(&self, error: Box<Error>, written: Quick<()>) -> Quick<()> {
        if let Err(written) = written {
            self.pe.surface_later(*written);
        }
        Err(error)
    }

    #[cold]
    fn wait_behind(&self, before: u32) -> Quick<()> {
        let Ok(before) = self.other(before) else { return self.break_up() };
        self.notify(before, NEXT, self.number() as u16);
        let state = || Some(self.read::<u8>(STATE)).filter(|&state| state != IDLE);
        // What is kept stays so for a while, as its owner may come back.
        let mut seen = 0;
        let mut rarely = Rarely::default();
        let look = || {
            if !rarely.now() {
                return state();
            }
            let kept = self.word(before, STATE).load::<u8>(self.pe).unwrap_or(IDLE);
            let is_left = is_kept(kept) && std::mem::replace(&mut seen, kept) == kept;
            if is_left && self.take_kept(before) { Some(HELD) } else { state() }
        };
        let look_to_the_end = || state().or_else(|| self.take_kept(before).then_some(HELD));
        // Where the wait fails, this PE keeps its claim and stays in the queue. The thread leaves
        // its place to the PE's other waits, unless all waits for the lock fail, as after a death.
        let state = match wait::paced_polling(self.pe, look) {
            Some(state) => state,
            None => {
                let answer = self.terms(|terms| wait::until(self.pe, terms, look_to_the_end));
                answer.inspect_err(|_| {
                    self.abandoned_behind.set((!self.is_broken()).then_some(before));
                })?
            }
        };
        match state {
            HELD => Ok(()),
            _ => self.break_up(),
        }
    }

    /// Keeps the lock for the PE behind, if that is near. Gives whether it is.
    #[inline]
    fn keep_for(&self, next: u16, turns: u8) -> bool {
        let Ok(next) = self.other(next.into()) else { return false };
        let is_near = matches!(self.word(next, 0), Route::Near(_));
        if is_near {
            self.write(STATE, KEPT + turns);
            self.pe.ring(next);
        }
        is_near
    }

    /// Where [`set`](Self::set) has failed and left a place in the queue: the PE before.
    #[cold]
    pub(crate) fn abandoned_behind(&self) -> Option<usize> {
        self.abandoned_behind.get()
    }

    /// Passes on what has come to a place that nobody waits in: the lock, or word that this is
    /// none. Does not wait, as waits call it: where the PE behind is not known yet, a later call
    /// goes on. True if that is over.
    pub(crate) fn pass_over(&self, place: &mut Place) -> bool {
        let (state, tail) = match self.read::<u8>(STATE) {
            IDLE if !self.take_kept(place.before) => return false,
            IDLE | HELD => (HELD, 0),
            _ => (BROKEN, NO_TAIL),
        };
        if self.read::<u16>(NEXT) == 0 && !place.is_followed {
            match self.tail().compare_swap(self.pe, self.number(), tail) {
                Ok(last) => place.is_followed = last != self.number(), // L2
                Err(error) => {
                    // L10. A PE behind may link itself.
                    self.pe.surface_later(*error);
                    place.is_followed = true;
                }
            }
        }
        let next = self.read::<u16>(NEXT);
        if place.is_followed && next == 0 {
            return false;
        }
        if next != 0 {
            // The last holder has completed its writes (L4).
            match self.other(next.into()) {
                Ok(next) => self.notify(next, STATE, state),
                Err(error) => self.pe.surface_later(*error),
            }
            self.write(NEXT, 0u16);
        }
        self.write(STATE, IDLE);
        self.unclaim();
        if state == BROKEN {
            self.pe.surface_later(*no_lock());
        }
        true
    }

    /// Whether all waits for the lock have failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.terms(|terms| terms.lost_member(self.pe)).is_some()
    }

    /// Leaves a queue that has no head, and writes `BROKEN` to the PE behind.
    fn break_up(&self) -> Quick<()> {
        self.write(STATE, IDLE);
        if self.tail().compare_swap(self.pe, self.number(), NO_TAIL)? != self.number() {
            let next = self.wait_for_link()?;
            self.write(NEXT, 0u16);
            self.notify(self.other(next.into())?, STATE, BROKEN);
        }
        self.give_up(no_lock())
    }

    #[cold]
    fn wait_for_link(&self) -> Quick<u16> {
        let linked = || Some(self.read::<u16>(NEXT)).filter(|&next| next != 0);
        self.terms(|terms| wait::until(self.pe, terms.uninterrupted(), linked)) // L2
    }

    /// The PE with a number from a word of the lock. The number is checked, as any store may have
    /// overwritten the word by mistake.
    #[inline]
    fn other(&self, number: u32) -> Quick<usize> {
        match (number as usize).checked_sub(1) {
            Some(pe) if pe < self.pe.npes() && pe != self.pe.me() => Ok(pe),
            _ => Err(Error::misuse("this is no lock: its word was not zero before its first use, or something else wrote to it").into()),
        }
    }

    /// Waits for the claim of this thread's PE.
    #[inline]
    fn claim(&self) -> Quick<()> {
        if self.claim_now()? {
            return Ok(());
        }
        self.wait_in_line()
    }

    /// Takes the claim if no other thread has it.
    #[inline]
    fn claim_now(&self) -> Quick<bool> {
        match self.replace_claim(FREE, CLAIMED) {
            FREE => Ok(true),
            CLAIMED | QUEUED => Ok(false),
            _ => Err(no_lock()),
        }
    }

    #[cold]
    fn wait_in_line(&self) -> Quick<()> {
        let turn = Arc::new(AtomicBool::new(false));
        {
            let mut line = self.pe.layer::<LocalQueue>().lock();
            // L8. The thread with the claim may give it up at any time, until it is `QUEUED`.
            while self.replace_claim(CLAIMED, QUEUED) == FREE {
                if self.claim_now()? {
                    return Ok(());
                }
            }
            line.push(Waiter { offset: self.offset, turn: turn.clone() });
        }
        let ended = self.terms(|terms| {
            wait::until(self.pe, terms, || turn.load(Ordering::Acquire).then_some(()))
        });
        if ended.is_err() {
            let mut line = self.pe.layer::<LocalQueue>().lock();
            match line.iter().position(|waiter| Arc::ptr_eq(&waiter.turn, &turn)) {
                Some(place) => drop(line.remove(place)),
                None => {
                    // The claim has come after all.
                    drop(line);
                    self.unclaim();
                }
            }
        }
        ended
    }

    /// Gives the claim to the next thread of this PE, or frees it.
    #[inline]
    fn unclaim(&self) {
        if self.replace_claim(CLAIMED, FREE) != CLAIMED {
            self.pass_on();
        }
    }

    #[cold]
    fn pass_on(&self) {
        {
            let mut line = self.pe.layer::<LocalQueue>().lock();
            let Some(first) = line.iter().position(|waiter| waiter.offset == self.offset) else {
                return self.write(CLAIM, FREE);
            };
            line.remove(first).turn.store(true, Ordering::Release);
        }
        self.pe.ring(self.pe.me());
    }

    /// Terms of all waits: all PEs live, and none leaves with the lock or its place in the queue.
    fn terms<R>(&self, f: impl FnOnce(Terms<'_>) -> R) -> R {
        let left_free = |pe: usize| matches!(self.word(pe, CLAIM).load::<u8>(self.pe), Ok(FREE));
        let holds = |pe: usize| matches!(self.word(pe, STATE).load(self.pe), Ok(state) if turns_held(state).is_some());
        f(Terms::forever(Awaiting::Lock {
            is_free_of: &left_free,
            holds: Some(&holds),
            place: self.offset,
        }))
    }

    /// Checks that this process may use locks, and that every PE's number has room in `next`, which
    /// it has not in the largest simulated jobs.
    #[inline]
    fn check(&self) -> Quick<()> {
        ending::refuse_child(self.pe)?;
        if self.pe.npes() > MOST_PES {
            let what = "PEs of a job with locks";
            return Err(Error::TooMany { what, limit: MOST_PES, call: None }.into());
        }
        Ok(())
    }

    #[inline]
    fn number(&self) -> u32 {
        number(self.pe)
    }

    #[inline]
    fn home(&self) -> usize {
        home(self.offset, self.pe.npes())
    }

    #[inline]
    fn tail(&self) -> Route {
        self.word(self.home(), TAIL)
    }

    #[inline]
    fn word(&self, pe: usize, part: u64) -> Route {
        self.pe.route(pe, self.offset + part)
    }

    /// Stores into a part of another PE's word, and wakes that PE.
    #[inline]
    fn notify<T: Word>(&self, pe: usize, part: u64, value: T) {
        let word = self.word(pe, part);
        word.store(self.pe, value);
        // Far, the fabric wakes it.
        if let Route::Near(_) = word {
            self.pe.ring(pe);
        }
    }

    #[inline]
    fn read<T: Word>(&self, part: u64) -> T {
        // SAFETY: an aligned part of a word in this PE's mapped segment, as `new`'s caller
        // promised.
        unsafe { shm::load(self.own.wrapping_add(part as usize).cast()) }
    }

    #[inline]
    fn write<T: Word>(&self, part: u64, value: T) {
        // SAFETY: as in `read`.
        unsafe { shm::store(self.own.wrapping_add(part as usize).cast(), value) }
    }

    #[inline(always)]
    fn replace_claim(&self, old: u8, new: u8) -> u8 {
        // L9.
        if shm::is_single_threaded() {
            let seen = self.read::<u8>(CLAIM);
            if seen == old {
                self.write(CLAIM, new);
            }
            return seen;
        }
        // SAFETY: as in `read`.
        unsafe {
            shm::compare_swap_sized(
                self.own.wrapping_add(CLAIM as usize),
                1,
                old.into(),
                new.into(),
            ) as u8
        }
    }
}

/// A PE's number in words of locks.
#[inline]
fn number(pe: &Pe) -> u32 {
    pe.me() as u32 + 1
}

#[inline]
fn home(offset: u64, npes: usize) -> usize {
    // Multiplied by the golden ratio, neighbouring words get homes far apart.
    let spread = (offset / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((spread * npes as u64) >> 32) as usize
}

#[cold]
fn no_lock() -> Box<Error> {
    Box::new(Error::misuse(
        "this is no lock: its word was not zero before its first use, or something else wrote to it",
    ))
}

/// The steps of a PE that comes, one by one, for tests.
#[cfg(all(test, not(loom)))]
pub(super) mod raw {
    use super::*;

    /// Claims the lock at `offset` for the PE, and makes it the last in the queue. Gives the number
    /// of the one before.
    pub(in super::super) fn swap_tail(pe: &Pe, offset: u64) -> Quick<u32> {
        let queue = Queue::new(pe, offset);
        assert!(queue.claim_now()?, "no thread has the claim");
        queue.tail().fetch_op(pe, AtomicOp::Swap, queue.number())
    }

    /// Links the PE to the one before.
    pub(in super::super) fn link(pe: &Pe, offset: u64, before: usize) {
        let queue = Queue::new(pe, offset);
        queue.notify(before, NEXT, queue.number() as u16);
    }

    /// Waits for the lock.
    pub(in super::super) fn await_turn(pe: &Pe, offset: u64) -> Quick<()> {
        let queue = Queue::new(pe, offset);
        let held = || (queue.read::<u8>(STATE) == HELD).then_some(());
        queue.terms(|terms| wait::until(pe, terms, held))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::{Cause, Result};
    use crate::far;
    use crate::job::Job;
    use std::sync::Barrier;
    use std::time::Duration;

    /// A call for attention stands while a PE hands over to one that has not linked itself yet.
    #[test]
    fn no_call_for_attention_ends_a_hand_over() {
        for settings in [None, Some("")] {
            let meeting = Barrier::new(2);
            let options = settings.map(far::options).unwrap_or_default();
            let job = Job::threads_with(&options, 2, |job| -> Result<()> {
                let words = job.window::<u64>(1)?;
                let offset = words.inner.heap_offset().expect("of the heap");
                job.barrier()?;
                let held = if job.pe() == 0 { Some(words.lock(0)?) } else { None };
                let held = held.as_ref().map(|lock| lock.lock()).transpose()?;
                meeting.wait();
                if job.pe() == 1 {
                    assert_eq!(raw::swap_tail(&job.pe, offset)?, 1, "PE 0 is the last");
                }
                meeting.wait();
                if let Some(held) = held {
                    job.attention().call();
                    held.release()?;
                    job.attention().dismiss();
                } else {
                    // PE 0 waits for the link by then.
                    std::thread::sleep(Duration::from_millis(20));
                    raw::link(&job.pe, offset, 0);
                    // Near, PE 0 may keep it for this PE.
                    let queue = Queue::new(&job.pe, offset);
                    let turn = || queue.read::<u8>(STATE) == HELD || queue.take_kept(0);
                    queue.terms(|terms| wait::until(&job.pe, terms, || turn().then_some(())))?;
                    queue.clear()?;
                }
                job.barrier()
            });
            job.unwrap().into_iter().for_each(|result| result.unwrap());
        }
    }

    /// Threads of one PE get the lock in the order in which they came.
    #[test]
    fn threads_come_in_order() {
        const THREADS: usize = 6;
        Job::threads(2, |job| -> Result<()> {
            let lock = job.window::<u64>(1)?.lock(0)?;
            let order = Mutex::new(Vec::new());
            let held = lock.lock()?;
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (lock, order) = (&lock, &order);
                    scope.spawn(move || {
                        let held = lock.lock().unwrap();
                        order.lock().unwrap().push(thread);
                        drop(held);
                    });
                    while job.pe.layer::<LocalQueue>().lock().len() <= thread {
                        std::thread::yield_now();
                    }
                }
                drop(held);
            });
            assert_eq!(order.into_inner().unwrap(), (0..THREADS).collect::<Vec<_>>());
            job.barrier()
        })
        .unwrap()
        .into_iter()
        .for_each(|result| result.unwrap());
    }

    /// While a near PE waits behind it, a PE has the lock for so many turns, and no more.
    #[test]
    fn who_waits_is_overtaken_by_a_bound() {
        Job::threads(2, |job| -> Result<()> {
            let offset = job.window::<u64>(1)?.inner.heap_offset().expect("of the heap");
            job.barrier()?;
            let mine = Queue::new(&job.pe, offset);
            if job.pe() == 0 {
                mine.set()?;
                // As PE 1 would, if it did not look.
                let theirs = mine.word(1, 0);
                assert_eq!(mine.tail().fetch_op(&job.pe, AtomicOp::Swap, 2u32)?, 1);
                mine.write(NEXT, 2u16);
                let has_it = || theirs.add(STATE as usize).load::<u8>(&job.pe).unwrap() == HELD;
                let mut turns = 1;
                mine.clear()?;
                while !has_it() {
                    mine.set()?;
                    turns += 1;
                    mine.clear()?;
                }
                assert_eq!(turns, u32::from(RUN));
            }
            job.barrier()?;
            if job.pe() == 1 {
                mine.write(CLAIM, CLAIMED);
                mine.clear()?;
                assert!(mine.test()?, "it is free");
                mine.clear()?;
            }
            job.barrier()
        })
        .unwrap()
        .into_iter()
        .for_each(|result| result.unwrap());
    }

    /// Something has written to the word of a PE that holds the lock. The PE's next call does not
    /// wait for its own claim.
    #[test]
    fn a_link_to_no_pe_ends_the_lock() {
        let job = Job::threads(2, |job| -> Result<()> {
            let words = job.window::<u64>(1)?;
            let offset = words.inner.heap_offset().expect("of the heap");
            job.barrier()?;
            if job.pe() == 0 {
                let queue = Queue::new(&job.pe, offset);
                queue.set()?;
                queue.write(NEXT, 99u16);
                for ended in [queue.clear(), queue.set(), queue.set()] {
                    let ended = ended.expect_err("it is none").to_string();
                    assert!(ended.contains("this is no lock"), "{ended}");
                }
            }
            job.barrier()
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }

    /// The home does not answer any more, so nobody knows whether the PE has become the last.
    #[test]
    fn a_swap_without_an_answer_keeps_the_claim() {
        let meeting = Barrier::new(3);
        let job = Job::threads_with(&far::options(""), 3, |job| -> Result<()> {
            let words = job.window::<u64>(64)?;
            let first = words.inner.heap_offset().expect("of the heap");
            let at = |index: usize| Queue::new(&job.pe, first + 8 * index as u64);
            let lost: Vec<usize> = (0..64).filter(|&index| at(index).home() == 2).collect();
            job.barrier()?;
            // All have left the barrier, which a departure would end.
            meeting.wait();
            if job.pe() == 0 {
                use crate::base::status::State;
                job.pe.control().depart(2, State::Dead(Cause::Exit(1)));
                job.pe.progress();
                let (one, other) = (words.lock(lost[0])?, words.lock(lost[1])?);
                let ended = [one.lock().map(drop), other.try_lock().map(drop)];
                let claims = [0, 1].map(|index| at(lost[index]).read::<u8>(CLAIM));
                meeting.wait();
                let blames = |ended| matches!(ended, Err(Error::PeerFailed { pe: 2, .. }));
                assert!(ended.into_iter().all(blames));
                assert_eq!(claims, [CLAIMED; 2], "L10");
                return Ok(());
            }
            meeting.wait();
            Ok(())
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }

    /// Neighbouring locks have different homes.
    #[test]
    fn homes_are_spread() {
        const NPES: usize = 7;
        let homes = Job::threads(NPES, |job| {
            let tails = (0..1000).map(|i| {
                let lock = Queue::new(&job.pe, job.pe.control().geometry().heap_offset + 8 * i);
                let Route::Near(tail) = lock.tail() else { unreachable!("all are near") };
                (0..NPES)
                    .find(|&pe| matches!(lock.word(pe, TAIL), Route::Near(word) if word == tail))
                    .unwrap()
            });
            tails.collect::<Vec<_>>()
        })
        .unwrap();
        assert!(homes.iter().all(|home| *home == homes[0]), "all PEs find the same");
        for pe in 0..NPES {
            let count = homes[0].iter().filter(|&&home| home == pe).count();
            assert!((1000 / NPES / 2..1000 / NPES * 2).contains(&count), "PE {pe}: {count}");
        }
    }
}
