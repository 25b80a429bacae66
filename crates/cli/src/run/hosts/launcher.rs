//! The launcher's loop: messages of agents, their ends, signals, input and deadlines.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memonet_control::START;
use memonet_control::codec::{Bytes, decode};
use memonet_control::events::{self, listen};
use memonet_control::frames::{Piece, version};
use memonet_control::messages::{Death, Findings, ToAgent, ToLauncher};
use memonet_core::unstable::launch::State;
use memonet_core::unstable::wait::wording;
use memonet_core::{Cause, Lost};
use memonet_fabrics::between::Between;
use memonet_tcp::agent::NodeInfo;
use nix::sys::signal::Signal;

use super::call::{CALLS, Call, Caller};
use super::input::Input;
use super::node::{Event, Node, Stage, event};
use super::relay::Relay;
use super::reports::Reports;
use crate::run::course::{Course, End, Outcome, monotonic_nanos};
use crate::run::datagrams::{self, Datagrams};
use crate::run::family::{Family, nap};
use crate::run::net;
use crate::run::phase::{Deed, Phase};
use crate::run::signals::Signals;
use crate::run::source::Target;
use crate::run::spec::Options;
use crate::run::stats::{Forms, PeStats, Report};
use crate::run::trace::OfHosts;
use crate::run::waits::{Inquiry, Reasons};
use waits::Asked;

mod relays;
mod waits;

const SIGNALS: u64 = u64::MAX;
const NEWS: u64 = u64::MAX - 1;
const INPUT: u64 = u64::MAX - 2;
const DATAGRAMS: u64 = u64::MAX - 3;

/// Time for an agent that is told to end, or has finished, to do so.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// Bytes of output after which an agent is told that they were passed on.
const OWED_BYTES: usize = 64 << 10;

/// The launcher of a job on several hosts. Dropping it ends the job.
pub struct Launcher {
    events: OwnedFd,
    caller: Caller,
    phase: Phase,
    /// When the agents were called.
    began: Instant,
    /// Deaths that were published.
    deaths: u32,
    reports: Reports,
    /// All agents were told to end; those that have not by then are ended.
    ending: Option<Instant>,
    heartbeat: bool,
    /// How PEs of different hosts are to reach each other, and whether the user is told.
    between: (Between, bool),
    datagrams: Datagrams,
    input: Input,
    /// What PEs have recorded, as told by each agent, where the user wants to know.
    stats: Option<(Forms, Vec<Vec<u8>>)>,
    /// Their events, where the user wants a timeline.
    trace: Option<OfHosts>,
    inquiry: Inquiry,
    /// The question that stands.
    asked: Option<Asked>,
    // Dropped in this order, as in the supervisor of one machine.
    nodes: Vec<Node>,
    relays: Vec<Relay>,
    family: Family,
    signals: Signals,
    pub course: Course,
}

impl Launcher {
    /// The launcher of a job on these nodes. `course` has all PEs.
    pub fn new(
        nodes: Vec<Node>,
        relays: Vec<Relay>,
        caller: Caller,
        options: &Options,
        signals: Signals,
        family: Family,
        course: Course,
    ) -> Result<Launcher> {
        let asked = options.fabric_of_pes();
        let between = asked.map_or(Ok(Between::Best), |spec| Between::parse(&spec))?;
        let events = events::set()?;
        listen(&events, &signals, SIGNALS)?;
        listen(&events, course.news(), NEWS)?;
        let datagrams = Datagrams::of_launcher();
        datagrams.listen(&events, DATAGRAMS)?;
        Ok(Launcher {
            events,
            caller,
            phase: Phase::Running,
            began: Instant::now(),
            deaths: 0,
            reports: Reports::default(),
            ending: None,
            heartbeat: options.several.heartbeat(),
            between: (between, options.verbose),
            datagrams,
            input: Input::default(),
            stats: Forms::open(&options.stats)?.map(|forms| (forms, vec![Vec::new(); nodes.len()])),
            trace: None,
            inquiry: Inquiry::new(options.watch, Instant::now()),
            asked: None,
            nodes,
            relays,
            family,
            signals,
            course,
        })
    }

