//! The word by which an attached process and the machine take turns.
//!
//! | word | whose turn | what that side may do |
//! |---|---|---|
//! | 0 | the process's: it runs | read the reply, write the request; then pass to 1 |
//! | 1 | the machine's | read the request, write the reply; then pass to 0 |
//! | 2 | nobody's: the process has ended | nothing |
//!
//! Bit 2, beside 0 or 1: the side that waits sleeps, or is about to ([`SLEEPS`]). Often it does
//! not: it was preempted when it woke the other side, which has run since on the same CPU. Then
//! no call wakes it, and it finds the word changed.
//!
//! The side that sees the process end swaps in 2. Everything else takes two steps:
//! [`pass`](Turn::pass) changes the word from one's own value to the other's by a compare-and-swap,
//! and wakes if it has taken the bit away, or has another thread of its side do so;
//! [`wait`](Turn::wait) adds the bit to the other's value by a compare-and-swap, and sleeps in the
//! kernel while the word has both.
//!
//! **I1.** *The two sides never touch request and reply at once.* Each side gives the turn only
//! from its own value, and touches request and reply only between seeing its value and changing it.
//! Meanwhile only that side can give the turn, unless the word becomes 2.
//!
//! **I2.** *The next side sees what the last one wrote.* The swap releases what its side wrote in
//! its turn, and the load that sees the swap acquires that.
//!
//! **I3.** *No hand-over is lost.* A waiter sleeps only while the word has the bit, which the
//! kernel compares in one step with putting it to sleep. If the swap that gives the turn comes
//! before the one that adds the bit, that fails, and the waiter sees its turn. If it comes after,
//! it takes the bit away, and its side wakes: a waiter that does not sleep yet finds the word
//! changed, and one that sleeps is found by the wake. Both sides sleep on one word, but never at
//! once without a waker: the thread that is to wake is awake until it has. It wakes all that sleep
//! on the word. So it finds the right one also where the machine has another thread wake, and
//! sleeps itself before that has; the other one finds nothing new, and sleeps again. A 2 wakes
//! always, whichever side writes it, and never changes again: a swap from another value fails.
//!
//! **I4.** *The machine needs no trust.* The process can write any value at any time. Then the
//! machine's side still gets one of the three answers of [`wait`](Turn::wait), and only that
//! process's own turns depend on it.

use crate::base::shm;

/// The two that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The attached process.
    Pe = 0,
    /// The engine of the simulated machine.
    Machine = 1,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Pe => Side::Machine,
            Side::Machine => Side::Pe,
        }
    }
}

const GONE: u32 = 2;
/// Added to the value of the side that has the turn: the other side sleeps, or is about to.
const SLEEPS: u32 = 4;
/// Attempts to give the turn. The other side adds the bit once, so two do; unless it writes
/// anything (I4).
const ATTEMPTS: usize = 3;

/// How a wait for a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// It is the caller's turn.
    Mine,
    /// The process has ended.
    Gone,
    /// It is still the other side's turn: the wake-up was spurious.
    Late,
}

/// The word.
#[derive(Clone, Copy)]
pub(crate) struct Turn(*mut u32);

// SAFETY: the word is used only through `crate::base::shm`, which any thread may use.
unsafe impl Send for Turn {}
// SAFETY: as above.
unsafe impl Sync for Turn {}

impl Turn {
    /// # Safety
    /// `word` is aligned, and mapped for as long as this value and its copies are used.
    pub(crate) unsafe fn new(word: *mut u32) -> Turn {
        Turn(word)
    }

    fn read(self) -> u32 {
        // SAFETY: `new`'s caller promised a mapped, aligned word.
        unsafe { shm::load(self.0) }
    }

    pub(crate) fn wake(self) {
        // SAFETY: as above.
        unsafe { shm::futex_wake(self.0) };
    }

    /// Replaces the word if it has the value `old`. Gives the value that it had.
    fn replace(self, old: u32, new: u32) -> u32 {
        // SAFETY: as above.
        unsafe { shm::compare_swap_sized(self.0.cast(), 4, old.into(), new.into()) as u32 }
    }

    /// Ends the turn of `me`, and [wakes](Self::wake) the other side if it sleeps. Does nothing and
    /// gives false when `me` does not have the turn.
    pub(crate) fn pass(self, me: Side) -> bool {
        let given = self.give(me);
        if given == Some(true) {
            self.wake();
        }
        given.is_some()
    }

