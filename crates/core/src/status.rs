//! The life of a PE, as one word that all of the job can read.
//!
//! | state | set by | meaning |
//! |---|---|---|
//! | `Empty` | nobody (zero) | not joined yet; a program that never uses memonet stays so |
//! | `Joined` | the PE | works |
//! | `Finalizing` | the PE | will make no further collective call; waits for the others to say the same |
//! | `Done` | the PE or, when it never joined, the launcher | left in order |
//! | `Dead` | the launcher (`Job::threads`: the thread's wrapper) | gone, with its cause |
//!
//! `Done` and `Dead` are final; every step is one compare-and-swap.

use crate::error::Cause;

/// Whether a PE takes part in the job's doings, as far as its front end lets it: one may let it leave, and come back, before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Part {
    /// It does: others may wait for it.
    Taking = 0,
    /// Not yet.
    NotYet = 1,
    /// Not any more.
    NoMore = 2,
}

/// State of a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Has not joined.
    Empty,
    /// Works.
    Joined,
    /// Has begun to finalise.
    Finalizing,
    /// Has left in order.
    Done,
    /// Is gone.
    Dead(Cause),
}

impl State {
    /// The word that stands for this state: state, kind of cause, and its value in the upper half.
    pub fn to_word(self) -> u64 {
        let (state, kind, value) = match self {
            State::Empty => (0, 0, 0),
            State::Joined => (1, 0, 0),
            State::Finalizing => (2, 0, 0),
            State::Done => (3, 0, 0),
            State::Dead(Cause::Signal(s)) => (4, 0, s),
            State::Dead(Cause::Exit(c)) => (4, 1, c),
            State::Dead(Cause::Panic) => (4, 2, 0),
            State::Dead(Cause::Finalized) => (3, 0, 0),
        };
        state | kind << 8 | u64::from(value as u32) << 32
    }

    /// The state that a word stands for. A word nobody wrote (memory overwritten by a stray store) reads as a death of unknown exit status.
    pub fn from_word(word: u64) -> Self {
        let value = (word >> 32) as u32 as i32;
        match (word & 0xFF, word >> 8 & 0xFF) {
            (0, _) => State::Empty,
            (1, _) => State::Joined,
            (2, _) => State::Finalizing,
            (3, _) => State::Done,
            (4, 0) => State::Dead(Cause::Signal(value)),
            (4, 2) => State::Dead(Cause::Panic),
            _ => State::Dead(Cause::Exit(value)),
        }
    }

    /// Whether the PE will not take part in anything any more, and why.
    pub fn departed(self) -> Option<Cause> {
        match self {
            State::Empty | State::Joined => None,
            State::Finalizing | State::Done => Some(Cause::Finalized),
            State::Dead(cause) => Some(cause),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let dead = [Cause::Signal(9), Cause::Signal(-1), Cause::Exit(0), Cause::Exit(255), Cause::Panic];
        let states = [State::Empty, State::Joined, State::Finalizing, State::Done]
            .into_iter()
            .chain(dead.map(State::Dead));
        for state in states {
            assert_eq!(State::from_word(state.to_word()), state);
        }
    }

    #[test]
    fn any_word_is_some_state() {
        for word in [5, 0xFF, u64::MAX, 4 | 77 << 8] {
            assert!(matches!(State::from_word(word), State::Dead(_)));
        }
    }
}
