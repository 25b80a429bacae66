//! One host of the job, as the launcher knows it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use memonet_control::codec::{Bytes, Wire, encode};
use memonet_control::events::listen;
use memonet_control::frames::{Piece, Reader};
use memonet_control::messages::{Findings, Order, ToAgent};
use memonet_control::relay::ToRelay;
use memonet_control::stream::{Receiver, Sender};
use memonet_control::vigil::Vigil;
use memonet_tcp::agent::Heart;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::call::{Call, Caller, Role};
use super::list::Allotment;
use crate::run::datagrams::Datagrams;

/// How far a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Its agent was called, and has not answered.
    Called,
    /// Its agent has answered with the right version.
    Greeted,
    /// Its agent waits for the start.
    Ready(Findings),
    /// Its agent starts the PEs.
    Starting,
    /// Its PEs were started.
    Running,
    /// All of its PEs have ended, and nothing follows.
    Finished,
    /// It takes no part any more.
    Lost,
}

/// What the events of a node are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Output,
    Errors,
    End,
    Room,
}

const EVENTS: [Event; 4] = [Event::Output, Event::Errors, Event::End, Event::Room];

/// The number that stands for an event of a node.
pub fn token(node: usize, event: Event) -> u64 {
    node as u64 * EVENTS.len() as u64 + event as u64
}

/// The node and event that a number stands for.
pub fn event(token: u64) -> (usize, Event) {
    (token as usize / EVENTS.len(), EVENTS[token as usize % EVENTS.len()])
}

/// The pipe to an agent. It is made before the guard, which writes to it, too.
pub struct Pipe {
    pub read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    pub fn new() -> Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        rustix::io::ioctl_fionbio(&write, true)?;
        Ok(Pipe { read, write })
    }

    /// Another descriptor of the end that is written to.
    pub fn share(&self) -> Result<OwnedFd> {
        self.write.try_clone().context("dup")
    }

    /// Forgets what nobody has read.
    pub fn drain(&self) -> Result<()> {
        rustix::io::ioctl_fionbio(&self.read, true)?;
        while rustix::io::read(&self.read, &mut [0; 4096]).is_ok_and(|n| n > 0) {}
        rustix::io::ioctl_fionbio(&self.read, false)?;
        Ok(())
    }
}

/// What is said to an agent.
enum Outlet {
    Own(Sender<OwnedFd>),
    /// What a relay is to do, and was not told.
    Relay(Vec<ToRelay>),
}

/// What an agent says.
enum Inlet {
    Own(Receiver<OwnedFd>),
    Relay(Reader),
}

/// A host of the job.
pub struct Node {
    number: usize,
    pub host: Arc<str>,
    pub first: usize,
    pub count: usize,
    pub stage: Stage,
    order: Order,
    /// How often its agent was called.
    pub attempt: usize,
    pub call: Option<Call>,
    /// The relay that has called its agent, while it has something of it to pass on.
    pub relay: Option<usize>,
    /// That relay is to end the call.
    hangs_up: bool,
    /// The pipe's end for the agent, until the agent has answered.
    pipe: Pipe,
    to: Option<Outlet>,
    from: Option<Inlet>,
    /// What the call has written to its standard error, and was not shown.
    errors: Vec<u8>,
    /// Whether it lives.
    pub vigil: Vigil,
    /// Heartbeats as datagrams, once its agent has the job's secret, and where they go.
    pub heart: Option<Heart>,
    pub addresses: Vec<SocketAddr>,
    /// Its PEs that have not ended.
    pub running: BTreeSet<usize>,
    /// Bytes of output that its agent does not know to be passed on.
    pub owed: usize,
}

impl Node {
    /// A host whose agent will be called.
    pub fn new(number: usize, allotment: &Allotment, order: Order, pipe: Pipe) -> Node {
        let Allotment { host, first, count } = allotment;
        Node {
            number,
            host: host.as_str().into(),
            first: *first,
            count: *count,
            stage: Stage::Called,
            order,
            attempt: 0,
            call: None,
            relay: None,
            hangs_up: false,
            pipe,
            to: None,
            from: None,
            errors: Vec::new(),
            vigil: Vigil::begin(Instant::now()),
            heart: None,
            addresses: Vec::new(),
            running: (*first..first + count).collect(),
            owed: 0,
        }
    }

