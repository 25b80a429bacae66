//! The queue of those who want something that lies in memory they all have mapped: fair, for
//! threads of any PEs, exclusive or shared.
//!
//! Everybody draws a ticket, and is let in in the order of the tickets. Three words lie beside each
//! other, in front of what they protect, so that the cache line which brings the turn also brings
//! the data:
//!
//! | byte | name | meaning |
//! |---|---|---|
//! | 0 | next | tickets drawn so far: the number of the next one. Bit 63: no more are given |
//! | 8 | turn | lower half, *entry*: the ticket that may come in next; upper half, *exit*: how many have left. Both count modulo 2^32 |
//! | 16 | holder | who came in last alone: PE number + 1, in bits 1-31; bit 0: and may be changing the data now |
//! | 20 | poison | PE number + 1 of who panicked while it changed the data; 0: nobody |
//!
//! and behind the data, *slots*, of which ticket t uses number t modulo their count: who waits with
//! that ticket, for whoever lets it in to wake, or that it gave up. Behind them, for each PE, how
//! many of its threads are in shared: nobody's turn depends on that, but if a PE leaves with some,
//! those who wait must hear of it.
//!
//! **Alone**: draw t; wait until exit = t. Leave: entry and exit become t + 1, by one store.
//! **Shared**: draw t; wait until entry = t; add 1 to entry; leave by adding 1 to exit. **Giving
//! up** ticket t: mark its slot; then whoever finds that entry = t and the mark (and takes the mark
//! away, which one can) comes in and leaves in its place, by adding 1 to both.
//!
//! *Who is alone is alone.* Entry passes t when t's owner has come in shared, has left, or has
//! given up, so never while one waits or is in alone; so all with later tickets are outside until
//! then. exit = t says that t others have left: the tickets before t, as no other can have come in.
//! And the one store by which it leaves is the only one to the word: those who could add to it are
//! outside.
//!
//! *Fair.* Nobody overtakes: entry takes each ticket in turn. Readers that drew one after the other
//! are in together; a writer waits for those before it alone.
//!
//! *The next one sees what the last one wrote.* All stores to the data come before the store or
//! locked addition that lets the next one in, which reads the turn before the data; a processor
//! with weaker order gets both from [`shm`](crate::base::shm).
//!
//! *No wake-up is lost.* Who waits writes its slot before it announces itself at its doorbell,
//! executes the barrier that orders those who ring, and looks at the turn once more. Who lets it in
//! writes the turn, orders that before its next loads as every ringer does, and then reads the
//! slot. As with the doorbell (see there): read before the barrier, the turn was written before it
//! too, and the look sees it; after it, the slot is there. The same barrier stands between the mark
//! of one who gives up and its look at the turn. In between nobody needs the slot: one who spins
//! finds its turn by itself, so slots are written only when a wait lasts.
//!
//! *Slots do not run out.* A slot is written only by a ticket less than their count ahead of entry,
//! so by one ticket at a time. A PE that is further behind waits without one, and looks by itself
//! at every poll interval. A ticket can be given up only by its slot. So a call with a time limit
//! draws no ticket that has no slot yet: it waits outside of the queue for one that has. There
//! others may overtake it, and its limit holds.
//!
//! *Whose turn it is, is polled at a pace* ([`paced_polling`](crate::wait::paced_polling)). Words
//! and small data are in one line, so whoever has that line may leave, draw, and, if nobody has
//! drawn meanwhile, come in again before it goes to another CPU. How often the line goes is nearly
//! all that contention costs: two PEs that each add to a word take 15 to 17 million turns per
//! second, looking after each `pause` 10 to 12, at twice the intervals 11 to 14, a bare ticket lock
//! with its word in its line, which stores two words a turn where this stores four (the holder's
//! twice, so that a death in between is told), 15 to 20.
//!
//! *Numbers do not come round.* Entry, exit and tickets are compared modulo 2^32, which is right as
//! long as no ticket is 2^32 or more ahead of exit. Tickets pile up in two ways. Readers whose
//! guards are forgotten stay in. A wait that ends with an error, before its ticket has a slot,
//! leaves a ticket that is never passed. A reader that finds [`MOST`] readers in leaves again, and
//! is refused. A waiter that has as many tickets before it sets bit 63 of *next*; from then on
//! every caller is refused. From there to 2^32 there are more numbers than threads that have drawn
//! and not yet looked.
//!
//! **Failures.** A ticket whose owner died is never passed: all behind it hear of the death, as
//! every wait does. Each of them gives its own ticket up. So a death costs the PEs that wait then
//! their turn, and no others. Whether the data are torn the holder's word tells: bit 0 is set
//! before the first store to them and cleared after the last.

