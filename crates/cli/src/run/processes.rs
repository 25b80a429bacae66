//! The processes of a node's PEs: their starts, their ends, and what of these is published to the
//! other PEs.
//!
//! PEs have the numbers of the whole job. Those of a node follow each other.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::Result;
use memonet_control::events::listen;
use memonet_core::Cause;
use memonet_core::unstable::launch::{JobFile, UNKNOWN};
use memonet_core::unstable::wait::wording;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, pidfd_send_signal, waitid,
};

use super::course::End;
use super::family::Family;
use super::joined::{self, CHECK, Found, Joined};
use super::phase::{Deed, HANDLERS, LAST_GRACE, Phase};
use super::verdict::Verdict;

/// Added to a process's index: stands for the process that joined as this PE, if it is not the one
/// that was started.
const JOINED: u64 = 1 << 32;

struct Process {
    pid: Pid,
    /// `None` after its end.
    pidfd: Option<OwnedFd>,
    /// The process that joined, while it runs and is not the one that was started.
    joined: Option<Joined>,
    /// The launcher has sent SIGKILL.
    killed: bool,
}

/// The processes of a node's PEs. Dropping this ends them.
pub struct Processes {
    /// The number of the node's first PE.
    first: usize,
    all: Vec<Process>,
    alive: usize,
    /// PEs of which no process has joined so far, by index.
    unseen: BTreeSet<usize>,
    /// When to check them again.
    next_check: Instant,
    /// PEs whose ends were published, but are no [`End`].
    unreported: Vec<usize>,
    /// Deaths for others to publish, where these order them.
    unordered: Option<Vec<(usize, Cause)>>,
    /// Processes that joined, and outlast their wrappers: if a signal has told all to end, they
    /// have until then.
    outlasting: (Vec<Joined>, Option<Instant>),
    /// How far the job is on its way to its end.
    pub phase: Phase,
    family: Family,
    job: JobFile,
}

impl Processes {
    /// Prepares for the PEs from `first` on.
    pub fn new(first: usize, family: Family, job: JobFile) -> Processes {
        Processes {
            first,
            all: Vec::new(),
            alive: 0,
            unseen: BTreeSet::new(),
            next_check: Instant::now(),
            unreported: Vec::new(),
            unordered: None,
            outlasting: (Vec::new(), None),
            phase: Phase::Running,
            family,
            job,
        }
    }

    /// From now on, deaths are not published here, but [given](Self::take_unordered) to who orders
    /// them.
    pub fn order_elsewhere(&mut self) {
        self.unordered = Some(Vec::new());
    }

    /// Deaths since the last call that were not published here.
    pub fn take_unordered(&mut self) -> Vec<(usize, Cause)> {
        self.unordered.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn publish(&mut self, pe: usize, cause: Cause) {
        match &mut self.unordered {
            Some(deaths) => deaths.push((pe, cause)),
            None => self.job.depart(pe, cause),
        }
    }

    /// The job's shared memory.
    pub fn job(&self) -> &JobFile {
        &self.job
    }

    /// Whether a PE has not ended.
    pub fn are_alive(&self) -> bool {
        self.alive > 0
    }

    /// The process that is a PE, if the PE was started: the one that joined, where it is known.
    pub fn process(&self, pe: usize) -> Option<i32> {
        let process = self.all.get(pe - self.first)?;
        Some(process.joined.as_ref().map_or(process.pid.as_raw_pid(), |joined| joined.pid))
    }

    /// The PEs that were started.
    pub fn pes(&self) -> Range<usize> {
        self.first..self.first + self.all.len()
    }

    /// Whether a PE was started and has not ended.
    pub fn runs(&self, pe: usize) -> bool {
        self.all.get(pe - self.first).is_some_and(|process| process.pidfd.is_some())
    }

    /// Takes charge of the next PE. `events` reports its end.
    pub fn adopt(&mut self, pid: Pid, pidfd: OwnedFd, events: &OwnedFd) -> Result<()> {
        let index = self.all.len();
        let listening = listen(events, &pidfd, index as u64);
        self.all.push(Process { pid, pidfd: Some(pidfd), joined: None, killed: false });
        self.alive += 1;
        self.unseen.insert(index);
        listening
    }

    /// When to look again which processes have joined.
    pub fn next_check(&self) -> Option<Instant> {
        (!self.unseen.is_empty()).then_some(self.next_check)
    }

    /// Collects other processes that have ended.
    pub fn reap(&self) {
        let is_pe = |pid| self.all.iter().any(|one| one.pid == pid && one.pidfd.is_some());
        self.family.reap(is_pe);
    }

    /// If the event is the end of a process: finds out how it ended, and publishes it.
    pub fn ended(&mut self, event: u64) -> Option<End> {
        let index = usize::try_from(event % JOINED).ok().filter(|&index| index < self.all.len())?;
        if event >= JOINED {
            let Some(joined) = self.all[index].joined.take() else {
                // One that has outlasted its wrapper.
                self.outlasting.0.retain(Joined::runs);
                return None;
            };
            return self.lose(index, joined.pid, joined.cause());
        }
        let pidfd = self.all[index].pidfd.as_ref()?;
        let status =
            waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
                .ok()??;
        let how = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Cause::Signal(signal),
            (None, code) => Cause::Exit(code.unwrap_or(0)),
        };
        let verdict = self.judge(index, how);
        // If a PE has ended the job on purpose, failures of other PEs are not reported.
        let on_purpose = matches!(self.phase, Phase::Exiting(_))
            && (self.all[index].killed || !matches!(how, Cause::Signal(_)));
        if let Some(cause) = verdict.cause.filter(|_| verdict.concerns_others() && !on_purpose) {
            self.publish(self.first + index, cause);
        }
        self.all[index].pidfd = None;
        self.outlasting.0.extend(self.all[index].joined.take());
        self.unseen.remove(&index);
        self.alive -= 1;
        let cause = verdict.cause.filter(|_| !on_purpose);
        Some(self.end(index, cause, None, verdict.after_finalizing))
    }