    /// Collects the events of all PEs, if a timeline is asked for.
    pub fn with_trace(mut self, trace: Option<OfHosts>) -> Launcher {
        self.trace = trace;
        self
    }

    /// Runs the job until it has ended.
    pub fn run(mut self) -> Result<Outcome> {
        (0..self.relays.len()).try_for_each(|number| self.call_relay(number))?;
        for node in self.nodes.iter_mut().filter(|node| !node.is_called()) {
            node.call(&self.caller, &self.events)?;
        }
        while self.is_called() {
            let events = events::wait(&self.events, Some(self.next()))?;
            self.notice_stop();
            for event in events {
                match event {
                    SIGNALS => self.handle_signals()?,
                    NEWS => self.handle_news(),
                    INPUT => self.pass_input(),
                    DATAGRAMS => self.hear_datagrams(),
                    token => self.handle_node(token)?,
                }
            }
            if self.reads_input() && self.input.is_due() {
                self.pass_input();
            }
            self.family.reap(|pid| calls(&self.nodes, &self.relays).any(|c| c.pid() == pid));
            self.handle_deadlines()?;
            self.flush()?;
        }
        let left = self.family.end(nap);
        let has_started = self.has_started();
        let stats = self.stats.take().filter(|_| has_started);
        let stats = stats.map(|(forms, told)| (forms, self.report(&told)));
        self.course.finish(left);
        let (outcome, output) = self.course.outcome();
        // Dropping the writer writes the last output.
        let trace = self.trace.take().filter(|_| has_started);
        let fates = self.course.take_fates();
        drop(self);
        let mut outcome = outcome.after(&output);
        if let Some((forms, report)) = stats {
            outcome = outcome.reported(forms.write(&report));
        }
        Ok(trace.map_or(outcome, |trace| trace.write(fates, outcome)))
    }

    /// What the PEs of all hosts have recorded. Of a host that is lost nothing is known.
    fn report(&mut self, told: &[Vec<u8>]) -> Report {
        let npes = self.nodes.iter().map(|node| node.count).sum();
        let mut all = Vec::new();
        for (node, bytes) in self.nodes.iter().zip(told).filter(|(_, bytes)| !bytes.is_empty()) {
            match PeStats::decode(bytes, node.pes(), npes) {
                Ok(pes) => all.extend(pes),
                Err(error) => self
                    .course
                    .say(&format!("{}: its statistics are unreadable: {error}", node.host)),
            }
        }
        Report::new(npes, all, None)
    }

    /// Whether something may come of an agent or a relay.
    fn is_called(&self) -> bool {
        self.nodes.iter().any(Node::is_called) || calls(&self.nodes, &self.relays).next().is_some()
    }

    fn next(&self) -> Instant {
        let starts = !self.has_started() && self.ending.is_none();
        let start = starts.then_some(self.began + START);
        let now = (self.reads_input() && self.input.is_due()).then(Instant::now);
        let ask = self.asked.as_ref().map(Asked::until).or(self.inquiry.next());
        let due = [self.phase.until(), self.course.next_due(), self.ending, start, now, ask];
        let called = self.nodes.iter().filter(|node| node.is_called());
        let beats = called.map(|node| node.vigil.next());
        let beats = beats.chain(self.relays.iter().map(|relay| relay.vigil.next()));
        due.into_iter().flatten().chain(beats).min().unwrap_or(self.began)
    }

    /// After a stop, what others have said may lie unread: nobody counts as silent.
    fn notice_stop(&mut self) {
        let now = Instant::now();
        self.nodes.iter_mut().for_each(|node| node.vigil.pass(now));
        self.relays.iter_mut().for_each(|relay| relay.vigil.pass(now));
    }

    fn handle_node(&mut self, token: u64) -> Result<()> {
        let (node, event) = event(token);
        if let Some(relay) = node.checked_sub(self.nodes.len()) {
            return self.handle_relay(relay, event);
        }
        match event {
            Event::Output => self.hear(node),
            Event::Errors => {
                self.nodes[node].read_errors();
                self.show_errors(node, false);
            }
            Event::End => self.end_call(node)?,
            // Every pass of the loop writes what there is room for.
            Event::Room => {}
        }
        Ok(())
    }

