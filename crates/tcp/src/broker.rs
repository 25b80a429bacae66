//! How a PE gets sockets to others.

use memonet_core::unstable::fabric::Record;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::net::SocketAddrV4;

/// Gives a PE its sockets to other PEs.
pub trait Broker: Send + Sync {
    /// What every PE knows alike of the job's nodes and of what lies between them.
    fn record(&self) -> Record;

    /// The addresses at which other hosts reach this one, with the port that is open there.
    fn host_addresses(&self) -> Vec<SocketAddrV4>;

    /// Asks for a stream to `pe`. The answer comes by [`next`](Self::next). Returns at once.
    ///
    /// # Errors
    /// When nothing can be asked for any more.
    fn connect(&self, pe: u32) -> memonet_core::Result<()>;

    /// The next thing that has come; never blocks.
    ///
    /// # Errors
    /// When nothing will come any more.
    fn next(&self) -> memonet_core::Result<Option<Event>>;

    /// This process is the PE from now on. A program that it becomes by exec may take its place
    /// where it leaves that `to_successor`.
    ///
    /// # Errors
    /// Of the system.
    fn take_part(&self, _to_successor: bool) -> memonet_core::Result<()> {
        Ok(())
    }

    /// Readable when [`next`](Self::next) has something.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// What comes from a broker.
#[derive(Debug)]
pub enum Event {
    /// A stream to `pe` that this PE asked for.
    Connected {
        /// The other end.
        pe: u32,
        /// The stream: not blocking, closed on exec.
        socket: OwnedFd,
    },
    /// A stream that `pe` asked for.
    Accepted {
        /// The other end.
        pe: u32,
        /// The stream: not blocking, closed on exec.
        socket: OwnedFd,
    },
    /// There will be no stream to `pe`; why, with cause and fix.
    Refused {
        /// The other end.
        pe: u32,
        /// Why.
        why: String,
    },
    /// `pe` has asked for a stream to this PE, and has got none.
    Unreached {
        /// The other end.
        pe: u32,
    },
}
