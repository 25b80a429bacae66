//! Counters of shared objects and channels: in the PE's part of the file of records where the PE
//! records, so that they outlive it, and in private memory otherwise.

use super::Recorder;
use super::layout::{COUNTERS, Geometry, OBJECTS, ObjectRecord};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A [`dsm::Mutex`](crate::dsm::Mutex).
    Mutex,
    /// A [`dsm::RwLock`](crate::dsm::RwLock).
    RwLock,
    /// A [`dsm::Region`](crate::dsm::Region).
    Region,
    /// The writing end of a [`Multicast`](crate::Multicast).
    Writer,
    /// A reading end of one.
    Reader,
}

impl ObjectKind {
    /// All kinds, by their numbers in the file, which begin at 1.
    pub const ALL: [ObjectKind; 5] = [
        ObjectKind::Mutex,
        ObjectKind::RwLock,
        ObjectKind::Region,
        ObjectKind::Writer,
        ObjectKind::Reader,
    ];

    /// Its name, for users.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Mutex => "mutex",
            ObjectKind::RwLock => "rwlock",
            ObjectKind::Region => "region",
            ObjectKind::Writer => "writer",
            ObjectKind::Reader => "reader",
        }
    }
}

/// What a PE has done with a shared object so far.
///
/// For an end of a channel, in the report of `memonet run --stats`: uses are blocks that were
/// published or consumed, each with its bytes, and there are no hits, hand-overs or messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Times that this PE locked it, or asked for a range.
    pub uses: u64,
    /// Uses that needed nothing from another PE.
    pub hits: u64,
    /// Times that it came to this PE from another one.
    pub handovers: u64,
    /// Operations on the fabric: stores, puts, gets, atomics.
    pub messages: u64,
    /// Bytes of data that these operations moved, from and to this PE.
    pub bytes: u64,
}

// The counters, by number.
const USES: usize = 0;
const MISSES: usize = 1;
const HANDOVERS: usize = 2;
const MESSAGES: usize = 3;
const BYTES: usize = 4;

impl Stats {
    pub(super) fn of(counters: [u64; COUNTERS]) -> Stats {
        let [uses, misses, handovers, messages, bytes] = counters;
        Stats { uses, hits: uses.saturating_sub(misses), handovers, messages, bytes }
    }
}

/// The counters of one object. They use no locked instructions: threads that do not exclude each
/// other lose a count now and then, and nothing relies on exact counts.
pub(crate) struct Counters {
    /// The first of [`COUNTERS`] words.
    words: *mut u64,
    _home: Home,
}

/// What keeps the words.
enum Home {
    Own(#[allow(dead_code, reason = "keeps the words")] Box<[AtomicU64; COUNTERS]>),
    Part(#[allow(dead_code, reason = "keeps the words")] Arc<Recorder>),
}

// SAFETY: the words live as long as the home, and are accessed only through `crate::base::shm`,
// which any thread may use.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    /// Counters that nobody reports.
    pub(crate) fn own() -> Counters {
        let words = Box::new([const { AtomicU64::new(0) }; COUNTERS]);
        Counters { words: words[0].as_ptr(), _home: Home::Own(words) }
    }

    #[inline(always)]
    fn word(&self, counter: usize) -> *mut u64 {
        debug_assert!(counter < COUNTERS);
        self.words.wrapping_add(counter)
    }

    /// Adds to a counter.
    #[inline(always)]
    fn add(&self, counter: usize, more: u64) {
        let word = self.word(counter);
        // SAFETY: an aligned word that the home keeps.
        unsafe { shm::post(word, shm::load(word).wrapping_add(more)) };
    }

    #[inline(always)]
    pub(crate) fn used(&self) {
        self.add(USES, 1);
    }

    pub(crate) fn missed(&self) {
        self.add(MISSES, 1);
    }

    #[inline(always)]
    pub(crate) fn handed_over(&self) {
        self.add(HANDOVERS, 1);
    }

    pub(crate) fn sent(&self, messages: usize, bytes: usize) {
        self.add(MESSAGES, messages as u64);
        self.add(BYTES, bytes as u64);
    }

    /// A part of a block of a channel.
    pub(crate) fn passed(&self, bytes: usize, is_last: bool) {
        self.add(USES, u64::from(is_last));
        self.add(MISSES, u64::from(is_last));
        self.add(BYTES, bytes as u64);
    }

    pub(crate) fn stats(&self) -> Stats {
        // SAFETY: as in `add`.
        Stats::of(std::array::from_fn(|counter| unsafe { shm::load(self.word(counter)) }))
    }
}

impl Recorder {
    /// The counters of the next object, while there is room in the part.
    fn object(self: &Arc<Self>, kind: ObjectKind) -> Option<Counters> {
        let number = self.objects.fetch_add(1, Ordering::Relaxed) as usize;
        if number >= OBJECTS || !self.is_on() {
            return None;
        }
        let record = Geometry::object_at(number);
        let at = |field: usize| self.part.word(record + field as u64);
        // SAFETY: an aligned word of the mapped part.
        unsafe { shm::store(at(offset_of!(ObjectRecord, kind)), kind as u64 + 1) };
        let words = at(offset_of!(ObjectRecord, counters));
        Some(Counters { words, _home: Home::Part(self.clone()) })
    }
}

impl Pe {
    /// Counters for a new object, which is reported to the launcher if this PE records.
    pub(crate) fn count_object(&self, kind: ObjectKind) -> Counters {
        let recorded = self.recorder().and_then(|recorder| recorder.object(kind));
        recorded.unwrap_or_else(Counters::own)
    }

    /// Counters for an end of a channel, if this PE records.
    pub(crate) fn count_channel(&self, kind: ObjectKind) -> Option<Counters> {
        self.recorder()?.object(kind)
    }
}
