//! A relay: starts the agents of some hosts of a large job, and passes on what they and the
//! launcher say to each other.
//!
//! It does not judge what it passes on. When its launcher is gone, it closes the streams to its
//! agents, which then end by themselves (F4 of [hosts](crate::run::hosts)). It ends when all
//! processes have ended that it has started.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memonet_control::START;
use memonet_control::codec::{Bytes, decode};
use memonet_control::events::{self, forget, listen};
use memonet_control::frames::{Piece, version};
use memonet_control::relay::{FromRelay, ToRelay};
use memonet_control::stream::{Receiver, Sender};
use memonet_control::vigil::Vigil;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::run::hosts::call::{Call, Caller, Role};
use crate::run::hosts::node::{Event, event, token};

const LAUNCHER: u64 = u64::MAX;
const ROOM: u64 = u64::MAX - 1;
/// Time for agents to end after their launcher.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// Bytes read at once.
const SCRATCH_BYTES: usize = 16 << 10;

/// The process that has started an agent.
struct Agent {
    call: Call,
    /// `None` when the launcher is gone.
    to: Option<Sender<OwnedFd>>,
    has_spoken: bool,
}

struct Relay {
    events: OwnedFd,
    from: Receiver<BorrowedFd<'static>>,
    to: Sender<BorrowedFd<'static>>,
    agents: BTreeMap<u32, Agent>,
    has_called: bool,
    /// Whether the launcher lives.
    vigil: Vigil,
    heartbeat: bool,
    /// When processes that run still are killed.
    end: Option<Instant>,
    scratch: Vec<u8>,
}

/// `memonet agent --relay`.
pub fn run() -> Result<ExitCode> {
    let events = events::set()?;
    let from = Receiver::new(rustix::stdio::stdin())?;
    listen(&events, from.fd(), LAUNCHER)?;
    let to = Sender::new(rustix::stdio::stdout())?;
    let mut relay = Relay {
        events,
        from,
        to,
        agents: BTreeMap::new(),
        has_called: false,
        vigil: Vigil::begin(Instant::now()),
        heartbeat: true,
        end: None,
        scratch: vec![0; SCRATCH_BYTES],
    };
    relay.serve()?;
    Ok(ExitCode::SUCCESS)
}

impl Relay {
    /// Passes on until all agents have ended.
    fn serve(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.has_work() {
            self.flush()?;
            let ready = events::wait(&self.events, Some(self.vigil.next()))?;
            self.vigil.pass(Instant::now());
            for ready in ready {
                match ready {
                    LAUNCHER => self.hear()?,
                    ROOM => {}
                    token => self.look_at(token)?,
                }
            }
            let now = Instant::now();
            if self.vigil.is_due(now) {
                self.to.beat();
            }
            // A launcher that is cut off cannot end calls that hang.
            let hangs = |agent: &&Agent| !agent.has_spoken && now > began + START;
            self.agents.values().filter(hangs).for_each(|agent| agent.call.kill());
            if self.end.is_some_and(|end| end <= now) {
                self.agents.values().for_each(|agent| agent.call.kill());
            }
        }
        Ok(())
    }

    /// Whether there are agents, or the launcher may still take what they have said.
    fn has_work(&self) -> bool {
        let listens = !self.heartbeat || !self.vigil.is_lost(Instant::now());
        !self.has_called || !self.agents.is_empty() || !self.to.is_empty() && listens
    }

    fn flush(&mut self) -> Result<()> {
        self.to.flush(&self.events, ROOM)?;
        for (&node, agent) in &mut self.agents {
            if let Some(to) = &mut agent.to {
                to.flush(&self.events, token(node as usize, Event::Room))?;
            }
        }
        Ok(())
    }

