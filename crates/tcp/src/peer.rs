//! A peer: its link, and the stream that carries it.

use crate::socket::{self, PIECES, Received};
use crate::wire::{Bad, Came, Home, Link, Piece, Role};
use memonet_core::{Cause, Error};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// With so many bytes of records for a peer, they are sent.
pub const BATCH: usize = 16 << 10;

/// Whether a peer can be reached.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// It can, or will be.
    Alive,
    /// Its stream has ended, or there is none for this reason, and nobody has said yet whether it
    /// has gone.
    Broken(Instant, Option<String>),
    /// It has left the job.
    Gone(Cause),
    /// The pair has failed, though the peer may live: for this reason, if it is not that its stream
    /// has ended.
    Failed(Option<String>),
}

/// Why a stream cannot be read on.
pub(crate) enum Ended {
    /// It has ended, or was reset.
    Stream,
    /// The peer has sent what cannot be.
    Bad(Bad),
}

/// A peer of this PE.
pub(crate) struct Peer {
    pub(crate) pe: u32,
    /// Its host, where that has a name.
    host: Option<Arc<str>>,
    pub(crate) link: Link,
    /// No other link of this PE has that number.
    pub(crate) number: u64,
    pub(crate) state: State,
    pub(crate) socket: Option<OwnedFd>,
    /// A stream that the peer asked for while this PE's own was under way (S2).
    pub(crate) aside: Option<OwnedFd>,
    /// Whether this PE has asked for a stream that has not come yet.
    pub(crate) asked: bool,
    /// With so many bytes of records, more of them are sent.
    pub(crate) sends_at: usize,
    /// Streams that have ended before the peer's hello.
    pub(crate) unheard: u32,
    /// Whether the loop is told when the stream takes bytes again.
    pub(crate) wants_to_write: bool,
    /// Whether it is in the list of peers with output, and of those to be acknowledged by.
    pub(crate) has_output: bool,
    pub(crate) is_awaited: bool,
}

/// The end of a put.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) pe: u32,
    /// Of the link, how many of its records a quiet needs, and of how many it reports the loss.
    number: u64,
    needed: u64,
    reported: u64,
}

/// The most calls that send, before other streams have their turn.
const SENDS: u32 = 16;
/// Bytes that are read where a large block is expected, so that most of it goes to its place.
const SHORT: usize = 256;

impl Peer {
    /// What it has still to do, for a report.
    pub(crate) fn outstanding(&self) -> String {
        let host = self.host.as_ref().map_or_else(String::new, |host| format!(" (on {host})"));
        match (self.link.is_greeted(), self.link.outstanding()) {
            (false, _) => format!("the first answer to its stream{host}"),
            (true, (0, writes)) => format!("unacknowledged writes: {writes}{host}"),
            (true, (requests, _)) => format!("unanswered requests: {requests}{host}"),
        }
    }

    pub(crate) fn new(me: u32, pe: u32, host: Option<Arc<str>>, number: u64) -> Self {
        Peer {
            pe,
            host,
            link: Link::new(me, pe, Role::Asked),
            number,
            state: State::Alive,
            socket: None,
            aside: None,
            asked: false,
            sends_at: BATCH,
            unheard: 0,
            wants_to_write: false,
            has_output: false,
            is_awaited: false,
        }
    }

    /// Whether there is no stream to it, and none will come.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        self.socket.is_none() && !self.asked && matches!(self.state, State::Alive)
    }

    /// Whether a stream to it is still to be chosen.
    pub(crate) fn is_wanted(&self) -> bool {
        let chosen = self.socket.is_some() && self.link.may_send();
        matches!(self.state, State::Alive) && !chosen
    }

    /// Whether nothing will come of it any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::Gone(_) | State::Failed(_))
    }

    /// The end of all that was written to it so far.
    pub(crate) fn mark(&self) -> Mark {
        let (needed, reported) = (self.link.needed(), self.link.reported());
        Mark { pe: self.pe, number: self.number, needed, reported }
    }

    /// Whether what ends at a mark is visible, or the peer is lost. A link that has ended in order
    /// had all acknowledged.
    pub(crate) fn has_reached(&self, end: Mark) -> bool {
        self.has_ended() || self.number != end.number || self.link.acknowledged() >= end.needed
    }

    /// The pair's error, if it has failed before what ends at a mark was visible.
    pub(crate) fn lost(&self, end: Mark) -> Option<Error> {
        let is_lost = self.number == end.number && self.link.acknowledged() < end.reported;
        (is_lost && self.has_failed()).then(|| self.error())
    }

    /// Whether the pair has failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// What an operation fails with that needs the peer.
    pub(crate) fn error(&self) -> Error {
        let failed = |cause| Error::PeerFailed {
            pe: self.pe as usize,
            cause,
            host: self.host.clone(),
            call: None,
        };
        match &self.state {
            State::Gone(cause) => failed(*cause),
            State::Failed(Some(why)) => crate::errors::failed(why.clone()),
            _ => failed(Cause::Unreachable),
        }
    }

    /// Sends what can be sent now. Says whether something was.
    pub(crate) fn write(&mut self) -> Result<bool, Ended> {
        let Some(socket) = &self.socket else { return Ok(false) };
        let mut moved = false;
        for _ in 0..SENDS {
            if !self.link.has_output() {
                break;
            }
            let mut pieces = [Piece { start: std::ptr::null(), len: 0 }; PIECES];
            let count = self.link.output(&mut pieces);
            // SAFETY: by W9, all that a link has to send stays readable until it was sent.
            let sent = unsafe { socket::send(socket.as_fd(), &pieces[..count]) };
            match sent.map_err(|_| Ended::Stream)? {
                0 => break,
                sent => self.link.sent(sent),
            }
            moved = true;
        }
        // A stream that is full is not asked for each record.
        self.sends_at = self.link.buffered() + BATCH;
        Ok(moved)
    }

    /// Reads once, and applies what has come; nothing where nothing has.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        home: &impl Home,
    ) -> Result<Option<Came>, Ended> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let direct = self.link.direct();
        let short = self.link.expects_blocks();
        let most = if short { SHORT } else { buffer.len() };
        // SAFETY: the link says where a payload goes, which was checked, and stays (`Home`).
        let came = unsafe { socket::receive(socket.as_fd(), direct, &mut buffer[..most]) };
        match came.map_err(|_| Ended::Stream)? {
            Received::Nothing => Ok(None),
            Received::End => Err(Ended::Stream),
            Received::Bytes(bytes) => {
                let placed = direct.map_or(0, |(_, len)| len.min(bytes));
                let rest = &buffer[..bytes - placed];
                self.link.received(placed, rest, home).map(Some).map_err(Ended::Bad)
            }
        }
    }
}
