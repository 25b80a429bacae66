//! SIGQUIT to a PE that another launcher has started: each of its waits says what it is for.
//!
//! Memonet's launcher asks its PEs by a word in the job's memory ([`answer`](super::answer)). Under
//! another launcher nobody asks, so there the PE's own handler of SIGQUIT does. It notes the moment
//! and rings the PE's doorbell. Each thread that waits, looks in vain and sees the note then writes
//! a line to standard error, once for each signal, however late it gets to look. A wait that begins
//! later than [`LONGEST`] after the signal is not meant.
//!
//! *The handler may run at any moment.* It reads and writes atomics and shared words, rings, and
//! makes system calls. It allocates nothing and takes no lock.
//!
//! *No wake-up is lost by it*, for the reason of A2 in [`answer`](super::answer): the note is
//! written before the ring.

use super::report::Report;
use super::wording::told;
use crate::base::clock::monotonic_nanos;
use crate::base::log::log;
use crate::base::status::State;
use crate::endpoint::callers;
use crate::endpoint::pe::Pe;
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// How long after a signal a wait may begin that tells what it is for.
const LONGEST: u64 = 500_000_000;
/// How long after a signal waits look whether they have told: a thread may get no CPU for seconds.
const LATEST: u64 = 30_000_000_000;

/// The moment of the last signal that has not been dealt with, or 0.
static ASKED: AtomicU64 = AtomicU64::new(0);
/// What the signal did before: end the process, or nothing.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
/// The PE that this process is.
static PE: OnceLock<Arc<Pe>> = OnceLock::new();

thread_local! {
    /// The last signal that this thread has answered.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Whether a signal has come whose time may not be over.
#[inline(always)]
pub(super) fn is_asked() -> bool {
    cfg!(not(loom)) && ASKED.load(Ordering::Relaxed) != 0
}

/// Whether a signal has come that this thread has not answered.
pub(super) fn is_open() -> bool {
    let asked = ASKED.load(Ordering::Relaxed);
    asked != 0 && asked != TOLD.get()
}

/// Answers the signal, for PE `me` of `npes`, unless this thread has. A wait that has just looked
/// in vain calls it.
pub(super) fn tell(me: usize, npes: usize, report: &impl Fn() -> Report) {
    let asked = ASKED.load(Ordering::Relaxed);
    if asked == 0 {
        return;
    }
    let now = monotonic_nanos();
    if now.saturating_sub(asked) > LATEST {
        // A signal that comes at this moment stays.
        let _ = ASKED.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed);
        return;
    }
    if TOLD.replace(asked) == asked {
        return;
    }
    let mut report = report();
    if now.saturating_sub(report.waited) > asked.saturating_add(LONGEST) {
        return;
    }
    if !report.call.is_empty() && report.at.is_empty() {
        report.at = callers::line().unwrap_or_default();
    }
    // In one piece, as other PEs write to the same place. Nobody is told if that fails.
    let line = format!("memonet: {}\n", told(me, &report, npes));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Has SIGQUIT ask this process what its waits are for, if the program does not handle it. Shells
/// have processes in their background ignore it; there it asks, too.
pub(crate) fn attend(pe: &Arc<Pe>) {
    if cfg!(loom) || PE.set(pe.clone()).is_err() {
        return;
    }
    // SAFETY: an action of zeros is a valid one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the present action into memory that outlives the call.
    let read = unsafe { libc::sigaction(libc::SIGQUIT, std::ptr::null(), &mut action) };
    let is_free = [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    if read != 0 || !is_free {
        return;
    }
    BEFORE.store(action.sa_sigaction, Ordering::Relaxed);
    action.sa_sigaction = on_quit as extern "C" fn(libc::c_int) as usize;
    // System calls of the program go on where the kernel can do that.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler has the signature that the kernel calls, does only what a handler may
    // do, as the head of this file says, and stays loaded until the process ends.
    unsafe { libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut()) };
    log!(Info, pe.me(), "says at SIGQUIT what it waits for");
}

extern "C" fn on_quit(signal: libc::c_int) {
    // SAFETY: the place of this thread's `errno`, which the program that is interrupted may need.
    let errno = unsafe { *libc::__errno_location() };
    let pe = PE.get().filter(|pe| {
        pe.is_this_process() && !matches!(pe.control().state(pe.me()), State::Done | State::Dead(_))
    });
    match pe {
        Some(pe) => ask(pe),
        // To a process that is no PE, or one no more, the signal does what it would have done.
        // SAFETY: restores that, and sends the signal, which comes when the handler is left.
        None => unsafe {
            libc::signal(signal, BEFORE.load(Ordering::Relaxed));
            libc::raise(signal);
        },
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Asks the threads of this process.
fn ask(pe: &Pe) {
    let mut line = [0; 120];
    let room = line.len();
    let mut rest = &mut line[..];
    let (me, process) = (pe.me(), std::process::id());
    let _ = writeln!(rest, "memonet: PE {me} (process {process}), what its threads wait for:");
    let len = room - rest.len();
    // SAFETY: so many bytes of the line are written.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), len) };
    ASKED.store(monotonic_nanos().max(1), Ordering::SeqCst);
    pe.ring(pe.me());
}
