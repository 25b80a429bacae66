//! The kick pages of a PE: for which page of a segment each is mapped.

use std::collections::BTreeMap;

/// A page of a segment: PE, region, and number of the page in the region.
pub type Target = (u32, u32, u64);

/// The kick pages of one PE.
#[derive(Debug, Clone, Default)]
pub struct KickPages {
    by_target: BTreeMap<Target, u32>,
    by_page: BTreeMap<u32, Target>,
    next: u32,
}

impl KickPages {
    /// The kick page of a page of a segment, if it has one.
    pub fn get(&self, target: Target) -> Option<u32> {
        self.by_target.get(&target).copied()
    }

    /// Gives a kick page to a page of a segment that has none. When none of the `pages` kick pages
    /// is free, the page that was mapped first loses its own.
    pub fn map(&mut self, target: Target, pages: u32) -> u32 {
        let page = self.next % pages;
        self.next = (page + 1) % pages;
        if let Some(given_up) = self.by_page.insert(page, target) {
            self.by_target.remove(&given_up);
        }
        self.by_target.insert(target, page);
        page
    }
}
