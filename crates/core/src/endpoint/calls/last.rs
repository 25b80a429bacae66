//! The last call of a thread, which the launcher reads in the memory of its process.
//!
//! A call that ends leaves its note where it is, so nothing is added to it. The thread with which a
//! PE joins its job tells once where its note lies. Another process that may read this one's memory
//! follows it.
//!
//! *What is read may be anything*: the thread may make calls meanwhile, or have ended. So the
//! thread must live, the note must begin with its magic number, and it must be the same after its
//! texts were read. A text has a limit.

use super::{MAGIC, NOTE, Note};
use crate::base::layout::ReportArea;
use crate::base::shm;
use crate::endpoint::callers;
use crate::endpoint::control::Control;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::panic::Location;

/// Most bytes of a text.
const TEXT: usize = 512;

/// A call that might wait for other PEs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCall {
    /// The function.
    pub name: String,
    /// Its place in the source, where it is known.
    pub at: String,
    /// Whether it has ended.
    pub has_ended: bool,
    /// Grows with each call of the thread.
    pub number: u64,
}

/// Tells the launcher where this thread notes its calls.
pub(crate) fn publish(control: &Control, me: usize) {
    if name_is_in_order() {
        let note = NOTE.with(|note| std::ptr::from_ref(note) as u64);
        let place = if callers::are_known() { 0 } else { shape() };
        let area = control.reports(me);
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        // SAFETY: aligned words of the PE's own area, in the mapping that the PE holds.
        unsafe {
            shm::store(area.wrapping_add(offset_of!(ReportArea, thread)).cast(), thread);
            shm::store(area.wrapping_add(offset_of!(ReportArea, place)).cast(), place);
            shm::store(area.wrapping_add(offset_of!(ReportArea, note)).cast(), note);
        }
    }
}

/// Whether a text is an address and a number of bytes, in this order. The language does not say.
fn name_is_in_order() -> bool {
    let text = "four";
    // SAFETY: a reference to a text has these two words, and no bytes between them.
    let words: [usize; 2] = unsafe { std::mem::transmute(text) };
    words == [text.as_ptr() as usize, text.len()]
}

/// Where the parts of a place lie in it, as [`ReportArea::place`] has it: the launcher may be
/// compiled by another compiler. 0 where that cannot be told.
#[track_caller]
fn shape() -> u32 {
    const WORDS: usize = 3;
    let place = Location::caller();
    let parts = size_of::<&str>() + 2 * size_of::<u32>();
    if size_of_val(place) != parts || parts != size_of::<[u64; WORDS]>() {
        return 0;
    }
    // SAFETY: the place is as large as its parts, so all its bytes are written; it is aligned, as
    // it has an address in it.
    let words: [u64; WORDS] = unsafe { std::ptr::from_ref(place).cast::<[u64; WORDS]>().read() };
    let find = |what: u64| words.iter().position(|&word| word == what).map(|word| 8 * word as u32);
    let (line, column) = (u64::from(place.line()), u64::from(place.column()));
    let line = match (find(line | column << 32), find(column | line << 32)) {
        (Some(line), None) => Some(line),
        (None, Some(column)) => Some(column + 4),
        _ => None,
    };
    match (find(place.file().as_ptr() as u64), find(place.file().len() as u64), line) {
        (Some(file), Some(len), Some(line)) => file | len << 8 | line << 16 | 1 << 31,
        _ => 0,
    }
}

/// The last call of the thread with which a PE has joined as this process.
pub(crate) fn read(control: &Control, pe: usize, process: i32) -> Option<LastCall> {
    let area = control.reports(pe);
    // SAFETY: aligned words of the control part, which the launcher has mapped.
    let (note, thread, place) = unsafe {
        (
            shm::load::<u64>(area.wrapping_add(offset_of!(ReportArea, note)).cast()),
            shm::load::<u32>(area.wrapping_add(offset_of!(ReportArea, thread)).cast()),
            shm::load::<u32>(area.wrapping_add(offset_of!(ReportArea, place)).cast()),
        )
    };
    let memory = Memory(File::open(format!("/proc/{process}/task/{thread}/mem")).ok()?);
    let words = memory.note(note)?;
    let [ends, name, len, at] = words;
    if ends == 0 {
        return None;
    }
    let name = memory.text(name, len)?;
    let at = if at == 0 || place == 0 { String::new() } else { memory.place(at, place)? };
    let same = memory.note(note)? == words;
    same.then_some(LastCall {
        name,
        at,
        has_ended: ends.is_multiple_of(2),
        number: ends.div_ceil(2),
    })
}

/// The memory of another process.
struct Memory(File);

impl Memory {
    fn bytes<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    }

    fn word(&self, at: u64) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    /// The words of a note of which something is told.
    fn note(&self, at: u64) -> Option<[u64; 4]> {
        let word = |offset: usize| self.word(at.wrapping_add(offset as u64));
        let is_one = word(offset_of!(Note, magic))? == MAGIC;
        let name = offset_of!(Note, name);
        let all = [offset_of!(Note, ends), name, name + 8, offset_of!(Note, at)].map(word);
        let [Some(ends), Some(name), Some(len), Some(at)] = all else { return None };
        is_one.then_some([ends, name, len, at])
    }

    /// A text without what a terminal would take for a command.
    fn text(&self, at: u64, len: u64) -> Option<String> {
        let len = usize::try_from(len).ok().filter(|&len| len <= TEXT)?;
        let mut bytes = [0; TEXT];
        self.0.read_exact_at(&mut bytes[..len], at).ok()?;
        let text = String::from_utf8_lossy(&bytes[..len]);
        Some(text.chars().filter(|letter| !letter.is_control()).collect())
    }

    fn place(&self, at: u64, shape: u32) -> Option<String> {
        let [file, len, line, _] = shape.to_le_bytes().map(u64::from);
        let [file, len] = [self.word(at.wrapping_add(file))?, self.word(at.wrapping_add(len))?];
        let line = self.bytes(at.wrapping_add(line)).map(u32::from_le_bytes)?;
        Some(format!("{}:{line}", self.text(file, len)?))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory(File::open("/proc/thread-self/mem").unwrap())
    }

    #[test]
    fn a_place_is_read_as_it_lies_in_memory() {
        let place = Location::caller();
        let at = std::ptr::from_ref(place) as u64;
        assert_eq!(memory().place(at, shape()), Some(format!("{}:{}", place.file(), place.line())));
        assert!(name_is_in_order());
    }

    #[test]
    fn what_is_no_note_is_not_read() {
        let note = NOTE.with(|note| std::ptr::from_ref(note) as u64);
        assert!(memory().note(note).is_some());
        for other in [note + 8, 0, u64::MAX, 4096] {
            assert_eq!(memory().note(other), None);
        }
        assert_eq!(memory().text(note, TEXT as u64 + 1), None);
    }
}
