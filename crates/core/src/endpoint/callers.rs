//! Places of a program's calls, in languages that have no [`Location`](std::panic::Location).
//!
//! A report of a long wait, and a timeline, name the line of the program. Rust's compiler knows it.
//! The front end of an interpreted language asks its interpreter, by a function that it gives here
//! once. Places that the compiler knows are then the front end's own, and are told to nobody.

use crate::base::lock;
use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};

/// Gives the place of the call that this thread is in, as `file:line`; `None` where there is none.
///
/// It is called in a wait, after a look in vain and while somebody asks what waits are for, or at
/// the beginning of a call that is recorded. It makes no calls of the library. It may wait for a
/// lock that other threads of the process give up within milliseconds, whatever PEs do.
pub type Caller = fn() -> Option<String>;

static CALLER: OnceLock<Caller> = OnceLock::new();

/// Says how the places of calls are found in this process. The first call counts.
pub fn set(caller: Caller) {
    let _ = CALLER.set(caller);
}

/// Whether a front end knows the places of calls.
pub(crate) fn are_known() -> bool {
    CALLER.get().is_some()
}

/// The place of the call that this thread is in, from the front end.
pub(crate) fn place() -> Option<&'static str> {
    static PLACES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let place = CALLER.get()?()?;
    let mut places = lock(&PLACES);
    let places = places.get_or_insert_default();
    if let Some(known) = places.get(place.as_str()) {
        return Some(known);
    }
    // A program has so many lines, each of which is kept once.
    let kept: &'static str = Box::leak(place.into_boxed_str());
    places.insert(kept);
    Some(kept)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_once() {
        set(|| Some("program.py:7".into()));
        let (one, other) = (place().unwrap(), place().unwrap());
        assert_eq!(one, "program.py:7");
        assert!(std::ptr::eq(one, other));
    }
}
