//! The thread that makes a node's streams.

use super::dial::{Outcome, Request, departed};
use super::dials::{Dials, Outcomes};
use super::guests::{Guests, Proved, send_whole};
use super::handshake::{Answer, Link, Member};
use super::interfaces::{Interface, interfaces};
use super::job::{Description, Job, Wrong};
use super::listener::Listener;
use super::poll::{Poll, Token};
use super::sealed;
use super::seat::{Parcel, Said, Seat};
use memonet_core::{Error, Result};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FABRIC: &str = "tcp";

/// Serves the node's PEs, in a thread of its own, until it is dropped.
pub struct Switchboard {
    shared: Arc<Shared>,
    job: Description,
    thread: Option<JoinHandle<()>>,
}

/// What the handle and the thread share.
struct Shared {
    commands: Mutex<Vec<Command>>,
    /// Readable when there are commands.
    bell: OwnedFd,
    refused: AtomicU64,
    /// PEs of this node that have got no stream to a PE of another one, each with that.
    unreached: Mutex<Vec<(u32, u32)>>,
    /// Readable when there are some.
    news: OwnedFd,
}

enum Command {
    Seat(u32, OwnedFd),
    Departed(u32),
    Unreached { from: u32, to: u32 },
    Stop,
}

impl Switchboard {
    /// Begins to accept connections of the job's other nodes.
    pub fn start(listener: Listener, job: Job) -> Result<Self> {
        let description = job.description();
        let wrong =
            |wrong: Wrong| Error::Fabric { fabric: FABRIC, problem: wrong.to_string(), call: None };
        let record = sealed::file("memonet-record", &description.encode().map_err(wrong)?)?;
        let flag = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|e| system("eventfd", e))
        };
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            bell: flag()?,
            refused: AtomicU64::new(0),
            unreached: Mutex::default(),
            news: flag()?,
        });
        let board = Board::new(listener, &job, description, record, shared.clone())?;
        let thread = without_signals(|| {
            std::thread::Builder::new().name("memonet-streams".into()).spawn(move || board.run())
        });
        let thread = thread.map_err(|answer| Error::System {
            call: "starting the thread for streams".into(),
            answer,
            hint: "Raise `ulimit -u`",
        })?;
        Ok(Switchboard { shared, job: job.description(), thread: Some(thread) })
    }

    /// The descriptor that PE `pe` of this node inherits, its number in `MEMONET_AGENT_FD`. It is
    /// closed on exec, so that other children do not get it: clear that in the child that is the
    /// PE, and drop it here once the PE is started. Called again for a PE, it ends the earlier one.
    /// The agent has a seat too, as [`Description::agent_of`], for streams to other agents.
    pub fn seat(&mut self, pe: u32) -> Result<OwnedFd> {
        if self.job.node_of(pe) != Some(self.job.node) {
            return Err(Error::misuse("a seat at an agent for a PE of another node"));
        }
        let (theirs, ours) = Seat::open()?;
        self.command(Command::Seat(pe, ours));
        Ok(theirs)
    }

    /// A PE of any node is gone: what asks for it is refused from now on, and a PE of this node is
    /// served no longer.
    pub fn departed(&self, pe: u32) {
        self.command(Command::Departed(pe));
    }

    /// How many connections were sent away because they did not prove themselves, or gave up.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// A PE of another node has got no stream to a PE, as its agent tells. If that is of this node,
    /// it may try the other direction, or learns why there is none.
    pub fn unreached(&self, from: u32, to: u32) {
        self.command(Command::Unreached { from, to });
    }

    /// Readable when [`take_unreached`](Self::take_unreached) gives something.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    /// PEs of this node that have got no stream since the last call, each with the PE of another
    /// node that it has asked for: that node's agent is to know.
    pub fn take_unreached(&self) -> Vec<(u32, u32)> {
        // Emptied before they are taken, so that none is overlooked.
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
        std::mem::take(&mut *self.shared.unreached.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn command(&self, command: Command) {
        self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        // A counter that is full is readable too.
        let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        self.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been told of already.
            let _ = thread.join();
        }
    }
}

fn system(call: &str, e: Errno) -> Error {
    Error::System { call: call.into(), answer: e.into(), hint: "Raise `ulimit -n`" }
}

/// Starts a thread that takes no signals: they are for the one that handles them.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are places for what the calls give, and zeroes are a set.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

/// All that the thread has.
struct Board {
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<OwnedFd>,
    /// Whether the poll looks at the listeners.
    is_open: bool,
    member: Member,
    job: Description,
    record: OwnedFd,
    own: Vec<Interface>,
    seats: BTreeMap<u32, Seat>,
    /// PEs of other nodes that have left.
    gone: HashSet<u32>,
    guests: Guests,
    dials: Dials,
}

