//! Signals to the launcher, which reads them from a descriptor.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use nix::sys::signal::{self, SigHandler, SigSet, SigmaskHow, Signal, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// The signals that are passed on to the PEs, but for SIGQUIT, which asks what they wait for.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// A signal that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    /// The signal.
    pub signal: Signal,
    /// It came from the terminal. The terminal has sent it to the PEs, too, but for those that have
    /// left the launcher's process group.
    pub from_terminal: bool,
}

/// While this value lives, signals do not have their usual effects.
pub struct Signals {
    fd: SignalFd,
    mask_before: SigSet,
    /// That mask, and SIGQUIT where it was caught: the launcher is about to end, and a question to
    /// its job does not change how.
    mask_after: SigSet,
}

impl Signals {
    /// Begins to catch signals.
    pub fn catch() -> Result<Signals> {
        let mut caught = SigSet::from(Signal::SIGCHLD);
        // A signal that `nohup` or a shell ignores stays ignored, here and in the PEs.
        PASSED_ON
            .into_iter()
            // This one is a question, which also those may ask whose shell ignores it.
            .filter(|&signal| signal == Signal::SIGQUIT || !is_ignored(signal))
            .for_each(|signal| caught.add(signal));
        Signals::catch_these(caught)
    }

    /// Begins to catch the ends of children alone: any other signal that ends this process is to do
    /// so.
    pub fn catch_children() -> Result<Signals> {
        Signals::catch_these(SigSet::from(Signal::SIGCHLD))
    }

    fn catch_these(caught: SigSet) -> Result<Signals> {
        let mut mask_before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&caught), Some(&mut mask_before))
            .context("sigprocmask")?;
        let fd = SignalFd::with_flags(&caught, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .context("signalfd")?;
        let mut mask_after = mask_before;
        if caught.contains(Signal::SIGQUIT) {
            mask_after.add(Signal::SIGQUIT);
        }
        Ok(Signals { fd, mask_before, mask_after })
    }

    /// Whether a signal waits that is to end the job.
    pub fn is_to_end(&self) -> bool {
        // SAFETY: a set of zeros is a set, which the call writes.
        let waiting = unsafe {
            let mut waiting = std::mem::zeroed();
            libc::sigpending(&mut waiting);
            SigSet::from_sigset_t_unchecked(waiting)
        };
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].iter().any(|&one| waiting.contains(one))
    }

    /// The next signal.
    pub fn next(&mut self) -> Option<Arrived> {
        let info = self.fd.next()?;
        let signal = Signal::try_from(info.ssi_signo as i32).ok()?;
        Some(Arrived { signal, from_terminal: info.ssi_code == libc::SI_KERNEL })
    }

    /// The signal mask that PEs start with.
    pub fn mask_before(&self) -> &libc::sigset_t {
        self.mask_before.as_ref()
    }

    /// Stops this process as the terminal's Ctrl-Z does, until it is continued.
    pub fn stop(&self) -> Result<()> {
        // By the default action of SIGTSTP. Unlike SIGSTOP, it does not stop a process that no
        // shell would continue.
        let tstp = SigSet::from(Signal::SIGTSTP);
        raise(Signal::SIGTSTP)?;
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&tstp), None)?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&tstp), None)?;
        Ok(())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Some senders send twice, to the process and to its group. The first one has ended the
        // job.
        while self.next().is_some() {}
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask_after), None);
    }
}

fn is_ignored(signal: Signal) -> bool {
    disposition(signal as i32) == libc::SIG_IGN
}

fn disposition(signal: i32) -> libc::sighandler_t {
    // SAFETY: sigaction is plain data for which all zeros is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the null pointer asks to change nothing; the other points to a live sigaction.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    action.sa_sigaction
}

/// The signals whose actions must be reset in a PE. Handlers would run in this process's memory
/// before the PE's `execve`. Rust's runtime, not the user, ignores SIGPIPE. And if SIGCHLD is
/// ignored, the exit status of children is lost.
pub fn to_reset() -> Vec<i32> {
    let handled = |&signal: &i32| !matches!(disposition(signal), libc::SIG_DFL | libc::SIG_IGN);
    (1..=libc::SIGRTMAX())
        .filter(|signal| handled(signal) || [libc::SIGPIPE, libc::SIGCHLD].contains(signal))
        .collect()
}

/// Makes sure that children leave their exit status.
pub fn keep_children() -> Result<()> {
    if is_ignored(Signal::SIGCHLD) {
        // SAFETY: no handler is installed, so no code runs in signal context.
        unsafe { signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// Ends this process by a signal's default action. Returns if that action does not end it.
pub fn die_of(signal: i32) {
    if let Ok(signal) = Signal::try_from(signal) {
        // A core dump of the launcher, which SIGQUIT would write, is of no use.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = raise(signal);
    }
}
