//! What the switchboard waits for.

use memonet_core::{Error, Result};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::time::Duration;

/// What a ready descriptor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// A command has come.
    Wake,
    /// A connection may be accepted.
    Listener,
    /// A PE's channel.
    Seat(u32),
    /// A connection that was accepted and is not proved yet.
    Guest(u32),
    /// A connection to another node.
    Dial(u32),
}

impl Token {
    fn encode(self) -> u64 {
        let (kind, number) = match self {
            Token::Wake => (0, 0),
            Token::Listener => (1, 0),
            Token::Seat(pe) => (2, pe),
            Token::Guest(number) => (3, number),
            Token::Dial(number) => (4, number),
        };
        kind << 32 | u64::from(number)
    }

    fn decode(bits: u64) -> Self {
        let number = bits as u32;
        match bits >> 32 {
            0 => Token::Wake,
            1 => Token::Listener,
            2 => Token::Seat(number),
            3 => Token::Guest(number),
            _ => Token::Dial(number),
        }
    }
}

/// An epoll descriptor.
pub(super) struct Poll(OwnedFd);

impl Poll {
    pub(super) fn new() -> Result<Self> {
        epoll::create(CreateFlags::CLOEXEC).map(Poll).map_err(|e| Error::System {
            call: "epoll_create".into(),
            answer: e.into(),
            hint: "Raise `ulimit -n`",
        })
    }

    pub(super) fn add(
        &self,
        fd: impl AsFd,
        token: Token,
        flags: EventFlags,
    ) -> std::result::Result<(), Errno> {
        epoll::add(&self.0, fd, EventData::new_u64(token.encode()), flags)
    }

    /// Replaces what is waited for at a descriptor.
    pub(super) fn change(
        &self,
        fd: impl AsFd,
        token: Token,
        flags: EventFlags,
    ) -> std::result::Result<(), Errno> {
        epoll::modify(&self.0, fd, EventData::new_u64(token.encode()), flags)
    }

    /// Forgets a descriptor. One that only this process has is forgotten when it is closed; one
    /// that a PE gets would not be.
    pub(super) fn remove(&self, fd: impl AsFd) -> std::result::Result<(), Errno> {
        epoll::delete(&self.0, fd)
    }

    /// What is ready, after at most this time.
    pub(super) fn wait(&self, limit: Option<Duration>) -> std::result::Result<Vec<Token>, Errno> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let mut events =
            [const { Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 64];
        let ready = match epoll::wait(&self.0, &mut events, limit.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(e) => return Err(e),
        };
        let ready = &events[..ready];
        Ok(ready.iter().map(|event| Token::decode(event.data.u64())).collect())
    }
}
