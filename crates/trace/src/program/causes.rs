//! Which event has ended which wait.
//!
//! *A wait for a word* that ended at some moment was ended by the last write of that word, by any
//! PE, that began before that moment, of those whose value is not known to fail the comparison.
//! Clocks of two hosts agree only so far. So what was late by the clocks first corrects them
//! ([`agreed`](super::agreed)), and then no arrow leads back in time.
//!
//! *A call of a team* waits for the member that calls last. The k-th call of one member meets the
//! k-th call of each other: all members make the calls of a team in one order. So it is with the
//! arrivals at a barrier for which PEs wait in another call: such a wait is for the last arrival of
//! its PE.

use std::collections::{BTreeMap, HashMap};
use std::io;

use memonet_core::Cmp;
use memonet_core::unstable::recorder::Kind;
use memonet_core::unstable::recorder::events::{Deed, Event, Sort};

use super::firsts::{Firsts, signed};
use super::source::{Source, unreadable};

/// An event, by the place of its PE's source and its number there.
pub(super) type Key = (usize, u64);

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cause {
    /// The number of the arrow.
    pub(super) arrow: u64,
    /// The PE that ended the wait.
    pub(super) pe: usize,
    /// When its event began and ended, by the timeline's clock.
    pub(super) start: u64,
    pub(super) end: u64,
    /// It has written the word; else, it came last.
    pub(super) is_write: bool,
}

/// The causes of waits in all events of a job.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// By the call that waits.
    of: HashMap<Key, Cause>,
    /// The arrows that begin at an event.
    arrows_from: HashMap<Key, Vec<u64>>,
    /// The first and the last moment of all events.
    pub(super) first: u64,
    pub(super) last: u64,
    arrows: u64,
}

/// Nanoseconds between the beginning of a cause and the end of a wait, at least: an arrow ends
/// later than it begins, and before the wait does.
pub(super) const ROOM: u64 = 2;

/// A word: PE, region and offset.
type Word = (u32, u16, u64);

/// All waits for words.
type Waits = BTreeMap<Word, Vec<Wait>>;

/// A wait for a word.
struct Wait {
    by: Key,
    end: u64,
    cmp: Cmp,
    value: u64,
    bytes: u64,
}

/// A write to a word that somebody waits for.
struct Written {
    by: Key,
    pe: usize,
    start: u64,
    end: u64,
    /// The word's new value, where it is known.
    value: Option<u64>,
}

/// The calls of teams, and the phases of barriers with two calls for a phase.
type Meetings = HashMap<Meeting, Vec<Member>>;

/// A call of a team, or a phase of a barrier.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Meeting {
    slot: u32,
    members: String,
    is_phase: bool,
    /// How many came before it.
    number: u64,
}

/// What a member does in a meeting.
#[derive(Clone, Copy)]
struct Member {
    by: Key,
    pe: usize,
    start: u64,
    /// When its wait has ended, if it has, where it waits here.
    end: Option<u64>,
    /// Whether it comes here: it may have come before, and only wait here.
    comes: bool,
}

/// How many meetings of each sort a PE has come to.
#[derive(Default)]
struct Passed(HashMap<(u32, String, bool), u64>);

impl Passed {
    /// The meeting to which an event belongs, and whether the PE comes to it by this event.
    fn meeting(&mut self, event: &Event, source: &Source<'_>) -> Option<(Meeting, bool)> {
        let (slot, members, is_phase, comes) = match event.deed {
            Deed::Team { slot, members, .. } if event.sort == Sort::Call => {
                (slot, members, false, true)
            }
            Deed::Phase { slot, members, arrives } => (slot, members, true, arrives),
            _ => return None,
        };
        // Not by the text's number: a team that comes after another one in its slot has its own.
        let members = source.events.text(members).unwrap_or_default();
        let passed = self.0.entry((slot, members.clone(), is_phase)).or_default();
        *passed += u64::from(comes);
        // A wait for a phase at which no event arrives.
        let number = passed.checked_sub(1)?;
        Some((Meeting { slot, members, is_phase, number }, comes))
    }
}