use crate::base::error::{Error, Quick};
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::pe::Pe;
use crate::wait::limit::{Limit, Patience};
use crate::wait::{self, Awaiting, Terms};

const NEXT: usize = 0;
const TURN: usize = 8;
const HOLDER: usize = 16;
pub(crate) const POISON: usize = 20;
/// Bytes of the words in front of the data.
pub(crate) const HEAD: usize = 24;

/// Tickets that may be in, or wait, at once; see above.
pub(crate) const MOST: u32 = 1 << 31;
/// The bit of *next* that says that there have been so many.
pub(crate) const EXHAUSTED: u64 = 1 << 63;

/// The error of all who come then.
#[cold]
pub(crate) fn exhausted() -> Box<Error> {
    Box::new(Error::TooMany {
        what: "guards of a shared object that were never dropped, or waits for it that failed",
        limit: MOST as usize,
    })
}

/// What a slot holds for a ticket: its low half is the ticket.
const WAITS: u64 = 1 << 32;
const GAVE_UP: u64 = u64::MAX << 48;

/// A wait this long is about to sleep: fewer looks than it spins for before it might. Where PEs
/// share CPUs it may sleep after one.
const LOOKS_WITHOUT_SLOT: u32 = 16;
const _: () = assert!(LOOKS_WITHOUT_SLOT < wait::LOOKS);

/// Slots: more than PEs, as each may have threads.
fn slots_for(npes: usize) -> usize {
    (2 * npes).next_power_of_two().max(64)
}

/// Bytes of what lies behind the data.
pub(crate) fn tail_for(npes: usize) -> usize {
    8 * slots_for(npes) + 4 * npes
}

/// How to be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Alone,
    Shared,
}

/// The queue as a PE reaches it.
#[derive(Clone, Copy)]
pub(crate) struct Tickets {
    head: *mut u8,
    slots: *mut u64,
    /// Their count less one; the count is a power of two.
    mask: u32,
    /// By PE, who is in shared.
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

impl Tickets {
    /// # Safety
    /// `head` is aligned to 8 and has [`HEAD`] bytes, `tail` is, too, and has [`tail_for`] `npes`;
    /// both are zero before their first use, and mapped and writable for as long as this value and
    /// its copies are used. Nothing else writes there.
    pub(crate) unsafe fn new(head: *mut u8, tail: *mut u8, npes: usize) -> Self {
        let slots = slots_for(npes);
        Tickets {
            head,
            slots: tail.cast(),
            mask: slots as u32 - 1,
            inside: tail.wrapping_add(8 * slots).cast(),
        }
    }

    #[inline(always)]
    fn load(self, at: usize) -> u64 {
        // SAFETY: one of the two words, as `new`'s caller promised.
        unsafe { shm::load(self.head.wrapping_add(at).cast()) }
    }

    #[inline(always)]
    fn add(self, at: usize, operand: u64) -> u64 {
        // SAFETY: as in `load`.
        unsafe { shm::fetch_op(self.head.wrapping_add(at), 8, AtomicOp::Add, operand) }
    }

    #[inline(always)]
    fn replace(self, at: usize, old: u64, new: u64) -> bool {
        // SAFETY: as in `load`.
        unsafe { shm::compare_swap_sized(self.head.wrapping_add(at), 8, old, new) == old }
    }

    fn slot(self, ticket: u32) -> *mut u64 {
        self.slots.wrapping_add((ticket & self.mask) as usize)
    }

    fn load_slot(self, ticket: u32) -> u64 {
        // SAFETY: one of the slots, as `new`'s caller promised.
        unsafe { shm::load(self.slot(ticket)) }
    }

    fn store_slot(self, ticket: u32, value: u64) {
        // SAFETY: as in `load_slot`.
        unsafe { shm::store(self.slot(ticket), value) }
    }

