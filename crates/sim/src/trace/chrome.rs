//! The stages of a run as tracks of a timeline: a group for each sort of track.
//!
//! Hardware works on several messages at once, but the slices of a track must not overlap. So what
//! was busy has several rows, each a track of the timeline, and no two stages of a row overlap.
//! Queues can hold thousands of messages. A stage that finds all [`ROWS`] taken becomes an
//! asynchronous event, which viewers stack by themselves.
//!
//! The exact duration of a stage, in picoseconds, is an argument of its slice.

use super::stage::{Stage, Track};
use crate::op::Op;
use crate::time::Ps;
use memonet_trace::chrome::{self, Group, Span, Timeline};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::io::{self, Write};

/// The most rows of a track: as many as one can look at.
const ROWS: usize = 16;

/// The groups, in their order.
const GROUPS: [&str; 4] = ["PEs", "NICs", "links", "switches"];

/// The place of a track's group.
fn group(track: Track) -> usize {
    match track {
        Track::Pe(_) | Track::Agent(_) => 0,
        Track::Nic(..) => 1,
        Track::Link(..) => 2,
        Track::Port(..) => 3,
    }
}

/// The timeline's tracks, by track and row.
type Rows = BTreeMap<(Track, usize), chrome::Track>;

pub(super) fn draw<W: Write>(stages: &[Stage], timeline: &mut Timeline<W>) -> io::Result<()> {
    let placed = in_rows(stages);
    let groups = GROUPS.iter().map(|name| timeline.group(name)).collect::<io::Result<Vec<_>>>()?;
    let rows = add_rows(&placed, &groups, timeline)?;
    for (stage, row) in placed {
        let span = Span { start: nanos(stage.start), end: nanos(stage.end) };
        let arguments = [
            ("pe", u64::from(stage.op.pe.0).into()),
            ("call", u64::from(stage.op.number).into()),
            ("ps", (stage.end - stage.start).0.into()),
        ];
        match row {
            Some(row) => {
                timeline.slice(rows[&(stage.track, row)], stage.name, span, &arguments)?;
            }
            None => {
                let name = format!("{}: {}", stage.track, stage.name);
                timeline.overlapping(rows[&(stage.track, 0)], &name, span, &arguments)?;
            }
        }
    }
    Ok(())
}

fn add_rows<W: Write>(
    placed: &[(&Stage, Option<usize>)],
    groups: &[Group],
    timeline: &mut Timeline<W>,
) -> io::Result<Rows> {
    let rows = placed.iter().filter_map(|&(stage, row)| Some((stage.track, row?)));
    let rows: BTreeSet<(Track, usize)> = rows.collect();
    let add = |(track, row): (Track, usize)| {
        let number = if row == 0 { String::new() } else { format!(" ({})", row + 1) };
        let added = timeline.track(groups[group(track)], &format!("{track}{number}"))?;
        Ok(((track, row), added))
    };
    rows.into_iter().map(add).collect()
}

/// All stages in the order in which they began, each with its row where it has one.
fn in_rows(stages: &[Stage]) -> Vec<(&Stage, Option<usize>)> {
    let mut stages: Vec<&Stage> = stages.iter().collect();
    stages.sort_by_key(|stage| stage.start);
    let mut tracks: HashMap<Track, Taken> = HashMap::new();
    let place = |stage: &'_ Stage| tracks.entry(stage.track).or_default().place(stage);
    let rows: Vec<_> = stages.iter().copied().map(place).collect();
    stages.into_iter().zip(rows).collect()
}

/// Which rows of a track are taken.
struct Taken {
    free: BTreeSet<usize>,
    /// Rows that are taken, each with the time at which it becomes free.
    busy: BinaryHeap<Reverse<(Ps, usize)>>,
    /// The row of each call's last stage. A call keeps its row where it can.
    last: HashMap<Op, usize>,
}

impl Default for Taken {
    fn default() -> Self {
        Taken { free: (0..ROWS).collect(), busy: BinaryHeap::new(), last: HashMap::new() }
    }
}

impl Taken {
    /// Gives a stage its row. Stages come in the order in which they began.
    fn place(&mut self, stage: &Stage) -> Option<usize> {
        while let Some(&Reverse((end, row))) = self.busy.peek()
            && end <= stage.start
        {
            self.busy.pop();
            self.free.insert(row);
        }
        let own = self.last.get(&stage.op).filter(|row| self.free.contains(row));
        let row = *own.or(self.free.first())?;
        self.free.remove(&row);
        self.busy.push(Reverse((stage.end, row)));
        self.last.insert(stage.op, row);
        Some(row)
    }
}

fn nanos(time: Ps) -> u64 {
    time.0 / 1000
}
