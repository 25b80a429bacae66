//! The call of the program that each thread is in: what a report of a long wait names.
//!
//! Only calls that may wait for other PEs are recorded, in a variable of their thread. A call that
//! is made inside of another one is a part of it: the program knows the outer one. A call of a team
//! inside of another call adds the team.
//!
//! Calls of a program in C have no line. Its front end finds their place, where a report asks for
//! it: [`find_callers_by`].

use std::cell::Cell;
use std::panic::Location;
use std::sync::OnceLock;

/// A call that may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InCall {
    /// The function.
    pub(crate) name: &'static str,
    /// Where the program called it, where that is known.
    pub(crate) at: Option<&'static Location<'static>>,
    /// Where the program has made the window that is used, if one is.
    pub(crate) window: Option<&'static Location<'static>>,
    /// The team of the call, if it is one of a team.
    pub(crate) team: Option<TeamCall>,
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

/// Where a program has called the library: an instruction of an object file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The path of the program or shared library.
    pub object: String,
    /// The instruction's address, as the file has it.
    pub address: u64,
}

/// The front end's way to find the caller of the call that this thread is in.
static FIND: OnceLock<fn() -> Option<Caller>> = OnceLock::new();

/// Lets reports of long waits name the caller that `find` finds, where a call has no line. It is
/// asked inside of the call, by the thread that waits.
pub fn find_callers_by(find: fn() -> Option<Caller>) {
    let _ = FIND.set(find);
}

/// The caller of the call that this thread is in, if a front end finds it.
pub(crate) fn caller() -> Option<Caller> {
    FIND.get().and_then(|find| find())
}

thread_local! {
    static CURRENT: Cell<Option<InCall>> = const { Cell::new(None) };
}

/// The call that this thread is in.
pub(crate) fn current() -> Option<InCall> {
    CURRENT.get()
}

/// Makes a call that may wait.
#[inline(always)]
pub(crate) fn within<R>(
    name: &'static str,
    at: Option<&'static Location<'static>>,
    window: Option<&'static Location<'static>>,
    call: impl FnOnce() -> R,
) -> R {
    let before = CURRENT.get();
    if before.is_some() {
        return call();
    }
    CURRENT.set(Some(InCall { name, at, window, team: None }));
    let _ends = Restore(before);
    call()
}

/// Whether this thread is in a collective call of a team.
#[inline(always)]
pub(crate) fn is_of_team() -> bool {
    CURRENT.get().is_some_and(|call| call.team.is_some())
}

/// Makes a collective call of a team, as a part of the call that this thread is in.
#[inline(always)]
pub(crate) fn of_team<R>(team: TeamCall, call: impl FnOnce() -> R) -> R {
    let before = CURRENT.get();
    CURRENT.set(before.map(|outer| InCall { team: Some(team), ..outer }));
    let _ends = Restore(before);
    call()
}

/// Restores the call around one that ends, also by a panic.
struct Restore(Option<InCall>);

impl Drop for Restore {
    #[inline(always)]
    fn drop(&mut self) {
        CURRENT.set(self.0);
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
            of_team(team(1), || assert_eq!(current().unwrap().team, Some(team(1))));
            assert!(!is_of_team());
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
