//! Whose turn it is: the one word by which an attached process and the machine hand over to each
//! other.
//!
//! | word | whose turn | what it may do |
//! |---|---|---|
//! | 0 | the process's: it runs | read the reply, write the request; then pass to 1 |
//! | 1 | the machine's | read the request, write the reply; then pass to 0 |
//! | 2 | nobody's: the process has ended | nothing |
//!
//! Who has seen the process end swaps in 2. All else is done by two steps: [`pass`](Turn::pass)
//! changes the word from one's own value to the other's by a compare-and-swap, and wakes;
//! [`wait`](Turn::wait) sleeps in the kernel while the word shows the other's value.
//!
//! *One at a time.* Each side changes the word only from its own value, and touches request and
//! reply only between having seen its value and changing it; nobody but that side can change it
//! meanwhile, unless to 2. So the two never touch them at once.
//!
//! *What was written is seen.* The swap releases what its side wrote in its turn, and the load that
//! sees it acquires that.
//!
//! *No hand-over is lost.* The kernel compares the word and lets sleep in one step. If the swap
//! comes before that, the word is not what the waiter has seen, and it does not sleep; if it comes
//! after, the waiter sleeps, and the wake that follows the swap finds it. Both sides sleep on the
//! same word, but never at once with nobody to wake them: who is to wake is awake until it has. The
//! same holds for 2, whoever writes that, which never changes again: a swap from 0 or 1 fails.
//!
//! The word lies in memory that the process can write at any time. Whatever it writes there, the
//! machine's side gets one of the three answers of [`wait`](Turn::wait), and nothing but that
//! process's own turns depends on it.

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
    /// It is one's turn.
    Mine,
    /// The process has ended.
    Gone,
    /// It is the other's turn still: one was woken for nothing.
    Late,
}

/// The word.
#[derive(Clone, Copy)]
pub(crate) struct Turn(*mut u32);

// SAFETY: the address of a word that is used only through `crate::base::shm`.
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
        // SAFETY: `new`'s caller promised a mapped aligned word.
        unsafe { shm::load(self.0) }
    }

    pub(crate) fn wake(self) {
        // SAFETY: as above.
        unsafe { shm::futex_wake(self.0) };
    }

    /// Ends the turn of `me`. False, and nothing happens, when it was not its turn.
    pub(crate) fn pass(self, me: Side) -> bool {
        // SAFETY: as above.
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

    /// Sleeps until it is the turn of `me`, or until woken for nothing. What no side ever writes
    /// counts as the turn of whoever waits: to pass it will fail.
    pub(crate) fn wait(self, me: Side) -> Came {
        match self.look(me) {
            Came::Late => {
                // SAFETY: as above.
                unsafe { shm::futex_wait(self.0, me.other() as u32, None) };
                self.look(me)
            }
            came => came,
        }
    }

    /// The process has ended: whoever waits for its turn is told so, now and ever after.
    pub(crate) fn leave(self) {
        // A step that reads, too: so no pass, which reads before it writes, can come to lie behind
        // what it has not seen. SAFETY: as above.
        unsafe { shm::fetch_op(self.0.cast(), 4, shm::AtomicOp::Swap, GONE.into()) };
        self.wake();
    }
}
