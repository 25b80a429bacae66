//! The call of the program that each thread is in: what a report of a long wait names.
//!
//! Only calls that may wait for other PEs are noted, in a variable of the thread. A call that is
//! made inside of another one is a part of it: the program knows the outer one. A call of a team
//! inside of another call adds the team. The note of a call that has ended stays, until the next
//! call: the launcher reads it there.

pub(crate) mod last;

use super::recorder::{self, Current};
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

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

/// The call that a thread is in, or has been in last.
#[repr(C)]
struct Note {
    /// Tells a note from other memory.
    magic: u64,
    /// Odd in a call. Each call adds one when it begins, and when it ends.
    ends: Cell<u64>,
    name: Cell<&'static str>,
    at: Cell<Option<&'static Location<'static>>>,
    window: Cell<Option<&'static Location<'static>>>,
    team: Cell<Option<TeamCall>>,
}

const MAGIC: u64 = u64::from_le_bytes(*b"mn call\0");

thread_local! {
    static NOTE: Note = const {
        Note {
            magic: MAGIC,
            ends: Cell::new(0),
            name: Cell::new(""),
            at: Cell::new(None),
            window: Cell::new(None),
            team: Cell::new(None),
        }
    };
}

impl Note {
    #[inline(always)]
    fn is_in_call(&self) -> bool {
        self.ends.get() & 1 != 0
    }

    /// A call begins or ends.
    #[inline(always)]
    fn step(&self) {
        self.ends.set(self.ends.get().wrapping_add(1));
    }

    #[inline(always)]
    fn begin(&self, call: InCall) {
        self.name.set(call.name);
        self.at.set(call.at);
        self.window.set(call.window);
        self.team.set(call.team);
        self.step();
    }

    /// A whole call, which has ended.
    #[inline(always)]
    fn passed(&self, call: InCall) {
        self.begin(call);
        self.step();
    }

    fn current(&self) -> Option<InCall> {
        self.is_in_call().then(|| InCall {
            name: self.name.get(),
            at: self.at.get(),
            window: self.window.get(),
            team: self.team.get(),
        })
    }
}

/// The call that this thread is in.
pub(crate) fn current() -> Option<InCall> {
    NOTE.with(Note::current)
}

/// Notes a call that does not wait, as one that has ended; not in a call of which it is a part.
#[inline(always)]
pub(crate) fn note_ended(name: &'static str, at: &'static Location<'static>) {
    NOTE.with(|note| {
        if !note.is_in_call() {
            note.passed(InCall { name, at: Some(at), window: None, team: None });
        }
    });
}

/// Makes a call that may wait.
#[inline(always)]
pub(crate) fn within<R>(
    name: &'static str,
    at: Option<&'static Location<'static>>,
    window: Option<&'static Location<'static>>,
    call: impl FnOnce() -> R,
) -> R {
    let _ends = begin(name, at, window);
    call()
}

/// Notes that this thread is in a call that may wait, until the result is dropped; `None` in a call
/// that is a part of another one.
#[inline(always)]
pub(crate) fn begin(
    name: &'static str,
    at: Option<&'static Location<'static>>,
    window: Option<&'static Location<'static>>,
) -> Option<Ends> {
    NOTE.with(|note| {
        (!note.is_in_call()).then(|| {
            note.begin(InCall { name, at, window, team: None });
            Ends(PhantomData)
        })
    })
}

/// Notes that a call ends, also by a panic. Stays with its thread.
#[derive(Debug)]
#[must_use = "dropped, it ends the call"]
pub struct Ends(PhantomData<*const ()>);

impl Drop for Ends {
    #[inline(always)]
    fn drop(&mut self) {
        NOTE.with(Note::step);
    }
}

/// Whether this thread is in a collective call of a team.
#[inline(always)]
pub(crate) fn is_of_team() -> bool {
    NOTE.with(|note| note.is_in_call() && note.team.get().is_some())
}

/// Makes a collective call of a team, as a part of the call that this thread is in.
#[inline(always)]
pub(crate) fn of_team<R>(team: TeamCall, call: impl FnOnce() -> R) -> R {
    let _ends = NOTE.with(|note| {
        let is_part = note.is_in_call();
        is_part.then(|| EndsForTeam(note.team.replace(Some(team))))
    });
    call()
}

/// Restores the team around one whose call ends, also by a panic.
struct EndsForTeam(Option<TeamCall>);

impl Drop for EndsForTeam {
    #[inline(always)]
    fn drop(&mut self) {
        NOTE.with(|note| note.team.set(self.0));
    }
}

/// The call that a thread has left, to go on on another stack: as it is reported, and as it is
/// recorded.
#[derive(Debug)]
pub struct Left(Option<InCall>, Current);

/// Leaves the call that this thread is in, as the thread goes on on another stack. That stack must
/// stay as it is until this one goes on, or never go on.
pub fn leave() -> Left {
    let call = current();
    if call.is_some() {
        NOTE.with(Note::step);
    }
    Left(call, recorder::replace(Current::NOTHING))
}

impl Left {
    /// Goes on with the call, on its own stack again.
    ///
    /// # Safety
    /// The thread runs on the stack on which it [left](leave) the call, and where it did.
    pub unsafe fn resume(self) {
        if let Some(call) = self.0 {
            NOTE.with(|note| note.begin(call));
        }
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
            of_team(team(1), || assert_eq!(current().unwrap().team, Some(team(1))));
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
