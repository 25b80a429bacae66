//! Virtual time: the clock of a PE on a simulated machine.

use super::awaiting::Awaited;
use crate::base::error::Result;
use std::time::Duration;

/// When a waiting PE resumes although its memory has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The moment, since the start of the job.
    pub at: Duration,
    /// The PE will only repeat what it has often done without effect. If no other event is left,
    /// the job is deadlocked.
    pub vain: bool,
}

impl Due {
    /// The earlier of two; in vain if both are.
    pub(crate) fn first(one: Option<Due>, other: Option<Due>) -> Option<Due> {
        let both =
            |one: Due, other: Due| Due { at: one.at.min(other.at), vain: one.vain && other.vain };
        match (one, other) {
            (Some(one), Some(other)) => Some(both(one, other)),
            (one, other) => one.or(other),
        }
    }
}

/// A PE's virtual time. Every call may take virtual time, and lets other PEs run meanwhile.
pub trait VirtualClock {
    /// Time since the start of the job.
    fn now(&self) -> Duration;

    /// Lets the time of one look at this PE's own memory pass.
    fn look(&self);

    /// Suspends this PE, after a look in vain, until its memory may have changed since, or until it
    /// is `due`. It may resume spuriously. `what` names the awaited event in the report of a
    /// deadlock.
    ///
    /// # Errors
    /// When this PE is not the one that runs.
    fn park(&self, due: Option<Due>, what: Awaited) -> Result<()>;

    /// Lets the time of a computation pass.
    fn compute(&self, time: Duration);
}
