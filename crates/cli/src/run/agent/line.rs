//! The agent's connection to its launcher.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use anyhow::Result;

use memonet_control::codec::{Wire, decode};
use memonet_control::events::{self, listen};
use memonet_control::frames::{Piece, version};
use memonet_control::messages::ToAgent;
use memonet_control::stream::{Receiver, Sender};
use memonet_control::{HEARTBEAT, SILENCE, STOPPED};

const MESSAGES: u64 = u64::MAX;
const ROOM: u64 = u64::MAX - 1;

/// The connection. The agent's loop is a loop of [passes](Self::pass).
pub struct Line {
    from: Receiver<BorrowedFd<'static>>,
    to: Sender<BorrowedFd<'static>>,
    /// All that the agent waits for.
    pub events: OwnedFd,
    /// Take silence for a loss.
    pub heartbeat: bool,
    /// When something was last heard.
    heard: Instant,
    next_beat: Instant,
    /// When the last pass ended.
    passed: Instant,
    lost: bool,
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
        let (to, now) = (Sender::new(rustix::stdio::stdout())?, Instant::now());
        Ok(Line {
            from,
            to,
            events,
            heartbeat: true,
            heard: now,
            next_beat: now + HEARTBEAT,
            passed: now,
            lost: false,
        })
    }

    /// Adds a message.
    pub fn send(&mut self, message: &impl Wire) {
        self.to.send(message);
    }

    /// Sends what waits, and waits for events until `next` at most.
    pub fn pass(&mut self, next: Option<Instant>) -> Result<Pass> {
        self.to.flush(&self.events, ROOM)?;
        let until = next.map_or(self.next_beat, |next| next.min(self.next_beat));
        let mut events = events::wait(&self.events, Some(until))?;
        let now = Instant::now();
        if now - self.passed > STOPPED {
            // This process was stopped: what the launcher has said meanwhile lies unread.
            self.heard = now;
        }
        self.passed = now;
        let messages = match events.contains(&MESSAGES) {
            true => self.hear(now),
            false => Vec::new(),
        };
        events.retain(|&event| event != MESSAGES && event != ROOM);
        if self.next_beat <= now {
            self.next_beat = now + HEARTBEAT;
            self.to.beat();
        }
        self.lost |= self.heartbeat && now.saturating_duration_since(self.heard) > SILENCE;
        Ok(Pass { events, messages, lost: self.lost })
    }

    fn hear(&mut self, now: Instant) -> Vec<ToAgent> {
        self.lost |= self.from.read().is_none();
        self.heard = now;
        let mut messages = Vec::new();
        loop {
            let message = match self.from.next_piece() {
                Ok(None) => return messages,
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
                    return messages;
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
