//! Threads that meet nobody and wait for nobody: of a process that ends itself, and of one that a
//! PE has forked off.
//!
//! **A process that ends itself** has decided on it, by a mistake that it cannot go on from or for
//! the whole job. Its handlers and destructors still run, and may call anything. The others do not
//! answer any more: they are ended, or go on without it. So the thread that ends is in no meeting
//! any more, what it would wait for fails at once, and if that leads to another end, the process
//! ends there.
//!
//! **A process that a PE forks off** has the PE's memory, descriptors and exit handlers, and is not
//! the PE. The PE is the process that joined. Only that one knows which phase it is in, what is
//! allocated, and which places in queues are its own:
//!
//! | call in the child | what it does |
//! |---|---|
//! | reads, writes and atomics of near memory | what they do in the PE |
//! | barriers, collectives, allocation, locks, calls of a simulated machine, and whatever has to wait | [`Error::Misuse`] |
//! | `Job::finalize`, and the library's exit handler | nothing |
//! | `Job::exit` | asks for the end of the whole job and ends the child; the PE is ended like those that have not asked |
//! | `Job::take_part` | makes the child the PE, if the PE has not taken part yet; otherwise [`Error::Misuse`] |
//!
//! The kernel tells of a fork by a handler of libc. A child of `vfork` or of a bare `clone` is not
//! told of; it may only become another program. `finalize`, `exit` and `take_part` ask for the
//! number of the process instead.

use crate::base::error::{Cause, Error, Result};
use crate::base::process::Identity;
use crate::base::status::Participation;
use crate::endpoint::pe::Pe;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One more than the status with which this process is ending itself, 0 while it is not; and
/// [`FORKED`]. One word, as each barrier looks at it.
static STATUS: AtomicU32 = AtomicU32::new(0);
/// This process was forked off by one with a job.
const FORKED: u32 = 1 << 31;

/// What a process is told that is not the PE.
pub(crate) const NOT_THE_PE: &str = "this process was forked off by the PE, and is not the PE: \
     it may read and write near memory, and end the job; leave the rest to the process that joined, \
     or fork before that";

/// Whether the exit handlers of this process run.
static EXITS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the thread that ends the process.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this process is ending itself, in any of its threads.
#[inline(always)]
pub fn is_under_way() -> bool {
    STATUS.load(Ordering::Relaxed) & !FORKED != 0
}

/// Why this thread may not meet others, nor wait for them.
#[inline(always)]
pub(crate) fn refusal(pe: &Pe) -> Option<Error> {
    if STATUS.load(Ordering::Relaxed) != 0 { refused(pe) } else { None }
}

/// Why this process may not act as the PE.
#[inline(always)]
pub(crate) fn refusal_of_child(pe: &Pe) -> Option<Error> {
    if STATUS.load(Ordering::Relaxed) & FORKED != 0 { not_the_pe(pe) } else { None }
}

/// Apart, as compilers look up a thread's variable before they look whether it is needed: a call
/// into the loader, from each barrier of a shared library.
#[cold]
#[inline(never)]
fn refused(pe: &Pe) -> Option<Error> {
    not_the_pe(pe)
        .or_else(|| HERE.get().then(|| Error::PeerFailed { pe: pe.me(), cause: Cause::Finalized }))
}

/// Says that the exit handlers of this process run.
pub(crate) fn set_exits() {
    EXITS.store(true, Ordering::Relaxed);
}

/// Whether the exit handlers of this process run: what it refers to is not looked at again.
pub(crate) fn exits() -> bool {
    EXITS.load(Ordering::Relaxed)
}

#[cold]
#[inline(never)]
fn not_the_pe(pe: &Pe) -> Option<Error> {
    (!pe.is_this_process()).then_some(Error::Misuse(NOT_THE_PE))
}

/// Says whether this PE takes part in anything. The first process to say so is the PE, be it a
/// child of the one that joined.
pub(crate) fn take_part(pe: &Pe, part: Participation) -> Result<()> {
    let (me, control) = (pe.me(), pe.control());
    let before = control.part(me);
    let takes_over =
        !pe.is_this_process() && (before, part) == (Participation::NotYet, Participation::Taking);
    if !pe.is_this_process() && !takes_over {
        return Err(Error::Misuse(NOT_THE_PE));
    }
    let of_another = before == Participation::Taking
        && control.process(me) != i32::try_from(std::process::id()).ok();
    if of_another || !control.step_part(me, before, part) {
        return Err(Error::Misuse(
            "another process of this PE takes part in the job already: one that it has forked off, \
             or its parent; initialise in one of them",
        ));
    }
    if takes_over {
        pe.become_this_process();
        match Identity::mine() {
            Some(mine) => control.introduce(me, mine),
            None => control.set_pid(me),
        }
    }
    Ok(())
}

/// From now on, processes that this one forks off know that they were.
pub(crate) fn tell_children() -> Result<()> {
    extern "C" fn in_child() {
        // Of the threads, the child has this one alone: what another one had begun does not go on.
        let ending = if HERE.get() { STATUS.load(Ordering::Relaxed) } else { 0 };
        STATUS.store(ending | FORKED, Ordering::Relaxed);
    }
    static DONE: OnceLock<i32> = OnceLock::new();
    // SAFETY: the function has the signature that libc calls, and stays loaded as long as libc
    // knows it.
    match *DONE.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) }) {
        0 => Ok(()),
        errno => {
            let why = std::io::Error::from_raw_os_error(errno);
            Err(Error::system("pthread_atfork", why, "Free some memory"))
        }
    }
}

/// Ends this process as `exit` does. Called again by what runs then, ends it at once, with the
/// first status; by another thread, waits for the end.
pub fn end(status: u8) -> ! {
    let begin = |before: u32| (before & !FORKED == 0).then_some(before | (u32::from(status) + 1));
    match STATUS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin) {
        Ok(_) => {
            HERE.set(true);
            std::process::exit(status.into())
        }
        // SAFETY: writes out what the program has printed, as `exit` would, and ends the process.
        Err(first) if HERE.get() => unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit((first & !FORKED) as i32 - 1)
        },
        Err(_) => loop {
            std::thread::park();
        },
    }
}
