//! The queue for shared data in memory that all PEs have mapped: for threads of any PEs, exclusive
//! or shared, with a bound on how often one is overtaken.
//!
//! Each thread that finds another one in draws a ticket, and is let in in the order of the tickets.
//! The words lie beside each other, in front of the data that they protect, so the cache line that
//! brings the turn also brings the data:
//!
//! | byte | name | meaning |
//! |---|---|---|
//! | 0 | next | tickets drawn so far: the number of the next one. Bit 63: no more are given |
//! | 8 | turn | lower half, *entry*: the ticket that may come in next, or is in alone; upper half, *exit*: how many have left, or what is said below. Both count modulo 2^32 |
//! | 16 | last | the PE that came in alone last, as number + 1 in bits 1-31, for its counters; 0: none has. Bit 0: it keeps the released data elsewhere, and may be changing these |
//! | 20 | poison | number + 1 of the PE that panicked while it changed the data; 0: none |
//!
//! Behind the data lie *slots*. Ticket t uses slot t modulo their count. It says which PE waits
//! with that ticket, to be woken when it is let in, or that the ticket was given up. Behind the
//! slots lies a word for each PE: how many of its threads are in shared. No turn depends on it, but
//! the waits of others end if a PE leaves the job with some.
//!
//! A ticket t that is **used** alone, and can be used again, has entry = t and
//! `exit = t + 2^31 + 64p + 2n + open`. PE p is in, or was in last. n turns were taken by t since
//! others wait, the one under way counted. `open` is 1 while nobody is in, and t can be used. As
//! not many more than 2^30 threads are in, no count of those that have left looks like that.
//!
//! | operation | where | change of the turn |
//! |---|---|---|
//! | come in alone again | t is open | compare-and-swap: t is used by this PE, n + 1, not open |
//! | come in alone, with ticket t | exit = t | store: t is used by this PE, n = 1, not open |
//! | come in shared, with ticket t | entry = t | add: entry + 1 |
//! | leave alone | no later ticket was drawn | store: t is open, n = 0 |
//! | | a later one was drawn; n < [`RUN`] | store: t is open, n as it is |
//! | | a later one was drawn; n = [`RUN`]; or the data are broken | store: entry = exit = t + 1 |
//! | leave shared | | add: exit + 1 |
//! | close t - 1, with the next ticket t | t - 1 was seen open twice, or this thread may soon sleep, as others may come first | compare-and-swap: entry = exit = t, which lets this thread in |
//! | close t - 1, without a ticket | t - 1 is open, and this thread wants a shared ticket at once, or to read what a death has left | the same |
//! | pass ticket t, which was given up | entry = t, and the mark in t's slot was taken away, which one thread can | compare-and-swap: entry + 1, exit + 1: in and out again in place of the owner |
//!
//! To **give up** ticket t is to mark its slot. A thread that finds the mark closes the ticket
//! before it, if that is open, and passes t.
//!
//! **Proof.**
//!
//! * Q1: *A thread that is in alone is the only one in.* Entry passes t only when t's owner has
//!   come in shared, has left, or has given up: never while it waits to be alone or is in alone. So
//!   until then all later tickets are outside. exit = t says that t others have left: the tickets
//!   before t, as no other can have come in. The stores by which it comes in and leaves are the
//!   only writes to the word: threads that could add to it are outside, and others compare-and-swap
//!   only words that are open. Of those that do, whether to come in or to close, one succeeds.
//!   While t is open, nobody is in; then the one that succeeds to come in is what t's owner was.
//!   One that closes, or finds that another one has, comes in by what the turn is then: readers
//!   with tickets between may be in.
//! * Q2: *Fair, but for a bound.* No ticket overtakes another: entry takes each in turn. Readers
//!   that drew one after the other are in together; a writer waits only for the tickets before it.
//!   Threads that use an open ticket overtake those who wait. When t's holder leaves and sees that
//!   somebody waits, n grows, and at [`RUN`] entry moves on. So each ticket is used for at most
//!   [`RUN`] turns after the next one was drawn, and a thread with k tickets before it waits for at
//!   most [`RUN`] times k + 1 turns.
//! * Q3: *The next one sees what the last one wrote.* All stores to the data come before the store
//!   or locked addition that lets the next one in, which reads the turn before the data. A
//!   processor with weaker order gets both from [`shm`].
//! * Q4: *No wake-up is lost.* A waiter writes its slot, announces itself at its doorbell, executes
//!   the barrier that orders ringers, and looks at the turn once more. The thread that lets it in,
//!   or leaves the ticket before open, writes the turn, orders that before its next loads as every
//!   ringer does, and then reads the slot. As with the [doorbell](crate::base::doorbell): if it
//!   reads the slot before the barrier, the turn was written before the barrier too, and the
//!   waiter's look sees it; if after, the slot is there. The same barrier stands between the mark
//!   of a waiter that gives up and its look at the turn. A waiter that spins finds its turn without
//!   a slot, so slots are written only when a wait lasts. A thread that leaves alone, and has found
//!   that no later ticket was drawn, may read *next* again in place of the slot: a ticket is drawn
//!   before its slot is written.
//! * Q5: *A slot has one ticket at a time.* Only a ticket less than the number of slots ahead of
//!   entry writes its slot. A waiter further behind has no slot, and looks at the turn at every
//!   poll interval. A ticket can be given up only by its slot. So a call with a time limit draws no
//!   ticket that has no slot yet: it waits outside of the queue for one that has. There others may
//!   overtake it, and its limit holds.
//! * Q6: *Numbers do not wrap.* Entry, exit and tickets are compared modulo 2^32. That is right as
//!   long as no ticket is 2^31 or more ahead of exit. Tickets pile up in two ways: readers whose
//!   guards are forgotten stay in; a wait that ends with an error, before its ticket has a slot,
//!   leaves a ticket that is never passed. A reader that finds [`MOST`] readers in leaves again,
//!   and is refused. A waiter with as many tickets before it sets bit 63 of *next*; from then on
//!   every caller is refused. From there to 2^31 there are more numbers than threads that have
//!   drawn and not yet looked.
//! * Q7: *No open ticket is forgotten.* The thread behind it closes it: at a look, or at the one
//!   that its being woken leads to (Q4). If that thread has given up, the mark is there: the thread
//!   that leaves the ticket open finds it, or the one that gave up finds the ticket open (Q4), and
//!   either closes it.
//!
//! **Why tickets are used again, and the turn is polled at a pace.** Words and small data are in
//! one line. How often that line goes to another CPU is nearly all that contention costs. A thread
//! that leaves and comes back at once finds the line where it is, and takes one instruction; so it
//! may, [`RUN`] times. The one that waits looks [now and then](crate::wait::paced_polling), as each
//! look takes the line. Two PEs that each add to a word so take some 50 million turns per second
//! together, where a bare ticket lock with its word in its line takes 30, or 12 to 15 between CPUs
//! that are far apart.
//!
//! **Failures.** A ticket whose owner died is never passed. All behind it learn of the death, as
//! every wait does, and each gives its own ticket up. So a death costs the PEs that wait then their
//! turn, and no others. The turn says who may be changing the data: it does so before the first
//! store to them and until after the last. As long as a turn that is not used stays the same,
//! nobody has come in alone. A thread that leaves broken data closes its ticket, and so does
//! whoever finds them: what is open is not broken.

