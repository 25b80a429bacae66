//! The fabric of memonet over stream sockets: any network, with nothing to install.
//!
//! Two PEs that talk share one stream. What one does to the other's memory is a record on it, which
//! the other's CPU applies, with the same primitives as a near PE's stores. The protocol and its
//! proof stand in [`wire`], which has no input and output of its own.
//!
//! ```text
//! Tcp (fabric.rs)   calls of the library, and what they wait for
//!   Hub (hub.rs)    all peers of this PE, behind one lock: streams, what came, what is to go
//!     Peer          a socket and a wire::Link
//!     Memory        this PE's own memory, for records that come
//!   room.rs         descriptors for so many streams
//!   patience.rs     how calls that wait pass the time
//!   prepared.rs     puts that know their own end
//!   thread.rs       reads and sends while no thread of the PE does
//!   Broker          where streams come from: local.rs on one machine, agent/ between hosts
//! ```
//!
//! # Trade-offs
//!
//! * The target's CPU applies what comes: in its waits, and otherwise in a thread. So near and far
//!   atomics are one kind, no memory is registered, and any socket will do; in exchange, a PE that
//!   computes is interrupted by what others ask of it.
//! * One lock for all streams of a PE. A call holds it for less than a microsecond, but for system
//!   calls; a call that waits gives it back between two looks.
//! * Small records are not sent at once, but together: when [`BATCH`] bytes have come together,
//!   when the PE waits, fences or is quiet, and else within about a millisecond. Signals and
//!   requests are sent at once.
//! * A stream that breaks is not resumed: the pair has failed.

pub mod agent;
mod broker;
mod errors;
mod fabric;
mod forks;
mod hub;
pub mod local;
mod memory;
mod patience;
mod peer;
mod pollers;
mod prepared;
mod room;
mod shared;
mod socket;
mod thread;
pub mod wire;

pub use broker::{Broker, Event};
pub use errors::NAME;
pub use fabric::Tcp;
pub use peer::BATCH;
pub use socket::prepare;
