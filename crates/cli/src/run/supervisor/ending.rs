//! The steps by which the launcher ends a job. [`Phase`](super::super::phase::Phase) decides when
//! each is due.

use std::time::{Duration, Instant};

use memonet_core::Cause;
use memonet_core::unstable::launch::JobFile;
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::super::phase::{Deed, HANDLERS};
use super::super::report;
use super::{Supervisor, TIMED_OUT};

impl Supervisor {
    /// After a PE has asked for the end of the job: ends all PEs at once, except those that
    /// announce their own end, whose last output is still to come.
    pub(super) fn exit_as_asked(&mut self, status: u8) {
        if !self.phase.asked(Instant::now()) {
            return;
        }
        self.status.get_or_insert(status);
        self.next_check = Instant::now();
        let ends = self.look_for_joined();
        debug_assert!(ends.is_empty(), "from now on no end under a wrapper is a failure");
        let goes = |job: &JobFile, pe: usize| !job.is_exiting(pe);
        self.kill(goes);
        // After their wrappers, which could otherwise report their deaths.
        let wrapped = self.pes.iter().filter(|pe| pe.killed);
        for joined in wrapped.filter_map(|pe| pe.joined.as_ref()) {
            let _ = pidfd_send_signal(&joined.pidfd, Signal::KILL);
        }
    }

    pub(super) fn time_out(&mut self, timeout: Duration, now: Instant) {
        let which = self.running();
        self.say(&format!(
            "the job has not ended after {timeout:?}, its --timeout: ending it. Still running: PE {which}"
        ));
        self.status.get_or_insert(TIMED_OUT);
        self.hurry(now);
    }

    /// The PEs that have not ended, as text.
    fn running(&self) -> String {
        let running = self.pes.iter().enumerate().filter(|(_, pe)| pe.pidfd.is_some());
        report::ranges(&mut running.map(|(pe, _)| pe).collect::<Vec<_>>())
    }

    /// Ends the job without a grace period.
    pub(super) fn hurry(&mut self, now: Instant) {
        if let Some(deed) = self.phase.hurry(now) {
            self.carry_out(deed);
        }
    }

    pub(super) fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Terminate { late } => {
                if late {
                    let which = self.running();
                    let cause = "Often: an exit handler or a destructor that blocks";
                    self.say(&format!(
                        "PE {which} asked for the end of the job, but has not ended {HANDLERS:?} later: ending it. {cause}"
                    ));
                }
                self.send_all(Some(Signal::TERM));
            }
            Deed::Kill => self.kill(|_, _| true),
            Deed::Abandon => (0..self.pes.len()).for_each(|pe| self.abandon(pe)),
        }
    }

    pub(super) fn kill(&mut self, whom: impl Fn(&JobFile, usize) -> bool) {
        for pe in (0..self.pes.len()).filter(|&pe| whom(&self.job, pe)).collect::<Vec<_>>() {
            let Some(pidfd) = &self.pes[pe].pidfd else { continue };
            let sent = pidfd_send_signal(pidfd, Signal::KILL);
            self.pes[pe].killed = true;
            // It runs as another user, and may never end.
            if sent == Err(Errno::PERM) {
                self.abandon(pe);
            }
        }
    }

    /// Stops waiting for a PE. `Family` reports its process if it stays.
    fn abandon(&mut self, pe: usize) {
        if self.pes[pe].pidfd.take().is_some() {
            self.alive -= 1;
            self.job.depart(pe, Cause::Signal(libc::SIGKILL));
            self.tell_engine(pe);
        }
    }
}