    fn end(
        &self,
        index: usize,
        cause: Option<Cause>,
        joined: Option<i32>,
        after_finalizing: bool,
    ) -> End {
        let sent = match cause {
            Some(Cause::Signal(libc::SIGTERM)) => self.phase.has_terminated(),
            Some(Cause::Signal(libc::SIGKILL)) => self.all[index].killed,
            _ => false,
        };
        End { pe: self.first + index, cause, joined, after_finalizing, sent, hint: None }
    }

    /// What the end of a PE's process means. Publishes an end that does not concern the others.
    fn judge(&self, index: usize, how: Cause) -> Verdict {
        let pe = self.first + index;
        loop {
            let state = self.job.state(pe);
            let verdict = Verdict::of(how, state, self.job.part(pe));
            // Under a wrapper that has ended, a process may join at this moment: then the end is
            // judged again.
            if verdict.concerns_others() || self.job.left(pe, state) {
                return verdict;
            }
        }
    }

    /// Begins to watch the processes that have joined since the last check, if they are not those
    /// that were started. Returns those that have ended already.
    pub fn look_for_joined(&mut self, events: &OwnedFd) -> Vec<End> {
        let now = Instant::now();
        if now < self.next_check {
            return Vec::new();
        }
        self.next_check = now + CHECK;
        let joined = |&index: &usize| Some((index, self.job.process(self.first + index)?));
        let new: Vec<(usize, i32)> = self.unseen.iter().filter_map(joined).collect();
        let mut ends = Vec::new();
        for (index, pid) in new {
            self.unseen.remove(&index);
            let started = self.all[index].pid;
            if pid == started.as_raw_pid() {
                continue;
            }
            match joined::find(pid, started) {
                Found::Here(joined)
                    if listen(events, &joined.pidfd, JOINED + index as u64).is_ok() =>
                {
                    self.all[index].joined = Some(joined);
                }
                Found::Ended => ends.extend(self.lose(index, pid, UNKNOWN)),
                Found::Here(_) | Found::Hidden => {}
            }
        }
        ends
    }

    /// The process that joined has ended under its wrapper. That is a death, unless it had left in
    /// order.
    fn lose(&mut self, index: usize, pid: i32, cause: Cause) -> Option<End> {
        let pe = self.first + index;
        let verdict = self.judge(index, cause);
        if !verdict.concerns_others() {
            // The wrapper has not ended yet.
            self.unreported.push(pe);
            return None;
        }
        // One that has asked for the end of the job may have ended before the launcher hears that.
        if matches!(self.phase, Phase::Exiting(_)) || self.job.is_exiting(pe) {
            // Later output of the wrapper is not part of the job's last output.
            self.kill(|_, other| other == pe);
            return None;
        }
        self.publish(pe, cause);
        Some(self.end(index, Some(cause), Some(pid), false))
    }

