//! The kick pages of a PE: for which page of a segment each is mapped.

use std::collections::{BTreeMap, BTreeSet};

/// A page of a segment: PE, region, and number of the page in the region.
pub type Target = (u32, u32, u64);

/// The kick pages of one PE.
#[derive(Debug, Clone, Default)]
pub struct KickPages {
    by_target: BTreeMap<Target, u32>,
    by_page: BTreeMap<u32, Target>,
    /// Pages that the program has mapped by itself.
    programs: BTreeSet<u32>,
    next: u32,
}

impl KickPages {
    /// Gives out this page first.
    pub fn beginning_at(next: u32) -> KickPages {
        KickPages { next, ..KickPages::default() }
    }

    /// The kick page of a page of a segment, if it has one.
    pub fn get(&self, target: Target) -> Option<u32> {
        self.by_target.get(&target).copied()
    }

    /// Gives a kick page to a page of a segment that has none. When none of the `pages` kick pages
    /// is free, the page that was mapped first loses its own. Nothing, when the program has all.
    pub fn map(&mut self, target: Target, pages: u32) -> Option<u32> {
        let mut candidates = (0..pages).map(|step| (self.next + step) % pages);
        let page = candidates.find(|page| !self.programs.contains(page))?;
        self.next = (page + 1) % pages;
        if let Some(given_up) = self.by_page.insert(page, target) {
            self.by_target.remove(&given_up);
        }
        self.by_target.insert(target, page);
        Some(page)
    }

    /// Gives a page to the program. What the library had it for gets another when it is needed.
    pub fn give_to_program(&mut self, page: u32) {
        if let Some(given_up) = self.by_page.remove(&page) {
            self.by_target.remove(&given_up);
        }
        self.programs.insert(page);
    }
}
