//! Supervises the running job: one loop for deaths, signals, output and deadlines.
//!
//! *No output is lost, except by SIGKILL to the launcher.* The output of a process before its end
//! lies in its pipes. The launcher reads them until they are empty when the process has ended, and
//! again when all its descendants have ended. Only then it ends the writer's thread, and waits for
//! it. A PE's own buffers do not count: a killed PE loses what it has not yet written.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use memonet_control::events::{self, listen};
use memonet_core::unstable::launch::{Activity, JobFile, Stat};
use nix::sys::signal::Signal;
use rustix::process::{self, Pid};

use super::course::{Course, End, Fates, Outcome};
use super::family::{Family, nap};
use super::machine::Simulation;
use super::phase::Phase;
use super::processes::Processes;
use super::signals::Signals;
use super::spawn::{Child, Extras};
use super::spec::Options;
use super::starts::Starts;
use super::stats::Records;
use super::waits::{self, Answer, Inquiry, Question, Reasons};

/// Time between two checks whether a PE has asked for the end of the job. Such a PE signals the
/// launcher. But the signal does not arrive where the launcher has another process id than the PE
/// knows, or belongs to another user.
pub const GLANCE: Duration = Duration::from_secs(1);

const SIGNALS: u64 = u64::MAX;
const NEWS: u64 = u64::MAX - 1;
const OUTPUT: u64 = u64::MAX - 2;
const MACHINE: u64 = u64::MAX - 3;

/// How long the main thread waits for parked PEs of a simulated machine that are to say what for:
/// since the last one has, and in all. A question stands longer, and it waits again.
const TO_HEAR: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(20)];
/// The same, where nothing else is under way.
const TO_HEAR_ALL: [Duration; 2] = [waits::LONGEST, Duration::from_secs(5)];

mod engine;

/// The launcher of a running job. Dropping it ends the job.
pub struct Supervisor {
    /// Reports deaths, signals, news of the writer, and `output`.
    events: OwnedFd,
    /// Reports the pipes. A set of its own, so that one call stops reading from all of them.
    output: OwnedFd,
    reading: bool,
    /// The simulated machine that the job runs on, if any, until its engine has ended.
    simulation: Option<Simulation>,
    inquiry: Inquiry,
    /// The question that stands.
    question: Option<Question>,
    /// What PEs record, if they do.
    records: Option<Arc<Records>>,
    // Dropped in this order: the last output may wait for its reader, and Ctrl-C must end that
    // wait.
    processes: Processes,
    signals: Signals,
    course: Course,
}

impl Supervisor {
    /// Prepares for PEs.
    pub fn new(
        job: JobFile,
        signals: Signals,
        family: Family,
        options: &Options,
    ) -> Result<Supervisor> {
        let mut course = Course::begin(options)?;
        if let Some(note) = job.note() {
            course.say(note);
        }
        let (events, output) = (events::set()?, events::set()?);
        listen(&events, &signals, SIGNALS)?;
        listen(&events, course.news(), NEWS)?;
        listen(&events, &output, OUTPUT)?;
        let processes = Processes::new(0, family, job);
        Ok(Supervisor {
            events,
            output,
            reading: true,
            simulation: None,
            inquiry: Inquiry::new(options.watch, Instant::now()),
            question: None,
            records: None,
            processes,
            signals,
            course,
        })
    }

    /// The job's shared memory.
    pub fn job(&self) -> &JobFile {
        self.processes.job()
    }

    /// Has reports tell what PEs have recorded.
    pub fn tell_of(&mut self, records: Arc<Records>) {
        self.records = Some(records);
    }

    /// Writes a message to standard error.
    pub fn say(&mut self, text: &str) {
        self.course.say(text);
    }

