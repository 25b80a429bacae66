//! Supervises the running job: one loop for deaths, signals, output and deadlines.
//!
//! *No output is lost, except by SIGKILL to the launcher.* The output of a process before its end
//! lies in its pipes. The launcher reads them until they are empty when the process has ended, and
//! again when all its descendants have ended. Only then it ends the writer's thread, and waits for
//! it. A PE's own buffers do not count: a killed PE loses what it has not yet written.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memonet_core::Cause;
use memonet_core::unstable::launch::{JobFile, Stat, UNKNOWN, is_asleep};
use nix::sys::signal::Signal;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{self, Pid, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::family::Family;
use super::joined::{self, CHECK, Found, Joined};
use super::lines::Stream;
use super::machine::Simulation;
use super::phase::Phase;
use super::report::{self, Followers, Hints, exit_status};
use super::signals::Signals;
use super::source::{Source, Target};
use super::spawn::Child;
use super::spec::Options;
use super::starts::Starts;
use super::verdict::Verdict;
use super::writer::Writer;

/// Time between two checks whether a PE has asked for the end of the job. Such a PE signals the
/// launcher. But the signal does not arrive where the launcher has another process id than the PE
/// knows, or belongs to another user.
const GLANCE: Duration = Duration::from_secs(1);
/// Exit status of a job that took too long, as that of `timeout`.
const TIMED_OUT: u8 = 124;
/// Bytes read at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// Reads from the pipe of a dead PE: enough to empty it, but bounded, because a descendant of the
/// PE may still write.
const LAST_READS: usize = 32;

const SIGNALS: u64 = u64::MAX;
const NEWS: u64 = u64::MAX - 1;
const OUTPUT: u64 = u64::MAX - 2;
const MACHINE: u64 = u64::MAX - 3;
/// Added to a PE's number: stands for the process that joined as this PE, if it is not the one that
/// was started.
const JOINED: u64 = 1 << 32;

mod ending;
mod engine;

struct Pe {
    pid: Pid,
    /// `None` after its end.
    pidfd: Option<OwnedFd>,
    /// The process that joined, while it runs and is not the one that was started.
    joined: Option<Joined>,
    /// That process has ended without finalising, which was reported.
    lost: bool,
    /// The launcher has sent SIGKILL.
    killed: bool,
    program: String,
    streams: [Stream; 2],
}

/// The end of a process.
struct End {
    pe: usize,
    /// `None` for an end in order.
    cause: Option<Cause>,
    /// The process that ended, if it is not the one that was started.
    joined: Option<i32>,
    /// The PE had left the job before: no other PE waits for it.
    after_finalizing: bool,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status of the first failure, 0 without one.
    pub status: u8,
    /// The signal to the launcher that ended the job.
    pub interrupted: Option<i32>,
}

/// The launcher of a running job. Dropping it ends the job.
pub struct Supervisor {
    pes: Vec<Pe>,
    alive: usize,
    /// PEs of which no process has joined so far.
    unseen: BTreeSet<usize>,
    /// When to check them again.
    next_check: Instant,
    phase: Phase,
    /// Exit status of the first failure.
    status: Option<u8>,
    /// The PE that failed first.
    blamed: Option<usize>,
    followers: Followers,
    /// The signal that was sent to the launcher to end the job.
    interrupted: Option<i32>,
    deadline: Option<(Instant, Duration)>,
    keep_going: bool,
    hints: Hints,
    verbose: bool,
    /// Unfinished lines, by the time at which they are due.
    due: BTreeSet<(Instant, u64)>,
    scratch: Vec<u8>,
    /// Reports deaths, signals, news of the writer, and `output`.
    events: OwnedFd,
    /// Reports the pipes. A set of its own, so that one call stops reading from all of them.
    output: OwnedFd,
    reading: bool,
    /// The simulated machine that the job runs on, if any, until its engine has ended.
    simulation: Option<Simulation>,
    // Dropped in this order: the last output may wait for its reader, and Ctrl-C must end that
    // wait.
    family: Family,
    signals: Signals,
    writer: Writer,
    job: JobFile,
}

impl Supervisor {
    /// Prepares for PEs.
    pub fn new(
        job: JobFile,
        signals: Signals,
        family: Family,
        options: &Options,
    ) -> Result<Supervisor> {
        let writer = Writer::start(options.label)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")?;
        let output = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")?;
        listen(&events, &signals, SIGNALS)?;
        listen(&events, writer.news(), NEWS)?;
        listen(&events, &output, OUTPUT)?;
        let mut supervisor = Supervisor {
            pes: Vec::new(),
            alive: 0,
            unseen: BTreeSet::new(),
            next_check: Instant::now(),
            phase: Phase::Running,
            status: None,
            blamed: None,
            followers: Followers::default(),
            interrupted: None,
            deadline: options
                .timeout
                .and_then(|timeout| Some((Instant::now().checked_add(timeout)?, timeout))),
            keep_going: options.keep_going,
            hints: Hints::new(options),
            verbose: options.verbose,
            due: BTreeSet::new(),
            scratch: vec![0; SCRATCH_BYTES],
            events,
            output,
            reading: true,
            simulation: None,
            family,
            signals,
            writer,
            job,
        };
        if let Some(note) = supervisor.job.note().map(str::to_owned) {
            supervisor.say(&note);
        }
        Ok(supervisor)
    }

    /// The job's shared memory.
    pub fn job(&self) -> &JobFile {
        &self.job
    }

    /// Writes a message to standard error.
    pub fn say(&mut self, text: &str) {
        self.writer.say(text);
    }

    /// Starts the next PE, which is `pe`, and takes charge of it.
    pub fn start(&mut self, pe: usize, starts: &mut Starts<'_>) -> Result<()> {
        let (child, program) = starts.start(pe, &self.job)?;
        self.adopt(child, program)
    }

    fn adopt(&mut self, child: Child, program: String) -> Result<()> {
        let pe = self.pes.len();
        if self.verbose {
            self.say(&format!("PE {pe} is process {} ({program})", child.pid));
        }
        if let Some(simulation) = &self.simulation {
            simulation.started(&child.stdout, &child.stderr);
        }
        let source = |target| Source { pe, target };
        let streams = [
            Stream::new(child.stdout, source(Target::Stdout)),
            Stream::new(child.stderr, source(Target::Stderr)),
        ];
        self.pes.push(Pe {
            pid: child.pid,
            pidfd: Some(child.pidfd),
            joined: None,
            lost: false,
            killed: false,
            program,
            streams,
        });
        self.alive += 1;
        self.unseen.insert(pe);
        let pe = &self.pes[pe];
        if let Some(pidfd) = &pe.pidfd {
            listen(&self.events, pidfd, (self.pes.len() - 1) as u64)?;
        }
        for stream in &pe.streams {
            if let Some(fd) = stream.fd() {
                listen(&self.output, fd, token(stream.source))?;
            }
        }
        Ok(())
    }

    /// Supervises the job until it has ended.
    pub fn watch(mut self, starts: &mut Starts<'_>) -> Result<Outcome> {
        while self.alive > 0 || self.simulation.is_some() {
            let events = self.wait()?;
            // Before the ends are judged: an end that follows from a request is no failure.
            if let Some(status) = self.job.exit_status() {
                self.exit_as_asked(status);
            }
            // Deaths are published first: other PEs may wait for the dead.
            let mut ends: Vec<End> = events.iter().filter_map(|&event| self.ended(event)).collect();
            ends.extend(self.look_for_joined());
            if events.iter().any(|&event| event != OUTPUT) {
                let pes = &self.pes;
                self.family.reap(|pid| pes.iter().any(|pe| pe.pid == pid && pe.pidfd.is_some()));
            }
            for end in ends {
                self.account_for(&end);
            }
            for event in events {
                match event {
                    SIGNALS => self.handle_signals()?,
                    NEWS => self.handle_news()?,
                    OUTPUT => self.read_output()?,
                    MACHINE => self.serve_engine(starts)?,
                    _ => {}
                }
            }
            self.handle_deadlines();
            self.flush()?;
        }
        self.finish();
        let (output, mut status) = (self.writer.shared(), self.status.unwrap_or(0));
        let interrupted =
            self.interrupted.filter(|&signal| self.status == Some(128 + signal as u8));
        // Dropping the writer writes the last output.
        drop(self);
        if let Some(lost) = output.lost() {
            eprintln!("memonet: {lost}");
            status = status.max(1);
        }
        Ok(Outcome { status, interrupted })
    }

    fn wait(&self) -> Result<Vec<u64>> {
        let glance = matches!(self.phase, Phase::Running).then(|| Instant::now() + GLANCE);
        let deadline = self.deadline.map(|(deadline, _)| deadline);
        let due = self.due.first().map(|&(due, _)| due);
        let check = (!self.unseen.is_empty()).then_some(self.next_check);
        let pace = self.simulation.as_ref().map(Simulation::next_check);
        let next =
            [self.phase.until(), glance, deadline, due, check, pace].into_iter().flatten().min();
        let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
        ready(&self.events, timeout.as_ref())
    }

    /// If the event is the end of a process: finds out how it ended, and publishes it.
    fn ended(&mut self, event: u64) -> Option<End> {
        let pe = usize::try_from(event % JOINED).ok().filter(|&pe| pe < self.pes.len())?;
        if event >= JOINED {
            let joined = self.pes[pe].joined.take()?;
            return self.lose(pe, joined.pid, joined.cause());
        }
        let pidfd = self.pes[pe].pidfd.as_ref()?;
        let status =
            waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
                .ok()??;
        let how = match (status.terminating_signal(), status.exit_status()) {
            (Some(signal), _) => Cause::Signal(signal),
            (None, code) => Cause::Exit(code.unwrap_or(0)),
        };
        let verdict = self.judge(pe, how);
        // If a PE has ended the job on purpose, failures of other PEs are not reported.
        let on_purpose = matches!(self.phase, Phase::Exiting(_))
            && (self.pes[pe].killed || !matches!(how, Cause::Signal(_)));
        if let Some(cause) = verdict.cause.filter(|_| verdict.concerns_others() && !on_purpose) {
            self.job.depart(pe, cause);
        }
        self.pes[pe].pidfd = None;
        self.pes[pe].joined = None;
        self.unseen.remove(&pe);
        self.alive -= 1;
        Some(End {
            pe,
            cause: verdict.cause.filter(|_| !on_purpose),
            joined: None,
            after_finalizing: verdict.after_finalizing,
        })
    }

    /// What the end of a PE's process means. Publishes an end that does not concern the others.
    fn judge(&self, pe: usize, how: Cause) -> Verdict {
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
    /// that were started.
    fn look_for_joined(&mut self) -> Vec<End> {
        let now = Instant::now();
        if now < self.next_check {
            return Vec::new();
        }
        self.next_check = now + CHECK;
        let new: Vec<(usize, i32)> =
            self.unseen.iter().filter_map(|&pe| Some((pe, self.job.process(pe)?))).collect();
        let mut ends = Vec::new();
        for (pe, pid) in new {
            self.unseen.remove(&pe);
            let started = self.pes[pe].pid;
            if pid == started.as_raw_pid() {
                continue;
            }
            match joined::find(pid, started) {
                Found::Here(joined)
                    if listen(&self.events, &joined.pidfd, JOINED + pe as u64).is_ok() =>
                {
                    self.pes[pe].joined = Some(joined);
                }
                Found::Ended => ends.extend(self.lose(pe, pid, UNKNOWN)),
                Found::Here(_) | Found::Hidden => {}
            }
        }
        ends
    }

    /// The process that joined has ended under its wrapper. That is a death, unless it had left in
    /// order.
    fn lose(&mut self, pe: usize, pid: i32, cause: Cause) -> Option<End> {
        let verdict = self.judge(pe, cause);
        if !verdict.concerns_others() {
            // The wrapper has not ended yet.
            self.tell_engine(pe);
            return None;
        }
        if matches!(self.phase, Phase::Exiting(_)) {
            // Later output of the wrapper is not part of the job's last output.
            self.kill(|_, other| other == pe);
            return None;
        }
        self.job.depart(pe, cause);
        self.pes[pe].lost = true;
        Some(End { pe, cause: Some(cause), joined: Some(pid), after_finalizing: false })
    }

    /// Reports an end that was a failure, and begins to end the other PEs.
    fn account_for(&mut self, end: &End) {
        let pe = end.pe;
        for target in [Target::Stdout, Target::Stderr] {
            self.read_stream(pe, target, LAST_READS);
        }
        self.tell_engine(pe);
        let Some(cause) = end.cause else { return };
        if self.pes[pe].lost && end.joined.is_none() {
            // Reported before. But if the wrapper ended by itself, its status counts: `timeout`,
            // for example, has a status of its own.
            if self.blamed == Some(pe) && matches!(self.phase, Phase::Running | Phase::Grace(_)) {
                self.status = Some(exit_status(cause));
            }
            return;
        }
        let sent = match cause {
            Cause::Signal(libc::SIGTERM) => self.phase.has_terminated(),
            Cause::Signal(libc::SIGKILL) => self.pes[pe].killed,
            _ => false,
        };
        // A PE that asks for the end of the job with status 0, and then dies, has failed.
        let first = self.status.is_none() || self.status == Some(0) && !sent;
        let signalled = matches!(cause, Cause::Signal(_));
        if self.interrupted.is_some()
            && matches!(cause, Cause::Signal(signal) if Some(signal) == self.interrupted)
        {
            // The sender of the signal expects this end.
        } else if first || self.keep_going && !sent || signalled && !sent {
            let who = self.who(end);
            let text = report::failure(
                &who,
                end.after_finalizing,
                cause,
                &mut self.hints,
                &self.pes[pe].streams,
            );
            self.say(&text);
        } else {
            self.followers.add(pe, cause, sent);
        }
        if first {
            self.status = Some(exit_status(cause));
            self.blamed = Some(pe);
        }
        // The others can continue without a PE that had left in order.
        if !self.keep_going && !end.after_finalizing {
            self.phase.failed(Instant::now());
        }
    }

    fn who(&self, end: &End) -> String {
        let (pe, Pe { pid, program, .. }) = (end.pe, &self.pes[end.pe]);
        match end.joined {
            None => format!("PE {pe} ({program}, process {pid})"),
            Some(joined) => format!("PE {pe} (process {joined} under {program}, process {pid})"),
        }
    }

    fn handle_signals(&mut self) -> Result<()> {
        while let Some(arrived) = self.signals.next() {
            if arrived.signal == Signal::SIGCHLD {
                // Every pass of the loop collects children.
                continue;
            }
            if !arrived.from_terminal || arrived.signal == Signal::SIGCONT {
                self.send_all(process::Signal::from_named_raw(arrived.signal as i32));
            }
            match arrived.signal {
                Signal::SIGTSTP => {
                    self.flush()?;
                    self.signals.stop()?;
                }
                Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT => {
                    self.interrupted = Some(arrived.signal as i32);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn send_all(&self, signal: Option<process::Signal>) {
        let Some(signal) = signal else { return };
        for pidfd in self.pes.iter().filter_map(|pe| pe.pidfd.as_ref()) {
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }

    fn handle_news(&mut self) -> Result<()> {
        for target in self.writer.take_news() {
            // As in a shell's pipeline, a PE that writes again gets SIGPIPE.
            for pe in &mut self.pes {
                pe.streams[target as usize].close();
            }
        }
        Ok(())
    }

    fn read_output(&mut self) -> Result<()> {
        for token in ready(&self.output, Some(&Duration::ZERO))? {
            let target = if token % 2 == 0 { Target::Stdout } else { Target::Stderr };
            self.read_stream(token as usize / 2, target, 1);
        }
        Ok(())
    }

    fn read_stream(&mut self, pe: usize, target: Target, times: usize) {
        let now = Instant::now();
        let stream = &mut self.pes[pe].streams[target as usize];
        let before = stream.due();
        for _ in 0..times {
            if !stream.read(&mut self.scratch, now, &mut self.writer) {
                break;
            }
        }
        let (after, token) = (stream.due(), token(stream.source));
        if before != after {
            before.map(|due| self.due.remove(&(due, token)));
            after.map(|due| self.due.insert((due, token)));
        }
    }

    fn handle_deadlines(&mut self) {
        let now = Instant::now();
        if let Some(simulation) = &mut self.simulation {
            let process =
                |pe: &Pe| pe.joined.as_ref().map_or(pe.pid.as_raw_pid(), |joined| joined.pid);
            simulation.check(now, |pe| self.pes.get(pe).is_some_and(|pe| is_asleep(process(pe))));
        }
        while let Some(&(due, token)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, token));
            let pe = &mut self.pes[token as usize / 2];
            let stream = &mut pe.streams[token as usize % 2];
            let ready_to_run = || Stat::of(pe.pid).is_some_and(|stat| stat.state == 'R');
            if stream.is_kept(now, self.writer.busy_until(stream.source, now), ready_to_run) {
                self.due.extend(stream.due().map(|due| (due, token)));
            } else {
                stream.pass_on(&mut self.writer);
            }
        }
        if let Some((_, timeout)) = self.deadline.filter(|(deadline, _)| *deadline <= now) {
            self.deadline = None;
            self.time_out(timeout, now);
        }
        if let Some(deed) = self.phase.pass(now) {
            self.carry_out(deed);
        }
    }

    fn flush(&mut self) -> Result<()> {
        let read = self.writer.flush();
        if read != self.reading {
            self.reading = read;
            if read {
                listen(&self.events, &self.output, OUTPUT)?;
            } else {
                epoll::delete(&self.events, &self.output)?;
            }
        }
        Ok(())
    }

    /// After the end of all PEs: ends the processes that they left behind, and passes on the last
    /// output.
    fn finish(&mut self) {
        let left = self.family.end();
        for pe in 0..self.pes.len() {
            for target in [Target::Stdout, Target::Stderr] {
                self.read_stream(pe, target, LAST_READS);
                self.pes[pe].streams[target as usize].pass_on(&mut self.writer);
            }
        }
        for text in std::mem::take(&mut self.followers).describe().into_iter().chain(left) {
            self.say(&text);
        }
        if let Some(signal) = self.interrupted.filter(|_| self.status.is_some()) {
            self.say(&format!("the job was ended by {}", memonet_core::signal_name(signal)));
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // `Family` waits for their ends.
        self.send_all(Some(process::Signal::KILL));
    }
}

fn token(source: Source) -> u64 {
    source.pe as u64 * 2 + source.target as u64
}

fn listen(epoll: &OwnedFd, fd: impl AsFd, token: u64) -> Result<()> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .context("epoll_ctl")
}

fn ready(epoll: &OwnedFd, timeout: Option<&Duration>) -> Result<Vec<u64>> {
    let timeout = timeout.map(|&timeout| Timespec::try_from(timeout)).transpose()?;
    let mut events = [MaybeUninit::<epoll::Event>::uninit(); 64];
    match epoll::wait(epoll, &mut events, timeout.as_ref()) {
        Ok((events, _)) => Ok(events.iter().map(|event| event.data.u64()).collect()),
        Err(Errno::INTR) => Ok(Vec::new()),
        Err(error) => Err(error).context("epoll_wait"),
    }
}
