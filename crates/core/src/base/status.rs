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
//! In a job on several hosts, each host's memory has a record of every PE. Those of PEs on other
//! hosts are written by the host's agent alone, which follows what those hosts tell.
//!
//! `Done` and `Dead` are final; every step is one compare-and-swap. The word of a death also has
//! its [place](Place) in the order of the job's deaths.
//!
//! *A stray store does not look like a PE that left in order.* A launcher lets the other PEs of a
//! job go on, for as long as they like, when one ends that is `Done`, [`Participation::NotYet`] or
//! [`Participation::NoMore`]. These three are written as values that nothing else leaves by
//! accident, and so is the [request](exit_word) to end the whole job. Any other word that is no
//! state is a death.

use crate::base::error::{Cause, Lost};
use crate::base::process::UNKNOWN;

/// The upper half of the word of [`State::Done`].
const IN_ORDER: u32 = u32::from_le_bytes(*b"done");
/// All of the word that asks for the end of the job, but the status in its lowest byte.
const EXIT: u32 = u32::from_be_bytes(*b"end\0");

/// The word that asks for the end of the whole job with this exit status.
pub(crate) fn exit_word(status: u8) -> u32 {
    EXIT | u32::from(status)
}

/// The status in such a word; `None` for any other.
pub(crate) fn exit_status(word: u32) -> Option<u8> {
    (word & !0xFF == EXIT).then_some(word as u8)
}

/// The bits of the word of [`State::Dead`] that have its [`Place`].
const PLACE_SHIFT: u32 = 16;
const PLACE: u64 = 0xFFFF << PLACE_SHIFT;

/// The place of a death in the order of a job's deaths: the first one has the least. Deaths from
/// the 65,535th on share a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u16);

impl Place {
    /// The place of a death whose place is not known yet: behind all others.
    pub const LAST: Place = Place(u16::MAX);

    /// The place of the `nth` death, counted from 1.
    pub fn nth(nth: u32) -> Place {
        Place(u16::try_from(nth).unwrap_or(u16::MAX))
    }

    /// The place in the word of a death.
    pub(crate) fn of_word(word: u64) -> Place {
        Place((word >> PLACE_SHIFT) as u16)
    }

    /// The word of a death in this place.
    pub(crate) fn with(self, state: State) -> u64 {
        state.to_word() | u64::from(self.0) << PLACE_SHIFT
    }
}

/// Whether a PE takes part in the job's doings, as far as its front end lets it: one may let it
/// leave, and come back, before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Participation {
    /// It does: others may wait for it.
    Taking = 0,
    /// Not yet.
    NotYet = u32::from_le_bytes(*b"soon"),
    /// Not any more.
    NoMore = u32::from_le_bytes(*b"left"),
}

impl Participation {
    /// The part that a word stands for.
    pub(crate) fn from_word(word: u32) -> Participation {
        [Participation::NotYet, Participation::NoMore]
            .into_iter()
            .find(|&part| part as u32 == word)
            .unwrap_or(Participation::Taking)
    }
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
            State::Done => (3, 0, IN_ORDER as i32),
            State::Dead(Cause::Signal(s)) => (4, 0, s),
            State::Dead(Cause::Exit(c)) => (4, 1, c),
            // What one PE knows of another is no state of that one.
            State::Dead(Cause::Unreachable) => return State::Dead(UNKNOWN).to_word(),
            State::Dead(Cause::Panic) => (4, 2, 0),
            State::Dead(Cause::Host(Lost::Silent)) => (4, 3, 0),
            State::Dead(Cause::Host(Lost::Closed)) => (4, 3, 1),
            State::Dead(Cause::Finalized) => (3, 0, IN_ORDER as i32),
        };
        state | kind << 8 | u64::from(value as u32) << 32
    }

    /// The state that a word stands for; `None` for a word that the library does not write.
    pub(crate) fn read(word: u64) -> Option<Self> {
        let word = if word & 0xFF == 4 { word & !PLACE } else { word };
        let value = (word >> 32) as u32 as i32;
        let state = match (word & 0xFF, word >> 8 & 0xFF) {
            (0, _) => State::Empty,
            (1, _) => State::Joined,
            (2, _) => State::Finalizing,
            (3, _) => State::Done,
            (4, 0) => State::Dead(Cause::Signal(value)),
            (4, 1) => State::Dead(Cause::Exit(value)),
            (4, 2) => State::Dead(Cause::Panic),
            (4, 3) if value == 0 => State::Dead(Cause::Host(Lost::Silent)),
            (4, 3) => State::Dead(Cause::Host(Lost::Closed)),
            _ => return None,
        };
        (state.to_word() == word).then_some(state)
    }

    /// The state that a word stands for. A word that a stray store has left reads as a death of
    /// which nobody knows how it was.
    pub fn from_word(word: u64) -> Self {
        Self::read(word).unwrap_or(State::Dead(UNKNOWN))
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
        let lost = [Lost::Silent, Lost::Closed].map(Cause::Host);
        let dead =
            [Cause::Signal(9), Cause::Signal(-1), Cause::Exit(0), Cause::Exit(255), Cause::Panic];
        let states = [State::Empty, State::Joined, State::Finalizing, State::Done]
            .into_iter()
            .chain(dead.into_iter().chain(lost).map(State::Dead));
        for state in states {
            assert_eq!(State::from_word(state.to_word()), state);
            if let State::Dead(_) = state {
                for place in [Place::nth(1), Place::nth(700), Place::nth(70_000)] {
                    let word = place.with(state);
                    assert_eq!((State::from_word(word), Place::of_word(word)), (state, place));
                }
            }
        }
    }

    /// Small numbers, single bits, bytes all alike, and words that differ from a right one in one
    /// bit.
    #[test]
    fn a_stray_store_does_not_look_like_an_end_in_order() {
        let small = 0..4096;
        let bits = (0..64).map(|bit| 1 << bit);
        let alike = (0..=255).map(|byte| u64::from_ne_bytes([byte; 8]));
        let done = State::Done.to_word();
        for word in small.chain(bits).chain(alike).chain((0..64).map(|bit| done ^ 1 << bit)) {
            assert_ne!(State::from_word(word), State::Done, "{word:#x}");
            for half in [word as u32, (word >> 32) as u32] {
                assert_eq!(
                    (Participation::from_word(half), exit_status(half)),
                    (Participation::Taking, None),
                    "{half:#x}"
                );
            }
        }
        for word in [5, 0x101, 1 << 32 | 2, u64::MAX, 4 | 77 << 8, 4 | 2 << 8 | 1 << 32] {
            assert_eq!((State::read(word), State::from_word(word)), (None, State::Dead(UNKNOWN)));
        }
    }

    #[test]
    fn parts_and_requests_are_read_as_they_were_written() {
        for part in [Participation::Taking, Participation::NotYet, Participation::NoMore] {
            assert_eq!(Participation::from_word(part as u32), part);
        }
        for status in 0..=255 {
            assert_eq!(exit_status(exit_word(status)), Some(status));
        }
    }
}
