//! What is drawn: the events of each PE, and its clock.

use std::io;

use memonet_core::unstable::recorder::events::Events;

/// The events of a PE.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The PE.
    pub pe: usize,
    /// What it has recorded.
    pub events: Events<'a>,
    /// Its clock.
    pub clock: Clock,
    /// When the PE has ended, by the timeline's clock, and how, if it has ended other than in
    /// order.
    pub ended: Option<(u64, String)>,
    /// The group of tracks in which it is to stand. PEs of one group follow each other.
    pub group: &'a str,
}

/// The clock of a PE, beside the timeline's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// Its lead over the timeline's clock at the moment `at`, in nanoseconds.
    pub lead: i64,
    /// A moment of the PE's clock.
    pub at: u64,
    /// How much faster it runs, in parts of 1000 million.
    pub drift: i64,
    /// How far off the timeline's clock the result may be.
    pub uncertainty: u64,
}

impl Clock {
    /// A moment of the PE's clock by the timeline's.
    pub fn time(&self, nanos: u64) -> u64 {
        let since = i128::from(nanos) - i128::from(self.at);
        let lead = i128::from(self.lead) + since * i128::from(self.drift) / 1_000_000_000;
        (i128::from(nanos) - lead).clamp(0, u64::MAX.into()) as u64
    }
}

impl Source<'_> {
    /// A moment of this PE by the timeline's clock.
    pub(super) fn time(&self, nanos: u64) -> u64 {
        self.clock.time(nanos)
    }
}

/// The errors of events as those of a writer.
pub(super) fn unreadable(error: memonet_core::Error) -> io::Error {
    io::Error::other(error.to_string())
}
