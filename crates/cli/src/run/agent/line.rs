//! The agent's connection to its launcher.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use anyhow::Result;
use memonet_control::codec::{Wire, decode};
use memonet_control::events::{self, listen};
use memonet_control::frames::{Piece, version};
use memonet_control::messages::ToAgent;
use memonet_control::stream::{Receiver, Sender};
use memonet_control::vigil::Vigil;
use memonet_tcp::agent::Heart;

use crate::run::datagrams::{Datagrams, Pulse};

const MESSAGES: u64 = u64::MAX;
const ROOM: u64 = u64::MAX - 1;
const DATAGRAMS: u64 = u64::MAX - 2;

/// The connection. The agent's loop is a loop of [passes](Self::pass).
pub struct Line {
    from: Receiver<BorrowedFd<'static>>,
    to: Sender<BorrowedFd<'static>>,
    /// All that the agent waits for.
    pub events: OwnedFd,
    /// Take silence for a loss.
    pub heartbeat: bool,
    vigil: Vigil,
    /// Heartbeats as datagrams, once the job's secret is known.
    pulse: Option<Pulse>,
    lost: bool,
    /// What the launcher has said, for the next pass.
    held: Vec<ToAgent>,
}

/// What has happened in a pass.
pub struct Pass {
    /// Events other than those of the connection.
    pub events: Vec<u64>,
    /// What the launcher has said.
    pub messages: Vec<ToAgent>,
    /// The launcher is gone.
    pub lost: bool,
}

impl Line {
    /// The connection by standard input and output.
    pub fn new() -> Result<Line> {
        let events = events::set()?;
        let from = Receiver::new(rustix::stdio::stdin())?;
        listen(&events, from.fd(), MESSAGES)?;
        let to = Sender::new(rustix::stdio::stdout())?;
        Ok(Line {
            from,
            to,
            events,
            heartbeat: true,
            vigil: Vigil::begin(Instant::now()),
            pulse: None,
            lost: false,
            held: Vec::new(),
        })
    }

    /// From now on, datagrams are signs of life, too.
    pub fn begin_pulse(&mut self, heart: Heart, datagrams: Datagrams) -> Result<()> {
        self.pulse = Some(Pulse::begin(heart, datagrams, &self.events, DATAGRAMS)?);
        Ok(())
    }

    /// Adds a message.
    pub fn send(&mut self, message: &impl Wire) {
        self.to.send(message);
    }

    /// Has the next pass give these messages first.
    pub fn hold(&mut self, messages: impl Iterator<Item = ToAgent>) {
        self.held.extend(messages);
    }

    /// Sends what waits, and waits for events until `next` at most.
    pub fn pass(&mut self, next: Option<Instant>) -> Result<Pass> {
        self.to.flush(&self.events, ROOM)?;
        let mut messages = std::mem::take(&mut self.held);
        let until = match next {
            _ if !messages.is_empty() => Instant::now(),
            Some(next) => next.min(self.vigil.next()),
            None => self.vigil.next(),
        };
        let mut events = events::wait(&self.events, Some(until))?;
        let now = Instant::now();
        self.vigil.pass(now);
        if events.contains(&DATAGRAMS) && self.pulse.as_mut().is_some_and(Pulse::hear) {
            self.vigil.hear(now);
        }
        if events.contains(&MESSAGES) {
            self.hear(now, &mut messages);
        }
        events.retain(|&event| ![MESSAGES, ROOM, DATAGRAMS].contains(&event));
        if self.vigil.is_due(now) {
            self.to.beat();
            self.pulse.iter_mut().for_each(Pulse::beat);
        }
        self.lost |= self.heartbeat && self.vigil.is_lost(now);
        Ok(Pass { events, messages, lost: self.lost })
    }

    fn hear(&mut self, now: Instant, messages: &mut Vec<ToAgent>) {
        self.lost |= self.from.read().is_none();
        self.vigil.hear(now);
        loop {
            let message = match self.from.next_piece() {
                Ok(None) => return,
                Ok(Some(Piece::Message(bytes))) => decode(&bytes).ok(),
                Ok(Some(Piece::Greeting(theirs))) if theirs != version() => None,
                Ok(Some(Piece::Greeting(_) | Piece::Heartbeat | Piece::Foreign(_))) => continue,
                Err(_) => None,
            };
            match message {
                Some(message) => messages.push(message),
                // Of another version, as the launcher will say, or none.
                None => {
                    self.lost = true;
                    return;
                }
            }
        }
    }

    /// Sends all that waits, unless the launcher is lost before.
    pub fn send_all(&mut self) -> Result<()> {
        self.to.flush(&self.events, ROOM)?;
        while !self.to.is_empty() && !self.pass(None)?.lost {}
        Ok(())
    }
}
