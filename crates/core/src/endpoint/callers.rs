//! Places of a program's calls, in languages that have no [`Location`](std::panic::Location).
//!
//! A report of a long wait, and a timeline, name the line of the program. Rust's compiler knows it.
//! The front end of an interpreted language asks its interpreter, by a function that it gives here
//! once ([`set`]). Places that the compiler knows are then the front end's own, and are told to
//! nobody; windows are known by the place that the interpreter tells. The front end of C finds the
//! instruction of a call ([`find_instructions_by`]), and whoever reads the report looks up its
//! line.

use crate::base::lock;
use std::collections::{BTreeMap, HashSet};
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

/// Parts of windows in this process, by their first addresses: where they end, and the place at
/// which the program has made the window.
static PARTS: Mutex<BTreeMap<usize, (usize, &'static str)>> = Mutex::new(BTreeMap::new());

/// Remembers where the call that this thread is in makes a window, whose part of this PE is this,
/// if a front end tells places.
pub(crate) fn made(part: *const u8, bytes: usize) {
    if bytes > 0
        && let Some(place) = place()
    {
        lock(&PARTS).insert(part.addr(), (part.addr() + bytes, place));
    }
}

/// Forgets a window.
pub(crate) fn freed(part: *const u8, bytes: usize) {
    if bytes > 0 && are_known() {
        lock(&PARTS).remove(&part.addr());
    }
}

/// Where the program has made the window that has this address.
pub(crate) fn maker(address: usize) -> Option<&'static str> {
    let parts = lock(&PARTS);
    let (_, &(end, place)) = parts.range(..=address).next_back()?;
    (address < end).then_some(place)
}

/// An instruction that has called the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The path of the program or shared library.
    pub object: String,
    /// The instruction's address, as the file has it.
    pub address: u64,
}

/// The front end's way to find the instruction of the call that this thread is in.
static FIND: OnceLock<Finder> = OnceLock::new();

/// How a front end finds the call that a thread is in.
#[derive(Debug, Clone, Copy)]
pub struct Finder {
    /// The instruction that has made it. Takes little time.
    pub instruction: fn() -> Option<Instruction>,
    /// Its line, or its function. Reads files.
    pub line: fn() -> Option<String>,
}

/// Lets reports of long waits name what `find` finds, where a call has no line. It is asked inside
/// of the call, by the thread that waits. The first call counts.
pub fn find_instructions_by(find: Finder) {
    let _ = FIND.set(find);
}

/// The instruction of the call that this thread is in, if a front end finds it.
pub(crate) fn instruction() -> Option<Instruction> {
    FIND.get().and_then(|find| (find.instruction)())
}

/// The line of the call that this thread is in, if a front end finds it.
pub(crate) fn line() -> Option<String> {
    FIND.get().and_then(|find| (find.line)())
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
        // Of windows, too, as long as they are there.
        let part = std::ptr::without_provenance::<u8>(0x1000);
        made(part, 16);
        made(part.wrapping_add(16), 0);
        assert_eq!([0xfff, 0x1000, 0x100f, 0x1010].map(maker), [None, Some(one), Some(one), None]);
        freed(part, 16);
        assert_eq!(maker(0x1000), None);
    }
}
