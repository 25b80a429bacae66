//! Static data as a part of the segment.

use std::ops::Range;

/// Static data at its own address and in the segment.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Its addresses.
    pub pages: Range<usize>,
    /// The offset of the first in the segment.
    pub offset: u64,
}
