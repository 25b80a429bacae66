//! What the programs of a job have called and waited for, as tracks of a timeline: a track for each
//! thread of each PE.
//!
//! * A call is a slice with its arguments. A wait is a slice inside of it, or alone where no call
//!   waits. Between two calls the program computes: the track is empty there.
//! * An arrow leads from a write to the wait that it has ended, and from the last PE that came to a
//!   barrier or collective to the waits of the others (`causes.rs`).
//! * A call without an end lasts until the PE's end, and says so.
//!
//! The events of a PE may be anything, as programs can write over them. So slices are cut where
//! they would overlap, and all times lie inside of the timeline.
//!
//! Events are read from their files twice, or four times where clocks differ, and written as they
//! are read. What stays in memory is
//! some 40 bytes for each write to a word that somebody waits for, each such wait, and each call
//! of a team.

mod agreed;
mod causes;
mod firsts;
mod source;
mod tracks;

use std::io::{self, Write};

use crate::chrome::{Group, Timeline};
use causes::Causes;
pub use source::{Clock, Source};

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
    let sources = &agreed::agreed(sources)?[..];
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

/// No timeline is longer, 13 days: viewers read microseconds in floating point, which up to there
/// tells one nanosecond from the next. An event that a program has written over may be at any time.
const LONGEST_NS: u64 = 1 << 50;
