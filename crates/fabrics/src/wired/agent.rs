//! The agent of a node: what it does, from the fork to its end.

use super::common::FENCE;
use super::mesh::{self, Mesh, News};
use super::order::{Effect, Order};
use super::pulse::Pulse;
use super::{fork, post, successor};
use anyhow::{Context, Result};
use memonet_control::deaths::Deaths;
use memonet_control::departures::Departures;
use memonet_control::events::{forget, listen};
use memonet_control::messages::AmongAgents;
use memonet_core::Cause;
use memonet_core::unstable::launch::{JobFile, Place, State, UNKNOWN, end_of};
use memonet_tcp::agent::{AgentBroker, Job, Listener, Switchboard};
use memonet_wireup::pmi::{Pmi, Relay};
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::net::UdpSocket;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a launcher may take to end the session of a PE that has ended.
const LAST_ANSWER: Duration = Duration::from_secs(1);

const DEPARTURES: u64 = mesh::EVENTS - 1;
const UNREACHED: u64 = mesh::EVENTS - 2;

/// All that an agent has when it begins.
pub struct Agent {
    pub job: Job,
    /// Bytes of windows that each PE has.
    pub heap: u64,
    /// The PEs of the node, each with the end by which it registers.
    pub guests: Vec<(u32, OwnedFd)>,
    pub listener: Listener,
    /// For heartbeats.
    pub datagrams: Vec<UdpSocket>,
    /// CPUs that the node's PEs may use.
    pub cpus: u32,
}

/// A PE of the node.
struct Process {
    pe: u32,
    /// Its process, as it numbers itself; 0 where it has not registered.
    own: u32,
    /// Its process, as this one sees it.
    seen: i32,
    /// `None` once it has ended.
    pidfd: Option<OwnedFd>,
    /// Its connection to the launcher.
    connection: Option<OwnedFd>,
    has_session: bool,
    /// Ends that session.
    ending: Option<JoinHandle<()>>,
}

impl Agent {
    /// The descriptors that it needs.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let guests = self.guests.iter().map(|(_, guest)| guest.as_raw_fd());
        let datagrams = self.datagrams.iter().map(AsRawFd::as_raw_fd);
        let streams = self.listener.sockets().iter().map(AsRawFd::as_raw_fd);
        guests.chain(streams).chain(datagrams).collect()
    }

    /// Has the node's PEs until they have ended.
    pub fn live(self) {
        let Agent { job, heap, guests, listener, datagrams, cpus } = self;
        let mut processes: Vec<Process> =
            guests.iter().map(|(pe, guest)| Process::register(*pe, guest)).collect();
        let pulse = Pulse::new(&job, datagrams);
        let watch =
            Watch::begin(job, heap, cpus as usize, listener, pulse, &guests, &mut processes);
        match watch {
            Ok(watch) => {
                drop(guests);
                // A PE sees its agent end.
                if let Err(error) = watch.run(processes) {
                    eprintln!("memonet: the agent of this node fails: {error:#}");
                }
            }
            Err(error) => {
                let text = format!("{error:#}");
                for (_, guest) in &guests {
                    // Those that have ended need no answer.
                    let _ = post::send(guest, text.as_bytes(), &[]);
                }
            }
        }
    }
}

impl Process {
    /// Waits for a PE's registration.
    fn register(pe: u32, guest: &OwnedFd) -> Self {
        let mut none = Process {
            pe,
            own: 0,
            seen: 0,
            pidfd: None,
            connection: None,
            has_session: false,
            ending: None,
        };
        let Ok((said, fds)) = post::receive(guest, FENCE) else { return none };
        let (Ok(own), mut fds) = (said.try_into(), fds.into_iter()) else { return none };
        let (pidfd, connection, program) = (fds.next(), fds.next(), fds.next());
        let connection = match (connection, program) {
            (Some(server), Some(program)) => {
                relay(server, program);
                None
            }
            (connection, _) => connection,
        };
        none.seen = pidfd.as_ref().and_then(number_here).unwrap_or(0);
        none.own = u32::from_le_bytes(own);
        none.has_session = connection.is_some();
        Process { pidfd, connection, ..none }
    }

    /// Ends the session of a PE that has ended with the launcher, which may take its time. Other
    /// agents do not wait for that. The connection stays open.
    fn end_session(&mut self) {
        if self.pidfd.is_some() || !std::mem::take(&mut self.has_session) {
            return;
        }
        let Some(open) = self.connection.take() else { return };
        let begin = |copy| {
            let end = move || drop(Pmi::end_for(copy, LAST_ANSWER));
            std::thread::Builder::new().name("session".into()).spawn(end)
        };
        self.ending = open.try_clone().and_then(begin).ok();
        self.connection = Some(match self.ending {
            Some(_) => open,
            None => Pmi::end_for(open, LAST_ANSWER),
        });
    }
}

