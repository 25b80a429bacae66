//! What the programs of a job have called and waited for, as tracks of a timeline: a track for each
//! thread of each PE.
//!
//! * A call is a slice with its arguments. A wait is a slice inside of it, or alone where no call
//!   waits. Between two calls the program computes: the track is empty there.
//! * An arrow leads from a write to the wait that it has ended, and from the last PE that came to a
//!   barrier or collective to the waits of the others ([causes]).
//! * A call without an end lasts until the PE's end, and says so.
//!
//! The events of a PE may be anything, as programs can write over them. So slices are cut where
//! they would overlap, and all times lie inside of the timeline.
//!
//! Events are read from their files twice, and written as they are read. What stays in memory is
//! some 40 bytes for each write to a word that somebody waits for, each such wait, and each call
//! of a team.

mod causes;
mod tracks;

use std::io::{self, Write};

use memonet_core::unstable::recorder::events::Events;

use crate::chrome::{Group, Timeline};
use causes::Causes;

/// The events of a PE.
#[derive(Debug)]
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

/// What was drawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Events.
    pub events: u64,
    /// Arrows.
    pub arrows: u64,
    /// PEs of which events had no room: how many events were drawn, and how many are missing.
    pub missing: Vec<(usize, u64, u64)>,
}

impl Source<'_> {
    /// A moment of this PE by the timeline's clock.
    fn time(&self, nanos: u64) -> u64 {
        self.clock.time(nanos)
    }
}

/// Draws the programs of a job. Times of the timeline count from `origin`; `None`: from the first
/// event.
///
/// # Errors
/// Those of the writer, and of reading the events.
pub fn draw<W: Write>(
    sources: &[Source<'_>],
    origin: Option<u64>,
    timeline: &mut Timeline<W>,
) -> io::Result<Drawn> {
    let causes = Causes::find(sources)?;
    let origin = origin.unwrap_or(causes.first);
    let bounds = tracks::Bounds {
        origin,
        end: causes.last.clamp(origin, origin.saturating_add(LONGEST_NS)),
    };
    let mut drawn = Drawn { arrows: causes.arrows(), ..Drawn::default() };
    let mut last: Option<(&str, Group)> = None;
    for (place, source) in sources.iter().enumerate() {
        let group = match last {
            Some((name, group)) if name == source.group => group,
            _ => timeline.group(source.group)?,
        };
        last = Some((source.group, group));
        let events = tracks::draw((place, source), &causes, bounds, group, timeline)?;
        let missing = source.events.missing();
        drawn.missing.extend((missing > 0).then_some((source.pe, events, missing)));
        drawn.events += events;
    }
    Ok(drawn)
}

/// No timeline is longer, 52 days, as viewers count microseconds in floating point. An event that a
/// program has written over may be at any time.
const LONGEST_NS: u64 = 1 << 52;

/// The errors of events as those of a writer.
fn unreadable(error: memonet_core::Error) -> io::Error {
    io::Error::other(error.to_string())
}
