//! The agent's loop while its PEs run.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use memonet_control::codec::Bytes;
use memonet_control::deaths::Deaths;
use memonet_control::departures::Departures;
use memonet_control::events::{self, forget, listen};
use memonet_control::messages::{Death, Order, ToAgent, ToLauncher};
use memonet_core::Cause;
use memonet_core::unstable::launch::{JobFile, Place, State};
use memonet_core::unstable::recorder::file::RecordFile;
use rustix::io::Errno;
use rustix::process::Signal;

use super::input::Input;
use super::line::Line;
use super::prepare::Ready;
use crate::run::course::{End, LAST_READS, monotonic_nanos};
use crate::run::family::{Family, nap};
use crate::run::guard::Guard;
use crate::run::net::{self, Switchboard};
use crate::run::phase::Phase;
use crate::run::processes::Processes;
use crate::run::pulse::Keepers;
use crate::run::report::{self, Hints};
use crate::run::signals::Signals;
use crate::run::source::Target;
use crate::run::spawn::{Child, Extras, Spawner};
use crate::run::spec::Options;
use crate::run::starts::Starts;
use crate::run::stats::Records;
use crate::run::supervisor::GLANCE;
use crate::run::waits::{Question, pack};

const SIGNALS: u64 = u64::MAX - 10;
const OUTPUT: u64 = u64::MAX - 11;
const DEPARTURES: u64 = u64::MAX - 12;
const INPUT: u64 = u64::MAX - 13;
const UNREACHED: u64 = u64::MAX - 14;

/// Bytes of output that may be on the way to the launcher. Further output waits in its pipes.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes of output in one message.
const PIECE_BYTES: usize = 32 << 10;

/// The PEs of this host.
pub struct Watch<'a> {
    line: &'a mut Line,
    /// The first PE of the node.
    first: usize,
    npes: usize,
    /// What the PEs write: standard output and error of each.
    outputs: Vec<[Option<OwnedFd>; 2]>,
    /// Reports outputs. A set of its own, so that one call stops reading from all of them.
    output: OwnedFd,
    reading: bool,
    /// Bytes on the way to the launcher.
    owed: usize,
    input: Option<Input>,
    /// The states of the node's PEs that the launcher was told.
    told: Vec<State>,
    /// Deaths that the launcher was told, and has not ordered.
    deaths: Deaths,
    /// The launcher knows that the job is to exit.
    exiting: bool,
    departures: Departures,
    hints: Hints,
    records: Option<Records>,
    /// The launcher wants to know what they have counted.
    stats: bool,
    /// The launcher's question to the PEs, while it stands, and its number.
    question: Option<(u32, Question)>,
    switchboard: Switchboard,
    _keepers: Keepers,
    // Dropped in this order, as in the supervisor.
    processes: Processes,
    signals: Signals,
}

impl<'a> Watch<'a> {
    /// Starts the PEs.
    pub fn begin(
        line: &'a mut Line,
        mut ready: Ready,
        description: &[u8],
        heap: u64,
        signals: Signals,
        guard: Guard,
        order: Order,
    ) -> Result<Self> {
        let (first, npes, near) = (order.first as usize, order.npes as usize, ready.image_of.len());
        let job = JobFile::create_node(npes, near, ready.findings.cpus as usize, heap)?;
        let far = (0..npes).filter(|pe| !(first..first + near).contains(pe));
        // A wait for a PE elsewhere must not take it for one that has not joined.
        far.for_each(|pe| job.replicate(pe, State::Joined));
        let mut options = Options::default();
        let record = || Records::make((npes, first, near), order.events, &mut options.environment);
        let records = (order.stats || order.events > 0).then(record).transpose()?;
        let spawner = Spawner::new(&job, &guard, &signals, ready.nofile, &options)?;
        let departures = Departures::watch(&job)?;
        line.begin_pulse(net::heart(description)?, ready.listening.take_datagrams())?;
        let switchboard = Switchboard::start(ready.listening, description)?;
        listen(&line.events, switchboard.news(), UNREACHED)?;
        let family = Family::found(guard)?;
        listen(&line.events, &signals, SIGNALS)?;
        listen(&line.events, &departures, DEPARTURES)?;
        let output = events::set()?;
        listen(&line.events, &output, OUTPUT)?;
        let images = ready.image_of.iter().map(|&image| &ready.images[image]).collect();
        let mut starts = Starts { spawner, images, binding: &ready.binding, first };
        let keepers = Keepers::start(ready.binding.shared_cpus(), &job);
        let mut processes = Processes::new(first, family, job);
        processes.order_elsewhere();
        let aside = ready.binding.step_aside(near);
        let mut watch = Watch {
            line,
            first,
            npes,
            outputs: Vec::new(),
            output,
            reading: true,
            owed: 0,
            input: None,
            told: vec![State::Joined; near],
            deaths: Deaths::default(),
            exiting: false,
            departures,
            hints: Hints::new(&options),
            stats: order.stats,
            records,
            question: None,
            switchboard,
            _keepers: keepers,
            processes,
            signals,
        };
        let started = (first..first + near).map(|pe| watch.start(pe, &mut starts));
        match started.collect() {
            Ok(processes) => {
                drop(aside);
                ready.notes.into_iter().for_each(|text| watch.line.send(&ToLauncher::Say { text }));
                watch.line.send(&ToLauncher::Started { processes });
                Ok(watch)
            }
            Err(error) => {
                watch.read_last();
                Err(error)
            }
        }
    }

