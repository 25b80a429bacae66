//! The call of the program that each thread is in: what a report of a long wait names.
//!
//! Only calls that may wait for other PEs are noted. A note lies on the stack of its call, and a
//! variable of the thread points to it. A call that is made inside of another one is a part of it:
//! the program knows the outer one. A call of a team inside of another call adds the team.

use super::recorder::{self, Current};
use std::cell::Cell;
use std::panic::Location;
use std::ptr::null;

/// A call that may wait.
#[derive(Debug, Clone)]
pub(crate) struct InCall {
    /// The function.
    pub(crate) name: &'static str,
    /// Where the program called it, where that is known.
    pub(crate) at: Option<&'static Location<'static>>,
    /// Where the program has made the window that is used, if one is.
    pub(crate) window: Option<&'static Location<'static>>,
    /// The team of the call, while it is one of a team.
    pub(crate) team: Cell<Option<TeamCall>>,
}

/// A collective call of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TeamCall {
    /// The team's slot.
    pub(crate) slot: usize,
    /// How many calls of the team came before it. All members count alike, if they make the same
    /// calls.
    pub(crate) number: u64,
}

thread_local! {
    /// The call that this thread is in; null in none.
    ///
    /// Invariant: it is null, or what it points to lives until [`Ends`] makes it null. A thread
    /// that goes on on another stack [leaves](leave) it before.
    static CURRENT: Cell<*const InCall> = const { Cell::new(null()) };
}

/// Lets `f` see the call that this thread is in.
#[inline(always)]
fn with_current<R>(f: impl FnOnce(Option<&InCall>) -> R) -> R {
    // SAFETY: by the invariant of `CURRENT`; what it points to outlives all calls inside of it, and
    // this is one.
    f(unsafe { CURRENT.get().as_ref() })
}

/// The call that this thread is in.
pub(crate) fn current() -> Option<InCall> {
    with_current(|call| call.cloned())
}

/// Makes a call that may wait.
#[inline(always)]
pub(crate) fn within<R>(
    name: &'static str,
    at: Option<&'static Location<'static>>,
    window: Option<&'static Location<'static>>,
    call: impl FnOnce() -> R,
) -> R {
    if !CURRENT.get().is_null() {
        return call();
    }
    let note = InCall { name, at, window, team: Cell::new(None) };
    CURRENT.set(&note);
    let _ends = Ends;
    call()
}

/// Forgets a call that ends, also by a panic.
struct Ends;

impl Drop for Ends {
    #[inline(always)]
    fn drop(&mut self) {
        CURRENT.set(null());
    }
}

/// Whether this thread is in a collective call of a team.
#[inline(always)]
pub(crate) fn is_of_team() -> bool {
    with_current(|call| call.is_some_and(|call| call.team.get().is_some()))
}

/// Makes a collective call of a team, as a part of the call that this thread is in.
#[inline(always)]
pub(crate) fn of_team<R>(team: TeamCall, call: impl FnOnce() -> R) -> R {
    with_current(|outer| {
        let _ends = outer.map(|outer| EndsForTeam(&outer.team, outer.team.replace(Some(team))));
        call()
    })
}

/// Restores the team around one whose call ends, also by a panic.
struct EndsForTeam<'a>(&'a Cell<Option<TeamCall>>, Option<TeamCall>);

impl Drop for EndsForTeam<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// The call that a thread has left, to go on on another stack: as it is reported, and as it is
/// recorded.
#[derive(Debug)]
pub struct Left(*const InCall, Current);

/// Leaves the call that this thread is in, as the thread goes on on another stack. That stack must
/// stay as it is until this one goes on, or never go on.
pub fn leave() -> Left {
    Left(CURRENT.replace(null()), recorder::replace(Current::NOTHING))
}

impl Left {
    /// Goes on with the call, on its own stack again.
    ///
    /// # Safety
    /// The thread runs on the stack on which it [left](leave) the call, and where it did.
    pub unsafe fn resume(self) {
        CURRENT.set(self.0);
        recorder::replace(self.1);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn name() -> Option<&'static str> {
        current().map(|call| call.name)
    }

    #[test]
    fn the_outer_call_has_the_name() {
        let team = |slot| TeamCall { slot, number: 0 };
        assert_eq!(name(), None);
        within("outer", None, None, || {
            within("inner", None, None, || assert_eq!(name(), Some("outer")));
            assert!(!is_of_team());
            of_team(team(1), || assert_eq!(current().unwrap().team.get(), Some(team(1))));
            assert!(!is_of_team());
        });
        assert_eq!(name(), None);
    }

    #[test]
    fn another_stack_has_calls_of_its_own() {
        within("here", None, None, || {
            let left = leave();
            assert_eq!(name(), None);
            within("there", None, None, || assert_eq!(name(), Some("there")));
            // SAFETY: this is the stack and the place where the call was left.
            unsafe { left.resume() };
            assert_eq!(name(), Some("here"));
        });
        assert_eq!(name(), None);
    }

    #[test]
    fn a_panic_ends_a_call() {
        let ended =
            std::panic::catch_unwind(|| within("lost", None, None, || panic!("on purpose")));
        assert!(ended.is_err() && name().is_none());
    }
}
