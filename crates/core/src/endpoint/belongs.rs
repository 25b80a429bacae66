//! The PE and the job that a handle belongs to.
//!
//! **The rule.** Every handle is made by one PE of one job, keeps that PE's view of the job
//! ([`Pe`]), and works through it alone. An operation that takes two handles compares their owners
//! before it reads or writes anything, and refuses two that differ with [`Error::Misuse`]. This
//! file has the only comparison.
//!
//! *Why it must be refused.* An offset or an address that was checked against one job says nothing
//! about another: there it may lie under a guard's reference, behind the end of a segment, or in
//! memory that goes when the other job ends. [`Job::threads`](crate::Job::threads) puts several
//! jobs, and several PEs of one job, into one address space, so safe code can hold handles of all
//! of them.
//!
//! | takes two handles | what is compared |
//! |---|---|
//! | collectives of a team | the team with each [`Span`](crate::Span) |
//! | [`put_nbi`](crate::Window::put_nbi), [`prepare`](crate::Window::prepare) | the target with the source window |
//! | [`put_signal`](crate::Window::put_signal), [`with_signal`](crate::Transfer::with_signal) | the target with the signal window |
//! | [`Job::attach`](crate::Job::attach) | the job's number, which a [`Key`](crate::Key) carries as plain data |
//!
//! All other handles (remotes, locks, barriers and their arrivals, channels, guards and objects of
//! [`dsm`](crate::dsm)) are used alone: each keeps its own owner, and no call brings in a second
//! one.

use crate::base::error::{Error, Result};
use crate::endpoint::pe::Pe;
use std::sync::atomic::AtomicU8;

/// The PE of a job that a handle belongs to: the address of memory of this PE's view. The address
/// is unique as long as a handle of that owner lives, and only live handles are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(*const AtomicU8);

/// A handle that an operation takes beside another one.
pub(crate) trait Belongs {
    fn owner(&self) -> Owner;
}

impl Belongs for Pe {
    #[inline(always)]
    fn owner(&self) -> Owner {
        Owner(self.written().as_ptr())
    }
}

impl Owner {
    /// The owner of a handle that keeps only the marks of its PE's view.
    #[inline(always)]
    pub(crate) fn of_marks(written: *const AtomicU8) -> Self {
        Owner(written)
    }
}

/// Whether both belong to the same PE of the same job.
#[inline(always)]
pub(crate) fn is_together(one: &impl Belongs, other: &impl Belongs) -> bool {
    one.owner() == other.owner()
}

/// Refuses handles that do not belong together.
#[inline(always)]
pub(crate) fn check_together(one: &impl Belongs, other: &impl Belongs) -> Result<()> {
    if is_together(one, other) { Ok(()) } else { refused() }
}

#[cold]
fn refused() -> Result<()> {
    Err(Error::misuse(
        "these handles belong to two jobs, or to two PEs of one: give a call windows, spans, signals \
         and teams that the same PE has made in the same job",
    ))
}
