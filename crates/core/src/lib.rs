//! The core of memonet: **a send is a store**.
//!
//! The processes of a job (PEs) reach each other's memory as memory. A peer on the same machine is *near*: its memory is mapped, and a
//! store to it is one instruction. Any other peer is *far*: the operation goes to a [`fabric::Fabric`]. Programs do not see the difference;
//! the contract that both keep stands in [`fabric`].
//!
//! | to | use |
//! |---|---|
//! | join the job | [`Job::init`], or [`Job::threads`] for PEs that are threads |
//! | have memory that others reach | [`Job::window`], [`Job::restricted`] |
//! | send a word | [`Window::remote`], then [`Remote::store`] |
//! | send a block | [`Window::put`], [`Window::put_signal`], [`Window::prepare`] |
//! | wait for a word | [`Window::wait_until`] and its kin |
//! | meet | [`Job::barrier`], [`Barrier`] |
//! | be alone | [`Window::lock`] |
//! | tell many the same | [`Job::multicast`] |
//! | share data by guards | [`dsm`] |
//!
//! # Trade-offs
//!
//! * Windows hold plain data and give out copies, not references: a peer may write at any time, and the processor's rules are
//!   the only ones that hold between processes ([`shm`]).
//! * Making and freeing windows and teams is collective. That is what makes a remote address arithmetic instead of a message.
//! * A plain store costs one instruction because it tells nobody. A PE that sleeps while it waits for one sees it within
//!   about 4 ms, or as soon as the writer waits, fences or quiets; a signal wakes at once ([`wait`]).
//! * Safety is against mistakes of cooperating programs, not against hostile ones of the same user.

mod adopt;
mod agree;
pub(crate) mod barrier;
mod collective;
mod control;
mod descriptors;
mod doorbell;
pub mod dsm;
pub mod ending;
mod error;
pub mod fabric;
mod heap;
pub mod hosted;
mod job;
pub mod launch;
pub mod layout;
mod local;
mod lock;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod multicast;
mod pe;
mod process;
mod put;
mod remote;
mod restricted;
mod route;
pub mod segment;
pub mod shm;
mod status;
mod strangers;
mod team;
mod transfer;
mod until;
pub mod wait;
mod watch;
mod window;

pub use barrier::{Algorithm, Arrival, Barrier, ENV_BARRIER};
pub use collective::{
    And, By, Destinations, ENV_COLLECTIVES, Elements, Goal, Integers, Max, Min, Number, Operator, Or, Place, Product, Span, Sum, Way, Xor,
};
pub use error::{Cause, Error, Result, signal_name};
pub use fabric::SignalOp;
pub use fabric::far::ENV_FABRIC;
pub use job::{Job, JobOptions};
pub use lock::{Held, Lock};
pub use multicast::{Claim, Delivery, ENV_MULTICAST, Multicast, MulticastOptions, Peek};
pub use remote::{CanRead, CanWrite, Read, ReadWrite, Remote, Right, Write};
pub use restricted::Key;
pub use shm::{AtomicInt, Plain, Word};
pub use team::Team;
pub use transfer::Transfer;
pub use until::{Cmp, Wait};
pub use window::{Access, Window, WindowOptions};
