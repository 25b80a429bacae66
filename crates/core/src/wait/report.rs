//! Reports: what a thread waits for, as plain data, and as bytes that travel to the launcher.
//!
//! A PE writes the bytes into shared memory. The launcher reads them there, or gets them from an
//! agent, and believes nothing of them: [`Report::read`] gives a report or nothing, whatever the
//! bytes are, and what it gives is bounded by their number.
//!
//! Numbers are little-endian. A text has a byte for its length before it. A set of PEs has its
//! number of runs before it, and of each run the first and the last PE. The caller comes last: a
//! report without it is a report, too, to which it may be added.

use super::{Awaited, Words};
use crate::base::layout::REPORT_BYTES;
pub use crate::endpoint::callers::Instruction;

/// What a thread of a PE waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The thread's number in its process.
    pub thread: u32,
    /// For how long it has waited, in nanoseconds of its own time.
    pub waited: u64,
    /// When the wait began, in a unit of its own: it tells the waits of a thread apart.
    pub begun: u64,
    /// Whether a time limit ends the wait.
    pub limited: bool,
    /// Whether the times are those of a simulated machine.
    pub simulated: bool,
    /// The purpose of the wait.
    pub what: Awaited,
    /// The function of the program's call, where it is known.
    pub call: String,
    /// Its place in the source, where it is known.
    pub at: String,
    /// The instruction that made it, where the program has no lines to tell.
    pub caller: Option<Instruction>,
    /// Where the window was made that the call uses, if it uses one.
    pub window: String,
    /// The collective call of a team that the thread is in: the team's slot, and how many calls of
    /// the team came before.
    pub team: Option<(u64, u64)>,
    /// The phase of a barrier, or the step of a call: slot and number.
    pub meeting: Option<(u64, u64)>,
    /// The PEs that the wait depends on; `None`: all.
    pub members: Option<Pes>,
    /// Those of them that have done their part, where that can be seen.
    pub done: Pes,
    /// Those of them of which can be seen that they have not.
    pub missing: Pes,
    /// The lock, by its place in all segments.
    pub lock: Option<u64>,
    /// The PEs that hold it, where that can be seen.
    pub holders: Pes,
    /// The words that the wait looks at.
    pub words: Option<Words>,
    /// What the one PE has still to do for which a call of a fabric waits.
    pub outstanding: Option<String>,
}

/// Some PEs, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Pes {
    /// The PEs.
    pub all: Vec<usize>,
    /// Whether there was no room for further ones.
    pub cut: bool,
}

impl Pes {
    /// The set of these PEs.
    pub fn of(pes: impl IntoIterator<Item = usize>) -> Pes {
        let mut all: Vec<usize> = pes.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        Pes { all, cut: false }
    }

    /// Whether a PE is one of them.
    pub fn has(&self, pe: usize) -> bool {
        self.all.binary_search(&pe).is_ok()
    }
}

/// Most bytes of a text.
const TEXT: usize = 120;
/// Most bytes of the path of an object file. Nothing is told of one with a longer path.
const PATH: usize = 220;
/// Most runs of a set.
const RUNS: usize = 56;
/// Most words of a report.
const WORDS: usize = 4;
const _: () =
    assert!(96 + 4 * (TEXT + 1) + PATH + 9 + 4 * (4 + 4 * RUNS) + (WORDS + 2) * 48 < REPORT_BYTES);

const LIMITED: u8 = 1;
const SIMULATED: u8 = 2;
const TEAM: u8 = 4;
const MEETING: u8 = 8;
const MEMBERS: u8 = 16;
const LOCK: u8 = 32;
const HAS_WORDS: u8 = 64;
const OUTSTANDING: u8 = 128;

