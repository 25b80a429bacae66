//! What the recorder adds to a timeline: events.

use super::events::log::{Log, Slot};
use super::events::{Deed, Event, Sort, Spot, TextId};
use super::{CURRENT, Current, Kind, MAPPED, RECORDED, Recorder};
use crate::base::compare::Cmp;
use crate::endpoint::awaiting::Awaited;
use crate::endpoint::callers;
use crate::endpoint::fabric::FarAddress;
use crate::endpoint::pe::Pe;
use std::panic::Location;
use std::sync::OnceLock;

/// The path of this library's source, with which places in it begin: a program has not made those
/// calls.
const OWN_PATH: &str = own_path();

const fn own_path() -> &'static str {
    const TAIL: &str = "endpoint/recorder/timeline.rs";
    let (path, _) = file!().split_at(file!().len() - TAIL.len());
    path
}

/// An event that begins now.
fn event(log: &Log, sort: Sort, now: u64, deed: Deed) -> Event {
    Event {
        sort,
        thread: log.thread(now),
        start: now,
        end: None,
        name: TextId::NONE,
        place: TextId::NONE,
        window: TextId::NONE,
        deed,
    }
}

/// Begins the event of a call.
pub(super) fn call(
    log: &Log,
    now: u64,
    name: &'static str,
    at: &'static Location<'static>,
    window: Option<&'static Location<'static>>,
) -> Option<Slot> {
    let is_hidden = callers::are_known();
    let place =
        |place: &'static Location<'static>| match is_hidden || place.file().starts_with(OWN_PATH) {
            true => TextId::NONE,
            false => log.place(place),
        };
    let caller = callers::place().map(|text| log.text(text));
    log.append(&Event {
        name: log.text(name),
        place: caller.unwrap_or_else(|| place(at)),
        window: window.map_or(TextId::NONE, place),
        ..event(log, Sort::Call, now, Deed::None)
    })
}

/// Begins the event of a wait.
pub(super) fn wait(log: &Log, now: u64, what: Awaited) -> Option<Slot> {
    log.append(&event(log, Sort::Wait, now, Deed::Wait(what)))
}

impl Recorder {
    /// Ends an event.
    pub(super) fn end(&self, event: Option<Slot>, now: u64) {
        if let (Some(log), Some(slot)) = (&self.log, event) {
            log.end(slot, now);
        }
    }

    /// Adds an operation to the timeline.
    pub(super) fn note_operation(
        &self,
        kind: Kind,
        at: FarAddress,
        bytes: usize,
        value: Option<u64>,
    ) {
        let Some(log) = &self.log else { return };
        let deed = Deed::Operation { kind, at: self.spot(at), bytes: bytes as u64, value };
        self.note(log, deed, kind.name());
    }

    /// Adds a deed to the timeline: to the call that the thread is in, or as an event of its own.
    fn note(&self, log: &Log, deed: Deed, name: &'static str) {
        if !self.is_on() {
            return;
        }
        let current = CURRENT.get();
        let is_in_call = std::ptr::eq(current.of, self);
        match current.event.filter(|_| is_in_call && !current.described) {
            Some(call) => {
                CURRENT.set(Current { described: true, ..current });
                log.describe(call, &deed);
            }
            // The call's own event is missing.
            None if is_in_call && !current.described => {}
            None if is_in_call => {
                let event = event(log, Sort::Operation, self.nanos(), deed);
                log.append(&event);
            }
            None => {
                let (now, name) = (self.nanos(), log.text(name));
                let event = event(log, Sort::Call, now, deed);
                log.append(&Event { name, end: Some(now), ..event });
            }
        }
    }

    /// Where a recorded address leads.
    fn spot(&self, at: FarAddress) -> Spot {
        let offset = match at.region & MAPPED != 0 {
            true => self.place_of(at.pe as usize, at.offset as usize),
            // Regions are fewer than that.
            false => Some(((at.region & !RECORDED) as u16, at.offset)),
        };
        Spot { pe: at.pe, offset }
    }

    /// Region and offset of the byte at an address of this process, in the memory of a PE.
    fn place_of(&self, pe: usize, address: usize) -> Option<(u16, u64)> {
        let in_segment = self.offset_in_segment(pe, address).map(|at| (0, at));
        in_segment.or_else(|| self.mapped.place(address))
    }

