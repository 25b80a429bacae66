//! A PE of this node, as its agent sees it.

use super::channel::{self, Kind, Received};
use memonet_core::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most messages that wait for a PE: each may hold a descriptor.
const MOST_WAITING: usize = 8192;
/// When to try again where too many descriptors are on their way.
const PAUSE: Duration = Duration::from_millis(10);

/// What a PE is to get.
#[derive(Debug)]
pub(super) enum Parcel {
    Record,
    Connected { pe: u32, socket: OwnedFd },
    Accepted { pe: u32, socket: OwnedFd },
    Refused { pe: u32, why: String },
    Unreached { pe: u32 },
}

/// A PE's place at the switchboard.
#[derive(Debug, Default)]
pub(super) struct Seat {
    channel: Option<OwnedFd>,
    is_gone: bool,
    /// Counts the programs that the PE has been: answers to an earlier one are for nobody.
    pub(super) generation: u32,
    /// Whether a program has said hello since the channel was made.
    has_said_hello: bool,
    waiting: VecDeque<Parcel>,
    /// Whether the channel is full.
    pub(super) is_blocked: bool,
    paused_until: Option<Instant>,
}

/// Result of [`Seat::listen`].
pub(super) enum Said {
    Connect(u32),
    Nothing,
    /// It has ended, or says what no PE says.
    End,
}