    /// Reads heartbeats that have come as datagrams.
    fn hear_datagrams(&mut self) {
        let (now, nodes) = (Instant::now(), &mut self.nodes);
        self.datagrams.receive(|bytes, _| {
            let node = datagrams::node_of(bytes).and_then(|node| nodes.get_mut(node));
            let Some(node) = node else { return };
            // After its end, an agent's last datagram may still be on its way.
            let counts = node.stage == Stage::Running;
            if node.heart.as_mut().is_some_and(|heart| heart.hears(bytes)) && counts {
                node.vigil.hear(now);
            }
        });
    }

    /// Reads what an agent has said.
    fn hear(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.is_open() {
            return;
        }
        let read = node.read();
        if read.is_some_and(|n| n > 0) {
            node.vigil.hear(Instant::now());
        }
        self.understand(at);
        if read.is_none() {
            match self.nodes[at].stage {
                // The end of the call says why.
                Stage::Called | Stage::Greeted | Stage::Ready(_) => self.nodes[at].close(),
                _ => self.lose(at, Lost::Closed),
            }
        }
    }

    /// Handles what was read from an agent.
    fn understand(&mut self, at: usize) {
        loop {
            let handled = match self.nodes[at].next_piece() {
                Ok(Some(piece)) => self.handle_piece(at, piece),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                let host = self.nodes[at].host.clone();
                self.course.say(&format!(
                    "{host}: what memonet's agent there says is no message: {error:#}"
                ));
                self.lose(at, Lost::Closed);
            }
        }
    }

    fn handle_piece(&mut self, at: usize, piece: Piece) -> Result<()> {
        match piece {
            Piece::Heartbeat => {}
            Piece::Foreign(line) if line.is_empty() => {}
            Piece::Foreign(line) => self.say_on(at, &line),
            Piece::Greeting(theirs) if theirs == version() => {
                self.nodes[at].stage = Stage::Greeted;
                self.show_errors(at, false);
            }
            Piece::Greeting(theirs) => {
                let host = &self.nodes[at].host;
                let text = format!(
                    "{host} has memonet {theirs}, but this is {}. Install one version on all hosts",
                    version()
                );
                self.give_up(&text, 1);
            }
            Piece::Message(bytes) => self.handle_message(at, decode(&bytes)?)?,
        }
        Ok(())
    }

    fn handle_message(&mut self, at: usize, message: ToLauncher) -> Result<()> {
        match message {
            ToLauncher::Ready { findings } => {
                self.nodes[at].stage = Stage::Ready(findings);
                self.start_if_ready()?;
            }
            ToLauncher::Refused { why, status } => {
                let text = format!("{}: {why}", self.nodes[at].host);
                self.give_up(&text, status);
            }
            ToLauncher::Started { processes } => self.note_start(at, &processes),
            ToLauncher::Output { pe, target, bytes } => {
                let target = if target == 0 { Target::Stdout } else { Target::Stderr };
                self.note_output(at, self.pe_of(at, pe)?, target, &bytes.0);
            }
            ToLauncher::Ended { death } => self.note_end(at, death)?,
            ToLauncher::State { pe, state } => {
                let pe = self.pe_of(at, pe)?;
                self.publish(pe, State::from_word(state), Some(at));
            }
            ToLauncher::Exit { status } => self.note_exit(at, status),
            ToLauncher::Say { text } => self.say_on(at, &text),
            ToLauncher::Taken { bytes } => self.input.taken(bytes as usize),
            ToLauncher::Unreached { from, to } => {
                self.pe_of(at, from)?;
                let node = self.nodes.iter_mut().find(|node| node.pes().contains(&(to as usize)));
                let node = node.with_context(|| format!("PE {to} is nowhere"))?;
                node.send(&ToAgent::Unreached { from, to });
            }
            ToLauncher::Stats { piece } => {
                self.stats.iter_mut().for_each(|(_, told)| told[at].extend_from_slice(&piece.0));
            }
            ToLauncher::Clock { sent, here } => {
                if let Some(trace) = &mut self.trace {
                    trace.compare_clocks(at, sent, here);
                }
            }
            ToLauncher::Events { pe, at: place, bytes } => {
                let pe = self.pe_of(at, pe)?;
                if let Some(trace) = &mut self.trace {
                    trace.receive(at, pe, place, &bytes.0)?;
                }
            }
            ToLauncher::Waits { question, waits } => {
                let pe = self.pe_of(at, waits.pe)?;
                self.note_waits(question, pe, &waits);
            }
            ToLauncher::Asked { question } => self.note_answered(at, question),
            ToLauncher::Finished {} => self.note_finished(at),
        }
        Ok(())
    }