    /// PEs whose ends were published since the last call, but are no [`End`].
    pub fn take_unreported(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unreported)
    }

    /// The PEs that have not ended, as text.
    pub fn running(&self) -> String {
        let running = self.all.iter().enumerate().filter(|(_, one)| one.pidfd.is_some());
        wording::ranges(&mut running.map(|(index, _)| self.first + index).collect::<Vec<_>>())
    }

    /// After a PE has asked for the end of the job: ends all PEs at once, except those that
    /// announce their own end, whose last output is still to come. False if that was done before.
    pub fn exit_as_asked(&mut self, events: &OwnedFd) -> bool {
        if !self.phase.asked(Instant::now()) {
            return false;
        }
        self.next_check = Instant::now();
        let ends = self.look_for_joined(events);
        debug_assert!(ends.is_empty(), "from now on no end under a wrapper is a failure");
        self.kill(|job, pe| !job.is_exiting(pe));
        // After their wrappers, which could otherwise report their deaths.
        let wrapped = self.all.iter().filter(|one| one.killed);
        for joined in wrapped.filter_map(|one| one.joined.as_ref()) {
            let _ = pidfd_send_signal(&joined.pidfd, Signal::KILL);
        }
        true
    }

    /// Ends the PEs without a grace period.
    pub fn hurry(&mut self, now: Instant) {
        if let Some(deed) = self.phase.hurry(now) {
            self.carry_out(deed);
        }
    }

    /// Does what is due on the way to the end of the job. Returns a message for the user.
    pub fn pass(&mut self, now: Instant) -> Option<String> {
        let deed = self.phase.pass(now)?;
        let late = deed == Deed::Terminate { late: true };
        let message = late.then(|| {
            let (which, cause) = (self.running(), "Often: an exit handler or a destructor that blocks");
            format!(
                "PE {which} asked for the end of the job, but has not ended {HANDLERS:?} later: ending it. {cause}"
            )
        });
        self.carry_out(deed);
        message
    }

    fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Terminate { .. } => self.send_all(Some(Signal::TERM)),
            Deed::Kill => self.kill(|_, _| true),
            Deed::Abandon => (0..self.all.len()).for_each(|index| self.abandon(index)),
        }
    }

    /// Sends a signal to all PEs.
    pub fn send_all(&mut self, signal: Option<Signal>) {
        self.send(signal, |_| true);
    }

    /// Sends a signal of the terminal to the PEs that are in other process groups, which it does
    /// not reach.
    pub fn send_apart(&mut self, signal: Option<Signal>) {
        let own = getpgrp();
        self.send(signal, |pid| getpgid(Pid::from_raw(pid)).is_ok_and(|group| group != own));
    }

    /// Sends a signal to processes of PEs: those that were started, and those that have joined
    /// under them. A shell passes on none, and waits for its program before it heeds SIGINT. A
    /// wrapper that passes signals on does so itself.
    fn send(&mut self, signal: Option<Signal>, whom: impl Fn(i32) -> bool) {
        let Some(signal) = signal else { return };
        if [Signal::TERM, Signal::INT, Signal::HUP].contains(&signal) {
            self.outlasting.1 = Some(Instant::now() + LAST_GRACE);
        }
        for one in &self.all {
            let Some(pidfd) = &one.pidfd else { continue };
            let started = one.pid.as_raw_pid();
            let joined = one.joined.as_ref().filter(|_| !joined::passes_on(started, signal));
            let joined = joined.map(|joined| (joined.pid, &joined.pidfd));
            send_to([(started, pidfd)].into_iter().chain(joined), signal, &whom);
        }
        let outlasting = self.outlasting.0.iter().map(|one| (one.pid, &one.pidfd));
        send_to(outlasting, signal, whom);
    }

    /// Sends SIGKILL to some of the PEs.
    pub fn kill(&mut self, whom: impl Fn(&JobFile, usize) -> bool) {
        let chosen = (0..self.all.len()).filter(|index| whom(&self.job, self.first + index));
        for index in chosen.collect::<Vec<_>>() {
            let Some(pidfd) = &self.all[index].pidfd else { continue };
            let sent = pidfd_send_signal(pidfd, Signal::KILL);
            self.all[index].killed = true;
            // It runs as another user, and may never end.
            if sent == Err(Errno::PERM) {
                self.abandon(index);
            }
        }
    }

    /// Stops waiting for a PE. `Family` reports its process if it stays.
    fn abandon(&mut self, index: usize) {
        let pe = self.first + index;
        if self.all[index].pidfd.take().is_some() {
            self.alive -= 1;
            self.publish(pe, Cause::Signal(libc::SIGKILL));
            self.unreported.push(pe);
        }
    }

    /// After the end of all PEs: ends the processes that they left behind, and calls `pause` again
    /// and again until that is done. Returns a message for each that could not be ended.
    pub fn end_family(&self, mut pause: impl FnMut()) -> Vec<String> {
        let (outlasting, until) = &self.outlasting;
        while until.is_some_and(|until| Instant::now() < until)
            && outlasting.iter().any(Joined::runs)
        {
            pause();
        }
        self.family.end(pause)
    }
}

/// Sends a signal to some of these processes.
fn send_to<'a>(
    all: impl Iterator<Item = (i32, &'a OwnedFd)>,
    signal: Signal,
    whom: impl Fn(i32) -> bool,
) {
    for (_, pidfd) in all.filter(|&(pid, _)| whom(pid)) {
        let _ = pidfd_send_signal(pidfd, signal);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // `Family` waits for their ends.
        self.send_all(Some(Signal::KILL));
    }
}