impl Board {
    fn new(
        listener: Listener,
        job: &Job,
        description: Description,
        record: OwnedFd,
        shared: Arc<Shared>,
    ) -> Result<Self> {
        let (poll, listeners) = (Poll::new()?, listener.into_sockets());
        poll.add(&shared.bell, Token::Wake, EventFlags::IN).map_err(|e| system("epoll_ctl", e))?;
        for listener in &listeners {
            poll.add(listener, Token::Listener, EventFlags::IN)
                .map_err(|e| system("epoll_ctl", e))?;
        }
        // Agents are ends of streams too: see `Description::agent_of`.
        let node_of: Vec<u32> =
            job.node_of.iter().copied().chain(0..job.nodes.len() as u32).collect();
        let ends = (0..).zip(&node_of).filter(|&(_, &node)| node == job.node);
        Ok(Board {
            shared,
            poll,
            listeners,
            is_open: true,
            member: Member::new(&job.secret, job.id, job.node, &node_of),
            seats: ends.map(|(end, _)| (end, Seat::default())).collect(),
            job: description,
            record,
            own: interfaces()?,
            gone: HashSet::new(),
            guests: Guests::default(),
            dials: Dials::default(),
        })
    }

    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.dials.begin(&self.job.nodes, &self.own, now);
            let outcomes = self.dials.expire(&self.job.nodes, &self.member, &self.poll, now);
            self.note_unreached(&outcomes);
            self.deliver(outcomes);
            // Those that have ended made room.
            self.dials.begin(&self.job.nodes, &self.own, now);
            self.guests.expire(now);
            self.shared.refused.store(self.guests.refused, Ordering::Relaxed);
            self.open_or_close(now);
            self.flush(now);
            let due = [self.dials.due(), self.guests.due()]
                .into_iter()
                .chain(self.seats.values().map(Seat::due));
            // A poll that ends a little early would be repeated at once.
            let limit = due.flatten().min().map(|due| {
                due.saturating_duration_since(Instant::now()) + Duration::from_millis(1)
            });
            let Ok(ready) = self.poll.wait(limit) else {
                unreachable!("the descriptor of the poll is open, and so is its buffer")
            };
            for token in ready {
                if token == Token::Wake && self.obey() {
                    return;
                }
                self.serve(token);
            }
        }
    }

    /// Does what the handle asks for; true at the end.
    fn obey(&mut self) -> bool {
        let mut count = [0; 8];
        // Emptied before the commands are taken, so that none is overlooked.
        let _ = rustix::io::read(&self.shared.bell, &mut count);
        let commands = std::mem::take(
            &mut *self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner),
        );
        for command in commands {
            match command {
                Command::Seat(pe, channel) => self.take_seat(pe, channel),
                Command::Departed(pe) => self.depart(pe),
                Command::Unreached { from, to } => {
                    let is_there = self.job.node_of(from).is_some() && !self.gone.contains(&from);
                    if let Some(seat) = self.seats.get_mut(&to).filter(|_| is_there) {
                        seat.give(Parcel::Unreached { pe: from });
                    }
                }
                Command::Stop => return true,
            }
        }
        false
    }

    fn take_seat(&mut self, pe: u32, channel: OwnedFd) {
        if self.poll.add(&channel, Token::Seat(pe), EventFlags::IN).is_ok()
            && let Some(seat) = self.seats.get_mut(&pe)
        {
            seat.take(channel);
        }
    }

    fn depart(&mut self, pe: u32) {
        match self.seats.get_mut(&pe) {
            Some(seat) => seat.depart(),
            None => drop(self.gone.insert(pe)),
        }
        let outcomes = self.dials.departed(pe, &self.job.nodes);
        self.deliver(outcomes);
    }

    fn serve(&mut self, token: Token) {
        let now = Instant::now();
        match token {
            Token::Wake => {}
            Token::Listener => {
                for listener in &self.listeners {
                    self.guests.accept(listener, &self.poll, now);
                }
            }
            Token::Guest(number) => {
                if let Some(proved) = self.guests.go_on(number, &self.member, &self.poll) {
                    self.welcome(proved);
                }
            }
            Token::Dial(number) => {
                let outcomes = self.dials.go_on(number, &self.member, &self.poll, now);
                self.note_unreached(&outcomes);
                self.deliver(outcomes);
            }
            Token::Seat(pe) => match self.seats.get_mut(&pe).map(Seat::listen) {
                Some(Said::Connect(to)) => self.connect(pe, to),
                Some(Said::End) => self.depart(pe),
                Some(Said::Nothing) | None => {}
            },
        }
    }

    /// Answers a connection that has proved itself, and gives its socket to the PE.
    fn welcome(&mut self, proved: Proved) {
        let Proved { link: Link { from_pe, to_pe, .. }, socket, machine } = proved;
        let Some(seat) = self.seats.get_mut(&to_pe) else {
            unreachable!("the handshake lets nobody in to a PE of another node")
        };
        let answer = if seat.is_gone() {
            Answer::Departed
        } else if seat.is_full() {
            Answer::Full
        } else {
            Answer::Taken
        };
        let is_ready = sockopt::set_tcp_nodelay(&socket, true).is_ok()
            && send_whole(&socket, &machine.answer(&self.member, answer));
        if is_ready && answer == Answer::Taken {
            seat.give(Parcel::Accepted { pe: from_pe, socket });
        }
    }

    /// A PE of this node asks for a stream.
    fn connect(&mut self, from: u32, to: u32) {
        let refuse = |why| Some(Parcel::Refused { pe: to, why });
        // PEs talk to PEs, and agents to agents.
        let is_pe = |end| self.job.agent_of(0) > end;
        let node = self.job.node_of(to).filter(|_| is_pe(from) == is_pe(to));
        let name = |node: u32| &self.job.nodes[node as usize].name;
        let answer = match node {
            None => refuse(format!(
                "there is no PE {to}: the job has {}, numbered from 0",
                self.job.node_of.len()
            )),
            Some(node) if node == self.job.node => refuse(format!(
                "PE {to} is on {}, as PE {from} is: PEs of one node share memory, and there are no streams between them",
                name(node)
            )),
            Some(node) if self.gone.contains(&to) => refuse(departed(to, name(node))),
            Some(_) => None,
        };
        let Some(seat) = self.seats.get_mut(&from) else { return };
        match (answer, node) {
            (None, Some(to_node)) => {
                let link = Link { from_node: self.job.node, to_node, from_pe: from, to_pe: to };
                let generation = seat.generation;
                self.dials.ask(Request { link, generation, asked: Instant::now() });
            }
            (answer, _) => answer.into_iter().for_each(|answer| seat.give(answer)),
        }
    }

    /// Has the agents of other nodes learn which PEs cannot reach theirs.
    fn note_unreached(&self, outcomes: &Outcomes) {
        let agents = self.job.agent_of(0);
        let is_refused = |(request, outcome): &&(Request, Outcome)| {
            matches!(outcome, Outcome::Refused(_)) && request.link.from_pe < agents
        };
        let refused = outcomes.iter().filter(is_refused);
        let pairs: Vec<_> =
            refused.map(|(request, _)| (request.link.from_pe, request.link.to_pe)).collect();
        if !pairs.is_empty() {
            let shared = &self.shared;
            shared.unreached.lock().unwrap_or_else(PoisonError::into_inner).extend(pairs);
            // A counter that is full is readable too.
            let _ = rustix::io::write(&shared.news, &1u64.to_ne_bytes());
        }
    }

    /// Tells PEs what became of their requests.
    fn deliver(&mut self, outcomes: Outcomes) {
        for (request, outcome) in outcomes {
            let Some(seat) = self.seats.get_mut(&request.link.from_pe) else { continue };
            if seat.generation != request.generation {
                continue;
            }
            let pe = request.link.to_pe;
            seat.give(match outcome {
                Outcome::Connected(socket, _) => Parcel::Connected { pe, socket },
                Outcome::Refused(why) => Parcel::Refused { pe, why },
            });
        }
    }

    /// Gives PEs what waits for them.
    fn flush(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for (&pe, seat) in &mut self.seats {
            let was_blocked = seat.is_blocked;
            let is_there = seat.flush(pe, self.record.as_fd(), now);
            let flags =
                if seat.is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let is_heard = seat.is_blocked == was_blocked
                || seat.channel().is_none_or(|channel| {
                    self.poll.change(channel, Token::Seat(pe), flags).is_ok()
                });
            if !is_there || !is_heard {
                ended.push(pe);
            }
        }
        ended.into_iter().for_each(|pe| self.depart(pe));
    }

    /// Looks at the listeners only while there is room for guests: the kernel keeps the others.
    fn open_or_close(&mut self, now: Instant) {
        let wanted = self.guests.has_room(now);
        if wanted == self.is_open {
            return;
        }
        let flags = if wanted { EventFlags::IN } else { EventFlags::empty() };
        let changed = self
            .listeners
            .iter()
            .all(|listener| self.poll.change(listener, Token::Listener, flags).is_ok());
        if changed {
            self.is_open = wanted;
        }
    }
}
