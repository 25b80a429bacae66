//! The header TLB: from the page of a kick address to a header seed.
//!
//! It has `tags / ways` sets of `ways` ways. A tag has `tag_bits` bits, so that sets times
//! 2^`tag_bits` pages can be kicked. Each tag has four words of the seed memory. A page that the
//! TLB does not hold is fetched from the header table in DRAM, which the driver fills. It replaces
//! the page that came into its set first.

use std::collections::BTreeMap;

/// The shape: from the machine file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Ways of a set.
    pub ways: u32,
    /// Number of sets, a power of two.
    pub sets: u32,
    /// Bits of a tag.
    pub tag_bits: u32,
}

impl Shape {
    /// Number of pages that can be kicked.
    pub fn pages(self) -> u64 {
        u64::from(self.sets) << self.tag_bits
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Way {
    valid: bool,
    tag: u16,
}

#[derive(Debug, Clone)]
struct Set {
    ways: Vec<Way>,
    /// The seed memory of these ways, four words each.
    seeds: Vec<u64>,
    next: u32,
}

/// The TLB of one NIC and the header table behind it.
#[derive(Debug, Clone)]
pub struct Htlb {
    shape: Shape,
    /// Only those that were ever filled.
    sets: BTreeMap<u32, Set>,
    /// In DRAM: by page.
    table: BTreeMap<u32, [u64; 4]>,
}

/// A page found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its seed.
    pub seed: [u64; 4],
    /// Whether it had to be fetched.
    pub missed: bool,
}

impl Htlb {
    /// An empty one.
    pub fn new(shape: Shape) -> Htlb {
        Htlb { shape, sets: BTreeMap::new(), table: BTreeMap::new() }
    }

    fn split(&self, page: u32) -> (u32, u16) {
        (page % self.shape.sets, (page / self.shape.sets) as u16)
    }

    /// Writes an entry of the header table, or removes it, and drops the page from the TLB.
    ///
    /// # Errors
    /// When the page is beyond what tags can tell apart.
    pub fn set(&mut self, page: u32, seed: Option<[u64; 4]>) -> Result<(), String> {
        if u64::from(page) >= self.shape.pages() {
            return Err(format!("there is no kick page {page}, only {}", self.shape.pages()));
        }
        match seed {
            Some(seed) => self.table.insert(page, seed),
            None => self.table.remove(&page),
        };
        let (set, tag) = self.split(page);
        if let Some(set) = self.sets.get_mut(&set) {
            set.ways.iter_mut().filter(|way| way.tag == tag).for_each(|way| way.valid = false);
        }
        Ok(())
    }

    /// Looks a page up, and fetches it when the TLB does not hold it. Returns nothing when the
    /// header table has no such page: the store is to an address that is not mapped.
    pub fn look(&mut self, page: u32) -> Option<Found> {
        let (number, tag) = self.split(page);
        let ways = self.shape.ways;
        if let Some(set) = self.sets.get(&number)
            && let Some(way) = set.ways.iter().position(|way| way.valid && way.tag == tag)
        {
            let seed = set.seeds[4 * way..4 * way + 4].try_into().expect("four words");
            return Some(Found { seed, missed: false });
        }
        let seed = *self.table.get(&page)?;
        let set = self.sets.entry(number).or_insert_with(|| Set {
            ways: vec![Way::default(); ways as usize],
            seeds: vec![0; 4 * ways as usize],
            next: 0,
        });
        // A way that the driver has emptied is filled first.
        let way = set.ways.iter().position(|way| !way.valid).unwrap_or_else(|| {
            let way = set.next;
            set.next = (way + 1) % ways;
            way as usize
        });
        set.ways[way] = Way { valid: true, tag };
        set.seeds[4 * way..4 * way + 4].copy_from_slice(&seed);
        Some(Found { seed, missed: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Shape = Shape { ways: 4, sets: 4, tag_bits: 3 };

    proptest! {
        /// It answers what a plain map answers, after any changes; it holds no more than it has
        /// room for, and what was just looked up is there.
        #[test]
        fn against_a_plain_map(steps in proptest::collection::vec((0u32..32, proptest::option::weighted(0.3, any::<[u64; 4]>()), 0u8..4), 1..300)) {
            let (mut htlb, mut plain) = (Htlb::new(SMALL), BTreeMap::new());
            for (page, seed, what) in steps {
                match (what, seed) {
                    (0, None) => {
                        htlb.set(page, None).unwrap();
                        plain.remove(&page);
                    }
                    (_, Some(seed)) => {
                        htlb.set(page, Some(seed)).unwrap();
                        plain.insert(page, seed);
                    }
                    _ => {
                        prop_assert_eq!(htlb.look(page).map(|found| found.seed), plain.get(&page).copied());
                        if plain.contains_key(&page) {
                            prop_assert!(!htlb.look(page).unwrap().missed);
                        }
                    }
                }
            }
        }

        /// Without changes to the table, each set holds the last four different pages that missed.
        #[test]
        fn misses_are_those_of_four_ways(looks in proptest::collection::vec(0u32..32, 1..300)) {
            let mut htlb = Htlb::new(SMALL);
            (0..32).for_each(|page| htlb.set(page, Some([page.into(); 4])).unwrap());
            let mut held: [Vec<u32>; 4] = Default::default();
            for page in looks {
                let set = &mut held[(page % 4) as usize];
                let missed = !set.contains(&page);
                if missed {
                    set.push(page);
                    if set.len() > 4 {
                        set.remove(0);
                    }
                }
                prop_assert_eq!(htlb.look(page), Some(Found { seed: [page.into(); 4], missed }));
            }
        }
    }

    #[test]
    fn pages_beyond_the_tags_are_refused() {
        let mut htlb = Htlb::new(SMALL);
        assert!(htlb.set(31, Some([1; 4])).is_ok());
        assert!(htlb.set(32, Some([1; 4])).unwrap_err().contains("32"));
        assert_eq!(htlb.look(30), None);
    }
}
