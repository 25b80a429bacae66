//! The core of memonet: **a send is a store**.
//!
//! The processes of a job (PEs) reach each other's memory as memory. A peer on the same machine is
//! *near*: its memory is mapped, and a store to it is one instruction. Any other peer is *far*: the
//! operation goes to a [`Fabric`](unstable::fabric::Fabric). Programs do not see the difference;
//! the contract that both keep stands in [fabric](unstable::fabric).
//!
//! | to | use |
//! |---|---|
//! | join the job | `memonet::init` ([`Job::init_with`]), or [`Job::threads`] for PEs that are threads |
//! | have memory that other PEs reach | [`Job::window`], [`Job::restricted`] |
//! | send a word | [`Window::remote`], then [`Remote::store`] |
//! | send a block | [`Window::put`], [`Window::put_signal`], [`Window::prepare`] |
//! | wait for a word | [`Window::wait_until`] and its kin |
//! | meet | [`Job::barrier`], [`Barrier`] |
//! | combine, gather, broadcast | [`Team::all_reduce`], [`Team::all_gather`], [`Team::broadcast`], of slices `_slice`, between windows `_into` |
//! | exclude other PEs | [`dsm::Mutex`], [`Window::lock`] |
//! | share data by guards | [`dsm`] |
//! | send messages to one PE, receive them from all | [`Messages`] |
//! | work in supersteps (BSP) | [`Supersteps`] |
//! | stream blocks to many PEs | [`Job::multicast`] |
//!
//! The front page of the crate `memonet` has guides, and the names in OpenSHMEM and MPI.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | PE | a member of a job: a process, a thread ([`Job::threads`]) or a coroutine of a simulated machine |
//! | near, far | a PE whose memory is mapped into this process; a PE that is reached through a [fabric](unstable::fabric) |
//! | segment | the memory of a PE that other PEs may reach, laid out alike at each PE ([layout](unstable::layout)) |
//! | window, part | a range of elements at one place of every segment, or, restricted, in memory of its own; the elements of one PE |
//! | key, epoch | the right to a PE's part of a restricted window; the number that a PE raises to revoke all keys to its part |
//! | remote | an element of a PE's part, found and checked once |
//! | route | where a remote is: a pointer, or an address on the fabric |
//! | store, put | a word, or a block, written to another PE's memory; `nbi`: its source must not change until the next quiet |
//! | signal | an update of a word that wakes the PE that waits for it; a store wakes no PE |
//! | transfer | a put that is prepared once and started many times |
//! | fence, quiet | order between this PE's writes; their completion |
//! | team, slot | some PEs in an order; the words that a team has in each member's segment, for its barrier and collectives |
//! | phase | one use of a barrier: PEs arrive, do something else, and wait. Its number only grows |
//! | step | of a barrier: a call that completes one phase and arrives at the next. Of a collective: members tell each other that they have come |
//! | doorbell, wake | the word on which a PE sleeps; ending that sleep |
//! | poll interval, interference | the time between two polls of a sleeper; other processes on the job's CPUs |
//!
//! # Trade-offs
//!
//! * Windows hold plain data and give out copies, not references: a peer may write at any time, and
//!   only the processor's rules hold between processes ([shm](unstable::shm)).
//! * Making and freeing windows and teams is collective. Therefore a remote address is arithmetic
//!   instead of a message.
//! * A plain store costs one instruction because it tells no PE. A PE that sleeps while it waits
//!   for a store sees it within about 4 ms, or as soon as the writer waits, fences or quiets. A
//!   signal wakes at once ([wait](unstable::wait)).
//! * Bounds, ranks and overlaps are checked always. `MEMONET_CHECK=1` ([`Job::is_checked`]) turns
//!   on the checks that cost time: members of a team must make equal collective calls with equal
//!   arguments, and no thread may take a lock twice. These checks do not find data races (a
//!   [`Region`](dsm::Region) can), writes to data that a collective uses meanwhile, or waits that
//!   nobody ends.
//! * Safety is against mistakes of cooperating programs, not against hostile programs of the same
//!   user.

#![deny(missing_debug_implementations)]

mod base;
mod collective;
pub mod dsm;
mod endpoint;
mod far;
mod hosted;
mod job;
mod lifecycle;
#[cfg(all(test, loom))]
mod loom_tests;
mod messages;
mod multicast;
mod supersteps;
mod sync;
mod team;
mod wait;
mod window;

/// What memonet's own front ends, fabrics and simulator are built on.
///
/// These parts change with the library, without notice: programs should not use them. Whoever does
/// has read the contract and the proof at the head of the part.
pub mod unstable {
    pub use crate::base::clock::monotonic;
    pub use crate::base::{digest, layout, log, settings, shm, unwinding};
    pub use crate::endpoint::{callers, calls, ending, fabric, mixture, recorder};
    pub use crate::lifecycle::launch;
    pub use crate::lifecycle::start::Seat;
    pub use crate::lifecycle::wired::Place;
    pub use crate::wait::polling;
    pub use crate::window::segment;

    /// The test fabric.
    pub mod far {
        pub use crate::far::*;
    }

    /// The loop of all waits, its hook, and what waits are for.
    pub mod wait {
        pub use crate::wait::*;
    }

    /// PEs of simulated machines, and what their simulator needs.
    pub mod hosted {
        pub use crate::hosted::*;
    }
}

pub use base::access::Access;
pub use base::compare::Cmp;
pub use base::element::ElementName;
pub use base::error::{Call, Cause, Error, Lost, Result, signal_name};
pub use base::settings::{ENV_BARRIER, ENV_CHECK, ENV_COLLECTIVES, ENV_FABRIC, ENV_MULTICAST};
pub use base::shm::{AtomicInt, Plain, Word};
pub use collective::{
    And, Broadcast, By, CollectiveAlgorithm, Destinations, Elements, Goal, Max, Min, Number,
    NumberKind, Numbers, Operator, Or, Product, Span, Sum, SymmetricRange, Xor,
};
pub use endpoint::fabric::SignalOp;
pub use job::Job;
pub use lifecycle::start::JobOptions;
pub use messages::Messages;
pub use multicast::{Claim, Delivery, Multicast, MulticastOptions, Peek};
pub use supersteps::Supersteps;
pub use sync::barrier::{Algorithm, Arrival, Barrier};
pub use team::Team;
#[cfg(not(loom))]
pub use window::event::Event;
pub use window::lock::{Held, Lock};
pub use window::remote::{CanRead, CanWrite, Read, ReadWrite, Remote, Right, Write};
pub use window::restricted::Key;
pub use window::transfer::Transfer;
pub use window::until::Wait;
pub use window::{Window, WindowOptions};