impl Seat {
    /// Makes a channel: the PE's end, and the agent's.
    pub(super) fn open() -> Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(|e| {
            Error::System { call: "socketpair".into(), answer: e.into(), hint: "Raise `ulimit -n`" }
        })
    }

    /// Takes the agent's end of a new channel. What waits already is for the PE at the other end.
    pub(super) fn take(&mut self, channel: OwnedFd) {
        let waiting = std::mem::take(&mut self.waiting);
        let generation = self.generation.wrapping_add(1);
        *self = Seat { channel: Some(channel), waiting, generation, ..Seat::default() };
    }

    pub(super) fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.channel.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether no more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING
    }

    /// The PE is no more: closes all that was for it.
    pub(super) fn depart(&mut self) {
        *self = Seat { is_gone: true, generation: self.generation, ..Seat::default() };
    }

    pub(super) fn give(&mut self, parcel: Parcel) {
        if !self.is_gone {
            self.waiting.push_back(parcel);
        }
    }

    /// Listens to the PE once.
    pub(super) fn listen(&mut self) -> Said {
        let Some(channel) = &self.channel else { return Said::Nothing };
        let message = match channel::receive(channel) {
            Ok(Received::Message(message)) => message,
            Ok(Received::Nothing) => return Said::Nothing,
            Ok(Received::End | Received::Garbage) | Err(_) => return Said::End,
        };
        match (message.kind, message.fd) {
            (Kind::Hello, _) if message.number == channel::VERSION => self.begin_again(),
            (Kind::Connect, _) => return Said::Connect(message.number),
            // It came for the program that the PE was before.
            (Kind::Return, Some(socket)) => {
                self.give(Parcel::Accepted { pe: message.number, socket });
            }
            // The agent has no descriptor left for it: its other end sees it closed.
            (Kind::Return, None) => {}
            _ => return Said::End,
        }
        // There may be more to hear; the descriptor stays ready.
        Said::Nothing
    }

    /// A program says hello: what an earlier one has asked for is for nobody.
    fn begin_again(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.has_said_hello = true;
        self.waiting.retain(|parcel| matches!(parcel, Parcel::Accepted { .. }));
        self.waiting.push_front(Parcel::Record);
    }

    /// When to call [`flush`](Self::flush) though nothing has come.
    pub(super) fn due(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Gives the PE, whose number is `me`, what waits for it; false if it has ended. Nothing goes
    /// to a program that has not said hello.
    pub(super) fn flush(&mut self, me: u32, record: BorrowedFd<'_>, now: Instant) -> bool {
        let Some(channel) = &self.channel else { return true };
        if !self.has_said_hello || self.paused_until.is_some_and(|until| now < until) {
            return true;
        }
        (self.is_blocked, self.paused_until) = (false, None);
        while let Some(parcel) = self.waiting.front() {
            let (kind, pe, text, fd) = match parcel {
                Parcel::Record => (Kind::Record, me, "", Some(record)),
                Parcel::Connected { pe, socket } => {
                    (Kind::Connected, *pe, "", Some(socket.as_fd()))
                }
                Parcel::Accepted { pe, socket } => (Kind::Accepted, *pe, "", Some(socket.as_fd())),
                Parcel::Refused { pe, why } => (Kind::Refused, *pe, &**why, None),
                Parcel::Unreached { pe } => (Kind::Unreached, *pe, "", None),
            };
            match channel::send(channel, kind, pe, text, fd) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::AGAIN) => {
                    self.is_blocked = true;
                    break;
                }
                // Too many descriptors of this user are on their way, or there is no memory.
                Err(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                    self.paused_until = Some(now + PAUSE);
                    break;
                }
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        Seat::open().unwrap().0
    }

    /// What has come at the PE's end.
    fn came(theirs: &OwnedFd) -> Vec<(Kind, u32)> {
        std::iter::from_fn(|| match channel::receive(theirs).unwrap() {
            Received::Message(message) => Some((message.kind, message.number)),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn each_program_gets_what_is_for_it() {
        let (theirs, ours) = Seat::open().unwrap();
        let (record, now) = (socket(), Instant::now());
        let mut seat = Seat::default();
        seat.give(Parcel::Accepted { pe: 1, socket: socket() });
        assert!(seat.flush(7, record.as_fd(), now));
        seat.take(ours);
        assert!(seat.flush(7, record.as_fd(), now));
        assert_eq!(came(&theirs), [], "no program has said hello");
        channel::send(&theirs, Kind::Hello, channel::VERSION, "", None).unwrap();
        assert!(matches!(seat.listen(), Said::Nothing));
        let first = seat.generation;
        assert!(seat.flush(7, record.as_fd(), now));
        assert_eq!(came(&theirs), [(Kind::Record, 7), (Kind::Accepted, 1)]);
        // The next program says hello before these have been sent.
        seat.give(Parcel::Connected { pe: 2, socket: socket() });
        seat.give(Parcel::Refused { pe: 3, why: "gone".into() });
        seat.give(Parcel::Accepted { pe: 4, socket: socket() });
        channel::send(&theirs, Kind::Hello, channel::VERSION, "", None).unwrap();
        assert!(matches!(seat.listen(), Said::Nothing));
        assert_ne!(seat.generation, first);
        assert!(seat.flush(7, record.as_fd(), now));
        assert_eq!(came(&theirs), [(Kind::Record, 7), (Kind::Accepted, 4)]);
    }

    /// A PE that reads nothing loses nothing, and holds nobody up.
    #[test]
    fn a_full_channel_keeps_the_rest() {
        let (theirs, ours) = Seat::open().unwrap();
        let (record, now) = (socket(), Instant::now());
        let mut seat = Seat::default();
        seat.take(ours);
        channel::send(&theirs, Kind::Hello, channel::VERSION, "", None).unwrap();
        assert!(matches!(seat.listen(), Said::Nothing));
        let mut given = 0;
        while !seat.is_blocked {
            seat.give(Parcel::Refused { pe: given, why: "x".repeat(1000) });
            given += 1;
            assert!(seat.flush(7, record.as_fd(), now) && given < 100_000);
        }
        let mut got = vec![];
        while got.len() <= given as usize {
            got.extend(came(&theirs));
            assert!(seat.flush(7, record.as_fd(), now));
        }
        assert_eq!(got[1..], (0..given).map(|pe| (Kind::Refused, pe)).collect::<Vec<_>>());
        assert!(!seat.is_blocked);
    }

    #[test]
    fn one_that_says_what_no_pe_says_ends() {
        for (kind, number) in [(Kind::Hello, 99), (Kind::Record, 0), (Kind::Accepted, 1)] {
            let (theirs, ours) = Seat::open().unwrap();
            let mut seat = Seat::default();
            seat.take(ours);
            channel::send(&theirs, kind, number, "", None).unwrap();
            assert!(matches!(seat.listen(), Said::End), "{kind:?}");
        }
    }
}