    /// The holder's word.
    #[inline(always)]
    pub(crate) fn holder(self) -> u32 {
        // SAFETY: as in `load`.
        unsafe { shm::load(self.head.wrapping_add(HOLDER).cast()) }
    }

    /// Writes the holder's word: the caller is in alone.
    #[inline(always)]
    pub(crate) fn set_holder(self, value: u32) {
        // SAFETY: as in `load`.
        unsafe { shm::store(self.head.wrapping_add(HOLDER).cast(), value) }
    }

    /// Who panicked in here, as PE number + 1.
    #[inline(always)]
    pub(crate) fn poison(self) -> u32 {
        // SAFETY: as in `load`.
        unsafe { shm::load(self.head.wrapping_add(POISON).cast()) }
    }

    /// Says so: the caller is in alone.
    pub(crate) fn set_poison(self, value: u32) {
        // SAFETY: as in `load`.
        unsafe { shm::store(self.head.wrapping_add(POISON).cast(), value) }
    }

    /// How many have come in and left, or were let in: changes with every turn.
    pub(crate) fn turns(self) -> u64 {
        self.load(TURN)
    }

    /// Waits for one's turn; gives the ticket, for [`leave`](Self::leave).
    #[inline(always)]
    pub(crate) fn enter(self, pe: &Pe, mode: Mode) -> Quick<u32> {
        let ticket = self.draw()?;
        if !self.may_enter(ticket, mode) {
            self.wait(pe, ticket, mode, Patience::Forever)?;
        }
        self.entered(pe, ticket, mode)
    }

    /// [`enter`](Self::enter), giving up with [`Error::Timeout`].
    pub(crate) fn enter_within(self, pe: &Pe, mode: Mode, limit: &Limit) -> Quick<u32> {
        let draw = || self.draw_if(|ticket| self.has_slot(ticket));
        let ticket = match draw()? {
            Some(ticket) => ticket,
            None => self.terms(Patience::Within(limit), |terms| {
                wait::until(pe, terms, || draw().transpose())
            })??,
        };
        if !self.may_enter(ticket, mode) {
            self.wait(pe, ticket, mode, Patience::Within(limit))?;
        }
        self.entered(pe, ticket, mode)
    }

    #[inline(always)]
    fn draw(self) -> Quick<u32> {
        let drawn = self.add(NEXT, 1);
        if drawn & EXHAUSTED != 0 {
            return Err(exhausted());
        }
        Ok(drawn as u32)
    }

    /// Comes in if that needs no waiting.
    pub(crate) fn try_enter(self, pe: &Pe, mode: Mode) -> Quick<Option<u32>> {
        if let Some(ticket) = self.draw_if(|ticket| self.may_enter(ticket, mode))? {
            return self.entered(pe, ticket, mode).map(Some);
        }
        // A program may try until it succeeds: that is a wait, and ends like one.
        wait::test(pe, || None::<()>);
        match self.terms(Patience::Forever, |terms| terms.departed(pe)) {
            Some(error) => Err(error.into()),
            None => Ok(None),
        }
    }

    /// Draws the next ticket if it is `wanted`.
    #[inline(always)]
    fn draw_if(self, wanted: impl Fn(u32) -> bool) -> Quick<Option<u32>> {
        loop {
            let next = self.load(NEXT);
            if next & EXHAUSTED != 0 {
                return Err(exhausted());
            }
            if !wanted(next as u32) {
                return Ok(None);
            }
            // While `next` stays what it was, no ticket has been drawn, so what the turn said of
            // this one still holds.
            if self.replace(NEXT, next, next.wrapping_add(1)) {
                return Ok(Some(next as u32));
            }
        }
    }

    /// Whether `ticket` may use its slot by now. True also for one that others have drawn and used
    /// meanwhile: then drawing it fails.
    fn has_slot(self, ticket: u32) -> bool {
        let ahead = ticket.wrapping_sub(entry(self.load(TURN)));
        ahead as i32 <= self.mask as i32
    }

    #[inline(always)]
    fn may_enter(self, ticket: u32, mode: Mode) -> bool {
        let turn = self.load(TURN);
        match mode {
            Mode::Alone => exit(turn) == ticket,
            Mode::Shared => entry(turn) == ticket,
        }
    }