    /// Starts the next PE, which is `pe`, and takes charge of it.
    pub fn start(&mut self, pe: usize, starts: &mut Starts<'_>) -> Result<()> {
        let (child, program) = starts.start(pe, self.processes.job(), &Extras::default())?;
        let Child { pid, pidfd, stdout, stderr } = child;
        if let Some(simulation) = &self.simulation {
            simulation.started(pid, &stdout, &stderr);
        }
        self.course.add(program, None, [Some(stdout), Some(stderr)]);
        self.course.started(pe, pid.as_raw_pid());
        self.processes.adopt(pid, pidfd, &self.events)?;
        for (output, token) in self.course.outputs(pe) {
            listen(&self.output, output, token)?;
        }
        Ok(())
    }

    /// Whether a signal has come that is to end a job whose PEs were not started.
    pub fn is_interrupted(&mut self) -> Result<bool> {
        if self.signals.is_to_end() {
            self.handle_signals()?;
        }
        Ok(self.course.has_ended_before())
    }

    /// Supervises the job until it has ended. Gives also how PEs have failed.
    pub fn watch(mut self, starts: &mut Starts<'_>) -> Result<(Outcome, Fates)> {
        match self.pass_all(starts) {
            Ok(()) => Ok(self.end()),
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    /// Ends the PEs that were started, and writes what they have written.
    pub fn give_up(mut self) {
        self.processes.kill(|_, _| true);
        self.end();
    }

    fn end(mut self) -> (Outcome, Fates) {
        let left = self.processes.end_family(nap);
        self.course.finish(left);
        let (outcome, output) = self.course.outcome();
        let fates = self.course.take_fates();
        // Dropping the writer writes the last output.
        drop(self);
        (outcome.after(&output), fates)
    }

    fn pass_all(&mut self, starts: &mut Starts<'_>) -> Result<()> {
        while self.processes.are_alive() || self.simulation.is_some() {
            let events = self.wait()?;
            // Before the ends are judged: an end that follows from a request is no failure.
            if let Some(status) = self.job().exit_status()
                && self.processes.exit_as_asked(&self.events)
            {
                self.course.asked(status);
            }
            // Deaths are published first: other PEs may wait for the dead.
            let ended = |&event: &u64| self.processes.ended(event);
            let mut ends: Vec<End> = events.iter().filter_map(ended).collect();
            ends.extend(self.processes.look_for_joined(&self.events));
            if events.iter().any(|&event| event != OUTPUT) {
                self.processes.reap();
            }
            // Before the ends are judged: one by a signal that was sent to all is expected.
            if events.contains(&SIGNALS) {
                self.handle_signals()?;
            }
            for end in ends {
                self.account_for(&end);
            }
            for event in events {
                match event {
                    NEWS => drop(self.course.handle_news()),
                    OUTPUT => self.read_output()?,
                    MACHINE => self.serve_engine(starts)?,
                    _ => {}
                }
            }
            self.handle_deadlines();
            self.tell_engine_of_unreported();
            self.stop_engine();
            self.flush()?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<u64>> {
        let phase = self.processes.phase;
        let glance = matches!(phase, Phase::Running).then(|| Instant::now() + GLANCE);
        let (due, check) = (self.course.next_due(), self.processes.next_check());
        let pace = self.simulation.as_ref().map(Simulation::next_check);
        let ask = self.question.as_ref().map(Question::next).or(self.inquiry.next());
        let next = [phase.until(), glance, due, check, pace, ask].into_iter().flatten().min();
        events::wait(&self.events, next)
    }

    /// Reports an end that was a failure, and begins to end the other PEs.
    fn account_for(&mut self, end: &End) {
        let withhold = end.cause.is_none() && withholds(self.simulation.as_ref(), end.pe);
        self.course.read_all(end.pe, withhold);
        self.tell_engine(end.pe);
        if self.course.account_for(end, self.processes.phase) {
            self.processes.phase.failed(Instant::now());
        }
    }

    fn handle_signals(&mut self) -> Result<()> {
        while let Some(arrived) = self.signals.next() {
            if arrived.signal == Signal::SIGCHLD {
                // Every pass of the loop collects children.
                continue;
            }
            if arrived.signal == Signal::SIGQUIT {
                self.ask(Reasons::SIGNAL);
                continue;
            }
            let signal = process::Signal::from_named_raw(arrived.signal as i32);
            match arrived.from_terminal && arrived.signal != Signal::SIGCONT {
                true => self.processes.send_apart(signal),
                false => self.processes.send_all(signal),
            }
            match arrived.signal {
                Signal::SIGTSTP => {
                    self.flush()?;
                    self.signals.stop()?;
                    // It goes on from here, and so do the PEs.
                    if let Some(simulation) = &mut self.simulation {
                        simulation.be_patient();
                    }
                }
                Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP => {
                    self.course.interrupt(arrived.signal as i32);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_output(&mut self) -> Result<()> {
        for token in events::ready(&self.output, Some(&Duration::ZERO))? {
            self.course.read(token, |pe| withholds(self.simulation.as_ref(), pe));
        }
        Ok(())
    }

    fn handle_deadlines(&mut self) {
        let now = Instant::now();
        let processes = &self.processes;
        // Before it joins, a PE has nobody to poll, and may be in a debugger that waits for its
        // user.
        let activity = |pe| match processes.process(pe) {
            _ if !processes.job().has_joined(pe) => Activity::Stopped,
            pid => pid.map_or(Activity::Runs, Activity::of),
        };
        if let Some(simulation) = &mut self.simulation {
            if !self.reading {
                // A PE whose output nobody reads may wait in `write`.
                simulation.be_patient();
            }
            simulation.check(now, activity);
        }
        let stat = |pid| Pid::from_raw(pid).and_then(Stat::of);
        self.course.pass_on_due(now, |pid| stat(pid).is_some_and(|stat| stat.state == 'R'));
        if self.course.is_overdue(now, || processes.running()) {
            self.ask(Reasons::TIMEOUT);
        }
        self.pursue(now);
        if let Some(message) = self.processes.pass(now) {
            self.say(&message);
        }
    }

    /// Asks the PEs what they wait for.
    fn ask(&mut self, reason: Reasons) {
        if let Some(number) = self.inquiry.ask(reason) {
            self.put(number);
        }
    }

    fn put(&mut self, number: NonZeroU32) {
        self.question = Some(Question::ask(number, self.job(), Instant::now()));
    }

    /// Asks what `--watch` wants to know, and looks for answers.
    fn pursue(&mut self, now: Instant) {
        if let Some(number) = self.inquiry.is_due(now) {
            self.put(number);
        }
        if let (Some(question), Some(simulation)) = (&self.question, &self.simulation)
            && now >= question.next()
        {
            self.hear_parked(simulation, TO_HEAR);
        }
        let now = Instant::now();
        let Some(question) = &mut self.question else { return };
        // A machine's time is not this one's.
        let records = self.records.as_deref().filter(|_| self.simulation.is_none());
        let records = records.map(Records::file);
        let Some((mut answers, mut window)) = question.answers(&self.processes, records, now)
        else {
            return;
        };
        self.question = None;
        if self.simulation.is_some() {
            answers.iter_mut().for_each(Answer::has_no_turn);
            // In its time, not in this one. The machine itself finds deadlocks.
            window = Duration::MAX;
        }
        let (text, is_over) = self.inquiry.answered(&answers, window, now);
        text.iter().for_each(|text| self.say(text));
        if is_over {
            self.processes.hurry(now);
        }
    }

    fn flush(&mut self) -> Result<()> {
        let read = self.course.flush();
        if read != self.reading {
            self.reading = read;
            if read {
                listen(&self.events, &self.output, OUTPUT)?;
            } else {
                events::forget(&self.events, &self.output)?;
            }
        }
        Ok(())
    }
}

/// Whether output of a PE is to wait for that of others.
fn withholds(simulation: Option<&Simulation>, pe: usize) -> bool {
    simulation.is_some_and(|simulation| simulation.withholds(pe))
}
