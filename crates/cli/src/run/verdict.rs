//! What the end of a process means: a function of how it ended, and of what the PE had said in the
//! control page.
//!
//! | how it ended | what the PE had said | meaning |
//! |---|---|---|
//! | signal, or status not 0 | it has left in order | a failure that concerns no other PE |
//! | | anything else, or nothing | a failure that the others are told of |
//! | status 0 | nothing: it never joined | in order |
//! | | it has left in order | in order |
//! | | it joined, and takes no part yet, or no more | in order |
//! | | it joined, and takes part | a failure: it has left by `_exit(0)`, or as another program |
//! | | its process died under a wrapper | that failure |
//! | | a word that the library does not write | a failure |
//!
//! It has left in order when it is [`State::Done`], or takes part [no more](Part::NoMore).
//!
//! *No death is taken for an end in order.* The kernel tells how the process ended that the
//! launcher has started. Where it is the PE, a signal or a status that is not 0 is a failure,
//! whatever the control page says, and at whichever moment it came: before the PE joined, between
//! that and its first meeting, as it finalised, or after that. Where it is a wrapper, its own
//! status counts. The launcher sees the death of the PE under it by watching [that
//! process](super::joined::Joined), or, if the wrapper ends first, because the PE still takes part.
//! One death is the wrapper's to tell: that of a process that had not joined yet, or took no part
//! yet when its wrapper ended with status 0. The launcher cannot know that it would have.
//!
//! *What the end was found out by is what is published.* A wrapper may end while the process under
//! it joins. So the end of a PE is published in exchange for the state that it was judged by; where
//! that has changed meanwhile, it is judged again.
//!
//! *A PE that ends in order without having joined hangs nobody.* It is published as gone, and every
//! wait that depends on it fails. So if others need it, they fail, and so does the job.

use memonet_core::Cause;
use memonet_core::launch::{Part, State};

/// What the end of a PE's process means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is a failure; `None` where it was in order.
    pub cause: Option<Cause>,
    /// The PE had left the job before: nobody waits for it.
    pub after_finalizing: bool,
}

impl Verdict {
    /// Whether others may wait for the PE, and are to be told that it is dead.
    pub fn concerns_others(self) -> bool {
        self.cause.is_some() && !self.after_finalizing
    }

    /// Of a process that ended like this (an exit status of 0 is [`Cause::Exit`] too).
    pub fn of(how: Cause, state: State, part: Part) -> Verdict {
        let cause = match (how, state) {
            (Cause::Exit(0), State::Empty | State::Done) => None,
            (Cause::Exit(0), State::Joined | State::Finalizing) => {
                (part == Part::Taking).then_some(how)
            }
            (Cause::Exit(0), State::Dead(cause)) => Some(cause),
            _ => Some(how),
        };
        Verdict { cause, after_finalizing: has_left(state, part) }
    }
}

/// Whether the PE has left the job in order.
fn has_left(state: State, part: Part) -> bool {
    state == State::Done || part == Part::NoMore && !matches!(state, State::Dead(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] = [
        State::Empty,
        State::Joined,
        State::Finalizing,
        State::Done,
        State::Dead(Cause::Signal(9)),
    ];
    const PARTS: [Part; 3] = [Part::Taking, Part::NotYet, Part::NoMore];

    #[test]
    fn a_signal_or_a_status_is_a_failure_at_any_moment() {
        for how in [Cause::Signal(9), Cause::Signal(15), Cause::Exit(1), Cause::Exit(255)] {
            for (state, part) in
                STATES.into_iter().flat_map(|state| PARTS.map(|part| (state, part)))
            {
                assert_eq!(Verdict::of(how, state, part).cause, Some(how), "{state:?} {part:?}");
            }
        }
    }

    #[test]
    fn status_0_is_in_order_unless_others_still_count_on_the_pe() {
        for (state, part) in STATES.into_iter().flat_map(|state| PARTS.map(|part| (state, part))) {
            let expected = match (state, part) {
                (State::Joined | State::Finalizing, Part::Taking) => Some(Cause::Exit(0)),
                (State::Dead(cause), _) => Some(cause),
                _ => None,
            };
            assert_eq!(
                Verdict::of(Cause::Exit(0), state, part).cause,
                expected,
                "{state:?} {part:?}"
            );
        }
    }

    /// Others may go on without those alone that have left.
    #[test]
    fn a_pe_that_has_not_left_is_missed() {
        for (state, part) in STATES.into_iter().flat_map(|state| PARTS.map(|part| (state, part))) {
            let left = match state {
                State::Done => true,
                State::Dead(_) => false,
                _ => part == Part::NoMore,
            };
            assert_eq!(has_left(state, part), left, "{state:?} {part:?}");
        }
    }
}