    /// Takes what the launcher says.
    fn hear(&mut self) -> Result<()> {
        let mut is_gone = self.from.read().is_none();
        self.vigil.hear(Instant::now());
        loop {
            let message = match self.from.next_piece() {
                Ok(None) => break,
                Ok(Some(Piece::Heartbeat)) => {
                    self.agents.values_mut().flat_map(|one| &mut one.to).for_each(Sender::beat);
                    continue;
                }
                Ok(Some(Piece::Greeting(theirs))) if theirs == version() => continue,
                // The guard's heartbeats may come before the greeting.
                Ok(Some(Piece::Foreign(_))) => continue,
                Ok(Some(Piece::Message(bytes))) => decode(&bytes).ok(),
                Ok(Some(Piece::Greeting(_))) | Err(_) => None,
            };
            // What is no message is of another version, as the launcher will find out.
            let Some(message) = message else {
                is_gone = true;
                break;
            };
            self.obey(message)?;
        }
        if is_gone && self.end.is_none() {
            forget(&self.events, self.from.fd())?;
            self.has_called = true;
            self.end = Some(Instant::now() + LAST_WAIT);
            self.agents.values_mut().for_each(|agent| agent.to = None);
        }
        Ok(())
    }

    fn obey(&mut self, message: ToRelay) -> Result<()> {
        match message {
            ToRelay::Call { agents, reach, heartbeat } => {
                (self.has_called, self.heartbeat) = (true, heartbeat);
                let caller = Caller::new(reach.as_deref(), None)?;
                for (node, host) in agents {
                    if let Err(error) = self.call(node, &host, &caller) {
                        let bytes = Bytes(format!("{error:#}\n").into_bytes());
                        self.to.send(&FromRelay::Errors { node, bytes });
                        self.to.send(&FromRelay::Ended { node });
                    }
                }
            }
            ToRelay::Pass { node, message } => {
                if let Some(Agent { to: Some(to), .. }) = self.agents.get_mut(&node) {
                    to.send_encoded(&message.0);
                }
            }
            ToRelay::HangUp { node } => {
                self.agents.get(&node).iter().for_each(|agent| agent.call.kill());
            }
        }
        Ok(())
    }

    fn call(&mut self, node: u32, host: &str, caller: &Caller) -> Result<()> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let host = Some(host).filter(|host| !host.is_empty());
        let call = caller.call(host, 0, Role::Agent, &read)?;
        let at = |event| token(node as usize, event);
        listen(&self.events, &call.pidfd, at(Event::End))?;
        for (fd, event) in [(&call.output, Event::Output), (&call.errors, Event::Errors)] {
            rustix::io::ioctl_fionbio(fd, true)?;
            listen(&self.events, fd, at(event))?;
        }
        let to = Some(Sender::new(write)?);
        self.agents.insert(node, Agent { call, to, has_spoken: false });
        Ok(())
    }

    fn look_at(&mut self, token: u64) -> Result<()> {
        let (node, event) = event(token);
        let node = node as u32;
        match event {
            Event::Output | Event::Errors => {
                if !self.read(node, event)
                    && let Some(agent) = self.agents.get(&node)
                {
                    forget(&self.events, agent.fd(event))?;
                }
            }
            Event::Room => {}
            Event::End => {
                let has_ended = |agent: &mut Agent| agent.call.ended().is_some();
                if self.agents.get_mut(&node).is_some_and(has_ended) {
                    // What it has written lies in its pipes.
                    for event in [Event::Output, Event::Errors] {
                        while self.waits(node, event) && self.read(node, event) {}
                    }
                    self.agents.remove(&node);
                    self.to.send(&FromRelay::Ended { node });
                }
            }
        }
        Ok(())
    }

    /// Whether there is something to read.
    fn waits(&self, node: u32, event: Event) -> bool {
        let agent = self.agents.get(&node);
        agent.is_some_and(|agent| rustix::io::ioctl_fionread(agent.fd(event)).is_ok_and(|n| n > 0))
    }

    /// Reads once, and passes it on. False at the end.
    fn read(&mut self, node: u32, event: Event) -> bool {
        let Some(agent) = self.agents.get_mut(&node) else { return true };
        match rustix::io::read(agent.fd(event), &mut self.scratch[..]) {
            Ok(0) => false,
            Ok(n) => {
                let bytes = Bytes(self.scratch[..n].to_vec());
                agent.has_spoken |= event == Event::Output;
                self.to.send(&match event {
                    Event::Errors => FromRelay::Errors { node, bytes },
                    _ => FromRelay::Passed { node, bytes },
                });
                true
            }
            Err(error) => matches!(error, Errno::INTR | Errno::AGAIN),
        }
    }
}

impl Agent {
    /// What it writes to.
    fn fd(&self, event: Event) -> &OwnedFd {
        if event == Event::Errors { &self.call.errors } else { &self.call.output }
    }
}
