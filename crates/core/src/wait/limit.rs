//! Time limits of calls. All waits of a call share one deadline, however many there are.

use crate::base::error::Error;
use crate::endpoint::pe::Pe;
use crate::wait;
use std::cell::Cell;
use std::time::Duration;

/// The time limit of one call. It begins at the first wait of the call, so that a call which need
/// not wait reads no clock, or earlier where the call says so.
#[derive(Debug)]
pub(crate) struct Limit {
    after: Duration,
    /// In the PE's time; `None`: the limit has not begun.
    deadline: Cell<Option<Duration>>,
}

impl Limit {
    #[inline(always)]
    pub(crate) fn new(after: Duration) -> Self {
        Limit { after, deadline: Cell::new(None) }
    }

    /// Begins the limit, unless it has begun.
    pub(crate) fn begin(&self, pe: &Pe) {
        self.deadline(pe);
    }

    /// When the call gives up. A moment beyond what a clock can show never comes.
    pub(crate) fn deadline(&self, pe: &Pe) -> Duration {
        self.deadline.get().unwrap_or_else(|| {
            let deadline = wait::now(pe).saturating_add(self.after);
            self.deadline.set(Some(deadline));
            deadline
        })
    }

    /// The time until then.
    pub(crate) fn left(&self, pe: &Pe) -> Duration {
        self.deadline(pe).saturating_sub(wait::now(pe))
    }

    pub(crate) fn is_over(&self, pe: &Pe) -> bool {
        self.left(pe).is_zero()
    }

    /// What the call then ends with.
    pub(crate) fn error(&self) -> Error {
        Error::Timeout { after: self.after }
    }

    /// The patience of a call with this limit.
    pub(crate) fn patience(&self) -> Patience<'_> {
        if self.after.is_zero() { Patience::Try } else { Patience::Within(self) }
    }
}

/// How long a call may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience<'a> {
    /// Not at all: a call that would have to wait gives nothing.
    Try,
    /// Within a limit, behind which it fails.
    Within(&'a Limit),
    Forever,
}

impl Patience<'_> {
    /// Begins the limit, if there is one.
    pub(crate) fn begin(self, pe: &Pe) {
        if let Patience::Within(limit) = self {
            limit.begin(pe);
        }
    }
}
