//! The core of memonet: **a send is a store**.
//!
//! The processes of a job (PEs) reach each other's memory as memory. A peer on the same machine is
//! *near*: its memory is mapped, and a store to it is one instruction. Any other peer is *far*: the
//! operation goes to a [`fabric::Fabric`]. Programs do not see the difference; the contract that
//! both keep stands in [`fabric`].
//!
//! | to | use |
//! |---|---|
//! | join the job | `memonet::init` ([`Job::init_with`]), or [`Job::threads`] for PEs that are threads |
//! | have memory that others reach | [`Job::window`], [`Job::restricted`] |
//! | send a word | [`Window::remote`], then [`Remote::store`] |
//! | send a block | [`Window::put`], [`Window::put_signal`], [`Window::prepare`] |
//! | wait for a word | [`Window::wait_until`] and its kin |
//! | meet | [`Job::barrier`], [`Barrier`] |
//! | be alone | [`Window::lock`] |
//! | tell many the same | [`Job::multicast`] |
//! | share data by guards | [`dsm`] |
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | PE | a member of a job: a process, a thread ([`Job::threads`]) or a coroutine of a simulated machine |
//! | near, far | a PE whose memory is mapped here; one that is reached through a [`fabric`] |
//! | segment | the memory of a PE that others may reach, laid out the same at each ([`layout`]) |
//! | window | a range of elements at the same place of every segment, or, restricted, in memory of its own |
//! | key, epoch | the right to a PE's part of a restricted window; what that PE raises to revoke all keys |
//! | remote | an element of some PE's part, found and checked once |
//! | route | where it is: a pointer, or an address on the fabric |
//! | store, put | a word, a block, written to another PE's memory; `nbi`: its source must stay as it is until the next quiet |
//! | signal | an update of a word that wakes who waits for it; a store wakes nobody |
//! | transfer | a put prepared once, and started many times |
//! | fence, quiet | order between this PE's writes; their completion |
//! | team, slot | some PEs in an order; the words that a team has in each member's segment, for its barrier and collectives |
//! | phase | one use of a barrier: PEs arrive, do something else, and wait. A number that only grows |
//! | step | of a barrier, a call that ends one phase and arrives at the next; of a collective, members tell each other that they have come |
//! | doorbell, ring | the word on which a PE sleeps; waking it |
//!
//! # Trade-offs
//!
//! * Windows hold plain data and give out copies, not references: a peer may write at any time, and
//!   the processor's rules are the only ones that hold between processes ([`shm`]).
//! * Making and freeing windows and teams is collective. That is what makes a remote address
//!   arithmetic instead of a message.
//! * A plain store costs one instruction because it tells nobody. A PE that sleeps while it waits
//!   for one sees it within about 4 ms, or as soon as the writer waits, fences or quiets; a signal
//!   wakes at once ([`wait`]).
//! * Bounds, ranks and overlaps are checked always. What costs time to check is checked with
//!   `MEMONET_CHECK=1` ([`Job::is_checked`]): that members of a team make the same collective calls
//!   with the same arguments, and that no thread takes a lock twice. It does not look for data
//!   races (a [`Region`](dsm::Region) can), for what is written beside a collective that uses it,
//!   or for waits that nobody ends.
//! * Safety is against mistakes of cooperating programs, not against hostile ones of the same user.

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
mod multicast;
mod sync;
mod team;
mod wait;
mod window;

/// What memonet's own front ends, fabrics and simulator are built on.
///
/// These parts change with the library, without notice: programs should not use them. Whoever does
/// has read the contract and the proof at the head of the part.
pub mod unstable {
    pub use crate::base::{layout, settings, shm};
    pub use crate::endpoint::{ending, fabric};
    pub use crate::lifecycle::launch;
    pub use crate::lifecycle::start::Seat;
    pub use crate::wait::polling;
    pub use crate::window::segment;

    /// The test fabric.
    pub mod far {
        pub use crate::far::*;
    }

    /// PEs of simulated machines, and what their simulator needs.
    pub mod hosted {
        pub use crate::hosted::*;
    }
}

pub use base::access::Access;
pub use base::error::{Cause, Error, Result, signal_name};
pub use base::settings::{ENV_BARRIER, ENV_CHECK, ENV_COLLECTIVES, ENV_FABRIC, ENV_MULTICAST};
pub use base::shm::{AtomicInt, Plain, Word};
pub use collective::{
    And, By, CollectiveAlgorithm, Destinations, Elements, Goal, Integers, Max, Min, Number,
    Operator, Or, Place, Product, Span, Sum, Xor,
};
pub use endpoint::fabric::SignalOp;
pub use job::Job;
pub use lifecycle::start::JobOptions;
pub use multicast::{Claim, Delivery, Multicast, MulticastOptions, Peek};
pub use sync::barrier::{Algorithm, Arrival, Barrier};
pub use team::Team;
pub use window::lock::{Held, Lock};
pub use window::remote::{CanRead, CanWrite, Read, ReadWrite, Remote, Right, Write};
pub use window::restricted::Key;
pub use window::transfer::Transfer;
pub use window::until::{Cmp, Wait};
pub use window::{Window, WindowOptions};
