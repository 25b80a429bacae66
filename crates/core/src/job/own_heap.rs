//! What a PE owns of its segment for windows and blocks: the heap, and what was dropped of it.

use super::heap::{Blocks, Heap};
use crate::base::layout::MAX_WINDOWS;
use crate::base::lock;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) struct OwnHeap {
    heap: Mutex<Heap>,
    /// Allocated blocks by offset; lets C calls check the end of an allocation without the heap's
    /// mutex.
    blocks: Arc<Blocks>,
    /// Windows whose last handle is gone, to be freed when all PEs say so.
    dropped: [AtomicU64; MAX_WINDOWS / 64],
}

impl Layer for OwnHeap {
    fn new(pe: &Pe) -> Self {
        let geometry = pe.control().geometry();
        let heap = Heap::new(geometry.heap_offset..geometry.globals_offset);
        OwnHeap {
            blocks: heap.blocks(),
            heap: Mutex::new(heap),
            dropped: [const { AtomicU64::new(0) }; MAX_WINDOWS / 64],
        }
    }
}

impl OwnHeap {
    pub(super) fn heap(&self) -> MutexGuard<'_, Heap> {
        lock(&self.heap)
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The last handle of a window is gone.
    pub(crate) fn drop_window(&self, id: usize) {
        self.dropped[id / 64].fetch_or(1 << (id % 64), Ordering::Release);
    }

    /// Windows that this PE has dropped, 64 of them.
    pub(super) fn dropped(&self, index: usize) -> u64 {
        self.dropped[index].load(Ordering::Acquire)
    }

    /// All PEs have dropped a window.
    pub(super) fn forget_window(&self, id: usize) {
        self.dropped[id / 64].fetch_and(!(1 << (id % 64)), Ordering::Relaxed);
    }
}