    /// Where in a PE's segment the byte at an address of this process lies. `None` in other memory.
    fn offset_in_segment(&self, pe: usize, address: usize) -> Option<u64> {
        let (mapping, geometry) = (self.control.mapping(), self.control.geometry());
        let offset = address.checked_sub(mapping.at(0) as usize)? as u64;
        let offset = offset.checked_sub(geometry.segment(pe))?;
        (offset < geometry.segment_stride).then_some(offset)
    }

    #[cold]
    fn note_word(&self, word: *const u8, bytes: usize, cmp: Cmp, value: u64) {
        self.note_word_at(self.place_of(self.me, word as usize), bytes, cmp, value);
    }

    fn note_word_at(&self, offset: Option<(u16, u64)>, bytes: usize, cmp: Cmp, value: u64) {
        let Some(log) = &self.log else { return };
        let at = Spot { pe: self.me as u32, offset };
        self.note(log, Deed::Word { at, bytes: bytes as u64, cmp, value }, "wait");
    }

    #[cold]
    fn note_phase(&self, slot: usize, label: &OnceLock<TextId>, members: &[usize], arrives: bool) {
        let Some(log) = &self.log else { return };
        let members = *label.get_or_init(|| log.add_text(&ranges(members)));
        let name = if arrives { "arrive" } else { "wait" };
        self.note(log, Deed::Phase { slot: slot as u32, members, arrives }, name);
    }

    #[cold]
    fn note_team(&self, slot: usize, label: &OnceLock<TextId>, members: &[usize], bytes: usize) {
        let Some(log) = &self.log else { return };
        let current = CURRENT.get();
        let is_open = std::ptr::eq(current.of, self) && !current.described;
        let Some(call) = current.event.filter(|_| is_open) else { return };
        CURRENT.set(Current { described: true, ..current });
        let members = *label.get_or_init(|| log.add_text(&ranges(members)));
        log.describe(call, &Deed::Team { slot: slot as u32, members, bytes: bytes as u64 });
    }
}

impl Pe {
    /// Says for a timeline which word of this PE's memory its call waits for.
    #[inline(always)]
    pub(crate) fn note_word(&self, word: *const u8, bytes: usize, cmp: Cmp, value: u64) {
        if let Some(recorder) = self.recorder() {
            recorder.note_word(word, bytes, cmp, value);
        }
    }

    /// [`note_word`](Self::note_word) by the word's offset in this PE's segment, if it has one.
    #[cold]
    pub(crate) fn note_word_at(&self, offset: Option<u64>, bytes: usize, cmp: Cmp, value: u64) {
        if let Some(recorder) = self.recorder() {
            recorder.note_word_at(offset.map(|at| (0, at)), bytes, cmp, value);
        }
    }

    /// Says for timelines that the part of a restricted window with this region is mapped here, or,
    /// without a length, no longer.
    pub(crate) fn note_mapped(&self, region: u32, base: *const u8, len: usize) {
        if let Some(recorder) = self.recorder() {
            recorder.mapped.set(region as u16, base as usize, len);
        }
    }

    /// Says for a timeline that its call is one of all members of a team, to which this PE gives so
    /// many bytes. `label` keeps the members as a text, from the first time on.
    #[inline(always)]
    pub(crate) fn note_team(
        &self,
        slot: usize,
        label: &OnceLock<TextId>,
        members: &[usize],
        bytes: usize,
    ) {
        if let Some(recorder) = self.recorder() {
            recorder.note_team(slot, label, members, bytes);
        }
    }

    /// Says for a timeline that its call arrives at a barrier, or has to wait for the phase at
    /// which this PE arrived last. `label` is as in [`note_team`](Self::note_team).
    #[inline(always)]
    pub(crate) fn note_phase(
        &self,
        slot: usize,
        label: &OnceLock<TextId>,
        members: &[usize],
        arrives: bool,
    ) {
        if let Some(recorder) = self.recorder() {
            recorder.note_phase(slot, label, members, arrives);
        }
    }
}

/// PEs as a text: `0-3, 8`. Where they are many, the first and their number.
fn ranges(pes: &[usize]) -> String {
    const MOST: usize = 16;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &pe in pes {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == pe => *last = pe,
            _ => runs.push((pe, pe)),
        }
    }
    let run = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let mut texts: Vec<String> = runs.iter().take(MOST).map(run).collect();
    if runs.len() > MOST {
        texts.push(format!("... ({} PEs)", pes.len()));
    }
    texts.join(", ")
}
