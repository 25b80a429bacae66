//! Ranges of static data that are part of the segment.

use std::ops::Range;

/// A range of static data: its addresses in the program and its place in the segment.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Its addresses.
    pub pages: Range<usize>,
    /// The offset of the first in the segment.
    pub offset: u64,
}