    /// An agent has sent output of a PE. Empty: its end.
    fn note_output(&mut self, at: usize, pe: usize, target: Target, text: &[u8]) {
        self.nodes[at].owed += text.len();
        match text.is_empty() {
            true => self.course.close(pe, target),
            false => self.course.receive(pe, target, text),
        }
    }

    /// A PE of this node has asked for the end of the job: the other nodes hear of it.
    fn note_exit(&mut self, at: usize, status: u8) {
        if self.phase.asked(Instant::now()) {
            self.course.asked(status);
        }
        let others = self.nodes.iter_mut().enumerate().filter(|(number, _)| *number != at);
        others.for_each(|(_, node)| node.send(&ToAgent::Exit { status }));
    }

    /// All PEs of this node have ended, and its agent has sent all it had.
    fn note_finished(&mut self, at: usize) {
        if let Some(trace) = &mut self.trace {
            trace.finished(at);
        }
        let node = &mut self.nodes[at];
        node.stage = Stage::Finished;
        node.vigil.hear(Instant::now());
        self.silence(at);
    }

    /// A PE of this node, from a message.
    fn pe_of(&self, at: usize, pe: u32) -> Result<usize> {
        let (node, pe) = (&self.nodes[at], pe as usize);
        node.pes().contains(&pe).then_some(pe).with_context(|| format!("PE {pe} is not there"))
    }

    /// Once all agents are ready: has them start the PEs.
    fn start_if_ready(&mut self) -> Result<()> {
        let found = |node: &Node| match &node.stage {
            Stage::Ready(findings) => Some(findings.clone()),
            _ => None,
        };
        let all: Option<Vec<Findings>> = self.nodes.iter().map(found).collect();
        let Some(all) = all.filter(|_| self.ending.is_none()) else { return Ok(()) };
        if let Some(text) = self.difference(&all) {
            self.give_up(&text, 1);
            return Ok(());
        }
        let provider = match self.way_between(&all) {
            Ok(provider) => provider,
            Err(text) => {
                self.give_up(&text, 1);
                return Ok(());
            }
        };
        let heap = all.iter().map(|findings| findings.heap).min().unwrap_or_default();
        let describe = |(node, findings): (&Node, &Findings)| NodeInfo {
            name: node.host.to_string(),
            pes: node.count as u32,
            cpus: findings.cpus,
            addresses: findings.addresses.clone(),
        };
        let nodes = self.nodes.iter().zip(&all).map(describe).collect();
        let described = self.nodes.iter_mut().zip(all).zip(net::describe(nodes, provider)?);
        for ((node, findings), (job, heart)) in described {
            (node.heart, node.addresses) = (Some(heart), findings.addresses);
            node.send(&ToAgent::Start { job: Bytes(job), heap });
            node.stage = Stage::Starting;
        }
        Ok(())
    }

    /// What differs between hosts, and must not.
    fn difference(&self, all: &[Findings]) -> Option<String> {
        let traits = |findings: &Findings| (findings.architecture.clone(), findings.page);
        let at = all.iter().position(|findings| traits(findings) != traits(&all[0]))?;
        let describe = |at: usize| {
            let Findings { architecture, page, .. } = &all[at];
            format!("{} has {architecture} and pages of {page} bytes", self.nodes[at].host)
        };
        Some(format!(
            "the hosts are too different for one job: {}, but {}. Leave some out",
            describe(0),
            describe(at)
        ))
    }