impl Causes {
    /// Reads all events twice.
    pub(super) fn find(sources: &[Source<'_>]) -> io::Result<Causes> {
        let mut causes = Causes { first: u64::MAX, ..Causes::default() };
        let (waits, meetings) = causes.read_waits(sources)?;
        let mut writes = read_writes(sources, &waits)?;
        writes.values_mut().for_each(|writes| writes.sort_by_key(|write| write.start));
        // A call may wait for several words: the latest write has ended it.
        let mut found: BTreeMap<Key, &Written> = BTreeMap::new();
        for (word, waits) in &waits {
            let Some(writes) = writes.get(word) else { continue };
            for wait in waits {
                let Some(write) = last_before(writes, wait) else { continue };
                let known = found.entry(wait.by).or_insert(write);
                if known.start < write.start {
                    *known = write;
                }
            }
        }
        for (wait, write) in found {
            let Written { by, pe, start, end, .. } = *write;
            causes.add(wait, by, Cause { arrow: 0, pe, start, end, is_write: true });
        }
        let mut meetings: Vec<_> = meetings.into_iter().collect();
        meetings.sort_by(|one, other| one.0.cmp(&other.0));
        meetings.iter().for_each(|(_, members)| causes.add_meeting(members));
        causes.first = causes.first.min(causes.last);
        Ok(causes)
    }

    /// The cause of the end of a call's waits.
    pub(super) fn of(&self, call: Key) -> Option<&Cause> {
        self.of.get(&call)
    }

    /// The arrows that begin at an event.
    pub(super) fn arrows_from(&self, event: Key) -> &[u64] {
        self.arrows_from.get(&event).map_or(&[], Vec::as_slice)
    }

    /// The number of arrows.
    pub(super) fn arrows(&self) -> u64 {
        self.arrows
    }

    fn add(&mut self, wait: Key, by: Key, cause: Cause) {
        self.arrows += 1;
        self.arrows_from.entry(by).or_default().push(self.arrows);
        self.of.insert(wait, Cause { arrow: self.arrows, ..cause });
    }

    fn add_meeting(&mut self, members: &[Member]) {
        let came = members.iter().filter(|member| member.comes);
        let Some(&last) = came.max_by_key(|member| member.start) else { return };
        let Member { by, pe, start, end, .. } = last;
        let cause = Cause { arrow: 0, pe, start, end: end.unwrap_or(start), is_write: false };
        // A call without an end may wait still, and one that ended before was for a limited time.
        let was_met = |end: u64| end >= start.saturating_add(ROOM);
        let others = members.iter().filter(|member| member.pe != pe);
        let met = others.filter(|member| member.end.is_some_and(was_met));
        met.for_each(|member| self.add(member.by, by, cause));
    }

    /// Reads what waits.
    fn read_waits(&mut self, sources: &[Source<'_>]) -> io::Result<(Waits, Meetings)> {
        let (mut waits, mut meetings) = (Waits::new(), Meetings::new());
        for (place, source) in sources.iter().enumerate() {
            let mut calls = Calls::default();
            let mut passed = Passed::default();
            for event in source.events.iter() {
                let (number, event) = event.map_err(unreadable)?;
                let start = source.time(event.start);
                let end = event.end.map(|end| source.time(end));
                self.first = self.first.min(start);
                self.last = self.last.max(end.unwrap_or(start));
                let Some((call, end)) = calls.call_of(number, &event) else { continue };
                let (by, end) = ((place, call), end.map(|end| source.time(end)));
                if let (Deed::Word { at, bytes, cmp, value }, Some(end)) = (event.deed, end) {
                    let Some((region, offset)) = at.offset else { continue };
                    let wait = Wait { by, end, cmp, value, bytes };
                    waits.entry((at.pe, region, offset)).or_default().push(wait);
                }
                if let Some((meeting, comes)) = passed.meeting(&event, source) {
                    // An arrival is an event of its own, and ends no wait.
                    let is_arrival = meeting.is_phase && comes;
                    let by = if is_arrival { (place, number) } else { by };
                    let end = end.filter(|_| !is_arrival);
                    let member = Member { by, pe: source.pe, start, end, comes };
                    meetings.entry(meeting).or_default().push(member);
                }
            }
        }
        Ok((waits, meetings))
    }
}

/// The calls in which the threads of a PE are, by the number and the end of each.
#[derive(Default)]
struct Calls(HashMap<u16, (u64, Option<u64>)>);

impl Calls {
    /// The number and the end of the call that an event is, or in which it is an operation. Others
    /// are drawn without arrows.
    fn call_of(&mut self, number: u64, event: &Event) -> Option<(u64, Option<u64>)> {
        match event.sort {
            Sort::Call => {
                self.0.insert(event.thread, (number, event.end));
                Some((number, event.end))
            }
            Sort::Operation => self.0.get(&event.thread).copied(),
            Sort::Wait => {
                // One that begins after the call has ended is drawn behind it.
                let (_, end) = self.0.get(&event.thread)?;
                if end.is_some_and(|end| end < event.start) {
                    self.0.remove(&event.thread);
                }
                None
            }
            Sort::Thread => None,
        }
    }
}

/// All writes to words that somebody waits for.
fn read_writes(sources: &[Source<'_>], waits: &Waits) -> io::Result<HashMap<Word, Vec<Written>>> {
    let mut writes: HashMap<Word, Vec<Written>> = HashMap::new();
    if waits.is_empty() {
        return Ok(writes);
    }
    for (place, source) in sources.iter().enumerate() {
        let mut calls = Calls::default();
        for event in source.events.iter() {
            let (number, event) = event.map_err(unreadable)?;
            let is_in_call = calls.call_of(number, &event).is_some();
            let Deed::Operation { kind, at, bytes, value } = event.deed else { continue };
            if !is_in_call {
                continue;
            }
            let Some((region, offset)) = at.offset.filter(|_| writes_memory(kind)) else {
                continue;
            };
            let start = source.time(event.start);
            let end = event.end.map_or(start, |end| source.time(end));
            let range = (at.pe, region, offset)..(at.pe, region, offset.saturating_add(bytes));
            for (&word, _) in waits.range(range) {
                // Of a block, it is known where it was written, and not what.
                let value = value.filter(|_| word.2 == offset && is_value(kind));
                let written = Written { by: (place, number), pe: source.pe, start, end, value };
                writes.entry(word).or_default().push(written);
            }
        }
    }
    Ok(writes)
}

fn writes_memory(kind: Kind) -> bool {
    !matches!(kind, Kind::Get | Kind::Load)
}

/// Whether the value of an operation is what it writes.
fn is_value(kind: Kind) -> bool {
    matches!(kind, Kind::Store)
}

/// The last of the writes that began before a wait ended, and may have ended it.
fn last_before<'a>(writes: &'a [Written], wait: &Wait) -> Option<&'a Written> {
    let before = writes.partition_point(|write| write.start.saturating_add(ROOM) <= wait.end);
    let may = |write: &&Written| wait.may_end_by(write);
    writes[..before].iter().rev().find(may)
}

/// What no clock may contradict: some PEs did something before any of these waits ended.
pub(super) struct Order {
    /// When each did so, by the place of its source.
    pub(super) begun: Vec<(usize, u64)>,
    /// When each wait has ended.
    pub(super) ended: Vec<(usize, u64)>,
}

/// What follows from all events, as far as clocks that are up to `slack` nanoseconds off cannot
/// deceive about it.
pub(super) fn orders(sources: &[Source<'_>], slack: u64) -> io::Result<Vec<Order>> {
    let (waits, meetings) = Causes::default().read_waits(sources)?;
    let mut writes = read_writes(sources, &waits)?;
    writes.values_mut().for_each(|writes| writes.sort_by_key(|write| write.start));
    // Of the writes that may have ended the waits of a call, one has: the first at the latest.
    let mut first: BTreeMap<Key, (&Wait, &Written)> = BTreeMap::new();
    for (word, waits) in &waits {
        let Some(writes) = writes.get(word) else { continue };
        let values = || writes.iter().map(|write| write.value);
        let mut firsts: HashMap<u64, Firsts> = HashMap::new();
        for wait in waits {
            let of_size = firsts.entry(wait.bytes);
            let of_size = of_size.or_insert_with(|| Firsts::new(values(), wait.bytes));
            let Some(number) = of_size.first(wait.cmp, wait.value) else { continue };
            let write = &writes[number];
            let known = first.entry(wait.by).or_insert((wait, write));
            if write.start < known.1.start {
                *known = (wait, write);
            }
        }
    }
    let late = |(wait, write): &(&Wait, &Written)| write.start <= wait.end.saturating_add(slack);
    let of_words = first.into_values().filter(late).map(|(wait, write)| Order {
        begun: vec![(write.by.0, write.start)],
        ended: vec![(wait.by.0, wait.end)],
    });
    let mut orders: Vec<_> = of_words.collect();
    for members in meetings.into_values() {
        let came = members.iter().filter(|member| member.comes);
        let begun: Vec<_> = came.map(|member| (member.by.0, member.start)).collect();
        let last = begun.iter().map(|&(_, start)| start).max().unwrap_or(0);
        let ends = members.iter().filter_map(|member| Some((member.by.0, member.end?)));
        // One that ended before was for a limited time.
        let ended = ends.filter(|&(_, end)| end.saturating_add(slack) >= last).collect();
        orders.push(Order { begun, ended });
    }
    Ok(orders)
}

impl Wait {
    /// Whether a write may have ended it.
    fn may_end_by(&self, write: &Written) -> bool {
        write.value.is_none_or(|value| self.holds(value))
    }

    /// Whether a value may end the wait. Order is that of unsigned or of signed numbers: the word
    /// does not say which.
    fn holds(&self, value: u64) -> bool {
        let [there, wanted] = [value, self.value].map(|bits| signed(bits, self.bytes));
        self.cmp.holds(value, self.value) || self.cmp.holds(there, wanted)
    }
}
