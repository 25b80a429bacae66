//! What a PE's program and the engine pass to each other.

use crate::error::Error;
use crate::host::{Answer, HostOp, Pe};
use crate::time::Ps;
use memonet_core::unstable::fabric::Awaited;
use std::any::Any;

/// What a PE asks of the machine. [`HostOp`] says what may pass in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// An operation on its NIC.
    Host(HostOp),
    /// One look at its own memory.
    Look,
    /// Looks, one after the other, until one may see something new or comes after the deadline.
    Park {
        /// The deadline.
        due: Option<Ps>,
        /// Whether the PE has often done in vain what it will do at the deadline.
        vain: bool,
        /// What it waits for.
        what: Awaited,
    },
    /// A computation of this length.
    Compute(Ps),
    /// Whether all that the PE has written is visible: answered at once, with 1 or 0.
    IsQuiet,
}

/// What a PE gets for its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The PE's time now.
    pub now: Ps,
    /// The answer of its NIC.
    pub answer: Answer,
}

/// A PE's program.
pub(crate) trait Program: Sized {
    /// Goes on, with the reply to its last request, until it asks again or stops. A program that
    /// runs by itself only has its reply now: it gives [`Ran::Ready`], and [`run`](Self::run) runs
    /// it.
    fn resume(&mut self, reply: Reply) -> Ran;

    /// Whether [`resume`](Self::resume) would give [`Ran::Ready`] now, and the program may run
    /// while others do. Nothing that a program does while it runs changes this for another one.
    fn is_nearly_ready(&self) -> bool;

    /// Runs programs that are ready, all at once, until each asks again or stops. Gives what they
    /// did, in their order.
    fn run(programs: &mut [Self], ready: &[Pe]) -> Vec<Ran>;

    /// Whether it has to end before a run returns that has failed. Others are ended by whoever has
    /// started them.
    const ENDS_WITH_RUN: bool;

    /// Has every further request of the program end in a panic without a message, where that is no
    /// second panic.
    fn abandon(&mut self);
}

/// What a program did.
pub(crate) enum Ran {
    /// It has its reply, and is ready to run.
    Ready,
    /// It asks for something, after it has computed for this time.
    Asks(Request, Ps),
    Ended,
    Panicked(Panic),
    /// It cannot go on, and neither can the run.
    Failed(Error),
}

/// The value that a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;