    /// The PEs that run there.
    pub fn pes(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Calls its agent, and sends it the order.
    pub fn call(&mut self, caller: &Caller, events: &OwnedFd) -> Result<()> {
        self.pipe.drain()?;
        self.errors.clear();
        let call = caller.call(Some(&self.host), self.attempt, Role::Agent, &self.pipe.read)?;
        listen(events, &call.pidfd, token(self.number, Event::End))?;
        rustix::io::ioctl_fionbio(&call.errors, true)?;
        listen(events, &call.errors, token(self.number, Event::Errors))?;
        let from = Receiver::new(call.output.try_clone()?)?;
        listen(events, from.fd(), token(self.number, Event::Output))?;
        self.to = Some(Outlet::Own(Sender::new(self.pipe.share()?)?));
        (self.call, self.from) = (Some(call), Some(Inlet::Own(from)));
        self.send(&ToAgent::Job { order: self.order.clone() });
        self.flush(events)
    }

    /// A relay calls its agent. Has it send the order.
    pub fn call_by(&mut self, relay: usize) {
        self.relay = Some(relay);
        self.to = Some(Outlet::Relay(Vec::new()));
        self.from = Some(Inlet::Relay(Reader::default()));
        self.send(&ToAgent::Job { order: self.order.clone() });
    }

    /// Whether its agent was called, and something may come of it.
    pub fn is_called(&self) -> bool {
        self.call.is_some() || self.relay.is_some()
    }

    /// Ends the process that has started its agent.
    pub fn hang_up(&mut self) {
        self.call.iter().for_each(Call::kill);
        self.hangs_up = self.relay.is_some();
    }

    /// What its relay is to do.
    pub fn for_relay(&mut self) -> Vec<ToRelay> {
        let mut all = match &mut self.to {
            Some(Outlet::Relay(waiting)) => std::mem::take(waiting),
            _ => Vec::new(),
        };
        if std::mem::take(&mut self.hangs_up) {
            all.push(ToRelay::HangUp { node: self.number as u32 });
        }
        all
    }

    /// Adds a message for the agent.
    pub fn send(&mut self, message: &impl Wire) {
        match &mut self.to {
            Some(Outlet::Own(to)) => to.send(message),
            Some(Outlet::Relay(waiting)) => {
                let message = Bytes(encode(message));
                waiting.push(ToRelay::Pass { node: self.number as u32, message });
            }
            None => {}
        }
    }

    /// Adds a heartbeat to the stream, if that is its own, and sends one as a datagram.
    pub fn beat(&mut self, datagrams: &Datagrams) {
        match &mut self.to {
            Some(Outlet::Own(to)) => to.beat(),
            Some(Outlet::Relay(_)) => {}
            None => return,
        }
        if let Some(heart) = &mut self.heart {
            let beat = heart.beat();
            self.addresses.iter().for_each(|&address| datagrams.send(&beat, address));
        }
    }

    /// Sends what there is room for.
    pub fn flush(&mut self, events: &OwnedFd) -> Result<()> {
        match &mut self.to {
            Some(Outlet::Own(to)) => to.flush(events, token(self.number, Event::Room)),
            _ => Ok(()),
        }
    }

    /// Whether it is heard.
    pub fn is_open(&self) -> bool {
        self.from.is_some()
    }

    /// Reads once. `None` at the end, else the number of bytes.
    pub fn read(&mut self) -> Option<usize> {
        match &mut self.from {
            Some(Inlet::Own(from)) => from.read(),
            Some(Inlet::Relay(_)) => Some(0),
            None => None,
        }
    }

    /// Takes what a relay has read.
    pub fn take(&mut self, bytes: &[u8]) {
        if let Some(Inlet::Relay(reader)) = &mut self.from {
            reader.take(bytes);
            self.vigil.hear(Instant::now());
        }
    }

    /// The next piece of what was read.
    pub fn next_piece(&mut self) -> Result<Option<Piece>> {
        match &mut self.from {
            Some(Inlet::Own(from)) => from.next_piece(),
            Some(Inlet::Relay(reader)) => reader.next_piece(),
            None => Ok(None),
        }
    }

    /// Hears and says no more.
    pub fn close(&mut self) {
        (self.to, self.from) = (None, None);
    }

    /// Takes what the call has written to its standard error, and a relay has read.
    pub fn take_errors(&mut self, bytes: &[u8]) {
        self.errors.extend_from_slice(bytes);
    }

    /// Reads what the call has written to its standard error.
    pub fn read_errors(&mut self) {
        let mut scratch = [0; 4096];
        while let Some(call) = &self.call {
            match rustix::io::read(&call.errors, &mut scratch) {
                Ok(n) if n > 0 => self.errors.extend_from_slice(&scratch[..n]),
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
    }

    /// The lines that the call has written to its standard error since the last time. `all`: the
    /// last one need not be complete.
    pub fn errors(&mut self, all: bool) -> Vec<String> {
        self.read_errors();
        let end = match all {
            true => self.errors.len(),
            false => self.errors.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1),
        };
        let text: Vec<u8> = self.errors.drain(..end).collect();
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    }
}
