//! The raw limit of large blocks by multicast: one process copies into a ring, the others read
//! there, and each position is a bare word. Unlike memcpy by one PE, it has the processes and the
//! CPUs of a channel, and moves as many bytes.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use memonet::{Job, Window};

use crate::bench::raw;

/// Bytes of the ring: those of a channel with the default capacity.
const BYTES: usize = 512 << 10;
/// Bytes of the ring where PEs share CPUs.
const BYTES_OF_TURNS: usize = 2 << 20;
/// Words of a line: each position has a line of its own.
const LINE: usize = 16;
/// Polls before the first yield.
const POLLS_BEFORE_YIELD: u32 = 4;

/// A PE's view of the ring, which lies in PE 0's memory.
pub struct RawMulticast<'a> {
    ring: *mut u8,
    bytes: u64,
    /// Bytes written so far.
    written: &'a AtomicU64,
    /// Bytes that each reader has read so far.
    read: Vec<&'a AtomicU64>,
    /// Bytes that this PE has written or read so far.
    at: Cell<u64>,
    /// Position up to which this PE need not wait, by its last poll.
    seen: Cell<u64>,
    /// Number of this PE among the readers.
    reader: Option<usize>,
    yields: bool,
}

impl<'a> RawMulticast<'a> {
    fn bytes(have_cpus: bool) -> usize {
        if have_cpus { BYTES } else { BYTES_OF_TURNS }
    }

    /// Words of the window that it needs.
    pub fn words(job: &Job, have_cpus: bool) -> usize {
        Self::bytes(have_cpus) / size_of::<u64>() + job.npes() * LINE
    }

    /// `None` where PE 0 is far. The words of the window must be 0 before all PEs call this.
    pub fn new(job: &Job, words: &'a Window<u64>, have_cpus: bool) -> Option<Self> {
        let base = super::near(job, words, 0)?;
        let bytes = Self::bytes(have_cpus);
        // SAFETY: words behind the ring, in a window that is borrowed for `'a`. All PEs access them
        // as 64 bits.
        let word = |number: usize| unsafe {
            raw::word(base.wrapping_add(bytes / size_of::<u64>() + number * LINE))
        };
        Some(Self {
            ring: base.cast(),
            bytes: bytes as u64,
            written: word(0),
            read: (1..job.npes()).map(word).collect(),
            at: Cell::new(0),
            seen: Cell::new(0),
            reader: job.pe().checked_sub(1),
            yields: !have_cpus,
        })
    }

    /// Bytes of the largest part of a block that is moved at once.
    pub fn most(&self) -> usize {
        self.bytes as usize / 4
    }

    /// Copies a part of a block in. All parts have the same length, which divides the ring's.
    pub fn push(&self, part: &[u64]) {
        let (at, len) = (self.at.get(), size_of_val(part) as u64);
        self.wait_for(at + len, || {
            let least = self.read.iter().map(|read| read.load(Ordering::Acquire)).min();
            least.unwrap_or(at) + self.bytes
        });
        // SAFETY: `wait_for` has seen that all readers have left this part of the ring. They read
        // it again only after `written` says so.
        unsafe { raw::copy(self.place(at), part.as_ptr().cast(), size_of_val(part)) };
        self.at.set(at + len);
        self.written.store(at + len, Ordering::Release);
    }

    /// Passes the next `len` bytes to `read`, in place.
    pub fn pop<R>(&self, len: usize, read: impl FnOnce(*const u8) -> R) -> R {
        let end = self.at.get() + len as u64;
        self.wait_for(end, || self.written.load(Ordering::Acquire));
        let result = read(self.place(self.at.get()));
        self.at.set(end);
        if let Some(reader) = self.reader {
            self.read[reader].store(end, Ordering::Release);
        }
        result
    }

    fn place(&self, position: u64) -> *mut u8 {
        self.ring.wrapping_add((position % self.bytes) as usize)
    }

    fn wait_for(&self, end: u64, poll: impl Fn() -> u64) {
        let mut polls = 0;
        while self.seen.get() < end {
            self.seen.set(poll());
            polls += 1;
            if self.yields && polls > POLLS_BEFORE_YIELD {
                rustix::thread::sched_yield();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
