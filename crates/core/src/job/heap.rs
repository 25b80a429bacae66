//! The symmetric heap: which bytes of every segment are windows.
//!
//! Every PE runs the same allocator through the same sequence of requests, so a window has the same
//! offset in each segment without anybody telling anybody. What keeps the sequences equal: requests
//! are collective and compared before they are carried out, and a dropped window is freed only when
//! all PEs have dropped it, at the next collective request. All of the allocator's own data is
//! private memory, out of reach of stray stores.

use crate::base::error::{Error, Result};
use crate::base::layout::{MAX_KEYS, MAX_WINDOWS};
use crate::base::lock;
use range_alloc::RangeAllocator;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Every allocation starts and ends on a multiple of this: two cache lines, so that neighbours do
/// not share what processors prefetch in pairs.
const GRAIN: u64 = 128;

const STEP_WINDOW: u64 = 1;
const STEP_BLOCK: u64 = 2;
const STEP_KEY: u64 = 3;
const STEP_FREE: u64 = 4;
const STEP_DROP: u64 = 5;
const STEP_RESIZE: u64 = 6;

/// The allocator of one PE; equal on all of them.
pub(crate) struct Heap {
    ranges: RangeAllocator<u64>,
    capacity: u64,
    /// Windows alive: the range of each, or nothing where the number is free.
    windows: Vec<Option<Block>>,
    /// Blocks without a window.
    blocks: Arc<Blocks>,
    keys: Vec<bool>,
    /// Key slots given out so far.
    generation: u64,
    /// Everything from here on has never been used, so it still reads as zeros.
    untouched: u64,
    /// Differs where heaps have not gone through the same steps, nearly always.
    history: u64,
}

/// A block without a window.
#[derive(Clone, Copy)]
struct Size {
    /// Asked for.
    bytes: u64,
    /// Taken.
    room: u64,
}

/// Blocks without a window: the size of each by its start. Under a lock of their own, as that of
/// the heap is held in collective calls: who asks for a block must not wait for other PEs.
#[derive(Default)]
pub(crate) struct Blocks(Mutex<BTreeMap<u64, Size>>);

impl Blocks {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Size>> {
        lock(&self.0)
    }

    /// The block that a byte lies in.
    pub(crate) fn around(&self, offset: u64) -> Option<Range<u64>> {
        let (start, bytes) =
            self.lock().range(..=offset).next_back().map(|(&start, size)| (start, size.bytes))?;
        (offset < start + bytes).then_some(start..start + bytes)
    }

    /// Whether so many bytes fit into the room of the block that starts there.
    pub(crate) fn fits(&self, start: u64, bytes: u64) -> bool {
        self.lock().get(&start).is_some_and(|size| bytes <= size.room)
    }

    /// Where they start.
    pub(crate) fn starts(&self) -> Vec<u64> {
        self.lock().keys().copied().collect()
    }
}

/// What a window number stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    /// A range of every segment.
    Range(Range<u64>),
    /// The key slot of a restricted window.
    Key(usize),
}

/// What a restricted window is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeySlot {
    /// Number of the window.
    pub(crate) id: usize,
    /// The slot.
    pub(crate) slot: usize,
    /// Tells this use of the slot from all others.
    pub(crate) generation: u64,
}

/// An allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Number of the window.
    pub(crate) id: usize,
    /// Its bytes.
    pub(crate) range: Range<u64>,
    /// The part of the bytes that may have been used before.
    pub(crate) dirty: Range<u64>,
}

impl Heap {
    pub(crate) fn new(range: Range<u64>) -> Self {
        Heap {
            capacity: range.end - range.start,
            untouched: range.start,
            ranges: RangeAllocator::new(range),
            windows: Vec::new(),
            blocks: Arc::default(),
            keys: vec![false; MAX_KEYS],
            generation: 0,
            history: 0,
        }
    }

    /// A digest of all steps so far.
    pub(crate) fn history(&self) -> u64 {
        self.history
    }

