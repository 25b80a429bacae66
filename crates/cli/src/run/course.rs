//! The course of a job, as its user sees it: output, reports of failures, and the exit status.
//!
//! It knows nothing of processes. Their [ends](End) and their output are passed to it, from this
//! machine or from others. It says when the job must end; others carry that out.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memonet_core::Cause;

use super::lines::{Sink as _, Stream};
use super::phase::Phase;
use super::report::{self, Followers, Hints, exit_status};
use super::source::{Source, Target};
use super::spec::Options;
use super::writer::{Shared, Writer};
use crate::tell::tell;

/// Exit status of a job that took too long, as that of `timeout`.
const TIMED_OUT: u8 = 124;
/// Bytes read at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// Reads from the pipe of a dead PE: enough to empty it, but bounded, because a descendant of the
/// PE may still write.
pub const LAST_READS: usize = 32;

/// The end of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub pe: usize,
    /// `None` for an end in order.
    pub cause: Option<Cause>,
    /// The process that ended, if it is not the one that was started.
    pub joined: Option<i32>,
    /// The PE had left the job before: no other PE waits for it.
    pub after_finalizing: bool,
    /// The launcher has sent the signal that ended it.
    pub sent: bool,
    /// What may explain the cause, where another machine knows that.
    pub hint: Option<String>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status of the first failure, 0 without one.
    pub status: u8,
    /// The signal to the launcher that ended the job.
    pub interrupted: Option<i32>,
}

/// When PEs have ended that failed, by the monotonic clock, and how.
pub type Fates = BTreeMap<usize, (u64, String)>;

/// A PE, as reports name it.
struct Pe {
    pid: i32,
    program: String,
    /// Its host, in a job on several.
    host: Option<Arc<str>>,
    streams: [Stream; 2],
    /// Its process under a wrapper has ended without finalising, which was reported.
    lost: bool,
}

impl Pe {
    fn place(&self) -> String {
        self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"))
    }
}

/// The course of a job.
pub struct Course {
    pes: Vec<Pe>,
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
    fates: Fates,
    /// Unfinished lines, by the time at which they are due.
    due: BTreeSet<(Instant, u64)>,
    scratch: Vec<u8>,
    writer: Writer,
}

impl Course {
    /// The course of a job that is about to begin.
    pub fn begin(options: &Options) -> anyhow::Result<Course> {
        let deadline = |timeout| Some((Instant::now().checked_add(timeout)?, timeout));
        Ok(Course {
            pes: Vec::new(),
            status: None,
            blamed: None,
            followers: Followers::default(),
            interrupted: None,
            deadline: options.timeout.and_then(deadline),
            keep_going: options.keep_going,
            hints: Hints::new(options),
            verbose: options.verbose,
            fates: Fates::new(),
            due: BTreeSet::new(),
            scratch: Vec::with_capacity(SCRATCH_BYTES),
            writer: Writer::start(options.label)?,
        })
    }

    /// Adds the next PE. Its output is read from `outputs`, or [received](Self::receive).
    pub fn add(&mut self, program: String, host: Option<Arc<str>>, outputs: [Option<OwnedFd>; 2]) {
        let pe = self.pes.len();
        let [out, error] = outputs;
        let streams = [(out, Target::Stdout), (error, Target::Stderr)]
            .map(|(fd, target)| Stream::new(fd, Source { pe, target }));
        self.pes.push(Pe { pid: 0, program, host, streams, lost: false });
    }

    /// The process of a PE.
    pub fn started(&mut self, pe: usize, pid: i32) {
        self.pes[pe].pid = pid;
        if self.verbose {
            let (place, program) = (self.pes[pe].place(), &self.pes[pe].program);
            let text = format!("PE {pe} is process {pid}{place} ({program})");
            self.say(&text);
        }
    }

    /// Writes a message to standard error.
    pub fn say(&mut self, text: &str) {
        self.writer.say(text);
    }

    /// The descriptors from which a PE's output is read, each with its number for
    /// [`read`](Self::read).
    pub fn outputs(&self, pe: usize) -> impl Iterator<Item = (&OwnedFd, u64)> {
        self.pes[pe].streams.iter().filter_map(|stream| Some((stream.fd()?, token(stream.source))))
    }

