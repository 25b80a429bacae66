//! Where the pages of segments lie in the NIC of their PEs. The library's driver decides that.
//!
//! The host sees 128 KiB of LLCM at once, and the banks only after a switch, which takes far longer
//! than anything else here. So a page gets a place in LLCM as long as there is one, with two
//! exceptions that keep LLCM for what needs it most:
//!
//! * Part of LLCM (`receive.llcm_for_words`) is kept for words that PEs wait for, and for blocks of
//!   one packet.
//! * A larger block gets places in LLCM for all of its new pages, or for none: a switch shows all
//!   that has come into the bank, so a block of which a part lies there would need one anyway.
//!
//! The first write to a page decides, for good.
//!
//! The last page of LLCM is kept for the mailboxes of agents, which need no place of their own.

use super::header::PAGE;
use super::memory::BANK;
use memonet_core::unstable::fabric::FarAddress;
use std::collections::BTreeMap;

/// A page of a segment: PE, region, and number in it.
pub type SegmentPage = (u32, u32, u64);

/// The places in one NIC.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    place: BTreeMap<SegmentPage, u64>,
    what: BTreeMap<u64, SegmentPage>,
    /// Physical pages that programs have, and the process group of each.
    reserved: BTreeMap<u64, u16>,
    /// How many physical pages of each memory have been given out or passed over.
    in_llcm: u64,
    in_bank: u64,
}

impl Frames {
    /// The physical page of a segment's page. A page without one gets one now: in LLCM, if
    /// `llcm_too` allows that and a page is free, or in the bank. Returns nothing when the bank is
    /// full.
    pub fn place(
        &mut self,
        page: SegmentPage,
        llcm_too: bool,
        llcm: u64,
        bank: u64,
    ) -> Option<u64> {
        if let Some(&physical) = self.place.get(&page) {
            return Some(physical);
        }
        let mut in_llcm = if llcm_too { self.in_llcm..llcm / PAGE - 1 } else { 0..0 };
        let physical = match in_llcm.find(|page| !self.reserved.contains_key(page)) {
            Some(page) => {
                self.in_llcm = page + 1;
                page
            }
            None => {
                let mut in_bank = BANK / PAGE + self.in_bank..(BANK + bank) / PAGE;
                let page = in_bank.find(|page| !self.reserved.contains_key(page))?;
                self.in_bank = page + 1 - BANK / PAGE;
                page
            }
        };
        self.place.insert(page, physical);
        self.what.insert(physical, page);
        Some(physical)
    }

    /// Whether all of these pages have a place in LLCM, or get one that leaves `kept` pages free.
    pub fn fit(&self, pages: impl Iterator<Item = SegmentPage>, kept: u64, llcm: u64) -> bool {
        let new = pages.filter(|page| !self.place.contains_key(page)).count() as u64;
        let last = llcm / PAGE - 1;
        let free =
            (self.in_llcm..last).filter(|page| !self.reserved.contains_key(page)).count() as u64;
        new + kept <= free
    }

    /// Keeps a physical page for the programs of a process group.
    pub fn reserve(&mut self, physical: u64, group: u16) {
        self.reserved.insert(physical, group);
    }

    /// The process group whose programs have a physical page, if any has it.
    pub fn group(&self, physical: u64) -> Option<u16> {
        self.reserved.get(&physical).copied()
    }

    /// What lies at a physical address; nothing where no segment lies.
    pub fn segment(&self, physical: u64) -> Option<FarAddress> {
        let &(pe, region, page) = self.what.get(&(physical / PAGE))?;
        Some(FarAddress { pe, region, offset: page * PAGE + physical % PAGE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each page has one place, each place one page; LLCM is never given to a page that began
        /// large.
        #[test]
        fn there_and_back(pages in proptest::collection::vec((0u32..3, 0u64..20, any::<bool>()), 1..100)) {
            let mut frames = Frames::default();
            let mut first: BTreeMap<(u32, u64), (bool, u64)> = BTreeMap::new();
            for (region, page, small) in pages {
                let physical = frames.place((3, region, page), small, 8 * PAGE, 1 << 20).unwrap();
                let &mut (was_small, was) = first.entry((region, page)).or_insert((small, physical));
                prop_assert_eq!(physical, was);
                prop_assert_eq!(frames.segment(physical * PAGE + 7), Some(FarAddress { pe: 3, region, offset: page * PAGE + 7 }));
                prop_assert!(was_small || physical * PAGE >= BANK);
                prop_assert!(physical < 7 || physical * PAGE >= BANK);
            }
        }
    }

    #[test]
    fn pages_of_programs_are_passed_over() {
        let (mut frames, bank) = (Frames::default(), BANK / PAGE);
        [0, 2, bank + 1].into_iter().for_each(|page| frames.reserve(page, 7));
        let places = (0..6).map(|page| frames.place((0, 0, page), true, 5 * PAGE, 4 * PAGE));
        assert!(places.eq([Some(1), Some(3), Some(bank), Some(bank + 2), Some(bank + 3), None]));
    }

    #[test]
    fn blocks_fit_into_what_is_not_kept() {
        let (mut frames, llcm) = (Frames::default(), 8 * PAGE);
        let fit = |frames: &Frames, pages: std::ops::Range<u64>| {
            frames.fit(pages.map(|page| (0, 0, page)), 3, llcm)
        };
        assert!(fit(&frames, 0..4) && !fit(&frames, 0..5), "7 pages, of which 3 are kept");
        assert_eq!(frames.place((0, 0, 2), true, llcm, PAGE), Some(0));
        assert!(fit(&frames, 0..4) && !fit(&frames, 3..7), "page 2 has its place");
        frames.reserve(1, 7);
        assert!(fit(&frames, 0..3) && !fit(&frames, 0..4), "a program has page 1");
        frames.reserve(0, 7);
        assert!(fit(&frames, 0..3), "page 0 was given out before");
    }

    #[test]
    fn both_memories_come_to_an_end() {
        let mut frames = Frames::default();
        let places = (0..9).map(|page| frames.place((0, 0, page), true, 4 * PAGE, 5 * PAGE));
        let bank = BANK / PAGE;
        let expected = [0, 1, 2, bank, bank + 1, bank + 2, bank + 3, bank + 4]
            .map(Some)
            .into_iter()
            .chain([None]);
        assert!(places.eq(expected), "the last page of LLCM is the mailboxes'");
    }
}
