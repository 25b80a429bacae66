//! Whether the PE that runs on this thread unwinds after a panic.
//!
//! PEs of a simulated machine may share a thread. While one of them unwinds and waits, the standard
//! library says of the whole thread that it panics. Whoever runs the PEs [says](of_others) that the
//! panic is not that of the one that runs now.

use std::cell::Cell;

thread_local! {
    static OF_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the PE that runs on this thread unwinds.
#[inline(always)]
pub(crate) fn unwinds() -> bool {
    std::thread::panicking() && is_own()
}

#[cold]
fn is_own() -> bool {
    !OF_OTHERS.get()
}

/// Says whether panics of this thread are those of other PEs than the one that runs now. Gives what
/// was said before.
pub fn of_others(others: bool) -> bool {
    OF_OTHERS.replace(others)
}