    /// Starts a PE. Gives its number as the system numbers processes.
    fn start(&mut self, pe: usize, starts: &mut Starts) -> Result<i32> {
        let mut extras = Extras { seat: Some(self.switchboard.seat(pe)?), stdin: None };
        if pe == 0 {
            let (pipe, stdin) = Input::new()?;
            (self.input, extras.stdin) = (Some(pipe), Some(stdin));
        }
        let (Child { pid, pidfd, stdout, stderr }, _) =
            starts.start(pe, self.processes.job(), &extras)?;
        let outputs = [stdout, stderr];
        for (target, fd) in outputs.iter().enumerate() {
            listen(&self.output, fd, token(pe - self.first, target))?;
        }
        self.outputs.push(outputs.map(Some));
        self.processes.adopt(pid, pidfd, &self.line.events)?;
        Ok(pid.as_raw_pid())
    }

    /// Watches the PEs until all have ended. False if the launcher is gone, or has ended them.
    pub fn run(mut self) -> Result<bool> {
        while self.processes.are_alive() {
            let next = self.next();
            let pass = self.line.pass(next)?;
            for message in pass.messages {
                if !self.obey(message)? {
                    return Ok(self.give_up());
                }
            }
            if pass.lost {
                return Ok(self.give_up());
            }
            self.handle_ends(&pass.events);
            for event in pass.events {
                match event {
                    SIGNALS => while self.signals.next().is_some() {},
                    OUTPUT => self.read_output()?,
                    DEPARTURES => self.departures.clear(),
                    UNREACHED => self.tell_unreached(),
                    _ => {}
                }
            }
            self.tell_states();
            self.tell_waits();
            self.publish_overdue();
            if let Some(text) = self.processes.pass(Instant::now()) {
                self.line.send(&ToLauncher::Say { text });
            }
            self.flush()?;
        }
        self.finish()
    }

    /// Ends the PEs at once.
    fn give_up(mut self) -> bool {
        self.processes.kill(|_, _| true);
        false
    }

    fn next(&self) -> Option<Instant> {
        let phase = self.processes.phase;
        let glance = matches!(phase, Phase::Running).then(|| Instant::now() + GLANCE);
        let ask = self.question.as_ref().map(|(_, question)| question.next());
        let due = [phase.until(), glance, self.processes.next_check(), self.deaths.due(), ask];
        due.into_iter().flatten().min()
    }