/// Stands between a PE's MPI and the launcher, for as long as the PE lives.
fn relay(server: OwnedFd, program: OwnedFd) {
    let serve = move || {
        if let Ok(server) = Relay::new(server, program).run() {
            drop(Pmi::end_for(server, LAST_ANSWER));
        }
    };
    // Without it, an MPI of the program's fails, and says so.
    let _ = std::thread::Builder::new().name("relay".into()).spawn(serve);
}

/// The number of a pidfd's process in this process's namespace.
fn number_here(pidfd: &OwnedFd) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|&number| number > 0)
}

/// The agent while its PEs run.
struct Watch {
    job: JobFile,
    own: u32,
    node_of: Vec<u32>,
    departures: Departures,
    switchboard: Switchboard,
    mesh: Mesh,
    order: Order,
    /// Deaths on this node that are not in the order.
    deaths: Deaths,
    /// What the other agents were told of this node's PEs.
    told: Vec<State>,
    /// All agents know that the job is to exit.
    exiting: bool,
    can_report: bool,
}

impl Watch {
    /// Makes the node's memory, and gives each PE its place.
    fn begin(
        job: Job,
        heap: u64,
        cpus: usize,
        listener: Listener,
        pulse: Pulse,
        guests: &[(u32, OwnedFd)],
        processes: &mut [Process],
    ) -> Result<Self> {
        let (id, node_of) = (job.id, job.node_of.clone());
        let (node, description) = (job.node, job.description());
        let file = JobFile::create_node(node_of.len(), guests.len(), cpus, heap)?;
        // A wait for a PE elsewhere must not take it for one that has not joined.
        let far = (0..node_of.len()).filter(|&pe| node_of[pe] != node);
        far.for_each(|pe| file.replicate(pe, State::Joined));
        let departures = Departures::watch(&file)?;
        let mut switchboard = Switchboard::start(listener, job)?;
        let mesh =
            Mesh::begin(AgentBroker::new(switchboard.seat(description.agent_of(node))?)?, pulse)?;
        listen(mesh.events(), &departures, DEPARTURES)?;
        listen(mesh.events(), switchboard.news(), UNREACHED)?;
        let mut places = Vec::with_capacity(guests.len());
        for (number, process) in (0..).zip(processes.iter()) {
            if let Some(pidfd) = &process.pidfd {
                listen(mesh.events(), pidfd, number)?;
            }
            let seat = switchboard.seat(process.pe)?;
            successor::name(&seat, process.own, &id, process.pe)?;
            places.push(seat);
        }
        for ((_, guest), seat) in guests.iter().zip(&places) {
            // One that has ended meanwhile is found out below.
            let _ = post::send(guest, b"place", &[file.fd(), seat.as_fd()]);
        }
        let told = vec![State::Empty; processes.len()];
        Ok(Watch {
            job: file,
            own: node,
            order: Order::new(node, node_of.clone()),
            node_of,
            departures,
            switchboard,
            mesh,
            deaths: Deaths::default(),
            told,
            exiting: false,
            can_report: true,
        })
    }

    fn run(mut self, mut processes: Vec<Process>) -> Result<()> {
        for (number, process) in processes.iter().enumerate() {
            if process.pidfd.is_none() {
                self.bury(process.pe, number, UNKNOWN);
            }
        }
        self.tell_states(&processes);
        while processes.iter().any(|process| process.pidfd.is_some()) {
            let (news, events) = self.mesh.pass(self.deaths.due())?;
            news.into_iter().for_each(|news| self.learn(news));
            for event in events {
                match event {
                    DEPARTURES => self.departures.clear(),
                    UNREACHED => {
                        for (from, to) in self.switchboard.take_unreached() {
                            self.mesh.tell(None, &AmongAgents::Unreached { from, to });
                        }
                    }
                    number => self.look_at_end(&mut processes, number)?,
                }
            }
            self.follow_successors(&mut processes)?;
            self.tell_exit();
            self.tell_states(&processes);
            self.publish_overdue();
            // The other agents know before a launcher may end their PEs.
            self.mesh.flush()?;
            processes.iter_mut().for_each(Process::end_session);
            if self.can_report && self.mesh.is_whole() {
                // Launchers wait until nobody can write there any more.
                self.can_report = false;
                fork::close_stderr();
            }
        }
        let finished = self.mesh.finish();
        for ending in processes.iter_mut().filter_map(|process| process.ending.take()) {
            let _ = ending.join();
        }
        finished
    }

    /// What another agent has told, or its loss.
    fn learn(&mut self, news: News) {
        match news {
            // What it has said before this one took it for lost.
            News::Said { node, .. } if self.order.is_lost(node) => {}
            News::Said { node, message } => {
                match message {
                    AmongAgents::State { pe, state } => {
                        self.replicate(pe, State::from_word(state));
                    }
                    AmongAgents::Exit { status } => {
                        self.exiting = true;
                        self.job.exit(status);
                    }
                    AmongAgents::Unreached { from, to }
                        if self.node_of.get(from as usize) == Some(&node) =>
                    {
                        self.switchboard.unreached(from, to);
                    }
                    _ => {}
                }
                self.order.hear(node, message);
            }
            News::Lost { node, how, why } => {
                self.report(&why);
                self.order.lost(node, how);
            }
        }
        self.keep_order();
    }

