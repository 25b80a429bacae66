//! Where the pages of a PE's segment lie in its NIC: what the library's driver decides.
//!
//! 128 KiB of LLCM are seen at once, the banks only after a switch that takes far longer than anything else here. So LLCM is for what is waited
//! for and for what is small: a page gets a place in LLCM if the first that is written to it fits into one small packet, as long as there are
//! places; else it lies in the banks, for good.

use super::header::PAGE;
use super::memory::BANK;
use std::collections::BTreeMap;

/// The first of the regions that are mailboxes of agents ([`crate::agent`]). They lie in the last page of LLCM, which is kept for them, and
/// packets to them need no place of their own here.
pub const MAILBOXES: u32 = u32::MAX - 1;

/// A page of a segment: region, and number in it.
pub type SegmentPage = (u32, u64);

/// The places of one PE's pages.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    place: BTreeMap<SegmentPage, u64>,
    what: BTreeMap<u64, SegmentPage>,
    in_llcm: u64,
    in_bank: u64,
}

impl Frames {
    /// The physical page of a segment's page, which gets one now if it has none; nothing when the bank is full.
    pub fn place(&mut self, page: SegmentPage, small: bool, llcm: u64, bank: u64) -> Option<u64> {
        if let Some(&physical) = self.place.get(&page) {
            return Some(physical);
        }
        let physical = if small && self.in_llcm < llcm / PAGE - 1 {
            self.in_llcm += 1;
            self.in_llcm - 1
        } else if self.in_bank < bank / PAGE {
            self.in_bank += 1;
            BANK / PAGE + self.in_bank - 1
        } else {
            return None;
        };
        self.place.insert(page, physical);
        self.what.insert(physical, page);
        Some(physical)
    }

    /// What lies at a physical address: region and offset. Nothing where no segment does.
    pub fn segment(&self, physical: u64) -> Option<(u32, u64)> {
        let &(region, page) = self.what.get(&(physical / PAGE))?;
        Some((region, page * PAGE + physical % PAGE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each page has one place, each place one page; LLCM is never given to a page that began large.
        #[test]
        fn there_and_back(pages in proptest::collection::vec((0u32..3, 0u64..20, any::<bool>()), 1..100)) {
            let mut frames = Frames::default();
            let mut first: BTreeMap<SegmentPage, (bool, u64)> = BTreeMap::new();
            for (region, page, small) in pages {
                let physical = frames.place((region, page), small, 8 * PAGE, 1 << 20).unwrap();
                let &mut (was_small, was) = first.entry((region, page)).or_insert((small, physical));
                prop_assert_eq!(physical, was);
                prop_assert_eq!(frames.segment(physical * PAGE + 7), Some((region, page * PAGE + 7)));
                prop_assert!(was_small || physical * PAGE >= BANK);
                prop_assert!(physical < 7 || physical * PAGE >= BANK);
            }
        }
    }

    #[test]
    fn both_memories_come_to_an_end() {
        let mut frames = Frames::default();
        let places = (0..9).map(|page| frames.place((0, page), true, 4 * PAGE, 5 * PAGE));
        let bank = BANK / PAGE;
        let expected = [0, 1, 2, bank, bank + 1, bank + 2, bank + 3, bank + 4]
            .map(Some)
            .into_iter()
            .chain([None]);
        assert!(places.eq(expected), "the last page of LLCM is the mailboxes'");
    }
}