    #[inline(always)]
    fn entered(self, pe: &Pe, ticket: u32, mode: Mode) -> Quick<u32> {
        if mode == Mode::Shared {
            self.count_inside(pe, 1);
            // Where entry wraps to 0, its carry must not reach exit.
            let before =
                self.add(TURN, if ticket == u32::MAX { 1u64.wrapping_sub(1 << 32) } else { 1 });
            self.wake(pe, ticket.wrapping_add(1));
            if entry(before).wrapping_sub(exit(before)) >= MOST {
                self.leave(pe, ticket, mode);
                return Err(exhausted());
            }
        }
        Ok(ticket)
    }

    fn inside(self, pe: usize) -> *mut u32 {
        self.inside.wrapping_add(pe)
    }

    fn count_inside(self, pe: &Pe, change: u64) {
        // SAFETY: one of the words behind the slots, as `new`'s caller promised.
        unsafe { shm::fetch_op(self.inside(pe.me()).cast(), 4, AtomicOp::Add, change) };
    }

    /// Lets the next ones in.
    #[inline(always)]
    pub(crate) fn leave(self, pe: &Pe, ticket: u32, mode: Mode) {
        let next = ticket.wrapping_add(1);
        match mode {
            Mode::Alone => {
                // SAFETY: as in `load`.
                unsafe { shm::store(self.head.wrapping_add(TURN).cast(), turn(next, next)) };
                self.wake(pe, next);
            }
            Mode::Shared => {
                self.count_inside(pe, u64::MAX);
                let left = self.add(TURN, 1 << 32);
                // The last one in: whoever waits to be alone may come.
                if exit(left).wrapping_add(1) == entry(left) {
                    self.wake(pe, entry(left));
                }
            }
        }
    }

