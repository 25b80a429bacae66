//! Calls that may wait: without the interpreter's lock, and ended by Ctrl-C.
//!
//! # Signals
//!
//! Python handles a signal between two instructions of its main thread. A main thread that waits in
//! the library executes none. So the library's waits ask Python, by the core's hook
//! ([`Attention`]):
//!
//! * A wait of the main thread calls for attention itself, before it begins. Most waits end in
//!   their first looks, which do not attend. One that lasts runs the hook at its first check.
//! * The hook of the main thread dismisses the call, and replaces the C-level handlers of the
//!   signals that programs handle in Python by [`handle`], which calls the one that was there,
//!   Python's, and then calls for attention. Then it lets Python run its handlers. Later
//!   `signal.signal` calls put Python's back; the next wait that lasts replaces it again. Signals
//!   that are ignored, or that have no handler, stay as they are.
//! * If one of Python's handlers raises (that of Ctrl-C raises `KeyboardInterrupt`), the wait ends,
//!   and its call raises that exception, also where what it waited for has come meanwhile, or a
//!   failure has. If none does, the wait goes on. A handler must not make
//!   calls that wait.
//! * The hook of any other thread goes on: signals are the main thread's. If the main thread is not
//!   waiting, that hook dismisses the call, as nobody else would.
//!
//! *No signal is lost.* The main thread (M1) says that it waits, then (M2) calls. Its hook (M3)
//! dismisses, (M4) replaces the handlers, then (M5) has Python run its own. A signal (H1) is noted
//! by Python, then (H2), if its handler was replaced, calls. A signal that comes before M4 is found
//! at M5. For one that comes later, H2 comes after M3, and the call stands until the next hook,
//! whose M5 finds it. The hook of another thread does not take M2 away: it (O1) sees that the main
//! thread does not wait, (O2) dismisses, and (O3) calls again if it now does. If O2 comes after M2,
//! O3 comes after M1, and sees it. What comes when the wait has ended is found by the interpreter,
//! between two instructions.
//!
//! A collective that was interrupted leaves its team unusable: members no longer agree on the next
//! call.

use crate::errors::raise;
use memonet_core::unstable::wait::{Attention, Waiting};
use memonet_core::{Error, Job};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::RefCell;
use std::ffi::c_int;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Transfers of this many bytes give up the interpreter's lock: they take longer than that does.
pub const LONG_BYTES: usize = 64 << 10;

/// How long a wait looks before it gives up the interpreter's lock: about what giving it up and
/// taking it again costs where other threads want it.
const FIRST_LOOK: Duration = Duration::from_micros(5);

thread_local! {
    /// The exception that a signal handler has raised in a wait of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The job of this process, for signal handlers.
static CALLED: OnceLock<Attention> = OnceLock::new();
/// The C-level handlers that [`handle`] has replaced, by signal; 0 where it has replaced none.
static REPLACED: [AtomicUsize; MOST_SIGNALS] = [const { AtomicUsize::new(0) }; MOST_SIGNALS];
/// Those that it has replaced first.
static FIRST: [AtomicUsize; MOST_SIGNALS] = [const { AtomicUsize::new(0) }; MOST_SIGNALS];
/// The thread in [`handle`], as pthreads name it, by signal.
static HANDLES: [AtomicUsize; MOST_SIGNALS] = [const { AtomicUsize::new(0) }; MOST_SIGNALS];
const MOST_SIGNALS: usize = 65;
/// Whether the main thread waits, or is about to.
static MAIN_WAITS: AtomicBool = AtomicBool::new(false);
/// The main thread, as pthreads name it.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// The signals that programs handle in Python.
const SIGNALS: [c_int; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGALRM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// Makes the waits of the process's job end by Ctrl-C. Gives whether this call was the first.
pub fn watch(py: Python<'_>, job: &Job) -> PyResult<bool> {
    if CALLED.get().is_some() {
        return Ok(false);
    }
    MAIN.store(main_thread(py)?, Ordering::Relaxed);
    let attention = job.attention();
    attention.set_hook(|waiting| {
        if !is_main() {
            leave_to_main(waiting);
            return ControlFlow::Continue(());
        }
        waiting.dismiss(); // M3
        intercept(); // M4
        // M5. An interpreter that ends handles no more signals.
        let handled = Python::try_attach(|py| match py.check_signals() {
            Ok(()) => ControlFlow::Continue(()),
            Err(raised) => {
                RAISED.with(|place| *place.borrow_mut() = Some(raised));
                ControlFlow::Break(())
            }
        });
        handled.unwrap_or(ControlFlow::Continue(()))
    });
    Ok(CALLED.set(attention).is_ok())
}

/// The main thread. The module `threading` knows it; where nobody has imported that, no thread was
/// started, and importing it would take as long as all else of the package.
fn main_thread(py: Python<'_>) -> PyResult<usize> {
    match py.import("sys")?.getattr("modules")?.cast::<PyDict>()?.get_item("threading")? {
        Some(threading) => threading.call_method0("main_thread")?.getattr("ident")?.extract(),
        None => Ok(this_thread()),
    }
}

/// The hook of a thread that handles no signals.
fn leave_to_main(waiting: &Waiting<'_>) {
    if MAIN_WAITS.load(Ordering::SeqCst) {
        return; // O1
    }
    waiting.dismiss(); // O2
    if let (true, Some(attention)) = (MAIN_WAITS.load(Ordering::SeqCst), CALLED.get()) {
        attention.call(); // O3
    }
}

/// This thread, as pthreads name it.
pub fn this_thread() -> usize {
    // SAFETY: it only gives this thread's name.
    unsafe { libc::pthread_self() as usize }
}

fn is_main() -> bool {
    this_thread() == MAIN.load(Ordering::Relaxed)
}

/// What runs at a signal: only what a signal handler may do.
///
/// A handler that a library has installed over this one, and that was replaced in turn, may call
/// this one as the one before it: that call is for the first.
extern "C" fn handle(signal: c_int) {
    let at = signal as usize % MOST_SIGNALS;
    let me = this_thread();
    let outer = HANDLES[at].swap(me, Ordering::Relaxed);
    let replaced = if outer == me { &FIRST } else { &REPLACED };
    let replaced = replaced[at].load(Ordering::Relaxed);
    if replaced != 0 {
        // SAFETY: a handler that `sigaction` has given for this signal, without SA_SIGINFO.
        let replaced: extern "C" fn(c_int) = unsafe { std::mem::transmute(replaced) };
        replaced(signal);
    }
    if outer != me {
        HANDLES[at].store(0, Ordering::Relaxed);
    }
    if let Some(attention) = CALLED.get() {
        attention.call();
    }
}

/// Replaces C-level handlers, Python's, by [`handle`].
fn intercept() {
    let ours = handle as extern "C" fn(c_int) as usize;
    for signal in SIGNALS {
        // SAFETY: it fills `present`, which any bytes may be.
        let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks for the present handler, and changes nothing.
        if unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut present) } != 0 {
            continue;
        }
        let is_none = [libc::SIG_DFL, libc::SIG_IGN, ours].contains(&present.sa_sigaction);
        if is_none || present.sa_flags & libc::SA_SIGINFO != 0 {
            continue;
        }
        REPLACED[signal as usize].store(present.sa_sigaction, Ordering::Relaxed);
        let first = &FIRST[signal as usize];
        let _ =
            first.compare_exchange(0, present.sa_sigaction, Ordering::Relaxed, Ordering::Relaxed);
        present.sa_sigaction = ours;
        // SAFETY: `handle` does what a signal handler may do; mask and flags stay as they are.
        unsafe { libc::sigaction(signal, &raw const present, std::ptr::null_mut()) };
    }
}

