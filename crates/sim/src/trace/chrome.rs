//! Timelines in Chrome's trace format: a process for each sort of track, a thread for each row of a
//! track.
//!
//! Hardware works on several messages at once. But a viewer drops a complete event that begins
//! inside another event of its thread and ends after it. So a track has several rows, and no two
//! stages of a row overlap. Queues can hold thousands of messages. A stage that finds all [`ROWS`]
//! taken becomes an asynchronous event, which viewers stack by themselves.
//!
//! Viewers round starts and durations to whole nanoseconds, each by itself, and neighbours that
//! touch would then overlap. So both are written in whole nanoseconds; the exact duration is an
//! argument of the event.

use super::stage::{Stage, Track};
use crate::op::Op;
use crate::time::Ps;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

/// The most rows of a track: as many as one can look at.
const ROWS: usize = 16;

/// Names of the processes, by their number less 1.
const PROCESSES: [&str; 4] = ["PEs", "NICs", "links", "switches"];

fn process(track: Track) -> usize {
    match track {
        Track::Pe(_) | Track::Agent(_) => 1,
        Track::Nic(..) => 2,
        Track::Link(..) => 3,
        Track::Port(..) => 4,
    }
}

/// Numbers of threads, by track and row.
type Threads = BTreeMap<(Track, usize), usize>;

pub(super) fn write(stages: &[Stage], out: &mut impl Write) -> io::Result<()> {
    let placed = in_rows(stages);
    let rows = placed.iter().filter_map(|&(stage, row)| Some((stage.track, row?)));
    let mut threads: Threads = rows.map(|row| (row, 0)).collect();
    threads.values_mut().zip(1..).for_each(|(thread, number)| *thread = number);
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    names(&threads, out)?;
    for (number, (stage, row)) in placed.into_iter().enumerate() {
        match row {
            Some(row) => complete(stage, threads[&(stage.track, row)], out)?,
            None => asynchronous(stage, threads[&(stage.track, 0)], number, out)?,
        }
    }
    out.write_all(b"\n]}\n")
}

fn names(threads: &Threads, out: &mut impl Write) -> io::Result<()> {
    let mut separator = "\n";
    for (name, process) in PROCESSES.iter().zip(1..) {
        write!(
            out,
            "{separator}{{\"ph\":\"M\",\"pid\":{process},\"name\":\"process_name\",\"args\":{{\"name\":\"{name}\"}}}}"
        )?;
        separator = ",\n";
    }
    for (&(track, row), thread) in threads {
        let process = process(track);
        let number = if row == 0 { String::new() } else { format!(" ({})", row + 1) };
        write!(
            out,
            ",\n{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},\"name\":\"thread_name\",\"args\":{{\"name\":\"{track}{number}\"}}}}"
        )?;
    }
    Ok(())
}

fn complete(stage: &Stage, thread: usize, out: &mut impl Write) -> io::Result<()> {
    let process = process(stage.track);
    let (start, end) = (nanos(stage.start), nanos(stage.end));
    write!(
        out,
        ",\n{{\"ph\":\"X\",\"pid\":{process},\"tid\":{thread},\"ts\":{},\"dur\":{},\"name\":\"{}\",{}}}",
        Micros(start),
        Micros(end - start),
        stage.name,
        Arguments(stage)
    )
}

/// Writes a stage without a row. Viewers show events of one name together, so the name has the
/// track.
fn asynchronous(
    stage: &Stage,
    thread: usize,
    number: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let process = process(stage.track);
    for (phase, time) in [("b", stage.start), ("e", stage.end)] {
        write!(
            out,
            ",\n{{\"ph\":\"{phase}\",\"cat\":\"queue\",\"id\":{number},\"pid\":{process},\"tid\":{thread},\"ts\":{},\"name\":\"{}: {}\",{}}}",
            Micros(nanos(time)),
            stage.track,
            stage.name,
            Arguments(stage)
        )?;
    }
    Ok(())
}

/// All stages in the order in which they began, each with its row where it has one.
fn in_rows(stages: &[Stage]) -> Vec<(&Stage, Option<usize>)> {
    let mut stages: Vec<&Stage> = stages.iter().collect();
    stages.sort_by_key(|stage| stage.start);
    let mut tracks: HashMap<Track, Rows> = HashMap::new();
    let place = |stage: &'_ Stage| tracks.entry(stage.track).or_default().place(stage);
    let rows: Vec<_> = stages.iter().copied().map(place).collect();
    stages.into_iter().zip(rows).collect()
}

/// The rows of a track.
struct Rows {
    free: BTreeSet<usize>,
    /// Rows that are taken, each with the time at which it becomes free.
    busy: BinaryHeap<Reverse<(Ps, usize)>>,
    /// The row of each call's last stage. A call keeps its row where it can.
    last: HashMap<Op, usize>,
}

impl Default for Rows {
    fn default() -> Self {
        Rows { free: (0..ROWS).collect(), busy: BinaryHeap::new(), last: HashMap::new() }
    }
}

impl Rows {
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

/// For which call a stage was, and how long it took.
struct Arguments<'a>(&'a Stage);

impl Display for Arguments<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Stage { op, start, end, .. } = *self.0;
        write!(
            f,
            "\"args\":{{\"pe\":{},\"call\":{},\"ps\":{}}}",
            op.pe.0,
            op.number,
            (end - start).0
        )
    }
}

fn nanos(time: Ps) -> u64 {
    time.0 / 1000
}

/// Nanoseconds, written as microseconds.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
