//! Appending events to a PE's part.

use super::layout::{Areas, END, HEAD, TAKEN, TEXTS_TAKEN, THREADS, WORDS, describe, to_words};
use super::texts::Texts;
use super::{Deed, Event, Sort, TextId};
use crate::base::lock;
use crate::base::shm::{self, AtomicOp};
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// A PE's events, for appending. Threads of the PE append at once.
pub(in crate::endpoint::recorder) struct Log {
    /// Tells it from all other logs that this process has had.
    id: u64,
    base: *mut u8,
    areas: Areas,
    texts: Texts,
    threads: Mutex<HashMap<ThreadId, u16>>,
}

// SAFETY: the address leads into a mapping that outlives the log, and is used only through
// `crate::base::shm`, which any thread may use.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

/// The record of an event that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint::recorder) struct Slot(u64);

thread_local! {
    /// The last log to which this thread has appended, and its number there.
    static THREAD: Cell<(u64, u16)> = const { Cell::new((0, 0)) };
}

impl Log {
    /// The events at `base`; `None` where there is no room for any.
    ///
    /// # Safety
    /// `base` is aligned to 8 bytes, and `bytes` are mapped there for writing as long as the log
    /// lives.
    pub(in crate::endpoint::recorder) unsafe fn at(base: *mut u8, bytes: u64) -> Option<Log> {
        let areas = Areas::of(bytes)?;
        static LOGS: AtomicU64 = AtomicU64::new(0);
        let id = LOGS.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Log { id, base, areas, texts: Texts::default(), threads: Mutex::default() })
    }

    /// The word at a byte of the events.
    fn word(&self, at: u64) -> *mut u64 {
        self.base.wrapping_add(at as usize).cast()
    }

    /// Takes `count` of what this word counts; gives how many were taken before.
    fn take(&self, counter: u64, count: u64) -> u64 {
        // SAFETY: an aligned word of the page of words, mapped as `at`'s caller promised.
        unsafe { shm::fetch_op(self.word(counter).cast(), 8, AtomicOp::Add, count) }
    }

    /// Appends an event. `None` where it is missing: there is no room.
    pub(in crate::endpoint::recorder) fn append(&self, event: &Event) -> Option<Slot> {
        let record = self.take(TAKEN, 1);
        if record >= self.areas.capacity {
            return None;
        }
        let slot = Slot(record);
        let words = to_words(event);
        self.write(slot, 1..WORDS, &words);
        self.write(slot, HEAD..HEAD + 1, &words);
        Some(slot)
    }

    /// Says when an event has ended.
    pub(in crate::endpoint::recorder) fn end(&self, slot: Slot, nanos: u64) {
        let mut words = [0; WORDS];
        // 0 stands for no end.
        words[END] = nanos.max(1);
        self.write(slot, END..END + 1, &words);
    }

    /// Says what an event does that has begun.
    pub(in crate::endpoint::recorder) fn describe(&self, slot: Slot, deed: &Deed) {
        let record = self.areas.record_at(slot.0);
        // SAFETY: as in `write`.
        let mut words =
            std::array::from_fn(|at| unsafe { shm::load(self.word(record + 8 * at as u64)) });
        describe(&mut words, deed);
        self.write(slot, 4..WORDS, &words);
        self.write(slot, HEAD..HEAD + 1, &words);
    }

    /// Writes some words of a record, in their order.
    fn write(&self, slot: Slot, range: std::ops::Range<usize>, words: &[u64; WORDS]) {
        let record = self.areas.record_at(slot.0);
        for at in range {
            // SAFETY: slots are made by `append` alone, for records that there are, and each by one
            // thread, which alone writes there.
            unsafe { shm::store(self.word(record + 8 * at as u64), words[at]) };
        }
    }

    /// The number of a text of the program's code.
    pub(in crate::endpoint::recorder) fn text(&self, text: &'static str) -> TextId {
        self.texts.find(text.as_ptr() as usize, text.len(), || self.add_text(text))
    }

    /// The number of the text of a place in the program.
    pub(in crate::endpoint::recorder) fn place(&self, place: &'static Location<'static>) -> TextId {
        let text = || self.add_text(&format!("{}:{}", place.file(), place.line()));
        self.texts.find(std::ptr::from_ref(place) as usize, 0, text)
    }

    /// Adds a text. [`TextId::NONE`] where there is no room.
    pub(in crate::endpoint::recorder) fn add_text(&self, text: &str) -> TextId {
        let len = text.len() as u64;
        let offset = self.take(TEXTS_TAKEN, (4 + len).next_multiple_of(4));
        if offset.checked_add(4 + len).is_none_or(|end| end > self.areas.texts) {
            return TextId::NONE;
        }
        let at = self.base.wrapping_add(self.areas.text_at(offset) as usize);
        // SAFETY: the range was just taken, lies in the area, and begins at a multiple of 4 bytes.
        unsafe {
            shm::copy(at.wrapping_add(4), text.as_ptr(), text.len());
            shm::store(at.cast::<u32>(), len as u32);
        }
        TextId(offset as u32 + 4)
    }

    /// The number of this thread. A new one is an event.
    pub(in crate::endpoint::recorder) fn thread(&self, now: u64) -> u16 {
        let (log, number) = THREAD.get();
        if log == self.id {
            return number;
        }
        let number = self.number_of_thread(now);
        THREAD.set((self.id, number));
        number
    }

    #[cold]
    fn number_of_thread(&self, now: u64) -> u16 {
        let thread = std::thread::current();
        let mut threads = lock(&self.threads);
        if let Some(&number) = threads.get(&thread.id()) {
            return number;
        }
        // More threads than that share the last track.
        let number = self.take(THREADS, 1).min(u16::MAX.into()) as u16;
        threads.insert(thread.id(), number);
        let name = thread.name().map_or(TextId::NONE, |name| self.add_text(name));
        self.append(&Event {
            sort: Sort::Thread,
            thread: number,
            start: now,
            end: None,
            name,
            place: TextId::NONE,
            window: TextId::NONE,
            deed: Deed::None,
        });
        number
    }
}
