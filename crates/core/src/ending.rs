//! The end of a process that has decided on it, by a mistake that it cannot go on from or for the whole job.
//!
//! Its handlers and destructors still run, and may call anything. The others do not answer any more: they are ended, or go on without it. So
//! the thread that ends is in no meeting any more, what it would wait for fails at once, and if that leads to another end, the process
//! ends there.

use crate::error::{Cause, Error};
use crate::pe::Pe;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One more than the status with which this process is ending itself; 0: it is not.
static STATUS: AtomicU32 = AtomicU32::new(0);

/// Whether the exit handlers of this process run.
static EXITS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the thread that does it.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this process is ending itself, in any of its threads.
#[inline(always)]
pub fn is_under_way() -> bool {
    STATUS.load(Ordering::Relaxed) != 0
}

/// Why this thread may not meet others, nor wait for them: it is ending this process, and what it is in is a handler or a destructor.
#[inline(always)]
pub(crate) fn refusal(pe: &Pe) -> Option<Error> {
    if is_under_way() { refused(pe) } else { None }
}

/// Apart, as compilers look up a thread's variable before they look whether it is needed: a call into the loader, from each barrier of a shared library.
#[cold]
#[inline(never)]
fn refused(pe: &Pe) -> Option<Error> {
    HERE.get().then(|| Error::PeerFailed {
        pe: pe.me(),
        cause: Cause::Finalized,
    })
}

/// Says that the exit handlers of this process run.
pub(crate) fn set_exits() {
    EXITS.store(true, Ordering::Relaxed);
}

/// Whether the exit handlers of this process run: what it refers to is not looked at again.
pub(crate) fn exits() -> bool {
    EXITS.load(Ordering::Relaxed)
}

/// Ends this process as `exit` does. Called again by what runs then, ends it at once, with the first status; by another thread, waits
/// for the end.
pub fn end(status: u8) -> ! {
    let begun = STATUS.compare_exchange(0, u32::from(status) + 1, Ordering::Relaxed, Ordering::Relaxed);
    match begun {
        Ok(_) => {
            HERE.set(true);
            std::process::exit(status.into())
        }
        // SAFETY: writes out what the program has printed, as `exit` would, and ends the process.
        Err(first) if HERE.get() => unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(first as i32 - 1)
        },
        Err(_) => loop {
            std::thread::park();
        },
    }
}