use crate::base::error::{Error, Quick};
use crate::base::layout::{MAX_HOSTED, MAX_PES};
use crate::base::shm::{self, AtomicOp, Word};
use crate::endpoint::pe::Pe;
use crate::wait::limit::{Limit, Patience};
use crate::wait::{self, Awaiting, Rarely, Terms};

const NEXT: usize = 0;
const TURN: usize = 8;
const LAST: usize = 16;
pub(crate) const POISON: usize = 20;
/// Bytes of the words in front of the data.
pub(crate) const HEAD: usize = 24;

/// Tickets that may be in, or wait, at once (Q6).
pub(crate) const MOST: u32 = 1 << 30;
/// Turns in a row that threads may take alone by one ticket while others wait (Q2).
pub(crate) const RUN: u32 = if cfg!(loom) { 2 } else { 16 };
/// What exit is ahead of entry by, at the least, while a ticket is used.
const USED: u32 = 1 << 31;
/// What a PE's number counts there: more than twice the turns, and 1.
const OF_PE: u32 = 64;
/// The bits that count turns.
const TURNS: u32 = OF_PE - 2;
/// What exit is ahead by, beyond [`USED`], while a ticket is used, is less. Where exit is a count,
/// it is more.
const MOST_AHEAD: u32 = OF_PE * MAX_HOSTED as u32;
const _: () = assert!(2 * RUN + 1 < OF_PE && MAX_HOSTED >= MAX_PES && MOST_AHEAD <= MOST / 2);
/// The bit of *next* by which all further callers are refused (Q6).
pub(crate) const EXHAUSTED: u64 = 1 << 63;

/// The error of callers that are refused.
#[cold]
pub(crate) fn exhausted() -> Box<Error> {
    Box::new(Error::TooMany {
        what: "guards of a shared object that were never dropped, or waits for it that failed",
        limit: MOST as usize,
        call: None,
    })
}

/// A slot's upper half: the PE that waits, as number + 1 times this, or the mark of a ticket that
/// was given up. The lower half is the ticket.
const WAITS: u64 = 1 << 32;
const GAVE_UP: u64 = u64::MAX << 48;

/// Looks after which a wait may soon sleep: fewer than it spins for before it might. Where PEs
/// share CPUs it may sleep after one.
const LOOKS_WITHOUT_SLOT: u32 = 16;
const _: () = assert!(LOOKS_WITHOUT_SLOT < wait::LOOKS);

/// The number of slots: more than PEs, as each may have threads.
fn slots_for(npes: usize) -> usize {
    (2 * npes).next_power_of_two().max(64)
}

/// Bytes of the slots and counts behind the data.
pub(crate) fn tail_for(npes: usize) -> usize {
    8 * slots_for(npes) + 4 * npes
}

