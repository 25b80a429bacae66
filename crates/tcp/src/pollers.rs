//! What the fabric sleeps on: all sockets, the broker, and a bell that ends the sleep.

use memonet_core::Result;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor on which something has come, or that takes bytes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Broker,
    Bell,
    /// A peer's stream, for reading or writing.
    Peer(u32),
}

const BROKER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// The most descriptors that one call names.
pub(crate) const MOST: usize = 32;

pub(crate) struct Pollers {
    epoll: OwnedFd,
    bell: OwnedFd,
}

impl Pollers {
    pub(crate) fn new(broker: BorrowedFd<'_>) -> Result<Self> {
        let failed = |call: &'static str| move |error| crate::errors::system(call, error);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(failed("eventfd"))?;
        let pollers = Pollers { epoll, bell };
        pollers.add(pollers.bell.as_fd(), BELL).map_err(failed("epoll_ctl"))?;
        pollers.add(broker, BROKER).map_err(failed("epoll_ctl"))?;
        Ok(pollers)
    }

    fn add(&self, fd: BorrowedFd<'_>, data: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(data), EventFlags::IN)
    }

    /// Looks after a peer's stream, too.
    pub(crate) fn watch(&self, pe: u32, socket: BorrowedFd<'_>) -> rustix::io::Result<()> {
        self.add(socket, pe.into())
    }

    /// Whether it also tells when the stream takes bytes.
    pub(crate) fn want_to_write(&self, pe: u32, socket: BorrowedFd<'_>, wants: bool) {
        let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        // It fails only for a socket that is not watched.
        let done = epoll::modify(&self.epoll, socket, EventData::new_u64(pe.into()), flags);
        debug_assert!(done.is_ok(), "{done:?}");
    }

    /// Looks after a stream no more: closing it is not enough where a child has it, too.
    pub(crate) fn forget(&self, socket: BorrowedFd<'_>) {
        // It fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// What has something now.
    pub(crate) fn ready(&self) -> impl Iterator<Item = Ready> + use<> {
        let none = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; MOST];
        // Interrupted, it is asked again.
        let count = epoll::wait(&self.epoll, &mut events, Some(&Timespec::default())).unwrap_or(0);
        events.into_iter().take(count).map(|event| match event.data.u64() {
            BROKER => Ready::Broker,
            BELL => Ready::Bell,
            pe => Ready::Peer(pe as u32),
        })
    }

    /// All of them as one descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Ends a sleep.
    pub(crate) fn ring(&self) {
        // It is full only if it is readable.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The next sleep does not end because of an earlier ring.
    pub(crate) fn silence(&self) {
        // It is empty unless it was rung.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }
}
