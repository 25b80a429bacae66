//! The tracks of a PE: a track for each thread.

use std::collections::BTreeMap;
use std::io::{self, Write};

use memonet_core::unstable::recorder::events::{Deed, Event, Sort, Spot, TextId};
use memonet_core::unstable::wait::Awaited;

use super::causes::{Cause, Causes};
use super::source::{Source, unreadable};
use crate::chrome::{Argument, Group, Span, Timeline, Track, Value};

/// The names of the arguments that describe a call's further operations. Those beyond are counted.
const FURTHER: [&str; 7] = ["then", "then 2", "then 3", "then 4", "then 5", "then 6", "then 7"];

/// The first and the last moment of a timeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) origin: u64,
    pub(super) end: u64,
}

/// Draws the tracks of a PE, whose place is that of its source. Gives the number of its events.
pub(super) fn draw<W: Write>(
    (place, source): (usize, &Source<'_>),
    causes: &Causes,
    bounds: Bounds,
    group: Group,
    timeline: &mut Timeline<W>,
) -> io::Result<u64> {
    let mut pe = Pe { source, place, causes, bounds, timeline, group, threads: BTreeMap::new() };
    let mut events = 0;
    for event in source.events.iter() {
        let (number, event) = event.map_err(unreadable)?;
        events += 1;
        pe.add(number, event)?;
    }
    pe.finish()?;
    Ok(events)
}

/// A PE whose tracks are being drawn.
struct Pe<'a, 'b, W> {
    source: &'a Source<'b>,
    place: usize,
    causes: &'a Causes,
    bounds: Bounds,
    timeline: &'a mut Timeline<W>,
    group: Group,
    threads: BTreeMap<u16, Thread>,
}

/// A thread of a PE.
struct Thread {
    track: Track,
    /// The last call, with what belongs to it.
    call: Option<Call>,
    /// Until when the track is taken.
    until: u64,
}

/// A call with what belongs to it.
struct Call {
    number: u64,
    event: Event,
    /// The first operations beyond the one of the call's own event.
    operations: Vec<Event>,
    /// How many more there are, and their bytes.
    more: (u64, u64),
    /// The arrows that begin at its operations.
    arrows: Vec<u64>,
    waits: Vec<Event>,
}

impl<W: Write> Pe<'_, '_, W> {
    /// Adds the next event. A call is drawn when all that belongs to it is known.
    fn add(&mut self, number: u64, event: Event) -> io::Result<()> {
        self.open(&event)?;
        match event.sort {
            Sort::Thread => return Ok(()),
            Sort::Call => {
                self.close_call(event.thread)?;
                let arrows = self.causes.arrows_from((self.place, number)).to_vec();
                let (operations, waits) = (Vec::new(), Vec::new());
                let call = Call { number, event, operations, more: (0, 0), arrows, waits };
                self.thread(event.thread).call = Some(call);
            }
            Sort::Operation => {
                let arrows = self.causes.arrows_from((self.place, number));
                if let Some(call) = &mut self.thread(event.thread).call {
                    call.arrows.extend(arrows);
                    call.add(event);
                }
            }
            Sort::Wait => {
                let call = self.thread(event.thread).call.as_mut();
                let is_inside = |call: &Call| call.event.end.is_none_or(|end| event.start <= end);
                match call.filter(|call| is_inside(call)) {
                    Some(call) => call.waits.push(event),
                    None => {
                        self.close_call(event.thread)?;
                        self.draw_wait(&event, None, (0, u64::MAX), None)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn thread(&mut self, number: u16) -> &mut Thread {
        self.threads.get_mut(&number).expect("opened with its first event")
    }

    /// Adds the track of an event's thread, if there is none yet.
    fn open(&mut self, event: &Event) -> io::Result<()> {
        if self.threads.contains_key(&event.thread) {
            return Ok(());
        }
        let named = self.source.events.text(event.name).filter(|_| event.sort == Sort::Thread);
        let name = match (event.thread, named) {
            (0, _) => format!("PE {}", self.source.pe),
            (number, Some(named)) => format!("PE {} thread {number} ({named})", self.source.pe),
            (number, None) => format!("PE {} thread {number}", self.source.pe),
        };
        let track = self.timeline.track(self.group, &name)?;
        self.threads.insert(event.thread, Thread { track, call: None, until: 0 });
        Ok(())
    }

    /// Draws what is left, and how the PE has ended.
    fn finish(&mut self) -> io::Result<()> {
        let numbers: Vec<u16> = self.threads.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.close_call(number))?;
        let Some(track) = self.threads.values().next().map(|thread| thread.track) else {
            return Ok(());
        };
        let missing = self.source.events.missing();
        let from = self.threads.values().map(|thread| thread.until).max().unwrap_or(0);
        let to = self.end_of_pe().max(from);
        if missing > 0 {
            let name = format!("{missing} events missing: there was no room");
            self.timeline.slice(track, &name, Span { start: from, end: to }, &[])?;
        }
        if let Some((at, how)) = &self.source.ended {
            self.timeline.mark(track, how, at.saturating_sub(self.bounds.origin).max(from))?;
        }
        Ok(())
    }

    /// A moment of the PE as one of the timeline.
    fn time(&self, nanos: u64) -> u64 {
        let time = self.source.time(nanos).clamp(self.bounds.origin, self.bounds.end);
        time - self.bounds.origin
    }

    /// When what has no end has ended.
    fn end_of_pe(&self) -> u64 {
        let ended = self.source.ended.as_ref().map(|(at, _)| *at);
        ended.unwrap_or(self.bounds.end).saturating_sub(self.bounds.origin)
    }

    /// The time of an event, between these moments.
    fn span(&self, event: &Event, (from, to): (u64, u64)) -> Span {
        let start = self.time(event.start).clamp(from, to);
        let end = event.end.map_or_else(|| self.end_of_pe(), |end| self.time(end));
        Span { start, end: end.clamp(start, to) }
    }

    /// Draws a thread's last call.
    fn close_call(&mut self, number: u16) -> io::Result<()> {
        let thread = self.thread(number);
        let (track, until) = (thread.track, thread.until);
        let Some(call) = thread.call.take() else { return Ok(()) };
        let span = self.span(&call.event, (until, u64::MAX));
        self.thread(number).until = span.end;
        let cause = self.causes.of((self.place, call.number)).copied();
        let name = self.source.events.text(call.event.name).unwrap_or_else(|| "?".into());
        let arguments = self.arguments(&call, cause.as_ref(), span);
        self.timeline.slice(track, &name, span, &arguments)?;
        for &arrow in &call.arrows {
            self.timeline.arrow_from(track, arrow, span.start)?;
        }
        if let (Some(cause), true) = (cause, call.waits.is_empty()) {
            // The call may have begun before what it then found done.
            let latest = span.end.saturating_sub(1).max(span.start);
            let at = self.behind(&cause).clamp(span.start, latest);
            self.timeline.arrow_to(track, cause.arrow, at)?;
        }
        let ended = cause.and_then(|cause| self.ended_by(&cause, &call.waits, span));
        let mut from = span.start;
        for (at, wait) in call.waits.iter().enumerate() {
            let cause = cause.filter(|_| ended == Some(at));
            from = self.draw_wait(wait, Some(&call.event), (from, span.end), cause)?;
        }
        match cause.filter(|_| ended.is_none() && !call.waits.is_empty()) {
            Some(cause) => self.draw_cause(track, cause, Span { start: from, end: span.end }),
            None => Ok(()),
        }
    }

    /// Which of a call's waits something has ended: the first one that ended after it had begun. If
    /// there is none, the call found it done later, when it waited no more. If it began after the
    /// call, clocks of two hosts differ: then it is the last wait.
    fn ended_by(&self, cause: &Cause, waits: &[Event], call: Span) -> Option<usize> {
        let is_after =
            |wait: &Event| wait.end.is_none_or(|end| self.source.time(end) > cause.start);
        let last = waits.len().checked_sub(1);
        let is_later = cause.start.saturating_sub(self.bounds.origin) >= call.end;
        waits.iter().position(is_after).or(last.filter(|_| is_later))
    }

    /// Draws a wait, with what has ended it. Gives its end.
    fn draw_wait(
        &mut self,
        wait: &Event,
        call: Option<&Event>,
        (from, to): (u64, u64),
        cause: Option<Cause>,
    ) -> io::Result<u64> {
        let thread = self.thread(wait.thread);
        let (track, until) = (thread.track, thread.until);
        let span = self.span(wait, (if call.is_some() { from } else { until }, to));
        let what = match wait.deed {
            Deed::Wait(what) => name_of(what),
            _ => "waits",
        };
        let mut arguments: Vec<Argument<'_>> = Vec::new();
        if let Some(Deed::Word { cmp, value, .. }) = call.map(|call| call.deed) {
            arguments.push(("for", format!("{} {value}", cmp).into()));
        }
        self.timeline.slice(track, what, span, &arguments)?;
        if call.is_none() {
            self.thread(wait.thread).until = span.end;
        }
        if let Some(cause) = cause {
            self.draw_cause(track, cause, span)?;
        }
        Ok(span.end)
    }

    /// Draws what something has ended, from the moment at which it was there.
    fn draw_cause(&mut self, track: Track, cause: Cause, span: Span) -> io::Result<()> {
        let (since, name) = match cause.is_write {
            true => (cause.end, format!("written by PE {}", cause.pe)),
            false => (cause.start, format!("PE {} came last", cause.pe)),
        };
        let origin = self.bounds.origin;
        // A viewer fastens the arrow to a slice, which therefore has a length, and the arrow room.
        let before_end = |nanos: u64| span.end.saturating_sub(nanos).max(span.start);
        let start = since.saturating_sub(origin).clamp(span.start, before_end(2));
        let took = span.end.saturating_sub(cause.start.saturating_sub(origin));
        let arguments = [("ns since it began", took.into())];
        self.timeline.slice(track, &name, Span { start, end: span.end }, &arguments)?;
        let at = self.behind(&cause).clamp(start, before_end(1));
        self.timeline.arrow_to(track, cause.arrow, at)
    }

    /// The first moment at which the arrow from a cause may end. Perfetto reads events of one
    /// moment in the order of the file, and drops an arrow whose end it reads first.
    fn behind(&self, cause: &Cause) -> u64 {
        cause.start.saturating_sub(self.bounds.origin).saturating_add(1)
    }

    /// The arguments of a call.
    fn arguments(&self, call: &Call, cause: Option<&Cause>, span: Span) -> Vec<Argument<'static>> {
        let event = &call.event;
        let text = |id: TextId| self.source.events.text(id);
        let mut all: Vec<Argument<'static>> = Vec::new();
        match event.deed {
            Deed::Operation { kind, at, bytes, value } => {
                all.push(("operation", kind.name().into()));
                all.push(("target", format!("PE {}", at.pe).into()));
                all.push(("bytes", bytes.into()));
                all.extend(offset_of(at));
                all.extend(value.map(|value| ("value", value.into())));
            }
            Deed::Word { at, bytes, cmp, value } => {
                all.push(("waits for", format!("{} {value}", cmp).into()));
                all.push(("bytes", bytes.into()));
                all.extend(offset_of(at));
            }
            Deed::Team { members, bytes, .. } => {
                let members = text(members).unwrap_or_default();
                all.push(("team", format!("PE {members}").into()));
                all.extend((bytes > 0).then(|| ("bytes", bytes.into())));
            }
            Deed::Phase { members, arrives, .. } => {
                let members = text(members).unwrap_or_default();
                let what = if arrives { "arrives at the barrier of" } else { "waits for" };
                all.push((what, format!("PE {members}").into()));
            }
            Deed::None | Deed::Wait(_) => {}
        }
        let further = call.operations.iter().zip(FURTHER);
        all.extend(further.map(|(event, key)| (key, describe(&event.deed).into())));
        if call.more.0 > 0 {
            all.push(("further operations", call.more.0.into()));
            all.push(("their bytes", call.more.1.into()));
        }
        if let Some(cause) = cause {
            let came = cause.start.saturating_sub(self.bounds.origin);
            all.push((
                if cause.is_write { "written by" } else { "came last" },
                format!("PE {}, {}", cause.pe, Since(span.start, came)).into(),
            ));
        }
        all.extend(text(event.window).map(|made| ("window made at", Value::from(made))));
        all.extend(text(event.place).map(|place| ("called at", Value::from(place))));
        if event.end.is_none() {
            all.push(("unfinished", "it was in this call when it ended".into()));
        }
        all
    }
}

impl Call {
    /// Adds an operation.
    fn add(&mut self, event: Event) {
        if self.operations.len() < FURTHER.len() {
            self.operations.push(event);
        } else {
            let bytes = match event.deed {
                Deed::Operation { bytes, .. } => bytes,
                _ => 0,
            };
            self.more = (self.more.0 + 1, self.more.1.saturating_add(bytes));
        }
    }
}

/// The beginning of a call, and a moment that is told as one before or after it.
struct Since(u64, u64);

impl std::fmt::Display for Since {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let apart = self.0.abs_diff(self.1);
        let when = if self.1 < self.0 { "before" } else { "after" };
        match apart {
            0..1000 => write!(f, "{apart} ns {when} this call began"),
            _ => write!(f, "{}.{} us {when} this call began", apart / 1000, apart / 100 % 10),
        }
    }
}

fn offset_of(at: Spot) -> Vec<Argument<'static>> {
    let Some((region, offset)) = at.offset else { return Vec::new() };
    let region = (region > 0).then(|| ("region", u64::from(region).into()));
    region.into_iter().chain([("offset", offset.into())]).collect()
}

fn describe(deed: &Deed) -> String {
    let offset = |at: &Spot| at.offset.map_or_else(String::new, |(_, at)| format!(", offset {at}"));
    match deed {
        Deed::Operation { kind, at, bytes, value } => {
            let value = value.map_or_else(String::new, |value| format!(", value {value}"));
            format!("{}, PE {}, {bytes} bytes{}{value}", kind.name(), at.pe, offset(at))
        }
        Deed::Word { at, cmp, value, .. } => {
            format!("waits for {cmp} {value}{}", offset(at))
        }
        Deed::Phase { arrives: true, .. } => "arrives at the barrier".into(),
        Deed::Phase { arrives: false, .. } => "waits for the barrier".into(),
        _ => String::new(),
    }
}

fn name_of(what: Awaited) -> &'static str {
    match what {
        Awaited::Word | Awaited::WordOf => "waits for a word",
        Awaited::Lock => "waits for a lock",
        Awaited::Barrier => "waits for a barrier",
        Awaited::Step => "waits for members",
        Awaited::Channel => "waits for a channel",
        Awaited::Leave => "waits for the others to leave",
        Awaited::Peer => "waits for a far PE",
    }
}
