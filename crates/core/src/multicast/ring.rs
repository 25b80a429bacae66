//! The ring: records at growing positions of a piece of shared memory.
//!
//! A record is a header word, padding where elements are aligned to more than 8 bytes, and the
//! block. Its length is a multiple of that alignment. No record wraps around the end of the ring:
//! where one does not fit, a padding record fills the rest.
//!
//! A ring may have **short laps**: then records fill only its beginning, as what fits the caches of
//! two cores is there soonest. The record that would lie across the end of the short lap goes to
//! the start of the ring, behind a padding record for all the rest. But a long record goes on
//! beyond that end, and so does all that follows, up to the end of the ring: of a few long blocks,
//! more have to fit, or writer and readers run in step. A [stream](super::stream) goes on, too.
//!
//! | header | meaning |
//! |---|---|
//! | 0 | no record has been published here yet |
//! | `len << 3 \| 1` | the first part, of `len` bytes, of a block of which more follows |
//! | `len << 3 \| 2` | a further part of a block, of which more follows |
//! | `len << 3 \| 3` | the last part of a block |
//! | `len << 3 \| 4` | a whole block of `len` bytes |
//! | `len << 3 \| 5` | padding: the next record is `len` bytes further on, at the start of the ring |
//! | `6` | the writer has left: nothing follows |
//! | `pe << 3 \| 7` | that PE has failed, the writer by a panic, or a reader: nothing follows |
//!
//! A writer may give up a block before its last part. A reader discards the parts of such a block
//! when the next block begins.

use crate::base::error::{Error, Result};
use crate::base::layout::MAX_HOSTED;
use crate::base::shm;
use std::cmp::Ordering;

const FIRST: u64 = 1;
const MORE: u64 = 2;
const LAST: u64 = 3;
const WHOLE: u64 = 4;
const PADDING: u64 = 5;
const END: u64 = 6;
const BROKEN: u64 = 7;

/// Records of up to this part of a short lap are short.
const SHORT_PART: u64 = 32;

/// The part of a block that a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    /// A block begins with it.
    pub(super) first: bool,
    /// A block ends with it.
    pub(super) last: bool,
}

impl Fragment {
    /// The whole block.
    pub(super) const WHOLE: Fragment = Fragment { first: true, last: true };
}

/// The meaning of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// Bytes of a block, and their part of it.
    Block { len: usize, part: Fragment },
    /// Bytes to skip.
    Padding { len: usize },
    /// Nothing follows. The log is whole, unless a PE has failed.
    End { failed: Option<usize> },
}

impl Header {
    pub(super) fn to_word(self) -> u64 {
        match self {
            Header::Block { len, part } => {
                let kind = match (part.first, part.last) {
                    (true, true) => WHOLE,
                    (true, false) => FIRST,
                    (false, false) => MORE,
                    (false, true) => LAST,
                };
                (len as u64) << 3 | kind
            }
            Header::Padding { len } => (len as u64) << 3 | PADDING,
            Header::End { failed: None } => END,
            Header::End { failed: Some(pe) } => (pe as u64) << 3 | BROKEN,
        }
    }
}

/// A ring in this process's memory, and the layout of its records.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    base: *mut u8,
    /// Bytes, a power of two.
    len: u64,
    /// Records and blocks begin at multiples of this number of bytes.
    unit: u64,
    /// Bytes of a lap of short records.
    lap: u64,
}

