//! The meaning of a process's end: a function of how it ended, and of the PE's state in the control
//! page.
//!
//! | how it ended | state of the PE | meaning |
//! |---|---|---|
//! | signal, or status not 0 | it has left in order | a failure that concerns no other PE |
//! | | any other | a failure that is published to the others |
//! | status 0 | it never joined | in order |
//! | | it has left in order | in order |
//! | | it joined, and does not take part yet, or no more | in order |
//! | | it joined, and takes part | a failure: it has left by `_exit(0)`, or as another program |
//! | | its process died under a wrapper | that failure |
//! | | a word that the library does not write | a failure |
//!
//! A PE has left in order if its state is [`State::Done`], or if it takes part [no
//! more](Participation::NoMore).
//!
//! *No death is mistaken for an end in order.* The kernel reports how the started process ended. If
//! that process is the PE, a signal or a status other than 0 is a failure, for every state and at
//! every moment: before the PE joined, before its first collective, as it finalised, or later. If
//! it is a wrapper, the wrapper's status counts. The launcher notices the death of the PE under a
//! wrapper by watching [that process](super::joined::Joined), or, if the wrapper ends first,
//! because the PE still takes part. Only the wrapper can report one death: that of a process that
//! had not joined, or did not take part, when its wrapper ended with status 0. The launcher cannot
//! know that the process would have.
//!
//! *The published end belongs to the state that was judged.* A wrapper may end while the process
//! under it joins. So the end of a PE is published by a compare-and-swap on the judged state. If
//! that state has changed, the end is judged again.
//!
//! *A PE that ends in order without having joined hangs no other PE.* Its end is published, and
//! every wait that depends on it fails. So if other PEs need it, they fail, and the job fails.

use memonet_core::Cause;
use memonet_core::unstable::launch::{Participation, State};

/// The meaning of the end of a PE's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The cause of a failure; `None` for an end in order.
    pub cause: Option<Cause>,
    /// The PE had left the job before: no other PE waits for it.
    pub after_finalizing: bool,
}

impl Verdict {
    /// Whether other PEs may wait for the dead PE, so that its death must be published.
    pub fn concerns_others(self) -> bool {
        self.cause.is_some() && !self.after_finalizing
    }

    /// The verdict on a process that ended like `how` (exit status 0 is a [`Cause::Exit`], too).
    pub fn of(how: Cause, state: State, part: Participation) -> Verdict {
        let cause = match (how, state) {
            (Cause::Exit(0), State::Empty | State::Done) => None,
            (Cause::Exit(0), State::Joined | State::Finalizing) => {
                (part == Participation::Taking).then_some(how)
            }
            (Cause::Exit(0), State::Dead(cause)) => Some(cause),
            _ => Some(how),
        };
        Verdict { cause, after_finalizing: has_left(state, part) }
    }
}

/// Whether the PE has left the job in order.
fn has_left(state: State, part: Participation) -> bool {
    state == State::Done || part == Participation::NoMore && !matches!(state, State::Dead(_))
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
    const PARTS: [Participation; 3] =
        [Participation::Taking, Participation::NotYet, Participation::NoMore];

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
                (State::Joined | State::Finalizing, Participation::Taking) => Some(Cause::Exit(0)),
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

    /// Others may continue only without PEs that have left.
    #[test]
    fn a_pe_that_has_not_left_is_missed() {
        for (state, part) in STATES.into_iter().flat_map(|state| PARTS.map(|part| (state, part))) {
            let left = match state {
                State::Done => true,
                State::Dead(_) => false,
                _ => part == Participation::NoMore,
            };
            assert_eq!(has_left(state, part), left, "{state:?} {part:?}");
        }
    }
}