    /// Carries out what the launcher asks for. False if nothing is to go on.
    fn obey(&mut self, message: ToAgent) -> Result<bool> {
        match message {
            ToAgent::Stdin { bytes } => {
                if let Some(input) = &mut self.input {
                    input.add(&bytes.0);
                }
            }
            ToAgent::State { pe, state, place } => self.note_state(pe as usize, state, place),
            ToAgent::Exit { status } => {
                self.exiting = true;
                self.processes.job().exit(status);
            }
            ToAgent::Signal { number } => {
                // PEs here have no terminal, without which the kernel ignores SIGTSTP.
                let signal = Signal::from_named_raw(number);
                let stop = signal == Some(Signal::TSTP);
                self.processes.send_all(if stop { Some(Signal::STOP) } else { signal });
            }
            ToAgent::Hurry {} => self.processes.hurry(Instant::now()),
            ToAgent::Written { bytes } => self.owed = self.owed.saturating_sub(bytes as usize),
            ToAgent::Unreached { from, to } => self.switchboard.unreached(from, to),
            ToAgent::Closed { target } => {
                // As in a shell's pipeline, a PE that writes again gets SIGPIPE.
                self.outputs
                    .iter_mut()
                    .filter_map(|all| all.get_mut(target as usize))
                    .for_each(|output| *output = None);
            }
            ToAgent::Clock { sent } => {
                self.line.send(&ToLauncher::Clock { sent, here: monotonic_nanos() });
            }
            ToAgent::Ask { question } => {
                let job = self.processes.job();
                let asked = NonZeroU32::new(question);
                self.question =
                    asked.map(|number| (question, Question::ask(number, job, Instant::now())));
            }
            ToAgent::End {} => return Ok(false),
            ToAgent::Job { .. } | ToAgent::Start { .. } => bail!("the job has begun before"),
        }
        Ok(true)
    }

    /// Has the record of a PE say what its host tells, or, for a death, what the launcher has
    /// ordered (D2).
    fn note_state(&mut self, pe: usize, state: u64, place: u32) {
        let state = State::from_word(state);
        if pe >= self.npes {
            return;
        }
        let is_here = (self.first..self.first + self.outputs.len()).contains(&pe);
        match state {
            State::Dead(cause) => {
                self.deaths.ordered(pe);
                self.processes.job().die(pe, cause, Place::nth(place));
            }
            _ if is_here => return,
            _ => self.processes.job().replicate(pe, state),
        }
        self.tell_switchboard(pe, state);
    }

    /// Publishes deaths on this host that the launcher has not ordered in time (D3).
    fn publish_overdue(&mut self) {
        for (pe, cause) in self.deaths.overdue(Instant::now()) {
            self.processes.job().depart(pe, cause);
            self.tell_switchboard(pe, State::Dead(cause));
        }
    }

    fn tell_switchboard(&self, pe: usize, state: State) {
        if matches!(state, State::Dead(_) | State::Done) {
            self.switchboard.departed(pe);
        }
    }

    fn handle_ends(&mut self, events: &[u64]) {
        let asked = self.processes.job().exit_status();
        // Before the ends are judged: an end that follows from a request is no failure.
        if let Some(status) = asked
            && self.processes.exit_as_asked(&self.line.events)
            && !std::mem::replace(&mut self.exiting, true)
        {
            self.line.send(&ToLauncher::Exit { status });
        }
        let ended = |&event: &u64| self.processes.ended(event);
        let mut ends: Vec<End> = events.iter().filter_map(ended).collect();
        ends.extend(self.processes.look_for_joined(&self.line.events));
        self.processes.reap();
        self.processes.take_unreported();
        // Other hosts are told before the user is.
        self.tell_states();
        for end in ends {
            self.read_all(end.pe);
            let hint = match end.cause.filter(|_| !end.sent) {
                Some(cause) => report::hint(cause, &mut self.hints),
                None => None,
            };
            let cause = end.cause.map(|cause: Cause| State::Dead(cause).to_word());
            let End { pe, joined, after_finalizing, sent, .. } = end;
            let pe = pe as u32;
            let death = Death { pe, cause, joined, after_finalizing, sent, hint };
            self.line.send(&ToLauncher::Ended { death });
        }
    }

    /// Tells what has become of the node's PEs, if that is new.
    fn tell_states(&mut self) {
        for (pe, cause) in self.processes.take_unordered() {
            // D1.
            self.deaths.told(pe, cause, Instant::now());
            self.tell(pe, State::Dead(cause));
        }
        for index in 0..self.told.len() {
            let pe = self.first + index;
            let state = self.processes.job().state(pe);
            // Its death was told before.
            let is_told = matches!(self.told[index], State::Dead(_)) || state == self.told[index];
            if state != State::Empty && !is_told {
                self.tell(pe, state);
                self.tell_switchboard(pe, state);
            }
        }
    }

