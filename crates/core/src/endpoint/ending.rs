//! Threads that must not wait for other PEs: of a process that ends itself, and of a process that a
//! PE has forked off.
//!
//! **A process that ends itself** does so after a fatal mistake, or to end the whole job. Its
//! handlers and destructors still run, and may make any call. The other PEs do not answer any more:
//! they are being ended, or go on without it. So calls of the ending thread that would wait for
//! other PEs fail at once. If such an error leads to a second end, the process ends there.
//!
//! **A process that a PE forks off** has the PE's memory, descriptors and exit handlers, but is not
//! the PE. The PE is the process that joined. Only that process knows its phases, its allocations,
//! and its places in queues:
//!
//! | call in the child | what it does |
//! |---|---|
//! | reads, writes and atomics of near memory | work as in the PE |
//! | barriers, collectives, allocation, locks and shared data, messages, multicast channels, calls of a simulated machine, and all waits | [`Error::Misuse`] |
//! | guards of locks, ends of channels, teams and barriers that are dropped | nothing: they are copies |
//! | `Job::finalize`, and the library's exit handler | nothing |
//! | `Job::exit` | asks for the end of the whole job and ends the child; the launcher ends the PE like the others |
//! | `Job::take_part` | makes the child the PE, if the PE has not taken part yet; otherwise [`Error::Misuse`] |
//!
//! libc calls a handler after a fork. It calls none for `vfork` or a bare `clone`; such a child may
//! only become another program. `finalize`, `exit` and `take_part` compare process ids instead.

use crate::base::error::{Cause, Error, Result};
use crate::base::process::Identity;
use crate::base::status::Participation;
use crate::endpoint::pe::Pe;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// 1 + the status with which this process is ending itself, or 0; and the bit [`FORKED`]. It is one
/// word, because each barrier reads it.
static STATUS: AtomicU32 = AtomicU32::new(0);
/// Set in a process that was forked off by one with a job.
const FORKED: u32 = 1 << 31;

/// The error's text for a process that is not the PE.
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

/// The error of a thread that must not wait for other PEs.
#[inline(always)]
pub(crate) fn refusal(pe: &Pe) -> Option<Error> {
    if STATUS.load(Ordering::Relaxed) != 0 { refused(pe) } else { None }
}

/// Refuses a process that is not the PE: it has copies of the PE's objects, which know nothing of
/// each other's steps.
#[inline(always)]
pub(crate) fn refuse_child(pe: &Pe) -> Result<()> {
    if is_forked() { not_the_pe(pe).map_or(Ok(()), Err) } else { Ok(()) }
}

/// Whether this process was forked off by one with a job. It may be the PE in its place.
#[inline(always)]
pub(crate) fn is_forked() -> bool {
    STATUS.load(Ordering::Relaxed) & FORKED != 0
}

/// Out of line, because compilers look up a thread-local variable before they test whether it is
/// needed: in a shared library, each barrier would call the loader.
#[cold]
#[inline(never)]
fn refused(pe: &Pe) -> Option<Error> {
    not_the_pe(pe).or_else(|| HERE.get().then(|| pe.failed(pe.me(), Cause::Finalized)))
}

/// Records that the exit handlers of this process run.
pub(crate) fn set_exits() {
    EXITS.store(true, Ordering::Relaxed);
}

/// Whether the exit handlers of this process run: then memory that it refers to is not used again.
pub(crate) fn exits() -> bool {
    EXITS.load(Ordering::Relaxed)
}

#[cold]
#[inline(never)]
fn not_the_pe(pe: &Pe) -> Option<Error> {
    (!pe.is_this_process()).then_some(Error::misuse(NOT_THE_PE))
}

/// Changes this PE's participation. The first process that takes part is the PE, even if it is a
/// child of the process that joined.
pub(crate) fn take_part(pe: &Pe, part: Participation) -> Result<()> {
    let (me, control) = (pe.me(), pe.control());
    let before = control.part(me);
    let takes_over =
        !pe.is_this_process() && (before, part) == (Participation::NotYet, Participation::Taking);
    if !pe.is_this_process() && !takes_over {
        return Err(Error::misuse(NOT_THE_PE));
    }
    if !takes_over && (before, part) == (Participation::Taking, Participation::Taking) {
        return Err(Error::misuse(
            "another copy of the library in this process takes part in the job already: a program \
             uses the C library, or Python's module, not both",
        ));
    }
    let of_another = before == Participation::Taking
        && control.process(me) != i32::try_from(std::process::id()).ok();
    if of_another || !control.step_part(me, before, part) {
        return Err(Error::misuse(
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

/// Makes processes that this one forks off know that they are not the PE.
pub(crate) fn mark_children() -> Result<()> {
    extern "C" fn in_child() {
        // The child has only this thread: an end that another thread had begun does not go on.
        let ending = if HERE.get() { STATUS.load(Ordering::Relaxed) } else { 0 };
        STATUS.store(ending | FORKED, Ordering::Relaxed);
    }
    static DONE: OnceLock<i32> = OnceLock::new();
    // SAFETY: the handler has the signature that libc calls, and stays loaded as long as libc keeps
    // it.
    match *DONE.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) }) {
        0 => Ok(()),
        errno => {
            let why = std::io::Error::from_raw_os_error(errno);
            Err(Error::system("pthread_atfork", why, "Free some memory"))
        }
    }
}

/// The longest time for which a second end waits for the streams of C's stdio, in seconds.
const FLUSH_LIMIT_S: u32 = 1;

/// Ends the process from a handler of its end, with the first status. The output that is still in
/// C's buffers is written out, as `exit` would do.
///
/// `fflush` waits for each stream that another thread uses: for ever, where that thread waits for
/// input. Nobody else need know that this process ends, so it sets the limit itself. A signal needs
/// no further thread, which would also have to wait for streams that this one has locked. Standard
/// output goes first, as `fflush` takes streams of the program before it.
#[cold]
fn end_again() -> ! {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    extern "C" fn leave() -> ! {
        let status = (STATUS.load(Ordering::Relaxed) & !FORKED) as i32 - 1;
        // SAFETY: `_exit` may be called at any time, also in a handler of a signal.
        unsafe { libc::_exit(status) }
    }
    extern "C" fn too_late(_signal: libc::c_int) {
        leave()
    }
    // SAFETY: the handler calls only what signal handlers may, and stays loaded: the process ends
    // here. The set of signals is initialised before use. `fflush` may be called at any time, and
    // `stdout` is the stream that libc has for it.
    unsafe {
        let mut alarm = std::mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::signal(libc::SIGALRM, too_late as *const () as libc::sighandler_t);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, std::ptr::null_mut());
        libc::alarm(FLUSH_LIMIT_S);
        libc::fflush(stdout);
        libc::fflush(std::ptr::null_mut());
    }
    leave()
}

/// Ends this process as `exit` does. A second call by this thread, from a handler, ends the process
/// at once with the first status; a call by another thread waits for the end.
pub fn end(status: u8) -> ! {
    let begin = |before: u32| (before & !FORKED == 0).then_some(before | (u32::from(status) + 1));
    match STATUS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin) {
        Ok(_) => {
            HERE.set(true);
            std::process::exit(status.into())
        }
        Err(_) if HERE.get() => end_again(),
        Err(_) => loop {
            std::thread::park();
        },
    }
}
