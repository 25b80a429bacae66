//! The word by which an attached process and the machine take turns.
//!
//! | word | whose turn | what that side may do |
//! |---|---|---|
//! | 0 | the process's: it runs | read the reply, write the request; then pass to 1 |
//! | 1 | the machine's | read the request, write the reply; then pass to 0 |
//! | 2 | nobody's: the process has ended | nothing |
//!
//! The side that sees the process end swaps in 2. Everything else takes two steps:
//! [`pass`](Turn::pass) changes the word from one's own value to the other's by a compare-and-swap,
//! and wakes; [`wait`](Turn::wait) sleeps in the kernel while the word has the other's value.
//!
//! **I1.** *The two sides never touch request and reply at once.* Each side changes the word only
//! from its own value, and touches request and reply only between seeing its value and changing it.
//! Meanwhile only that side can change the word, unless to 2.
//!
//! **I2.** *The next side sees what the last one wrote.* The swap releases what its side wrote in
//! its turn, and the load that sees the swap acquires that.
//!
//! **I3.** *No hand-over is lost.* The kernel compares the word and lets the waiter sleep in one
//! step. If the swap comes before that, the word has changed, and the waiter does not sleep; if it
//! comes after, the waiter sleeps, and the wake that follows the swap finds it. Both sides sleep on
//! one word, but never at once without a waker: the side that is to wake is awake until it has.
//! This holds for 2 as well, whichever side writes it. A 2 never changes again: a swap from 0 or 1
//! fails.
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

    /// Ends the turn of `me`. Does nothing and gives false when `me` does not have the turn.
    pub(crate) fn pass(self, me: Side) -> bool {
        // I1, I2. SAFETY: as above.
        let seen =
            unsafe { shm::compare_swap_sized(self.0.cast(), 4, me as u64, me.other() as u64) };
        if seen == me as u64 {
            self.wake();
        }
        seen == me as u64
    }

    pub(crate) fn look(self, me: Side) -> Came {
        match self.read() {
            GONE => Came::Gone,
            seen if seen == me.other() as u32 => Came::Late,
            _ => Came::Mine,
        }
    }

    /// Sleeps until it is the turn of `me`, or until a spurious wake-up. A value that no side ever
    /// writes counts as the turn of the waiter, whose pass will fail (I4).
    pub(crate) fn wait(self, me: Side) -> Came {
        match self.look(me) {
            Came::Late => {
                // I3. SAFETY: as above.
                unsafe { shm::futex_wait(self.0, me.other() as u32, None) };
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