    fn report(&self, text: &str) {
        if self.can_report {
            eprintln!("memonet: {text}");
        }
    }

    /// Does what the order of deaths asks for.
    fn keep_order(&mut self) {
        for effect in self.order.take() {
            match effect {
                Effect::Tell(to, message) => self.mesh.tell(to, &message),
                Effect::Publish { pe, cause, nth } => {
                    self.deaths.ordered(pe as usize);
                    self.job.die(pe as usize, cause, Place::nth(nth));
                    self.switchboard.departed(pe);
                }
                Effect::Left(pe) => self.replicate(pe, State::Done),
                Effect::Close(node) => {
                    let name = self.mesh.name(node);
                    self.report(&format!("the agent of {name} is lost, as another one says"));
                    self.mesh.close(node);
                }
            }
        }
    }

    /// Has the record of a PE of another node say what an agent tells, but for a death, which has
    /// its place in the order.
    fn replicate(&self, pe: u32, state: State) {
        let is_elsewhere = self.node_of[pe as usize] != self.own;
        if is_elsewhere && !matches!(state, State::Dead(_)) {
            self.job.replicate(pe as usize, state);
            if state == State::Done {
                self.switchboard.departed(pe);
            }
        }
    }

    /// The process of a PE has ended. If it has not left in order, all agents are told.
    fn bury(&mut self, pe: u32, number: usize, cause: Cause) {
        if self.job.state(pe as usize) == State::Done {
            self.job.depart(pe as usize, cause);
            return;
        }
        self.deaths.told(pe as usize, cause, Instant::now());
        self.tell_state(pe, number, State::Dead(cause));
    }

    fn tell_state(&mut self, pe: u32, number: usize, state: State) {
        self.told[number] = state;
        self.mesh.tell(None, &AmongAgents::State { pe, state: state.to_word() });
        self.order.state(pe, state);
        self.keep_order();
    }

    /// Publishes deaths on this node that were not ordered in time.
    fn publish_overdue(&mut self) {
        for (pe, cause) in self.deaths.overdue(Instant::now()) {
            self.job.depart(pe, cause);
            self.switchboard.departed(pe as u32);
        }
    }

    /// The process of a PE has ended, unless another one has taken its place.
    fn look_at_end(&mut self, processes: &mut [Process], number: u64) -> Result<()> {
        let Some(process) = processes.get_mut(number as usize) else { return Ok(()) };
        self.follow(process, number)?;
        let Some(pidfd) = process.pidfd.take_if(|pidfd| has_ended(pidfd)) else { return Ok(()) };
        forget(self.mesh.events(), &pidfd)?;
        self.bury(process.pe, number as usize, end_of(process.seen, pidfd.as_fd()));
        Ok(())
    }

    fn follow_successors(&self, processes: &mut [Process]) -> Result<()> {
        for (number, process) in (0..).zip(processes) {
            self.follow(process, number)?;
        }
        Ok(())
    }

    /// A process that a PE has forked off is the PE, if it has initialised in its place. It can be
    /// found only where this process numbers processes as the PE does.
    fn follow(&self, process: &mut Process, number: u64) -> Result<()> {
        let now = self.job.process(process.pe as usize).filter(|&pid| pid as u32 != process.own);
        let Some(pid) = now.filter(|_| process.own == process.seen as u32) else { return Ok(()) };
        let Some(next) = Pid::from_raw(pid) else { return Ok(()) };
        let Ok(pidfd) = pidfd_open(next, PidfdFlags::empty()) else { return Ok(()) };
        if let Some(before) = &process.pidfd {
            forget(self.mesh.events(), before)?;
        }
        listen(self.mesh.events(), &pidfd, number).context("watching a PE")?;
        (process.own, process.seen, process.pidfd) = (pid as u32, pid, Some(pidfd));
        Ok(())
    }

    /// Tells the other agents of a PE's request to end the job.
    fn tell_exit(&mut self) {
        if let Some(status) = self.job.exit_status()
            && !std::mem::replace(&mut self.exiting, true)
        {
            self.mesh.tell(None, &AmongAgents::Exit { status });
        }
    }

    /// Tells what has become of the node's PEs, if that is new.
    fn tell_states(&mut self, processes: &[Process]) {
        for (number, process) in processes.iter().enumerate() {
            let (pe, told) = (process.pe, self.told[number]);
            let state = self.job.state(pe as usize);
            // Its death was told when its process ended.
            let is_told = matches!(told, State::Dead(_)) || state == told;
            if state != State::Empty && !is_told && !matches!(state, State::Dead(_)) {
                self.tell_state(pe, number, state);
                if state == State::Done {
                    self.switchboard.departed(pe);
                }
            }
        }
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