    /// The provider of libfabric by which PEs of different hosts reach each other; none where they
    /// do by streams.
    fn way_between(&mut self, all: &[Findings]) -> Result<Option<String>, String> {
        let hosts = self.nodes.iter().map(|node| node.host.as_ref());
        let found = hosts.zip(all.iter().map(|findings| findings.provider.as_deref()));
        let (asked, is_told) = &self.between;
        let decision = asked.decide(&found.collect::<Vec<_>>())?;
        if *is_told && all.len() > 1 {
            self.course.say(&format!("PEs of different hosts reach each other by {decision}"));
        }
        Ok(decision.provider)
    }

    fn note_start(&mut self, at: usize, processes: &[i32]) {
        let node = &mut self.nodes[at];
        node.stage = Stage::Running;
        node.vigil.hear(Instant::now());
        if self.trace.is_some() {
            node.send(&ToAgent::Clock { sent: monotonic_nanos() });
        }
        for (pe, &pid) in node.pes().zip(processes) {
            self.course.started(pe, pid);
        }
    }

    /// Whether all PEs run, or have run.
    fn has_started(&self) -> bool {
        let has =
            |node: &Node| matches!(node.stage, Stage::Running | Stage::Finished | Stage::Lost);
        self.nodes.iter().all(has)
    }

    fn note_end(&mut self, at: usize, death: Death) -> Result<()> {
        let pe = self.pe_of(at, death.pe)?;
        let cause = match death.cause.map(State::from_word) {
            None => None,
            Some(State::Dead(cause)) => Some(cause),
            Some(other) => anyhow::bail!("PE {pe} has ended as {other:?}"),
        };
        if death.joined.is_none() {
            self.nodes[at].running.remove(&pe);
        }
        let Death { joined, after_finalizing, sent, hint, .. } = death;
        self.reports.ended(End { pe, cause, joined, after_finalizing, sent, hint });
        self.account();
        Ok(())
    }

    fn account(&mut self) {
        while let Some(end) = self.reports.next() {
            if self.course.account_for(&end, self.phase) {
                self.phase.failed(Instant::now());
            }
        }
    }

    /// Tells all nodes but `origin` what has become of a PE. A death gets its place here, and is
    /// told to the origin too (D2).
    fn publish(&mut self, pe: usize, state: State, origin: Option<usize>) {
        let is_death = matches!(state, State::Dead(_));
        self.deaths += u32::from(is_death);
        let place = if is_death { self.deaths } else { 0 };
        if is_death {
            self.reports.died(pe);
        }
        let message = ToAgent::State { pe: pe as u32, state: state.to_word(), place };
        let others = self.nodes.iter_mut().enumerate();
        for (_, node) in others.filter(|(number, _)| is_death || Some(*number) != origin) {
            if matches!(node.stage, Stage::Starting | Stage::Running) {
                node.send(&message);
            }
        }
    }

    /// A host takes no part any more: its PEs are dead to all others.
    fn lose(&mut self, at: usize, how: Lost) {
        let node = &mut self.nodes[at];
        let before = std::mem::replace(&mut node.stage, Stage::Lost);
        node.close();
        node.hang_up();
        if matches!(before, Stage::Lost | Stage::Finished) {
            node.stage = before;
            return;
        }
        let (running, host) = (std::mem::take(&mut node.running), node.host.clone());
        if !matches!(before, Stage::Starting | Stage::Running) || self.ending.is_some() {
            let text = format!("{host}: memonet's agent there has ended before the job began");
            self.give_up(&text, 1);
            return;
        }
        let cause = Cause::Host(how);
        for &pe in &running {
            self.publish(pe, State::Dead(cause), Some(at));
        }
        let (joined, after_finalizing, sent, hint) = (None, false, false, None);
        for pe in running {
            let hint = hint.clone();
            let cause = Some(cause);
            self.reports.ended(End { pe, cause, joined, after_finalizing, sent, hint });
        }
        self.silence(at);
    }

    /// Nothing more comes of a host.
    fn silence(&mut self, at: usize) {
        let node = &self.nodes[at];
        self.reports.forget(node.pes());
        self.account();
    }