    /// Reads once from an output that is ready. `withholds` says of a PE whether its output is to
    /// be kept until [`read_all`](Self::read_all).
    pub fn read(&mut self, token: u64, withholds: impl FnOnce(usize) -> bool) {
        let target = if token.is_multiple_of(2) { Target::Stdout } else { Target::Stderr };
        let pe = token as usize / 2;
        self.read_stream(pe, target, 1, withholds(pe));
    }

    /// Reads all that a PE has written so far, and passes it on, or withholds it.
    pub fn read_all(&mut self, pe: usize, withhold: bool) {
        for target in [Target::Stdout, Target::Stderr] {
            self.read_stream(pe, target, LAST_READS, withhold);
        }
    }

    fn read_stream(&mut self, pe: usize, target: Target, times: usize, withhold: bool) {
        let now = Instant::now();
        let mut scratch = std::mem::take(&mut self.scratch);
        self.on_stream(pe, target, |stream, writer| {
            for _ in 0..times {
                if !stream.read(withhold, &mut scratch, now, writer) {
                    break;
                }
            }
        });
        self.scratch = scratch;
    }

    /// Takes output of a PE on another machine.
    pub fn receive(&mut self, pe: usize, target: Target, text: &[u8]) {
        let now = Instant::now();
        self.on_stream(pe, target, |stream, writer| stream.receive(text, now, writer));
    }

    /// A PE on another machine has closed an output: nothing follows a piece of a line.
    pub fn close(&mut self, pe: usize, target: Target) {
        self.on_stream(pe, target, |stream, writer| {
            stream.pass_on(writer);
            writer.ended(stream.source);
        });
    }

    fn on_stream(&mut self, pe: usize, target: Target, act: impl FnOnce(&mut Stream, &mut Writer)) {
        let stream = &mut self.pes[pe].streams[target as usize];
        let before = stream.due();
        act(stream, &mut self.writer);
        let (after, token) = (stream.due(), token(stream.source));
        if before != after {
            before.map(|due| self.due.remove(&(due, token)));
            after.map(|due| self.due.insert((due, token)));
        }
    }