    /// Ends the turn of `me`. Says whether the other side sleeps: then the caller's side has to
    /// [wake](Self::wake) it. Does nothing and gives nothing when `me` does not have the turn.
    pub(crate) fn give(self, me: Side) -> Option<bool> {
        // I1, I2.
        let mut seen = self.read();
        for _ in 0..ATTEMPTS {
            if seen & !SLEEPS != me as u32 {
                break;
            }
            let before = self.replace(seen, me.other() as u32);
            if before == seen {
                return Some(seen & SLEEPS != 0); // I3
            }
            seen = before;
        }
        None
    }

    pub(crate) fn look(self, me: Side) -> Came {
        match self.read() {
            GONE => Came::Gone,
            seen if seen & !SLEEPS == me.other() as u32 => Came::Late,
            _ => Came::Mine,
        }
    }

    /// Sleeps until it is the turn of `me`, or until a spurious wake-up. A value that no side ever
    /// writes counts as the turn of the waiter, whose pass will fail (I4).
    pub(crate) fn wait(self, me: Side) -> Came {
        match self.look(me) {
            Came::Late => {
                let theirs = me.other() as u32;
                // I3. The bit may be there from a wait that was woken for nothing.
                let seen = self.replace(theirs, theirs | SLEEPS);
                if seen & !SLEEPS == theirs {
                    // SAFETY: as above.
                    unsafe { shm::futex_wait(self.0, theirs | SLEEPS, None) };
                }
                self.look(me)
            }
            came => came,
        }
    }

    /// Marks the process as ended: all waits say so from now on.
    pub(crate) fn leave(self) {
        // A read-modify-write, so that it is ordered with every pass: none can overwrite the 2.
        // SAFETY: as above.
        unsafe { shm::fetch_op(self.0.cast(), 4, shm::AtomicOp::Swap, GONE.into()) };
        self.wake();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn with(value: u32) -> Turn {
        // SAFETY: the word is never freed, and used through this value alone.
        unsafe { Turn::new(Box::leak(Box::new(value))) }
    }

    /// Two threads on one CPU or two take turns, sleeping or not, and touch one number in turns.
    #[test]
    fn turns_are_taken_one_by_one_and_none_is_lost() {
        const TURNS: u64 = 20_000;
        let turn = with(Side::Pe as u32);
        let number = std::sync::atomic::AtomicU64::new(0);
        let play = |me: Side, mut has_turn: bool| {
            for at in 0..TURNS {
                while !std::mem::take(&mut has_turn) {
                    match turn.wait(me) {
                        Came::Mine => break,
                        Came::Late => {}
                        Came::Gone => unreachable!("nobody ends"),
                    }
                }
                let order = std::sync::atomic::Ordering::Relaxed;
                assert_eq!(number.load(order), 2 * at + me as u64);
                number.store(2 * at + me as u64 + 1, order);
                if at % 1000 == 7 {
                    // The other side sleeps by now.
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                assert!(turn.pass(me));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(Side::Machine, false));
            play(Side::Pe, true);
        });
    }

    #[test]
    fn a_side_without_the_turn_gives_none_and_an_end_is_for_ever() {
        let turn = with(Side::Pe as u32);
        assert!(!turn.pass(Side::Machine));
        assert_eq!((turn.look(Side::Pe), turn.look(Side::Machine)), (Came::Mine, Came::Late));
        assert!(turn.pass(Side::Pe) && !turn.pass(Side::Pe));
        turn.leave();
        assert!(!turn.pass(Side::Machine) && !turn.pass(Side::Pe));
        assert_eq!((turn.wait(Side::Pe), turn.wait(Side::Machine)), (Came::Gone, Came::Gone));
    }

    /// Whatever a process writes, the other side's calls return.
    #[test]
    fn any_value_ends_in_an_answer() {
        for value in (0..20).chain([u32::MAX, SLEEPS | GONE, 1 << 31]) {
            let turn = with(value);
            let came = turn.look(Side::Machine);
            let passed = turn.pass(Side::Machine);
            assert_eq!(passed, value & !SLEEPS == Side::Machine as u32, "{value}");
            assert_eq!(came == Came::Late, value & !SLEEPS == Side::Pe as u32, "{value}");
        }
    }
}