/// How a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

/// The queue as a PE reaches it.
#[derive(Clone, Copy)]
pub(crate) struct Tickets {
    head: *mut u8,
    /// What exit is ahead by while this PE is in alone, but for the turns.
    own: u32,
    slots: *mut u64,
    /// The number of slots, a power of two, less one.
    mask: u32,
    /// By PE, how many of its threads are in shared.
    inside: *mut u32,
}

// SAFETY: addresses in a mapping that the owner of this value keeps, used only through
// `crate::base::shm`.
unsafe impl Send for Tickets {}
// SAFETY: as above.
unsafe impl Sync for Tickets {}

fn entry(turn: u64) -> u32 {
    turn as u32
}

fn exit(turn: u64) -> u32 {
    (turn >> 32) as u32
}

fn turn(entry: u32, exit: u32) -> u64 {
    u64::from(exit) << 32 | u64::from(entry)
}

/// What exit is ahead by while `pe` is in alone, but for the turns.
fn ahead_of(pe: usize) -> u32 {
    USED + OF_PE * pe as u32
}

/// What an open ticket becomes when the PE that had it last comes in again.
#[inline(always)]
fn taken_again(open: u64) -> u64 {
    open.wrapping_add(1 << 32)
}

/// By how much exit is ahead of entry, modulo 2^32.
#[inline(always)]
fn ahead(turn: u64) -> u32 {
    exit(turn).wrapping_sub(entry(turn))
}

#[inline(always)]
fn is_used(turn: u64) -> bool {
    ahead(turn).wrapping_sub(USED) < MOST_AHEAD
}

/// Whether anybody may come in alone by the ticket that entry names.
#[inline(always)]
pub(crate) fn is_open(turn: u64) -> bool {
    is_used(turn) && ahead(turn) % 2 == 1
}

#[inline(always)]
fn is_turn_of(turn: u64, ticket: u32, mode: Mode) -> bool {
    match mode {
        Mode::Exclusive => exit(turn) == ticket,
        Mode::Shared => entry(turn) == ticket,
    }
}

/// The PE that is in alone, if one may have changed the data by then.
pub(crate) fn holder(turn: u64) -> Option<usize> {
    (is_used(turn) && !is_open(turn)).then(|| ((ahead(turn) - USED) / OF_PE) as usize)
}

/// How many turns a ticket that is used was used for since others wait.
#[inline(always)]
fn turns_of(turn: u64) -> u32 {
    (ahead(turn) & TURNS) / 2
}

impl Tickets {
    /// # Safety
    /// `head` is aligned to 8 and has [`HEAD`] bytes, `tail` is, too, and has [`tail_for`] the PEs;
    /// both are zero before their first use, and mapped and writable for as long as this value and
    /// its copies are used. Nothing else writes there.
    pub(crate) unsafe fn new(head: *mut u8, tail: *mut u8, pe: &Pe) -> Self {
        let slots = slots_for(pe.npes());
        Tickets {
            head,
            own: ahead_of(pe.me()),
            slots: tail.cast(),
            mask: slots as u32 - 1,
            inside: tail.wrapping_add(8 * slots).cast(),
        }
    }