impl Report {
    /// The report as bytes, at most [`REPORT_BYTES`].
    pub fn write(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(512);
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        to.push(
            flag(self.limited, LIMITED)
                | flag(self.simulated, SIMULATED)
                | flag(self.team.is_some(), TEAM)
                | flag(self.meeting.is_some(), MEETING)
                | flag(self.members.is_some(), MEMBERS)
                | flag(self.lock.is_some(), LOCK)
                | flag(self.words.is_some(), HAS_WORDS)
                | flag(self.outstanding.is_some(), OUTSTANDING),
        );
        let what = Awaited::ALL.iter().position(|&what| what == self.what);
        to.push(what.expect("all purposes are listed") as u8);
        to.extend(self.thread.to_le_bytes());
        [self.waited, self.begun].iter().for_each(|number| to.extend(number.to_le_bytes()));
        [&self.call, &self.at, &self.window].into_iter().for_each(|text| put_text(&mut to, text));
        for (slot, number) in [self.team, self.meeting].into_iter().flatten() {
            to.extend(slot.to_le_bytes());
            to.extend(number.to_le_bytes());
        }
        self.members.iter().for_each(|members| put_pes(&mut to, members));
        [&self.done, &self.missing, &self.holders]
            .into_iter()
            .for_each(|set| put_pes(&mut to, set));
        self.lock.iter().for_each(|place| to.extend(place.to_le_bytes()));
        if let Some(words) = &self.words {
            put_words(&mut to, words);
        }
        self.outstanding.iter().for_each(|text| put_text(&mut to, text));
        if let Some(Instruction { object, address }) = self.caller() {
            to.push(object.len() as u8);
            to.extend(object.as_bytes());
            to.extend(address.to_le_bytes());
        }
        to
    }

    /// The caller, if there is room for its path.
    fn caller(&self) -> Option<&Instruction> {
        self.caller.as_ref().filter(|caller| caller.object.len() <= PATH)
    }

    /// The report that these bytes are, if they are one.
    pub fn read(bytes: &[u8]) -> Option<Report> {
        let mut from = Reader(bytes);
        let flags = from.byte()?;
        let has = |flag: u8| flags & flag != 0;
        let what = *Awaited::ALL.get(usize::from(from.byte()?))?;
        let thread = u32::from_le_bytes(from.take()?);
        let [waited, begun] = [from.number()?, from.number()?];
        let [call, at, window] = [from.text()?, from.text()?, from.text()?];
        let team = if has(TEAM) { Some((from.number()?, from.number()?)) } else { None };
        let meeting = if has(MEETING) { Some((from.number()?, from.number()?)) } else { None };
        let members = if has(MEMBERS) { Some(from.pes()?) } else { None };
        let [done, missing, holders] = [from.pes()?, from.pes()?, from.pes()?];
        let lock = if has(LOCK) { Some(from.number()?) } else { None };
        let words = if has(HAS_WORDS) { Some(from.words()?) } else { None };
        let outstanding = if has(OUTSTANDING) { Some(from.text()?) } else { None };
        let caller = if from.0.is_empty() { None } else { Some(from.caller()?) };
        let (limited, simulated) = (has(LIMITED), has(SIMULATED));
        from.0.is_empty().then_some(Report {
            thread,
            waited,
            begun,
            limited,
            simulated,
            what,
            call,
            at,
            caller,
            window,
            team,
            meeting,
            members,
            done,
            missing,
            lock,
            holders,
            words,
            outstanding,
        })
    }
}

/// Adds a text, of which a long one loses its beginning: of a path, the end says more.
fn put_text(to: &mut Vec<u8>, text: &str) {
    let mut from = text.len().saturating_sub(TEXT);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    to.push((text.len() - from) as u8);
    to.extend(&text.as_bytes()[from..]);
}

/// Adds the beginning of a value, which may be any number.
fn put_value(to: &mut Vec<u8>, value: &str) {
    let short: String = value.chars().filter(char::is_ascii).take(32).collect();
    put_text(to, &short);
}

fn put_pes(to: &mut Vec<u8>, pes: &Pes) {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut cut = pes.cut;
    for &pe in &pes.all {
        let room = runs.len() < RUNS;
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == pe => *last = pe,
            _ if room => runs.push((pe, pe)),
            _ => {
                cut = true;
                break;
            }
        }
    }
    to.extend([runs.len() as u8, u8::from(cut)]);
    for (first, last) in runs {
        to.extend((first as u16).to_le_bytes());
        to.extend((last as u16).to_le_bytes());
    }
}

fn put_words(to: &mut Vec<u8>, words: &Words) {
    let Words { address, count, all, comparison, wanted, seen } = words;
    to.extend(address.to_le_bytes());
    to.extend(count.to_le_bytes());
    let seen = &seen[..seen.len().min(WORDS)];
    to.extend([u8::from(*all), seen.len() as u8]);
    put_value(to, comparison);
    put_value(to, wanted);
    for (index, value) in seen {
        to.extend(index.to_le_bytes());
        put_value(to, value);
    }
}

