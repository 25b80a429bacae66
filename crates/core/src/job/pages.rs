//! The heap's memory as it comes into use and goes out of it, at this PE: pages, and what the
//! fabric is told of them.

use crate::endpoint::pe::Pe;
use std::ops::Range;

/// Freed ranges of at least this many bytes give their pages back at once.
const RETURN_FROM_BYTES: u64 = 64 << 10;

/// A range that was allocated comes into use; `used` is the part of it that is to be zeros and may
/// hold something else. With `now`, its pages are made at once. Before any PE can use it.
pub(crate) fn open(pe: &Pe, range: &Range<u64>, used: &Range<u64>, now: bool) {
    let (segment, mapping) = (pe.control().geometry().segment(pe.me()), pe.control().mapping());
    mapping.release(segment + used.start, used.end - used.start);
    mapping.want_huge_pages(segment + range.start, range.end - range.start, now);
    // Huge pages are other pages than those that were there before.
    pe.add_range(range);
}

/// A range that was freed goes out of use. No PE uses it any more.
pub(crate) fn shut(pe: &Pe, range: &Range<u64>) {
    // Its pages are the fabric's until it has heard of this.
    pe.remove_range(range);
    give_back(pe, range);
}

/// A range goes out of use from the end of `kept` on, which is its beginning.
pub(crate) fn shorten(pe: &Pe, kept: &Range<u64>, left: &Range<u64>) {
    if !left.is_empty() {
        // The fabric knows whole ranges only.
        pe.remove_range(&(kept.start..left.end));
        pe.add_range(kept);
        give_back(pe, left);
    }
}

/// Gives pages back that nobody uses.
fn give_back(pe: &Pe, range: &Range<u64>) {
    if range.end - range.start >= RETURN_FROM_BYTES {
        let segment = pe.control().geometry().segment(pe.me());
        pe.control().mapping().release(segment + range.start, range.end - range.start);
    }
}