    /// The process that had started an agent has ended.
    fn end_call(&mut self, at: usize) -> Result<()> {
        let Some(status) = self.nodes[at].call.as_mut().and_then(|call| call.ended()) else {
            return Ok(());
        };
        // What the agent has said before lies in the pipe. A process that it has left behind may
        // keep that open.
        while self.nodes[at].read().is_some_and(|n| n > 0) {
            self.hear(at);
        }
        self.hear(at);
        let lines = self.nodes[at].errors(true);
        let node = &mut self.nodes[at];
        let command = self.caller.describe(&node.host, "true");
        node.call = None;
        if node.stage != Stage::Called {
            lines.iter().for_each(|line| self.say_on(at, line));
            self.lose(at, Lost::Closed);
            return Ok(());
        }
        node.close();
        node.attempt += 1;
        let missing = matches!(status.code(), Some(126 | 127));
        if missing && node.attempt < CALLS && self.ending.is_none() {
            return node.call(&self.caller, &self.events);
        }
        let text = self.why_no_agent(at, missing, status, &command, &lines);
        self.give_up(&text, if missing { 127 } else { 1 });
        Ok(())
    }

    fn why_no_agent(
        &self,
        at: usize,
        missing: bool,
        status: std::process::ExitStatus,
        command: &str,
        lines: &[String],
    ) -> String {
        let host = &self.nodes[at].host;
        let said = lines.last().map_or_else(String::new, |line| format!(": {line}"));
        if missing {
            return format!(
                "there is no memonet on {host}, neither at this program's own path nor on PATH{said}. Install it there, or share it with that host"
            );
        }
        format!(
            "cannot start memonet on {host}: {} has ended with {status}{said}. `{command}` must work without a password",
            self.caller.program()
        )
    }

    /// Ends a job that has not begun, or cannot go on.
    fn give_up(&mut self, text: &str, status: u8) {
        if self.ending.is_none() {
            self.course.fail(text, status);
            self.end_all();
        }
    }

