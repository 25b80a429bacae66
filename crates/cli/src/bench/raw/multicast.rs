//! The raw limit of large blocks by multicast: one process copies into a ring, the others read it
//! there, with a bare word for each position. It takes as many processes as the channel and moves
//! as many bytes on as few CPUs, which memcpy by one PE does not.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use memonet::{Job, Window};
use memonet_core::launch::available_cpus;

use crate::bench::raw;

/// Bytes of the ring: those of a channel whose capacity nobody chose.
const BYTES: usize = 512 << 10;
/// The same where PEs share CPUs.
const BYTES_OF_TURNS: usize = 2 << 20;
/// Words of a line, on which a position is alone.
const LINE: usize = 16;
/// Looks before the first yield.
const LOOKS_BEFORE_YIELD: u32 = 4;

/// A PE's view of the ring, which is PE 0's.
pub struct RawMulticast<'a> {
    ring: *mut u8,
    bytes: u64,
    /// How far it is written.
    written: &'a AtomicU64,
    /// How far each reader is.
    read: Vec<&'a AtomicU64>,
    /// How far this PE is.
    at: Cell<u64>,
    /// So far nobody needs to be waited for, as this PE last saw it.
    seen: Cell<u64>,
    reader: Option<usize>,
    yields: bool,
}

impl<'a> RawMulticast<'a> {
    fn bytes(job: &Job) -> usize {
        if job.npes() > available_cpus() { BYTES_OF_TURNS } else { BYTES }
    }

    /// Words of the window that it needs.
    pub fn words(job: &Job) -> usize {
        Self::bytes(job) / size_of::<u64>() + job.npes() * LINE
    }

    /// `None` where PE 0 is far. The words of the window are 0 before all PEs do this.
    pub fn new(job: &Job, words: &'a Window<u64>) -> Option<Self> {
        let base = words.near_ptr(0, 0)?;
        let bytes = Self::bytes(job);
        // SAFETY: words behind the ring in a window that is borrowed for as long; all access them
        // as such.
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
            yields: job.npes() > available_cpus(),
        })
    }

    /// The largest part of a block that is moved at once.
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
        // SAFETY: a part of the ring that nobody reads before it is said to be written.
        unsafe { raw::copy(self.place(at), part.as_ptr().cast(), size_of_val(part)) };
        self.at.set(at + len);
        self.written.store(at + len, Ordering::Release);
    }

    /// Gives `read` the next `len` bytes where they are.
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

    fn wait_for(&self, end: u64, look: impl Fn() -> u64) {
        let mut looks = 0;
        while self.seen.get() < end {
            self.seen.set(look());
            looks += 1;
            if self.yields && looks > LOOKS_BEFORE_YIELD {
                rustix::thread::sched_yield();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}