/// Bytes that may be anything.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A text without what a terminal would take for a command.
    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        let text = String::from_utf8_lossy(text);
        Some(text.chars().filter(|letter| !letter.is_control()).collect())
    }

    fn caller(&mut self) -> Option<Instruction> {
        Some(Instruction { object: self.text()?, address: self.number()? })
    }

    fn pes(&mut self) -> Option<Pes> {
        let [runs, cut] = self.take()?;
        let mut all: Vec<usize> = Vec::new();
        for _ in 0..runs {
            let [first, last] = [self.take()?, self.take()?].map(u16::from_le_bytes);
            let behind = all.last().is_none_or(|&before| before < usize::from(first));
            if first > last || !behind {
                return None;
            }
            all.extend(usize::from(first)..=usize::from(last));
        }
        Some(Pes { all, cut: cut != 0 })
    }

    fn words(&mut self) -> Option<Words> {
        let [address, count] = [self.number()?, self.number()?];
        let [all, seen] = self.take()?;
        let [comparison, wanted] = [self.text()?, self.text()?];
        let seen = (0..seen).map(|_| Some((self.number()?, self.text()?)));
        let seen = seen.collect::<Option<Vec<_>>>()?;
        Some(Words { address, count, all: all != 0, comparison, wanted, seen })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn largest() -> Report {
        let odd = Pes::of((0..4096).filter(|pe| pe % 2 == 1));
        let word = (u64::MAX, "x".repeat(100));
        Report {
            thread: u32::MAX,
            waited: u64::MAX,
            begun: 1,
            limited: true,
            simulated: false,
            what: Awaited::Step,
            call: "ä".repeat(200),
            at: format!("{}/src/main.rs:7", "long/".repeat(50)),
            caller: Some(Instruction { object: "/".repeat(PATH), address: u64::MAX }),
            window: "w".repeat(300),
            team: Some((255, u64::MAX)),
            meeting: Some((1, 2)),
            members: Some(odd.clone()),
            done: odd.clone(),
            missing: odd.clone(),
            lock: Some(u64::MAX),
            holders: odd,
            words: Some(Words {
                address: 1,
                count: 9,
                all: true,
                comparison: ">=".into(),
                wanted: "5".into(),
                seen: vec![word; 9],
            }),
            outstanding: Some("o".repeat(300)),
        }
    }

    #[test]
    fn the_largest_report_has_room_and_keeps_what_matters() {
        let bytes = largest().write();
        assert!(bytes.len() <= REPORT_BYTES, "{}", bytes.len());
        let read = Report::read(&bytes).unwrap();
        assert!(read.at.ends_with("/src/main.rs:7") && read.call.ends_with('ä'));
        assert_eq!(read.caller, largest().caller);
        let far = Instruction { object: "/".repeat(PATH + 1), address: 1 };
        let without = Report { caller: Some(far), ..largest() }.write();
        assert_eq!(Report::read(&without).unwrap().caller, None);
        assert!(read.members.as_ref().is_some_and(|set| set.cut && set.all.len() == RUNS));
        assert_eq!(read.words.as_ref().unwrap().seen.len(), WORDS);
        // What is short travels as it is.
        assert_eq!(Report::read(&read.write()), Some(read));
    }

    #[test]
    fn no_part_of_a_report_is_a_report() {
        let bytes = largest().write();
        let short = Report { caller: None, ..largest() }.write();
        assert!(bytes.starts_with(&short), "the caller is added to the rest");
        for len in (0..bytes.len()).filter(|&len| len != short.len()) {
            assert_eq!(Report::read(&bytes[..len]), None);
        }
        assert_eq!(Report::read(&[&bytes[..], &[0]].concat()), None);
    }

    proptest! {
        #[test]
        fn garbage_is_no_report_or_one_that_can_be_written(
            bytes in prop::collection::vec(any::<u8>(), 0..REPORT_BYTES),
            at: usize,
            byte: u8,
        ) {
            let mut changed = largest().write();
            let at = at % changed.len();
            changed[at] = byte;
            for bytes in [bytes, changed] {
                if let Some(report) = Report::read(&bytes) {
                    prop_assert!(report.write().len() <= REPORT_BYTES);
                    let is_tame = !report.call.contains(char::is_control);
                    prop_assert!(is_tame);
                }
            }
        }
    }
}