    /// Has a step go into the history: what was given or taken, and where it begins and ends.
    fn note(&mut self, step: [u64; 3]) {
        for word in step {
            self.history =
                (self.history ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }

    fn number(&mut self, block: Block) -> Result<usize> {
        let id = self.windows.iter().position(Option::is_none).unwrap_or(self.windows.len());
        if id == MAX_WINDOWS {
            return Err(Error::TooMany { what: "windows", limit: MAX_WINDOWS, call: None });
        }
        if id == self.windows.len() {
            self.windows.push(None);
        }
        self.windows[id] = Some(block);
        Ok(id)
    }

    /// Finds `bytes` aligned to `align` (a power of two). No bytes take no room.
    pub(crate) fn allocate(&mut self, bytes: u64, align: u64) -> Result<Allocation> {
        if bytes == 0 {
            let start = self.ranges.initial_range().start;
            self.note([STEP_WINDOW, start, start]);
            return self.number(Block::Range(start..start)).map(|id| Allocation {
                id,
                range: start..start,
                dirty: start..start,
            });
        }
        let (range, dirty) = self.find(bytes, align)?;
        match self.number(Block::Range(range.clone())) {
            Ok(id) => {
                self.note([STEP_WINDOW, range.start, range.end]);
                Ok(Allocation { id, range, dirty })
            }
            Err(error) => {
                self.ranges.free_range(range);
                Err(error)
            }
        }
    }

    /// Finds `bytes`, not 0; gives them, and which of them may have been used before.
    fn find(&mut self, bytes: u64, align: u64) -> Result<(Range<u64>, Range<u64>)> {
        let size = bytes.checked_next_multiple_of(GRAIN).filter(|&size| size <= self.capacity);
        let range =
            size.and_then(|size| self.ranges.allocate_range_aligned(size, align.max(GRAIN)).ok());
        let range = range.ok_or_else(|| Error::OutOfMemory {
            bytes,
            capacity: self.capacity,
            free: self.free_bytes(),
            call: None,
        })?;
        let dirty = range.start..self.untouched.clamp(range.start, range.end);
        self.untouched = self.untouched.max(range.end);
        Ok((range, dirty))
    }

    /// Finds `bytes`, not 0, for a block that belongs to no window; gives them, and which of them
    /// may have been used before.
    pub(crate) fn allocate_block(
        &mut self,
        bytes: u64,
        align: u64,
    ) -> Result<(Range<u64>, Range<u64>)> {
        let (range, dirty) = self.find(bytes, align)?;
        let room = range.end - range.start;
        self.note([STEP_BLOCK, range.start, range.end]);
        self.blocks.lock().insert(range.start, Size { bytes, room });
        Ok((range, dirty))
    }

    /// Frees the block that starts there; gives its range, or nothing if there is none.
    pub(crate) fn free_block(&mut self, start: u64) -> Option<Range<u64>> {
        let range = start..start + self.blocks.lock().remove(&start)?.room;
        self.ranges.free_range(range.clone());
        self.note([STEP_FREE, range.start, range.end]);
        Some(range)
    }

    /// Gives the block that starts there another size, not 0, within its room. Gives its range and
    /// the one behind it that it leaves; nothing if there is no such block, or it has less room.
    pub(crate) fn resize_block(&mut self, start: u64, bytes: u64) -> Option<[Range<u64>; 2]> {
        let [kept, left] = {
            let mut blocks = self.blocks.lock();
            let size = blocks.get_mut(&start).filter(|size| bytes <= size.room)?;
            let (room, before) = (bytes.next_multiple_of(GRAIN), size.room);
            *size = Size { bytes, room };
            [start..start + room, start + room..start + before]
        };
        if !left.is_empty() {
            self.ranges.free_range(left.clone());
        }
        self.note([STEP_RESIZE, start, kept.end]);
        Some([kept, left])
    }

    /// Its blocks without a window.
    pub(crate) fn blocks(&self) -> Arc<Blocks> {
        self.blocks.clone()
    }

    /// Takes a key slot for a restricted window.
    pub(crate) fn allocate_key(&mut self) -> Result<KeySlot> {
        let key = self.keys.iter().position(|taken| !taken).ok_or(Error::TooMany {
            what: "restricted windows",
            limit: MAX_KEYS,
            call: None,
        })?;
        let id = self.number(Block::Key(key))?;
        self.keys[key] = true;
        self.generation += 1;
        self.note([STEP_KEY, key as u64, self.generation]);
        Ok(KeySlot { id, slot: key, generation: self.generation })
    }

    /// Frees window `id`; gives what it was, or nothing if there is no such window.
    pub(crate) fn free(&mut self, id: usize) -> Option<Block> {
        let block = self.windows.get_mut(id)?.take()?;
        self.note([STEP_DROP, id as u64, 0]);
        match &block {
            Block::Range(range) if range.is_empty() => {}
            Block::Range(range) => self.ranges.free_range(range.clone()),
            Block::Key(key) => self.keys[*key] = false,
        }
        Some(block)
    }

    /// Number of words of a bitmap over all windows that ever lived at once.
    pub(crate) fn bitmap_words(&self) -> usize {
        self.windows.len().div_ceil(64)
    }

    fn free_bytes(&self) -> u64 {
        let used: u64 = self
            .windows
            .iter()
            .flatten()
            .map(|b| if let Block::Range(r) = b { r.end - r.start } else { 0 })
            .sum();
        let blocks: u64 = self.blocks.lock().values().map(|size| size.room).sum();
        self.capacity - used - blocks
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Ranges never overlap, lie in the heap, are aligned, tell the truth about untouched
        /// bytes; twins given the same requests agree.
        #[test]
        fn allocator(requests in proptest::collection::vec((0u64..3000, 0u32..13, any::<bool>(), any::<prop::sample::Index>()), 1..200)) {
            let bounds = 4096u64..4096 + (1 << 16);
            let (mut heap, mut twin) = (Heap::new(bounds.clone()), Heap::new(bounds.clone()));
            let mut live: Vec<Allocation> = Vec::new();
            let mut used = std::collections::BTreeSet::new();
            for (bytes, align, free, which) in requests {
                if free && !live.is_empty() {
                    let gone = live.swap_remove(which.index(live.len()));
                    prop_assert_eq!(heap.free(gone.id), Some(Block::Range(gone.range.clone())));
                    prop_assert!(twin.free(gone.id).is_some());
                    prop_assert_eq!(heap.free(gone.id), None);
                    continue;
                }
                let (got, same) = (heap.allocate(bytes, 1 << align), twin.allocate(bytes, 1 << align));
                let Ok(got) = got else {
                    prop_assert!(same.is_err());
                    continue;
                };
                prop_assert_eq!(&got, &same.unwrap());
                prop_assert!(got.range.start >= bounds.start && got.range.end <= bounds.end);
                prop_assert!(got.range.end - got.range.start >= bytes);
                prop_assert_eq!(bytes != 0 && got.range.start % (1 << align) != 0, false);
                for other in &live {
                    prop_assert!(got.id != other.id);
                    prop_assert!(got.range.is_empty() || other.range.is_empty() || got.range.end <= other.range.start || other.range.end <= got.range.start);
                }
                for grain in (got.range.start..got.range.end).step_by(GRAIN as usize) {
                    prop_assert!(got.dirty.contains(&grain) || used.insert(grain), "grain {} was used before, but is not called dirty", grain);
                }
                live.push(got);
            }
        }
    }

    #[test]
    fn room_comes_back() {
        let mut heap = Heap::new(0..1 << 20);
        for _ in 0..1000 {
            let a = heap.allocate(1 << 19, 64).unwrap();
            let b = heap.allocate(1 << 19, 4096).unwrap();
            assert!(matches!(heap.allocate(1, 1), Err(Error::OutOfMemory { free: 0, .. })));
            heap.free(a.id);
            heap.free(b.id);
        }
    }

    #[test]
    fn blocks_share_the_room_with_windows() {
        let mut heap = Heap::new(4096..4096 + (1 << 20));
        let window = heap.allocate(1 << 18, 1).unwrap();
        let (block, dirty) = heap.allocate_block(3 << 18, 1).unwrap();
        assert!(
            dirty.is_empty()
                && (block.end <= window.range.start || window.range.end <= block.start)
        );
        assert!(matches!(heap.allocate_block(1, 1), Err(Error::OutOfMemory { free: 0, .. })));
        for (offset, inside) in [
            (block.start, true),
            (block.end - 1, true),
            (block.end, false),
            (window.range.start, false),
            (0, false),
        ] {
            assert_eq!(heap.blocks().around(offset), inside.then(|| block.clone()), "{offset}");
        }
        assert_eq!(heap.blocks().starts(), [block.start]);
        assert_eq!(heap.free_block(block.start + 128), None);
        assert_eq!(heap.free_block(block.start), Some(block.clone()));
        assert_eq!(heap.free_block(block.start), None, "a second time");
        assert_eq!(
            heap.allocate_block(128, 1).unwrap().1,
            block.start..block.start + 128,
            "used before"
        );
    }

    #[test]
    fn blocks_change_their_size_within_their_room() {
        let mut heap = Heap::new(4096..4096 + 1024);
        let (block, _) = heap.allocate_block(500, 1).unwrap();
        let (start, empty) = (block.start, block.start + 512..block.start + 512);
        assert!(heap.blocks().fits(start, 512) && !heap.blocks().fits(start, 513));
        assert_eq!(heap.resize_block(start, 512), Some([block.clone(), empty]));
        assert_eq!(heap.blocks().around(start + 511), Some(block.clone()));
        for (at, bytes) in [(start, 513), (start, u64::MAX), (start + 128, 1), (0, 1)] {
            assert_eq!(heap.resize_block(at, bytes), None, "{at} {bytes}");
        }
        let before = heap.history();
        let [kept, left] = heap.resize_block(start, 129).unwrap();
        assert_eq!((kept, left.clone()), (start..start + 256, start + 256..start + 512));
        assert_eq!(heap.blocks().around(start + 129), None);
        assert!(!heap.blocks().fits(start, 257) && heap.history() != before);
        // What it has left is another's, and was used before.
        let (other, dirty) = heap.allocate_block(256, 1).unwrap();
        assert_eq!((other.clone(), dirty), (left.clone(), left));
        assert!(heap.free_block(start).is_some() && heap.free_block(other.start).is_some());
        assert!(heap.allocate_block(1024, 1).is_ok());
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut heap = Heap::new(0..1 << 20);
        for bytes in [u64::MAX, u64::MAX - 64, 1 << 63, (1 << 20) + 1] {
            assert!(matches!(heap.allocate(bytes, 1), Err(Error::OutOfMemory { .. })));
        }
        assert!(matches!(heap.allocate(64, 1 << 40), Ok(_) | Err(Error::OutOfMemory { .. })));
    }

    #[test]
    fn numbers_run_out() {
        let mut heap = Heap::new(0..1 << 20);
        for _ in 0..MAX_WINDOWS {
            heap.allocate(0, 1).unwrap();
        }
        assert!(matches!(heap.allocate(64, 1), Err(Error::TooMany { .. })));
        heap.free(17);
        assert_eq!(heap.allocate(1 << 20, 1).unwrap().id, 17);
    }
}