/// A call of the main thread that may wait.
struct Waits(&'static Attention);

impl Waits {
    /// The waits of another thread need nothing.
    fn begin() -> Option<Waits> {
        let attention = CALLED.get().filter(|_| is_main())?;
        MAIN_WAITS.store(true, Ordering::SeqCst); // M1
        attention.call(); // M2
        Some(Waits(attention))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        MAIN_WAITS.store(false, Ordering::SeqCst);
        self.0.dismiss();
    }
}

/// Makes a call of the core that may wait.
pub fn wait<R: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> memonet_core::Result<R> + Send,
) -> PyResult<R> {
    let waits = Waits::begin();
    let result = py.detach(call);
    drop(waits);
    match (result, RAISED.with(|place| place.borrow_mut().take())) {
        // What it waited for may have come all the same. The exception must not be lost.
        (_, Some(raised)) => Err(raised),
        (result, None) => result.map_err(|error| raise(py, error)),
    }
}

/// Whether a wait may look with the interpreter's lock in hand. Where the lock is shared with the
/// PE that is waited for, looking with it is in vain. In a simulation a look with a limit would
/// take time.
pub fn looks(job: &Job, shares_interpreter: bool) -> bool {
    !shares_interpreter && job.fabric().is_none()
}

/// Makes a call of the core that waits for so long at most. If it `looks`, it first does so with
/// the interpreter's lock in hand.
pub fn look_then_wait<R: Send>(
    py: Python<'_>,
    looks: bool,
    timeout: Option<Duration>,
    mut call: impl FnMut(Option<Duration>) -> memonet_core::Result<R> + Send,
) -> PyResult<R> {
    if looks && timeout.is_none_or(|timeout| timeout > FIRST_LOOK) {
        match call(Some(FIRST_LOOK)) {
            Ok(result) => return Ok(result),
            Err(Error::Timeout { .. }) => {}
            Err(error) => return Err(ended(py, error)),
        }
    }
    wait(py, || call(timeout))
}

/// Makes a call of the core: without the interpreter's lock if it is `long`.
pub fn call<R: Send>(
    py: Python<'_>,
    long: bool,
    call: impl FnOnce() -> memonet_core::Result<R> + Send,
) -> PyResult<R> {
    match long {
        true => wait(py, call),
        false => call().map_err(|error| raise(py, error)),
    }
}

/// The exception of a wait that has failed: what a signal handler has raised, if it was that.
pub fn ended(py: Python<'_>, error: Error) -> PyErr {
    let raised = RAISED.with(|place| place.borrow_mut().take());
    raised.unwrap_or_else(|| raise(py, error))
}
