//! How long a call may wait: [`Patience`], and the [`Limit`] within which some calls do. All waits
//! of a call share one deadline, however many there are.

use crate::base::error::Error;
use crate::endpoint::pe::Pe;
use crate::wait;
use std::cell::Cell;
use std::time::Duration;

/// The time limit of one call. It begins at the first wait of the call, so that a call which need
/// not wait reads no clock, or earlier where the call says so.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Zero: the call does not wait. [`FOREVER`]: the call has no limit.
    after: Duration,
    /// In the PE's time; `None`: the limit has not begun.
    deadline: Cell<Option<Duration>>,
}

const FOREVER: Duration = Duration::MAX;

impl Limit {
    #[inline(always)]
    pub(crate) fn new(after: Duration) -> Self {
        Limit { after, deadline: Cell::new(None) }
    }

    /// No limit.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Limit::new(FOREVER)
    }

    /// The patience of a call with this limit.
    #[inline(always)]
    pub(crate) fn patience(&self) -> Patience<'_> {
        match self.after {
            Duration::ZERO => Patience::Try,
            FOREVER => Patience::Forever,
            _ => Patience::Within(self),
        }
    }

    /// Begins the limit, unless it has begun.
    fn begin(&self, pe: &Pe) {
        self.deadline(pe);
    }

    /// When the call gives up. A moment beyond what a clock can show never comes.
    fn deadline(&self, pe: &Pe) -> Duration {
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
        Error::Timeout { after: self.after, call: None }
    }
}

/// The limit that an option of a program sets.
impl From<Option<Duration>> for Limit {
    fn from(after: Option<Duration>) -> Self {
        after.map_or_else(Limit::none, Limit::new)
    }
}

/// How long a call may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience<'a> {
    /// Not at all: the call looks, and gives up.
    Try,
    /// Until the limit is over.
    Within(&'a Limit),
    /// For as long as it takes.
    Forever,
}

impl Patience<'_> {
    /// Begins the limit, if there is one.
    pub(crate) fn begin(self, pe: &Pe) {
        if let Patience::Within(limit) = self {
            limit.begin(pe);
        }
    }

    /// When the call gives up, in the PE's time; `None`: never.
    pub(super) fn deadline(self, pe: &Pe) -> Option<Duration> {
        match self {
            Patience::Try => Some(wait::now(pe)),
            Patience::Within(limit) => Some(limit.deadline(pe)),
            Patience::Forever => None,
        }
    }

    /// The part of `time` that the call may still wait.
    pub(super) fn shorten(self, pe: &Pe, time: Duration) -> Duration {
        match self {
            Patience::Try => Duration::ZERO,
            Patience::Within(limit) => limit.left(pe).min(time),
            Patience::Forever => time,
        }
    }

    /// The error with which the call ends, once its time is up.
    pub(crate) fn late(self, pe: &Pe) -> Option<Error> {
        match self {
            Patience::Try => Some(Error::Timeout { after: Duration::ZERO, call: None }),
            Patience::Within(limit) => limit.is_over(pe).then(|| limit.error()),
            Patience::Forever => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_none() {
        assert!(matches!(Limit::new(Duration::ZERO).patience(), Patience::Try));
        assert!(matches!(Limit::from(None).patience(), Patience::Forever));
        assert!(matches!(Limit::new(Duration::MAX).patience(), Patience::Forever));
        let brief = Limit::from(Some(Duration::from_nanos(1)));
        assert!(matches!(brief.patience(), Patience::Within(limit) if limit.after == brief.after));
    }
}