    /// Wakes who waits with `ticket`, which is what entry has just become.
    #[inline(always)]
    fn wake(self, pe: &Pe, ticket: u32) {
        pe.order_rings();
        // Not `next`: whoever spins has that line by now, and a look at it costs as much as a
        // hand-over.
        if self.load_slot(ticket) as u32 == ticket {
            self.wake_waiting(pe, ticket);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_waiting(self, pe: &Pe, mut ticket: u32) {
        loop {
            let slot = self.load_slot(ticket);
            if slot as u32 == ticket && slot & GAVE_UP == GAVE_UP {
                if !self.pass(ticket) {
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

    /// Comes in and leaves for `ticket`, whose owner gave up and which entry has reached; false
    /// where somebody else has done so.
    fn pass(self, ticket: u32) -> bool {
        // SAFETY: as in `load_slot`.
        let mark = unsafe {
            shm::compare_swap_sized(self.slot(ticket).cast(), 8, GAVE_UP | u64::from(ticket), 0)
        };
        if mark != GAVE_UP | u64::from(ticket) {
            return false;
        }
        loop {
            let seen = self.load(TURN);
            debug_assert_eq!(entry(seen), ticket, "entry waits for who took the mark");
            if self.replace(TURN, seen, turn(ticket.wrapping_add(1), exit(seen).wrapping_add(1))) {
                return true;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(self, pe: &Pe, ticket: u32, mode: Mode, patience: Patience<'_>) -> Quick<()> {
        if ticket.wrapping_sub(exit(self.load(TURN))) >= MOST {
            // SAFETY: as in `load`.
            unsafe { shm::fetch_op(self.head.wrapping_add(NEXT), 8, AtomicOp::Or, EXHAUSTED) };
            return Err(exhausted());
        }
        if wait::paced_polling(pe, || self.may_enter(ticket, mode).then_some(())).is_some() {
            return Ok(());
        }
        let mut looks = 0;
        let mut registered = false;
        let without = if pe.crowded() || cfg!(loom) { 0 } else { LOOKS_WITHOUT_SLOT };
        let ended = {
            let look = || {
                if self.may_enter(ticket, mode) {
                    return Some(());
                }
                looks += 1;
                if looks > without && !registered {
                    registered = self.has_slot(ticket);
                    if registered {
                        self.store_slot(ticket, (WAITS * (pe.me() as u64 + 1)) | u64::from(ticket));
                    }
                    // Between the look above and the slot, it may have been let in.
                    return self.may_enter(ticket, mode).then_some(());
                }
                None
            };
            self.terms(patience, |terms| wait::until(pe, terms, look))
        };
        match ended {
            // Whatever ended the wait, those behind this ticket are not to stand there for ever.
            // Without a slot they do, and see the death that ended it.
            Err(error) if self.has_slot(ticket) => self.give_up(pe, ticket, mode, error),
            Err(error) if matches!(*error, Error::Interrupted { .. }) => {
                self.wait_for_slot(pe, ticket)?;
                self.give_up(pe, ticket, mode, error)
            }
            ended => ended,
        }
    }

    /// Waits until `ticket` has a slot, by which it can be given up. No interruption ends this.
    fn wait_for_slot(self, pe: &Pe, ticket: u32) -> Quick<()> {
        while !self.has_slot(ticket) {
            pe.progress();
            if let Some(error) = self.terms(Patience::Forever, |terms| terms.departed(pe)) {
                return Err(error.into());
            }
            wait::give_way(pe);
        }
        Ok(())
    }

    /// Ends a wait, for a ticket that has a slot, without its turn; comes in after all if that has
    /// come.
    fn give_up(self, pe: &Pe, ticket: u32, mode: Mode, error: Box<Error>) -> Quick<()> {
        if self.may_enter(ticket, mode) {
            return Ok(());
        }
        self.store_slot(ticket, GAVE_UP | u64::from(ticket));
        pe.announce_barrier();
        if entry(self.load(TURN)) == ticket && self.pass(ticket) {
            self.wake(pe, ticket.wrapping_add(1));
        }
        Err(error)
    }

    /// What a wait here depends on: all PEs live, and none leaves with what it came in for.
    fn terms<R>(self, patience: Patience<'_>, f: impl FnOnce(Terms<'_>) -> R) -> R {
        // SAFETY: as in `count_inside`.
        let reads = |pe: usize| unsafe { shm::load(self.inside(pe)) } != 0;
        let left_free = |pe: usize| self.holder() != (pe as u32 + 1) << 1 | 1 && !reads(pe);
        f(Terms { awaiting: Awaiting::Lock { is_free_of: &left_free }, patience })
    }

    /// Draws a ticket and gives it up at once; whether its turn had come.
    #[cfg(all(test, loom))]
    pub(crate) fn draw_and_give_up(self, pe: &Pe, mode: Mode) -> bool {
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

    /// A queue that so many tickets have gone through, of which `inside` readers have not left.
    fn with_queue(drawn: u64, inside: u32, test: impl Fn(&Pe, Tickets) + Sync) {
        let run = |job: Job| {
            let words = job.window::<u64>((128 + tail_for(1)) / 8).unwrap();
            let part = words.reach.local;
            // SAFETY: the window has room for both, is new, and lives as long as the queue is used.
            let tickets = unsafe { Tickets::new(part, part.wrapping_add(128), 1) };
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
                    assert_eq!(tickets.try_enter(pe, Mode::Alone).unwrap(), None);
                    readers.into_iter().for_each(|ticket| tickets.leave(pe, ticket, Mode::Shared));
                    let alone = tickets.try_enter(pe, Mode::Alone).unwrap().expect("nobody is in");
                    assert_eq!(tickets.try_enter(pe, Mode::Shared).unwrap(), None);
                    tickets.leave(pe, alone, Mode::Alone);
                }
            });
        }
    }

    /// The last readers that find room, wherever the numbers wrap; then nobody is let in beside
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
                assert_eq!(tickets.try_enter(pe, Mode::Alone).unwrap(), None);
                assert!(is_refused(tickets.enter(pe, Mode::Alone)), "it would wait for ever");
                tickets.leave(pe, last, Mode::Shared);
                for mode in [Mode::Shared, Mode::Alone] {
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
            let holder = tickets.enter(pe, Mode::Alone).unwrap();
            tickets.add(NEXT, u64::from(MOST) - 1);
            assert!(is_refused(tickets.enter(pe, Mode::Alone)));
            tickets.add(NEXT, u64::from(MOST) - 1);
            assert!(
                is_refused(tickets.enter(pe, Mode::Alone)),
                "this one has the holder's number again"
            );
            tickets.leave(pe, holder, Mode::Alone);
        });
    }
}