// SAFETY: `base` is an address in a window that the channel's end keeps, used through
// `crate::base::shm`, or by a guard that excludes writers.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// # Safety
    /// `base` is mapped, writable and aligned to `unit` for `len` bytes, a power of two and a
    /// multiple of `unit`, for as long as this is used.
    pub(super) unsafe fn new(base: *mut u8, len: u64, unit: u64) -> Self {
        debug_assert!(
            len.is_power_of_two() && unit.is_power_of_two() && unit >= 8 && len >= 4 * unit
        );
        Ring { base, len, unit, lap: len }
    }

    /// This ring with short laps of so many bytes, a power of two and no more than it has.
    pub(super) fn with_laps(self, lap: u64) -> Self {
        debug_assert!(lap.is_power_of_two() && lap <= self.len && lap >= 4 * self.unit);
        Ring { lap, ..self }
    }

    /// Bytes of a ring with room for `capacity` bytes, and for blocks of `element` bytes in place.
    pub(super) fn bytes(capacity: usize, element: usize, unit: u64) -> Option<u64> {
        let least = (element as u64).checked_add(2 * unit)?.checked_mul(4)?;
        (capacity as u64).max(least).checked_next_power_of_two().filter(|&bytes| bytes < 1 << 60)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// A reader reports after so many bytes.
    #[inline]
    pub(super) fn report_after(&self) -> u64 {
        self.lap / 8
    }

    /// Bytes of the largest block that fits into one record.
    pub(super) fn most(&self) -> usize {
        // Even after a padding record nearly as long, it leaves room for what readers have not
        // reported. A padding record that ends a short lap is longer: but the record behind it is
        // short, and a quarter of the lap would do.
        (self.len / 4 - self.unit) as usize
    }

    /// Bytes of a record with a block of `len` bytes.
    #[inline]
    pub(super) fn record(&self, len: usize) -> u64 {
        (self.unit + len as u64 + self.unit - 1) & !(self.unit - 1)
    }

    /// Bytes that are skipped before a record of `record` bytes at `position`. `goes_on`: whether a
    /// short record goes on beyond the end of a short lap.
    #[inline]
    pub(super) fn padding(
        &self,
        position: u64,
        record: u64,
        goes_on: impl FnOnce() -> bool,
    ) -> u64 {
        let left = self.left(position);
        let at = self.len - left;
        let crosses = at <= self.lap && at + record > self.lap;
        let ends_lap = || record <= self.lap / SHORT_PART && !goes_on();
        if left < record || crosses && ends_lap() { left } else { 0 }
    }

    /// Bytes from `position` on, before which records that end there need no padding.
    pub(super) fn run(&self, position: u64) -> u64 {
        let left = self.left(position);
        let at = self.len - left;
        match at.cmp(&self.lap) {
            Ordering::Less => self.lap - at,
            // Here the padding depends on the record.
            Ordering::Equal => 0,
            Ordering::Greater => left,
        }
    }

    /// Lines of a short lap.
    pub(super) fn lap_lines(&self) -> u64 {
        self.lap / 64
    }

    #[inline]
    pub(super) fn at(&self, position: u64) -> *mut u8 {
        self.base.wrapping_add((position & (self.len - 1)) as usize)
    }

    /// Address of the block of the record at `position`.
    #[inline]
    pub(super) fn block(&self, position: u64) -> *mut u8 {
        self.at(position).wrapping_add(self.unit as usize)
    }

    /// The header word at `position`, a multiple of the unit.
    #[inline]
    pub(super) fn word(&self, position: u64) -> u64 {
        // SAFETY: an aligned word of the ring, as `new`'s caller promised.
        unsafe { shm::load(self.at(position).cast_const().cast()) }
    }

    #[inline]
    pub(super) fn set_word(&self, position: u64, word: u64) {
        // SAFETY: as above.
        unsafe { shm::store(self.at(position).cast(), word) }
    }

    /// Bytes from `position` to the end of the ring.
    #[inline]
    fn left(&self, position: u64) -> u64 {
        self.len - (position & (self.len - 1))
    }

    /// The length of the block, if `word` is the header of a whole block at `position`, as most
    /// are.
    #[inline]
    pub(super) fn whole(&self, position: u64, word: u64) -> Option<usize> {
        let len = word >> 3;
        // `position` is a multiple of the unit, so that a header fits.
        (word & 7 == WHOLE && len + self.unit <= self.left(position)).then_some(len as usize)
    }

    /// Decodes a word that is not 0 as the header of a record at `position`, and checks all of it.
    pub(super) fn decode(&self, position: u64, word: u64) -> Result<Header> {
        if let Some(len) = self.whole(position, word) {
            let part = Fragment::WHOLE;
            return Ok(Header::Block { len, part });
        }
        let (len, left) = (word >> 3, self.left(position));
        match word & 7 {
            kind @ (FIRST | MORE | LAST) if len <= left.saturating_sub(self.unit) => {
                Ok(Header::Block {
                    len: len as usize,
                    part: Fragment { first: kind == FIRST, last: kind == LAST },
                })
            }
            PADDING if len == left => Ok(Header::Padding { len: len as usize }),
            END if len == 0 => Ok(Header::End { failed: None }),
            BROKEN if len < MAX_HOSTED as u64 => Ok(Header::End { failed: Some(len as usize) }),
            _ => Err(written_over()),
        }
    }
}