    /// Passes on the unfinished lines that are due. `ready_to_run` says of a process whether it
    /// is.
    pub fn pass_on_due(&mut self, now: Instant, ready_to_run: impl Fn(i32) -> bool) {
        while let Some(&(due, token)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, token));
            let pe = &mut self.pes[token as usize / 2];
            let stream = &mut pe.streams[token as usize % 2];
            let busy = self.writer.busy_until(stream.source, now);
            if stream.is_kept(now, busy, || ready_to_run(pe.pid)) {
                self.due.extend(stream.due().map(|due| (due, token)));
            } else {
                stream.pass_on(&mut self.writer);
            }
        }
    }

    /// Passes all output so far to the thread that writes it. False if reading should pause.
    pub fn flush(&mut self) -> bool {
        self.writer.flush()
    }

    /// Becomes readable when reading may continue, or an output is broken.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.writer.news()
    }

    /// Gives up outputs that nobody reads any more. As in a shell's pipeline, a PE that writes
    /// again gets SIGPIPE.
    pub fn handle_news(&mut self) -> Vec<Target> {
        let broken = self.writer.take_news();
        for &target in &broken {
            self.pes.iter_mut().for_each(|pe| pe.streams[target as usize].close());
        }
        broken
    }

    /// When something of it is due next.
    pub fn next_due(&self) -> Option<Instant> {
        let deadline = self.deadline.map(|(deadline, _)| deadline);
        [deadline, self.due.first().map(|&(due, _)| due)].into_iter().flatten().min()
    }

    /// Reports an end that was a failure. True if the other PEs are to be ended.
    pub fn account_for(&mut self, end: &End, phase: Phase) -> bool {
        let pe = end.pe;
        let Some(cause) = end.cause else { return false };
        self.fates.entry(pe).or_insert_with(|| (monotonic_nanos(), cause.to_string()));
        if self.pes[pe].lost && end.joined.is_none() {
            // Reported before. But if the wrapper ended by itself, its status counts: `timeout`,
            // for example, has a status of its own.
            if self.blamed == Some(pe) && matches!(phase, Phase::Running | Phase::Grace(_)) {
                self.status = Some(exit_status(cause));
            }
            return false;
        }
        self.pes[pe].lost |= end.joined.is_some();
        let sent = end.sent;
        // A PE that asks for the end of the job with status 0, and then dies, has failed.
        let first = self.status.is_none() || self.status == Some(0) && !sent;
        let signalled = matches!(cause, Cause::Signal(_));
        if self.interrupted.is_some()
            && matches!(cause, Cause::Signal(signal) if Some(signal) == self.interrupted)
        {
            // The sender of the signal expects this end.
        } else if first || self.keep_going && !sent || signalled && !sent {
            let hint = match &end.hint {
                Some(hint) => Some(hint.clone()),
                None if self.pes[pe].host.is_none() => report::hint(cause, &mut self.hints),
                None => None,
            };
            let streams = &self.pes[pe].streams;
            let is_above = |stream: &Stream| self.writer.is_above_messages(stream.source);
            let who = self.who(end);
            let text = report::failure(&who, end.after_finalizing, cause, hint, streams, is_above);
            self.say(&text);
        } else {
            self.followers.add(pe, cause, sent);
        }
        if first {
            self.status = Some(exit_status(cause));
            self.blamed = Some(pe);
        }
        // The others can continue without a PE that had left in order.
        !self.keep_going && !end.after_finalizing
    }

    fn who(&self, end: &End) -> String {
        let (pe, Pe { pid, program, .. }) = (end.pe, &self.pes[end.pe]);
        let place = self.pes[pe].place();
        match end.joined {
            None => format!("PE {pe} ({program}, process {pid}{place})"),
            Some(joined) => {
                format!("PE {pe} (process {joined} under {program}, process {pid}{place})")
            }
        }
    }

    /// A PE has asked for the end of the job with this status.
    pub fn asked(&mut self, status: u8) {
        self.status.get_or_insert(status);
    }

    /// A signal was sent to the launcher to end the job.
    pub fn interrupt(&mut self, signal: i32) {
        self.interrupted = Some(signal);
    }

    /// Whether a signal was sent to end the job, which so has ended before any PE was started.
    pub fn has_ended_before(&mut self) -> bool {
        self.interrupted.map(|signal| self.asked(128 + signal as u8)).is_some()
    }

    /// Something other than a PE has failed.
    pub fn fail(&mut self, text: &str, status: u8) {
        self.say(text);
        self.status.get_or_insert(status);
    }

    /// Whether the job must end now because of its time limit. `running` gives the PEs that have
    /// not ended, as text.
    pub fn is_overdue(&mut self, now: Instant, running: impl FnOnce() -> String) -> bool {
        let Some((_, timeout)) = self.deadline.filter(|(deadline, _)| *deadline <= now) else {
            return false;
        };
        self.deadline = None;
        let which = running();
        self.fail(
            &format!(
                "the job has not ended after {timeout:?}, its --timeout: ending it. Still running: PE {which}"
            ),
            TIMED_OUT,
        );
        true
    }

    /// After the end of all processes: passes on the last output, after which there is none. `left`
    /// has messages of processes that could not be ended.
    pub fn finish(&mut self, left: Vec<String>) {
        for pe in 0..self.pes.len() {
            self.read_all(pe, false);
            for stream in &mut self.pes[pe].streams {
                stream.pass_on(&mut self.writer);
            }
        }
        for text in std::mem::take(&mut self.followers).describe().into_iter().chain(left) {
            self.say(&text);
        }
        if let Some(signal) = self.interrupted.filter(|_| self.status.is_some()) {
            self.say(&format!("the job was ended by {}", memonet_core::signal_name(signal)));
        }
        self.writer.close();
    }

    /// How PEs have failed.
    pub fn take_fates(&mut self) -> Fates {
        std::mem::take(&mut self.fates)
    }

    /// How the job ended, and what tells whether its output was lost.
    pub fn outcome(&self) -> (Outcome, Arc<Shared>) {
        let interrupted =
            self.interrupted.filter(|&signal| self.status == Some(128 + signal as u8));
        (Outcome { status: self.status.unwrap_or(0), interrupted }, self.writer.shared())
    }
}

impl Outcome {
    /// The outcome, once the last output was written.
    pub fn after(mut self, output: &Shared) -> Outcome {
        if let Some(lost) = output.lost() {
            tell(lost);
            self.status = self.status.max(1);
        }
        self
    }

    /// The outcome, once a report of the job was written.
    pub fn reported(mut self, written: anyhow::Result<()>) -> Outcome {
        if let Err(error) = written {
            tell(format_args!("{error:#}"));
            self.status = self.status.max(1);
        }
        self
    }
}

/// Nanoseconds of the clock that PEs read for a timeline.
pub fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn token(source: Source) -> u64 {
    source.pe as u64 * 2 + source.target as u64
}