    /// Tells all agents to end.
    fn end_all(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.send(&ToAgent::End {}));
        self.ending = Some(Instant::now() + LAST_WAIT);
        // An agent that has not answered yet may never do so.
        let silent = self.nodes.iter_mut().filter(|node| node.stage == Stage::Called);
        silent.for_each(Node::hang_up);
        self.relays.iter_mut().filter(|relay| !relay.has_greeted).for_each(Relay::end);
    }

    fn handle_signals(&mut self) -> Result<()> {
        while let Some(arrived) = self.signals.next() {
            let number = arrived.signal as i32;
            if arrived.signal == Signal::SIGCHLD {
                // The ends of calls have events of their own.
                continue;
            }
            if arrived.signal == Signal::SIGQUIT {
                self.ask(Reasons::SIGNAL);
                continue;
            }
            // PEs on other hosts get nothing from this terminal.
            self.nodes.iter_mut().for_each(|node| node.send(&ToAgent::Signal { number }));
            match arrived.signal {
                Signal::SIGTSTP => {
                    self.flush()?;
                    let stopped = Instant::now();
                    self.signals.stop()?;
                    self.began += stopped.elapsed();
                    // The kernel stops no process that no shell would continue.
                    let number = Signal::SIGCONT as i32;
                    self.nodes.iter_mut().for_each(|node| node.send(&ToAgent::Signal { number }));
                }
                Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP => {
                    self.course.interrupt(number);
                    if !self.has_started() && self.ending.is_none() {
                        self.course.asked(128 + number as u8);
                        self.end_all();
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn handle_news(&mut self) {
        for target in self.course.handle_news() {
            let message = ToAgent::Closed { target: target as u8 };
            self.nodes.iter_mut().for_each(|node| node.send(&message));
        }
    }

    /// Passes on standard input, to the node with PE 0.
    fn pass_input(&mut self) {
        if let Some(bytes) = self.input.read() {
            self.nodes[0].send(&ToAgent::Stdin { bytes: Bytes(bytes) });
        }
    }

    fn show_errors(&mut self, at: usize, all: bool) {
        // Before the agent has answered, they are part of the reason why it does not.
        if self.nodes[at].stage != Stage::Called {
            for line in self.nodes[at].errors(all) {
                self.say_on(at, &line);
            }
        }
    }

    /// Passes on a message of a host.
    fn say_on(&mut self, at: usize, text: &str) {
        let host = self.nodes[at].host.clone();
        for line in text.lines() {
            self.course.say(&format!("{host}: {line}"));
        }
    }

    fn handle_deadlines(&mut self) -> Result<()> {
        let now = Instant::now();
        for node in self.nodes.iter_mut().filter(|node| node.is_called()) {
            if node.vigil.is_due(now) {
                node.beat(&self.datagrams);
                if self.trace.is_some() && node.stage == Stage::Running {
                    node.send(&ToAgent::Clock { sent: monotonic_nanos() });
                }
            }
        }
        // A pass itself may have been stopped, too.
        self.notice_stop();
        self.handle_silence(now)?;
        self.pass_relays(now)?;
        self.course.pass_on_due(now, |_| false);
        let nodes = &self.nodes;
        if self.course.is_overdue(now, || running(nodes)) {
            match self.has_started() {
                true => self.ask(Reasons::TIMEOUT),
                false => self.end_all(),
            }
        }
        self.pursue(now);
        if let Some(deed) = self.phase.pass(now) {
            self.carry_out(deed);
        }
        if self.ending.is_some_and(|at| at <= now) {
            self.ending = Some(now + LAST_WAIT);
            calls(&self.nodes, &self.relays).for_each(Call::kill);
        }
        Ok(())
    }

    fn handle_silence(&mut self, now: Instant) -> Result<()> {
        if !self.has_started() && self.ending.is_none() && now >= self.began + START {
            let late = |node: &&Node| {
                !matches!(node.stage, Stage::Ready(_) | Stage::Running | Stage::Finished)
            };
            let names: Vec<&str> = self.nodes.iter().filter(late).map(|node| &*node.host).collect();
            let first = self.nodes.iter().find(late);
            let command =
                first.map_or_else(String::new, |node| self.caller.describe(&node.host, "true"));
            let text = format!(
                "no answer after {START:?} from {}. Does `{command}` return at once?",
                names.join(", "),
            );
            self.give_up(&text, 1);
        }
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            match node.stage {
                Stage::Running if self.heartbeat && node.vigil.is_lost(now) => {
                    let relay = node.relay.filter(|&relay| self.relays[relay].nodes.start == at);
                    self.lose(at, Lost::Silent);
                    // A relay is lost with its host.
                    relay.map_or(Ok(()), |relay| self.lose_relay(relay))?;
                }
                Stage::Finished if node.vigil.silence(now) > LAST_WAIT => node.hang_up(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the job without a grace period.
    fn hurry(&mut self, now: Instant) {
        if let Some(deed) = self.phase.hurry(now) {
            self.carry_out(deed);
        }
    }

    fn carry_out(&mut self, deed: Deed) {
        match deed {
            Deed::Terminate { .. } => {
                self.nodes.iter_mut().for_each(|node| node.send(&ToAgent::Hurry {}));
            }
            // Agents do that by themselves, a second after `Hurry`.
            Deed::Kill => {}
            Deed::Abandon => self.end_all(),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let passed_on = self.course.flush();
        for node in &mut self.nodes {
            if passed_on && node.owed >= OWED_BYTES {
                let bytes = std::mem::take(&mut node.owed) as u32;
                node.send(&ToAgent::Written { bytes });
            }
            node.flush(&self.events)?;
        }
        self.flush_relays()?;
        if self.reads_input() {
            self.input.update(&self.events, INPUT)?;
        }
        Ok(())
    }

    /// Whether PE 0 runs, which reads the standard input.
    fn reads_input(&self) -> bool {
        self.has_started() && self.ending.is_none() && self.nodes[0].running.contains(&0)
    }
}

/// The PEs that have not ended, as text.
fn running(nodes: &[Node]) -> String {
    let running: BTreeSet<usize> = nodes.iter().flat_map(|node| &node.running).copied().collect();
    wording::ranges(&mut running.into_iter().collect::<Vec<_>>())
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // `Family` waits for their ends.
        calls(&self.nodes, &self.relays).for_each(Call::kill);
    }
}

/// The processes that have started agents and relays.
fn calls<'a>(nodes: &'a [Node], relays: &'a [Relay]) -> impl Iterator<Item = &'a Call> {
    let of_nodes = nodes.iter().flat_map(|node| &node.call);
    of_nodes.chain(relays.iter().flat_map(|relay| &relay.call))
}