    /// Loads one of the words of the head.
    #[inline(always)]
    fn load<T: Word>(&self, at: usize) -> T {
        // SAFETY: an aligned word of the head, as `new`'s caller promised.
        unsafe { shm::load(self.head.wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn store<T: Word>(&self, at: usize, value: T) {
        // SAFETY: as in `load`.
        unsafe { shm::store(self.head.wrapping_add(at).cast(), value) }
    }

    /// The number of the ticket that is drawn next.
    #[inline(always)]
    fn next(&self) -> u32 {
        self.load::<u64>(NEXT) as u32
    }

    #[inline(always)]
    fn add(&self, at: usize, operand: u64) -> u64 {
        // SAFETY: as in `load`.
        unsafe { shm::fetch_op(self.head.wrapping_add(at), 8, AtomicOp::Add, operand) }
    }

    #[inline(always)]
    fn replace(&self, at: usize, old: u64, new: u64) -> bool {
        // SAFETY: as in `load`.
        unsafe { shm::compare_swap_sized(self.head.wrapping_add(at), 8, old, new) == old }
    }

    /// The turn word while this PE is in alone, in so many turns of the ticket.
    #[inline(always)]
    fn taken(&self, ticket: u32, turns: u32) -> u64 {
        turn(ticket, ticket.wrapping_add(self.own + 2 * turns))
    }

    /// The turn word while anybody may come in by `ticket` again, which was used for so many turns,
    /// the last time by this PE.
    #[inline(always)]
    fn open(&self, ticket: u32, turns: u32) -> u64 {
        turn(ticket, ticket.wrapping_add(self.own + 2 * turns + 1))
    }

    fn slot(&self, ticket: u32) -> *mut u64 {
        self.slots.wrapping_add((ticket & self.mask) as usize)
    }

    fn load_slot(&self, ticket: u32) -> u64 {
        // SAFETY: one of the slots, as `new`'s caller promised.
        unsafe { shm::load(self.slot(ticket)) }
    }

    fn store_slot(&self, ticket: u32, value: u64) {
        // SAFETY: as in `load_slot`.
        unsafe { shm::store(self.slot(ticket), value) }
    }

    /// Whether this PE came in alone last.
    #[inline(always)]
    pub(crate) fn was_last(&self, pe: &Pe) -> bool {
        self.load::<u32>(LAST) >> 1 == pe.me() as u32 + 1
    }

    /// Writes the word *last*. This PE is in alone.
    #[inline(always)]
    pub(crate) fn set_last(&self, pe: &Pe, is_kept: bool) {
        self.store(LAST, (pe.me() as u32 + 1) << 1 | u32::from(is_kept));
    }

    /// Whether the released data are elsewhere.
    pub(crate) fn is_kept(&self) -> bool {
        self.load::<u32>(LAST) & 1 != 0
    }

    /// Number + 1 of the PE that panicked in here; 0: none.
    #[inline(always)]
    pub(crate) fn poison(&self) -> u32 {
        self.load(POISON)
    }

    /// The turn word, which changes whenever a thread comes in or leaves.
    pub(crate) fn turns(&self) -> u64 {
        self.load(TURN)
    }

    /// Waits for a turn. Gives the ticket, for [`leave`](Self::leave).
    #[inline(always)]
    pub(crate) fn enter(&self, pe: &Pe, mode: Mode) -> Quick<u32> {
        if let Some(ticket) = self.enter_again(mode) {
            return Ok(ticket);
        }
        let ticket = self.draw()?;
        if !self.may_enter(ticket, mode) {
            self.wait(pe, ticket, mode, Patience::Forever)?;
        }
        self.entered(pe, ticket, mode)
    }

    /// [`enter`](Self::enter), giving up with [`Error::Timeout`].
    pub(crate) fn enter_within(&self, pe: &Pe, mode: Mode, limit: &Limit) -> Quick<u32> {
        if let Some(ticket) = self.enter_again(mode) {
            return Ok(ticket);
        }
        let draw = || self.draw_if(|ticket| self.has_slot(ticket)); // Q5
        let ticket = match draw()? {
            Some(ticket) => ticket,
            None => self.terms(pe, Patience::Within(limit), |terms| {
                wait::until(pe, terms, || draw().transpose())
            })??,
        };
        if !self.may_enter(ticket, mode) {
            self.wait(pe, ticket, mode, Patience::Within(limit))?;
        }
        self.entered(pe, ticket, mode)
    }

    /// Comes in alone by a ticket that is open.
    #[inline(always)]
    pub(crate) fn enter_again(&self, mode: Mode) -> Option<u32> {
        let seen = self.load(TURN);
        if !is_open(seen) || mode != Mode::Exclusive {
            return None;
        }
        let taken = self.taken(entry(seen), turns_of(seen) + 1);
        self.replace(TURN, seen, taken).then_some(entry(seen))
    }

    /// Comes in alone by a ticket that this PE left open. Gives what [`left`](Self::left) gives.
    #[inline(always)]
    pub(crate) fn enter_own(&self) -> Option<u64> {
        let seen = self.load(TURN);
        let turns = ahead(seen) & TURNS;
        let is_own = ahead(seen) - turns == self.own | 1;
        let left = seen.wrapping_sub(u64::from(turns) << 32);
        (is_own && self.replace(TURN, seen, taken_again(seen))).then_some(left)
    }

    #[inline(always)]
    pub(crate) fn draw(&self) -> Quick<u32> {
        let drawn = self.add(NEXT, 1);
        if drawn & EXHAUSTED != 0 {
            return Err(exhausted());
        }
        Ok(drawn as u32)
    }

    /// Comes in if that needs no waiting.
    pub(crate) fn try_enter(&self, pe: &Pe, mode: Mode) -> Quick<Option<u32>> {
        if let Some(ticket) = self.enter_again(mode) {
            return Ok(Some(ticket));
        }
        if let Some(ticket) = self.draw_if(|ticket| self.may_enter(ticket, mode))? {
            return self.entered(pe, ticket, mode).map(Some);
        }
        let seen = self.turns();
        if is_open(seen) {
            // It is open for one that comes alone. No other waits, or those who waited have given
            // up.
            let next = entry(seen).wrapping_add(1);
            if self.next() == next {
                self.close_before(next);
            }
            self.wake_waiting(pe, next);
            if let Some(ticket) = self.draw_if(|ticket| self.may_enter(ticket, mode))? {
                return self.entered(pe, ticket, mode).map(Some);
            }
        }
        // A program may try until it succeeds. Such a loop is a wait, and ends like one.
        wait::test(pe, || None::<()>);
        match self.terms(pe, Patience::Forever, |terms| terms.departed(pe)) {
            Some(error) => Err(error.into()),
            None => Ok(None),
        }
    }

    /// Draws the next ticket if it is `wanted`.
    #[inline(always)]
    fn draw_if(&self, wanted: impl Fn(u32) -> bool) -> Quick<Option<u32>> {
        loop {
            let next: u64 = self.load(NEXT);
            if next & EXHAUSTED != 0 {
                return Err(exhausted());
            }
            if !wanted(next as u32) {
                return Ok(None);
            }
            // While `next` is unchanged, no ticket has been drawn, so `wanted` still holds.
            if self.replace(NEXT, next, next.wrapping_add(1)) {
                return Ok(Some(next as u32));
            }
        }
    }

    /// Whether `ticket` may use its slot by now (Q5). True also for a ticket that others have drawn
    /// and used meanwhile: then drawing it fails.
    fn has_slot(&self, ticket: u32) -> bool {
        let ahead = ticket.wrapping_sub(entry(self.load(TURN)));
        ahead as i32 <= self.mask as i32
    }

    /// Ends the use of a ticket that is open, for whoever comes next.
    pub(crate) fn close(&self, pe: &Pe) {
        let seen = self.turns();
        if is_open(seen) {
            let next = entry(seen).wrapping_add(1);
            self.close_before(next);
            self.wake(pe, next);
        }
    }

    /// Ends the use of an open ticket, for the one behind it. Gives whether entry has reached that.
    fn close_before(&self, ticket: u32) -> bool {
        let seen = self.load(TURN);
        if is_open(seen) && entry(seen).wrapping_add(1) == ticket {
            return self.replace(TURN, seen, turn(ticket, ticket));
        }
        entry(seen) == ticket && !is_used(seen)
    }

    #[inline(always)]
    fn may_enter(&self, ticket: u32, mode: Mode) -> bool {
        is_turn_of(self.load(TURN), ticket, mode)
    }

    /// Whether the turn that was seen lets in one who waits. If the ticket before is open, and
    /// `closes`, this one ends its use. Meanwhile others may have closed it, and a reader that
    /// stood between may have come in.
    #[inline(always)]
    fn lets_in(&self, seen: u64, ticket: u32, mode: Mode, closes: bool) -> bool {
        is_turn_of(seen, ticket, mode)
            || closes && is_open(seen) && self.close_before(ticket) && self.may_enter(ticket, mode)
    }

    #[inline(always)]
    fn entered(&self, pe: &Pe, ticket: u32, mode: Mode) -> Quick<u32> {
        if mode == Mode::Exclusive {
            self.store(TURN, self.taken(ticket, 1)); // Q1
        } else {
            self.count_inside(pe, 1);
            // Where entry wraps to 0, the carry must not reach exit.
            let before =
                self.add(TURN, if ticket == u32::MAX { 1u64.wrapping_sub(1 << 32) } else { 1 });
            self.wake(pe, ticket.wrapping_add(1));
            // Q6.
            if entry(before).wrapping_sub(exit(before)) >= MOST {
                self.leave(pe, ticket, mode);
                return Err(exhausted());
            }
        }
        Ok(ticket)
    }

    fn inside(&self, pe: usize) -> *mut u32 {
        self.inside.wrapping_add(pe)
    }

    fn count_inside(&self, pe: &Pe, change: u64) {
        // SAFETY: one of the words behind the slots, as `new`'s caller promised.
        unsafe { shm::fetch_op(self.inside(pe.me()).cast(), 4, AtomicOp::Add, change) };
    }

    /// Lets the next ones in.
    #[inline(always)]
    pub(crate) fn leave(&self, pe: &Pe, ticket: u32, mode: Mode) {
        match mode {
            Mode::Exclusive => self.leave_alone(pe, self.left(ticket), || pe.order_rings()),
            Mode::Shared => {
                self.count_inside(pe, u64::MAX);
                let left = self.add(TURN, 1 << 32);
                // The last reader has left: the next ticket may come in alone.
                if exit(left).wrapping_add(1) == entry(left) {
                    self.wake(pe, entry(left));
                }
            }
        }
    }

    /// The turn that this PE leaves when it was in alone and nobody waits.
    #[inline(always)]
    pub(crate) fn left(&self, ticket: u32) -> u64 {
        self.open(ticket, 0)
    }

    /// Leaves alone, so that the turn is what [`left`](Self::left) has given. `order_rings` does
    /// what [`Pe::order_rings`] does.
    #[inline(always)]
    pub(crate) fn leave_alone(&self, pe: &Pe, left: u64, order_rings: impl FnOnce()) {
        let next = entry(left).wrapping_add(1);
        if self.next() != next {
            return self.leave_to_waiting(pe, entry(left));
        }
        self.store(TURN, left); // Q1
        order_rings();
        if self.next() != next {
            self.wake_waiting(pe, next); // Q4
        }
    }

    /// Leaves while others wait: the ticket can be used again, or the next one is let in (Q2).
    #[cold]
    #[inline(never)]
    fn leave_to_waiting(&self, pe: &Pe, ticket: u32) {
        let next = ticket.wrapping_add(1);
        let after = match turns_of(self.load(TURN)) {
            turns if turns < RUN => self.open(ticket, turns),
            _ => turn(next, next),
        };
        self.store(TURN, after); // Q1
        self.wake(pe, next);
    }

    /// Leaves alone, with data that are broken.
    pub(crate) fn leave_broken(&self, pe: &Pe, ticket: u32) {
        if self.poison() == 0 {
            self.store(POISON, pe.me() as u32 + 1);
        }
        let next = ticket.wrapping_add(1);
        self.store(TURN, turn(next, next)); // Q1
        self.wake(pe, next);
    }

    /// Wakes the PE that waits with `ticket`, the new value of entry (Q4).
    #[inline(always)]
    fn wake(&self, pe: &Pe, ticket: u32) {
        pe.order_rings();
        // `next` would say that a PE waits, and not whether it sleeps. A PE that spins has that
        // line by now, and a look at it costs as much as a hand-over.
        if self.load_slot(ticket) as u32 == ticket {
            self.wake_waiting(pe, ticket);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_waiting(&self, pe: &Pe, mut ticket: u32) {
        loop {
            let slot = self.load_slot(ticket);
            if slot as u32 == ticket && slot & GAVE_UP == GAVE_UP {
                if !self.close_before(ticket) || !self.pass(ticket) {
                    return;
                }
                ticket = ticket.wrapping_add(1);
                pe.order_rings();
                continue;
            }
            let waiting = (slot >> 32) as usize;
            if slot as u32 == ticket && (1..=pe.npes()).contains(&waiting) {
                pe.ring(waiting - 1);
            }
            return;
        }
    }

    /// Comes in and leaves for `ticket`, whose owner gave up and which entry has reached. False
    /// where another thread has done so.
    fn pass(&self, ticket: u32) -> bool {
        // SAFETY: as in `load_slot`.
        let mark = unsafe {
            shm::compare_swap_sized(self.slot(ticket).cast(), 8, GAVE_UP | u64::from(ticket), 0)
        };
        if mark != GAVE_UP | u64::from(ticket) {
            return false;
        }
        loop {
            let seen = self.load(TURN);
            debug_assert_eq!(entry(seen), ticket, "entry waits for the thread that took the mark");
            if self.replace(TURN, seen, turn(ticket.wrapping_add(1), exit(seen).wrapping_add(1))) {
                return true;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, pe: &Pe, ticket: u32, mode: Mode, patience: Patience<'_>) -> Quick<()> {
        // Q6.
        let seen = self.turns();
        let left = if is_used(seen) { entry(seen) } else { exit(seen) };
        if ticket.wrapping_sub(left) >= MOST {
            // SAFETY: as in `load`.
            unsafe { shm::fetch_op(self.head.wrapping_add(NEXT), 8, AtomicOp::Or, EXHAUSTED) };
            return Err(exhausted());
        }
        // What is open stays so for a while, as its owner may come back.
        let mut before = seen;
        let mut rarely = Rarely::default();
        let look = || {
            if !rarely.now() {
                return None;
            }
            let seen = self.turns();
            let is_left = std::mem::replace(&mut before, seen) == seen;
            self.lets_in(seen, ticket, mode, is_left).then_some(())
        };
        if wait::paced_polling(pe, look).is_some() {
            return Ok(());
        }
        let mut looks = 0;
        let mut registered = false;
        let without = if pe.crowded() || cfg!(loom) { 0 } else { LOOKS_WITHOUT_SLOT };
        let ended = {
            let look = || {
                if self.lets_in(self.turns(), ticket, mode, true) {
                    return Some(());
                }
                looks += 1;
                if looks > without && !registered {
                    registered = self.has_slot(ticket);
                    if registered {
                        self.store_slot(ticket, (WAITS * (pe.me() as u64 + 1)) | u64::from(ticket));
                    }
                    // It may have been let in between the look above and the slot.
                    return self.lets_in(self.turns(), ticket, mode, true).then_some(());
                }
                None
            };
            self.terms(pe, patience, |terms| wait::until(pe, terms, look))
        };
        match ended {
            // The tickets behind this one must not wait for ever, so it is given up. Without a slot
            // it cannot be: then the tickets behind see the death that ended this wait.
            Err(error) if self.has_slot(ticket) => self.give_up(pe, ticket, mode, error),
            Err(error) if self.terms(pe, patience, |terms| terms.is_own(pe, &error)) => {
                self.wait_for_slot(pe, ticket)?;
                self.give_up(pe, ticket, mode, error)
            }
            ended => ended,
        }
    }

    /// Waits until `ticket` has a slot, by which it can be given up. No interruption ends this
    /// wait.
    fn wait_for_slot(&self, pe: &Pe, ticket: u32) -> Quick<()> {
        while !self.has_slot(ticket) {
            pe.progress();
            if let Some(error) = self.terms(pe, Patience::Forever, |terms| terms.lost_member(pe)) {
                return Err(error.into());
            }
            wait::give_way(pe);
        }
        Ok(())
    }

    /// Ends a wait without its turn, for a ticket that has a slot. Comes in after all if the turn
    /// has come.
    fn give_up(&self, pe: &Pe, ticket: u32, mode: Mode, error: Box<Error>) -> Quick<()> {
        if self.may_enter(ticket, mode) {
            return Ok(());
        }
        self.store_slot(ticket, GAVE_UP | u64::from(ticket));
        pe.announce_barrier(); // Q4
        self.wake_waiting(pe, ticket);
        Err(error)
    }

    /// Terms of all waits: all PEs live, and none leaves while it is in.
    fn terms<R>(&self, pe: &Pe, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        // SAFETY: as in `count_inside`.
        let reads = |pe: usize| unsafe { shm::load(self.inside(pe)) } != 0;
        let left_free = |pe: usize| holder(self.turns()) != Some(pe) && !reads(pe);
        let awaiting = Awaiting::Lock {
            is_free_of: &left_free,
            holds: Some(&|pe: usize| !left_free(pe)),
            place: (self.head.addr() - pe.control().mapping().at(0).addr()) as u64,
        };
        f(Terms::new(awaiting, patience))
    }

    /// Draws a ticket and gives it up at once. Gives whether its turn had come.
    #[cfg(all(test, loom))]
    pub(crate) fn draw_and_give_up(&self, pe: &Pe, mode: Mode) -> bool {
        let ticket = self.add(NEXT, 1) as u32;
        let late = Patience::Try.late(pe).expect("it does not wait");
        let came = self.give_up(pe, ticket, mode, late.into()).is_ok();
        if came {
            self.entered(pe, ticket, mode).expect("few are in");
            self.leave(pe, ticket, mode);
        }
        came
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    /// A queue from which `drawn` tickets were drawn; `inside` of them are readers that have not
    /// left.
    fn with_queue(drawn: u64, inside: u32, test: impl Fn(&Pe, Tickets) + Sync) {
        let run = |job: Job| {
            let words = job.window::<u64>((128 + tail_for(1)) / 8).unwrap();
            let part = words.reach.local;
            // SAFETY: the window has room for both, is new, and lives as long as the queue is used.
            let tickets = unsafe { Tickets::new(part, part.wrapping_add(128), &job.pe) };
            words.write(NEXT / 8, drawn);
            words.write(TURN / 8, turn(drawn as u32, (drawn as u32).wrapping_sub(inside)));
            test(&job.pe, tickets);
        };
        Job::threads(1, run).unwrap();
    }

    fn is_refused<R>(result: Quick<R>) -> bool {
        matches!(result.map_err(|error| *error), Err(Error::TooMany { limit, .. }) if limit == MOST as usize)
    }

    #[test]
    fn tickets_wrap() {
        for drawn in [u64::from(u32::MAX) - 3, (7 << 32) - 2] {
            with_queue(drawn, 0, |pe, tickets| {
                for _ in 0..4 {
                    let readers = [(); 2].map(|()| tickets.enter(pe, Mode::Shared).unwrap());
                    assert_eq!(tickets.try_enter(pe, Mode::Exclusive).unwrap(), None);
                    readers.into_iter().for_each(|ticket| tickets.leave(pe, ticket, Mode::Shared));
                    let alone =
                        tickets.try_enter(pe, Mode::Exclusive).unwrap().expect("nobody is in");
                    assert_eq!(tickets.try_enter(pe, Mode::Shared).unwrap(), None);
                    tickets.leave(pe, alone, Mode::Exclusive);
                }
            });
        }
    }

    /// While somebody waits, a ticket is used for so many turns, and no more.
    #[test]
    fn who_waits_is_overtaken_by_a_bound() {
        for drawn in [0, u64::from(u32::MAX), u64::from(USED) - 1] {
            with_queue(drawn, 0, |pe, tickets| {
                let turn = || {
                    let ticket = tickets.try_enter(pe, Mode::Exclusive).unwrap()?;
                    assert_eq!(tickets.try_enter(pe, Mode::Exclusive).unwrap(), None);
                    assert_eq!(tickets.try_enter(pe, Mode::Shared).unwrap(), None);
                    tickets.leave(pe, ticket, Mode::Exclusive);
                    Some(())
                };
                for mode in [Mode::Exclusive, Mode::Shared] {
                    (0..3 * RUN).for_each(|_| turn().expect("nobody waits"));
                    let holder = tickets.enter(pe, Mode::Exclusive).unwrap();
                    let waiter = tickets.draw().unwrap();
                    tickets.leave(pe, holder, Mode::Exclusive);
                    assert!(!tickets.may_enter(waiter, mode));
                    let turns = (0..2 * RUN).map_while(|_| turn()).count() as u32;
                    assert!((RUN - 1..=RUN).contains(&turns), "{turns}");
                    assert!(tickets.may_enter(waiter, mode));
                    tickets.entered(pe, waiter, mode).unwrap();
                    tickets.leave(pe, waiter, mode);
                }
            });
        }
    }

    /// A writer saw the ticket before it open; then that was closed, and the reader between is in.
    #[test]
    fn a_writer_does_not_come_in_beside_the_reader_between() {
        with_queue(5, 0, |pe, tickets| {
            let holder = tickets.enter(pe, Mode::Exclusive).unwrap();
            let [reader, writer] = [(); 2].map(|()| tickets.draw().unwrap());
            tickets.leave(pe, holder, Mode::Exclusive);
            let seen = tickets.turns();
            assert!(is_open(seen));
            assert!(tickets.lets_in(seen, reader, Mode::Shared, true));
            tickets.entered(pe, reader, Mode::Shared).unwrap();
            assert!(!tickets.lets_in(seen, writer, Mode::Exclusive, true));
            tickets.leave(pe, reader, Mode::Shared);
            assert!(tickets.lets_in(seen, writer, Mode::Exclusive, true));
        });
    }

    /// The turn says who is in alone, wherever the numbers wrap.
    #[test]
    fn the_turn_names_the_holder() {
        for drawn in [0, u64::from(u32::MAX), u64::from(USED) - 1] {
            with_queue(drawn, 0, |pe, tickets| {
                for pe in [0, 1, MAX_HOSTED - 1] {
                    let own = ahead_of(pe);
                    let tickets = Tickets { own, ..tickets };
                    for (ticket, turns) in [(drawn as u32, 1), (u32::MAX, RUN), (0, RUN)] {
                        assert_eq!(holder(tickets.taken(ticket, turns)), Some(pe));
                        let open = tickets.open(ticket, turns - 1);
                        assert_eq!(
                            (is_open(open), holder(open), turns_of(open)),
                            (true, None, turns - 1)
                        );
                        assert_eq!(taken_again(open), tickets.taken(ticket, turns));
                    }
                }
                for mode in [Mode::Exclusive, Mode::Shared] {
                    assert_eq!(holder(tickets.turns()), None);
                    let ticket = tickets.enter(pe, mode).unwrap();
                    let alone = (mode == Mode::Exclusive).then(|| pe.me());
                    assert_eq!(holder(tickets.turns()), alone);
                    tickets.leave(pe, ticket, mode);
                }
            });
        }
    }

    /// What is broken is found so by whoever comes next, and never open.
    #[test]
    fn broken_data_are_not_open() {
        with_queue(0, 0, |pe, tickets| {
            let ticket = tickets.enter(pe, Mode::Exclusive).unwrap();
            tickets.leave_broken(pe, ticket);
            assert_eq!(tickets.poison(), pe.me() as u32 + 1);
            for _ in 0..3 {
                assert_eq!((tickets.enter_own(), holder(tickets.turns())), (None, None));
                let ticket = tickets.enter(pe, Mode::Exclusive).unwrap();
                tickets.leave_broken(pe, ticket);
            }
        });
    }

    /// A PE behind an open ticket need not wait for its owner to come back.
    #[test]
    fn an_open_ticket_is_closed_by_the_one_behind() {
        for mode in [Mode::Exclusive, Mode::Shared] {
            with_queue(5, 0, |pe, tickets| {
                let holder = tickets.enter(pe, Mode::Exclusive).unwrap();
                let waiter = tickets.draw().unwrap();
                tickets.leave(pe, holder, Mode::Exclusive);
                tickets.wait(pe, waiter, mode, Patience::Forever).unwrap();
                tickets.entered(pe, waiter, mode).unwrap();
                assert_eq!(tickets.try_enter(pe, Mode::Exclusive).unwrap(), None);
                tickets.leave(pe, waiter, mode);
            });
        }
    }

    /// The last readers that find room, wherever the numbers wrap. No further one is let in beside
    /// them.
    #[test]
    fn readers_that_never_leave() {
        for drawn in [u64::from(MOST) - 1, (1 << 32) - 1, (1 << 32) + 5] {
            with_queue(drawn, MOST - 1, |pe, tickets| {
                let last = tickets.enter(pe, Mode::Shared).unwrap();
                assert!(is_refused(tickets.enter(pe, Mode::Shared)));
                assert!(is_refused(tickets.try_enter(pe, Mode::Shared)));
                tickets.leave(pe, last, Mode::Shared);
                let last = tickets.enter(pe, Mode::Shared).expect("one has left");
                assert_eq!(tickets.try_enter(pe, Mode::Exclusive).unwrap(), None);
                assert!(is_refused(tickets.enter(pe, Mode::Exclusive)), "it would wait for ever");
                tickets.leave(pe, last, Mode::Shared);
                for mode in [Mode::Shared, Mode::Exclusive] {
                    assert!(is_refused(tickets.enter(pe, mode)), "for good");
                    assert!(is_refused(tickets.try_enter(pe, mode)));
                }
            });
        }
    }

    /// Waits that ended with an error have left their tickets; the one that would be 2^32 ahead is
    /// never drawn.
    #[test]
    fn tickets_that_nobody_passes() {
        with_queue(9, 0, |pe, tickets| {
            let holder = tickets.enter(pe, Mode::Exclusive).unwrap();
            tickets.add(NEXT, u64::from(MOST) - 1);
            assert!(is_refused(tickets.enter(pe, Mode::Exclusive)));
            tickets.add(NEXT, u64::from(MOST) - 1);
            assert!(
                is_refused(tickets.enter(pe, Mode::Exclusive)),
                "this one has the holder's number again"
            );
            tickets.leave(pe, holder, Mode::Exclusive);
        });
    }
}
