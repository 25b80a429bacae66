//! Marks of a PE's writes to near PEs, for [`written`](super::written).

use std::sync::atomic::{AtomicU8, AtomicU32};

/// A PE's marks.
pub(crate) struct Marks {
    /// First the summary: whether any mark is set. Then one mark for each near PE: whether this PE
    /// may have written to it, without waking it, since it last woke its targets. Bytes, so that
    /// marking takes two stores.
    pub(super) written: Box<[AtomicU8]>,
    /// Number of live remotes into each near PE. While there are any, a store may come at any time.
    pub(super) live: Box<[AtomicU32]>,
}

impl Marks {
    pub(super) fn new(near: usize) -> Self {
        Marks {
            written: (0..=near).map(|_| AtomicU8::new(0)).collect(),
            live: (0..near).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}
