//! Virtual time: the clock of a PE on a simulated machine.

use super::awaiting::Awaited;
use super::errand::Step;
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

    /// Whether [`run`](Self::run) makes steps.
    fn makes_errands(&self) -> bool {
        false
    }

    /// Has the machine make steps for this PE, an errand, and returns how many it has made: all, or
    /// those before a wait in which the PE has to look by itself. Then its look there was in vain
    /// just now. `None`: this machine makes none, and none was made.
    ///
    /// # Errors
    /// When the machine has refused a step.
    fn run(&self, _steps: &[Step], _what: Awaited) -> Option<Result<usize>> {
        None
    }

    /// Has all errands end at their next look in vain, or no longer. Called from any thread, and
    /// from signal handlers.
    fn recall(&self, _recalled: bool) {}

    /// From now on, or no longer, this thread's writes may be kept until the next call of another
    /// kind, which takes them along. The machine then makes them one after the other, as if each
    /// had waited for the one before: kept writes take the same time. But this PE goes on in its
    /// program meanwhile, and its memory does not change. So the caller does not look at what other
    /// PEs write until that call.
    fn keep(&self, _kept: bool) {}

    /// Makes the writes that are kept. Errors surface at the next quiet.
    fn ask_kept(&self) {}
}