    /// Tells what the PEs wait for, once they have answered.
    fn tell_waits(&mut self) {
        let Some((number, question)) = &mut self.question else { return };
        let records = self.records.as_ref().map(Records::file);
        let Some((answers, _)) = question.answers(&self.processes, records, Instant::now()) else {
            return;
        };
        for waits in answers.iter().filter_map(pack) {
            self.line.send(&ToLauncher::Waits { question: *number, waits });
        }
        self.line.send(&ToLauncher::Asked { question: *number });
        self.question = None;
    }

    fn tell_unreached(&mut self) {
        for (from, to) in self.switchboard.take_unreached() {
            self.line.send(&ToLauncher::Unreached { from, to });
        }
    }

    fn tell(&mut self, pe: usize, state: State) {
        self.told[pe - self.first] = state;
        self.line.send(&ToLauncher::State { pe: pe as u32, state: state.to_word() });
    }

    fn read_output(&mut self) -> Result<()> {
        for token in events::ready(&self.output, Some(&Duration::ZERO))? {
            self.read(token as usize / 2, token as usize % 2);
        }
        Ok(())
    }

    fn read_all(&mut self, pe: usize) {
        for target in [Target::Stdout, Target::Stderr] {
            let mut reads = 0..LAST_READS;
            while reads.next().is_some() && self.read(pe - self.first, target as usize) {}
        }
    }

    /// Reads what is left of the PEs' output.
    fn read_last(&mut self) {
        (self.first..self.first + self.outputs.len()).for_each(|pe| self.read_all(pe));
    }

    /// Reads once. False if there is nothing to read now.
    fn read(&mut self, index: usize, target: usize) -> bool {
        let Some(fd) = &self.outputs[index][target] else { return false };
        let mut bytes = vec![0; PIECE_BYTES];
        match rustix::io::read(fd, &mut bytes) {
            Ok(n) if n > 0 => bytes.truncate(n),
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => return false,
            _ => {
                bytes.clear();
                self.outputs[index][target] = None;
            }
        }
        self.owed += bytes.len();
        let more = !bytes.is_empty();
        let pe = (self.first + index) as u32;
        self.line.send(&ToLauncher::Output { pe, target: target as u8, bytes: Bytes(bytes) });
        more
    }

    fn flush(&mut self) -> Result<()> {
        let read = self.owed < WINDOW_BYTES;
        if read != self.reading {
            self.reading = read;
            match read {
                true => listen(&self.line.events, &self.output, OUTPUT)?,
                false => forget(&self.line.events, &self.output)?,
            }
        }
        if let Some(input) = &mut self.input {
            let bytes = input.flush(&self.line.events, INPUT)? as u32;
            if bytes > 0 {
                self.line.send(&ToLauncher::Taken { bytes });
            }
        }
        Ok(())
    }

    /// After the end of all PEs: ends the processes that they left behind, while the launcher hears
    /// of it, and passes on the last output.
    fn finish(mut self) -> Result<bool> {
        self.line.send_all()?;
        let line = &mut self.line;
        // A launcher that is gone has no use for what is left either.
        let pause = || {
            nap();
            drop(line.pass(Some(Instant::now())));
        };
        for text in self.processes.end_family(pause) {
            self.line.send(&ToLauncher::Say { text });
        }
        self.read_last();
        self.tell_states();
        if let Some(records) = self.records.take() {
            let counted = if self.stats { records.encoded()? } else { Vec::new() };
            for piece in counted.chunks(PIECE_BYTES) {
                self.line.send(&ToLauncher::Stats { piece: Bytes(piece.to_vec()) });
            }
            self.send_events(records.file())?;
        }
        self.line.send(&ToLauncher::Finished {});
        self.line.send_all()?;
        Ok(true)
    }
}

impl Watch<'_> {
    /// Sends the events of all PEs, one piece after the other: they may be more than fits into
    /// memory a second time.
    fn send_events(&mut self, records: &RecordFile) -> Result<()> {
        for pe in self.first..self.first + self.outputs.len() {
            for piece in records.pieces(pe, PIECE_BYTES as u64)? {
                let (at, bytes) = piece?;
                let bytes = Bytes(bytes);
                self.line.send(&ToLauncher::Events { pe: pe as u32, at, bytes });
                self.line.send_all()?;
            }
        }
        Ok(())
    }
}

fn token(index: usize, target: usize) -> u64 {
    (index * 2 + target) as u64
}
