//! Streams: records that come one close behind the other. Both ends find out by the clock, and do
//! for a stream what would be wrong for records that come now and then.
//!
//! **Readers let records gather.** The writer fills the line of the next record while a reader that
//! has caught up looks there. Each look takes the line from the writer, which gets it back for its
//! next word. So both go at the pace of a line between two caches, for each record anew. A reader
//! that is some records behind finds lines with which the writer is done. So a reader of a stream
//! that has caught up stays behind for a moment.
//!
//! * G1: *Only streams are delayed.* A reader stays behind only if, since it last waited, records
//!   came at most [`APART_CYCLES`] apart: closer than one there and one back.
//! * G2: *Where each record is waited for,* nothing shows whether the writer could go faster. Once
//!   in [`ALONE`] such records the reader stays behind to see that.
//! * G3: *A record comes at most [`BEHIND_CYCLES`] later* by this.
//!
//! **Writers leave the short lap.** What both ends have in their caches from the lap before must be
//! taken from the other core line by line, before it is written. In a longer lap the caches have
//! lost it, and lines come from behind them, several at once. That takes longer for one record, and
//! less for each of many. Either choice is right: the padding record says where the log goes on.

use crate::base::clock::cycles;
use crate::base::shm;

/// Records of a stream are at most so far apart.
const APART_CYCLES: u64 = 400;
/// How long a reader of a stream stays behind.
const BEHIND_CYCLES: u64 = 2000;
/// Of so many records that are waited for one by one, one is let gather.
const ALONE: u32 = 256;

/// What a reader has seen of a stream.
#[derive(Default)]
pub(super) struct Gather {
    /// Records since the reader last caught up.
    records: u64,
    /// When it went on after that.
    since: u64,
    /// Records that came alone, each waited for.
    alone: u32,
}

impl Gather {
    /// A record is consumed.
    #[inline(always)]
    pub(super) fn passed(&mut self) {
        self.records += 1;
    }

    /// The reader has caught up: it stays behind for a moment if that is of use.
    #[inline(never)]
    pub(super) fn caught_up(&mut self) {
        if self.records == 0 {
            return; // It has said so before in this wait.
        }
        let now = cycles();
        if !self.is_of_use(now) {
            return;
        }
        while cycles().wrapping_sub(now) < BEHIND_CYCLES {
            shm::pause();
        }
        self.since = cycles();
    }

    fn is_of_use(&mut self, now: u64) -> bool {
        let records = std::mem::take(&mut self.records);
        let taken = now.wrapping_sub(std::mem::replace(&mut self.since, now));
        if taken >= APART_CYCLES.saturating_mul(records) {
            return false; // G1
        }
        if records == 1 {
            self.alone = (self.alone + 1) % ALONE;
            return self.alone == 0; // G2
        }
        true
    }
}

/// When the writer began a lap of its ring.
pub(super) struct Lap(Option<u64>);

impl Lap {
    /// The first lap, of a writer that has written nothing.
    pub(super) const FIRST: Lap = Lap(None);

    pub(super) fn begin() -> Self {
        Lap(Some(cycles()))
    }

    /// Whether the `lines` that were written of this lap belong to a stream.
    pub(super) fn is_of_stream(&self, lines: u64) -> bool {
        self.0.is_some_and(|began| cycles().wrapping_sub(began) < APART_CYCLES * lines)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How often a reader stays behind that catches up after so many records, so far apart.
    fn stays(records: u32, apart: u64, times: u64) -> usize {
        let mut gather = Gather { since: 1 << 40, ..Gather::default() };
        let times = (1..=times).map(|time| (1 << 40) + time * apart * u64::from(records));
        let stays = times.filter(|&now| {
            (0..records).for_each(|_| gather.passed());
            gather.is_of_use(now)
        });
        stays.count()
    }

    #[test]
    fn only_streams_are_let_gather() {
        assert_eq!(stays(2, APART_CYCLES - 1, 100), 100);
        assert_eq!(stays(50, 30, 100), 100);
        assert_eq!(stays(2, APART_CYCLES, 100), 0);
        assert_eq!(stays(50, APART_CYCLES, 100), 0);
        assert_eq!(stays(0, 1, 100), 0, "a reader that waits and gets nothing");
    }

    #[test]
    fn records_that_are_waited_for_one_by_one_are_seldom_let_gather() {
        assert_eq!(stays(1, 100, u64::from(10 * ALONE)), 10);
        assert_eq!(stays(1, APART_CYCLES, u64::from(10 * ALONE)), 0);
    }

    #[test]
    fn a_first_lap_and_a_slow_one_are_no_streams() {
        assert!(!Lap::FIRST.is_of_stream(u64::MAX / APART_CYCLES));
        let lap = Lap::begin();
        assert!(lap.is_of_stream(u64::MAX / APART_CYCLES));
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(!lap.is_of_stream(1));
    }
}