/// The error for words that no writer stores.
pub(super) fn written_over() -> Error {
    Error::misuse(
        "the ring of a multicast channel was written over: something stored to memory that is not its own",
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(memory: &mut [u64], unit: u64) -> Ring {
        let len = size_of_val(memory) as u64;
        // SAFETY: memory of the test. A larger unit than its alignment only matters to references,
        // which no test makes.
        unsafe { Ring::new(memory.as_mut_ptr().cast(), len, unit) }
    }

    /// Short records stay in the short lap, a long one goes on beyond it, as those of a stream do,
    /// and nothing lies across the end of either.
    #[test]
    fn short_laps() {
        let mut memory = vec![0u64; 1 << 12];
        let ring = ring(&mut memory, 8).with_laps(1 << 13);
        let short = (1 << 13) / SHORT_PART as usize - 8;
        let (mut position, mut farthest) = (0, 0);
        for size in (0..2000).map(|n| n * 7 % (short + 1)) {
            let record = ring.record(size);
            position += ring.padding(position, record, || false);
            farthest = farthest.max(position % ring.len() + record);
            position += record;
        }
        assert!((7 << 10..=8 << 10).contains(&farthest), "{farthest}");
        assert!(position > 20 * ring.len(), "each lap counts as a whole one");
        for (long, stream) in [(short + 1, false), (short, true)] {
            let (mut position, mut farthest) = (0, 0);
            for size in (0..2000).map(|n| if n % 9 == 0 { long } else { short }) {
                let record = ring.record(size);
                position += ring.padding(position, record, || stream);
                farthest = farthest.max(position % ring.len() + record);
                position += record;
            }
            assert!((31 << 10..=32 << 10).contains(&farthest), "{farthest}");
        }
    }

    proptest! {
        #[test]
        fn records_lie_apart_and_in_the_ring(sizes in proptest::collection::vec(0usize..112, 1..100), power in 3u32..5, lap in 6u32..10, stream: bool) {
            let mut memory = vec![0u64; 64];
            let ring = ring(&mut memory, 1 << power).with_laps(1 << lap);
            let mut position = 0;
            for size in sizes {
                let size = size.min(ring.most());
                let record = ring.record(size);
                let padding = ring.padding(position, record, || stream);
                prop_assert!(record > ring.run(position) || padding == 0);
                prop_assert!(padding < record || !stream && padding + 2 * record >= ring.len() - (1 << lap));
                if padding > 0 {
                    let word = Header::Padding { len: padding as usize }.to_word();
                    prop_assert_eq!(ring.decode(position, word).unwrap(), Header::Padding { len: padding as usize });
                    position += padding;
                    prop_assert_eq!(position % ring.len(), 0);
                }
                for (first, last) in [(true, true), (true, false), (false, false), (false, true)] {
                    let header = Header::Block { len: size, part: Fragment { first, last } };
                    prop_assert_eq!(ring.decode(position, header.to_word()).unwrap(), header);
                }
                let start = ring.block(position) as usize - ring.at(0) as usize;
                prop_assert!(start + size <= ring.len() as usize);
                prop_assert!(record + padding + 8 <= ring.len() - ring.report_after(), "it fits beside unreported bytes");
                position += record;
            }
        }

        #[test]
        fn any_word_is_a_header_in_the_ring_or_refused(word in 1u64.., near: u16, at in 0u64..64) {
            let mut memory = vec![0u64; 64];
            let ring = ring(&mut memory, 8);
            for word in [word, u64::from(near).max(1)] {
                match ring.decode(8 * at, word) {
                    Ok(Header::Block { len, .. }) => prop_assert!(8 * at + 8 + len as u64 <= 512),
                    Ok(Header::Padding { len }) => prop_assert_eq!(8 * at + len as u64, 512),
                    Ok(end @ Header::End { .. }) => prop_assert_eq!(word, end.to_word()),
                    Err(_) => {}
                }
            }
        }
    }
}
