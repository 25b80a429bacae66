//! The receiver's checks. The receiver looks up a packet by process group, process, region and
//! page, unless the packet says that its address is physical.
//!
//! Behind the TLB is a table in DRAM that the driver fills. A page need not be in the TLB before a
//! packet comes. A packet for a page that the table does not have is dropped and counted.

use super::header::{Header, PAGE};
use std::collections::{BTreeMap, VecDeque};

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// No process of this group runs here.
    Group,
    /// The process does not run here, or is not in this group.
    Process,
    /// The process has no such region.
    Region,
    /// The address is beyond the region, or beyond the physical memory.
    Address,
}

/// A process by its group, as two groups may give one number to processes of theirs.
type Process = (u16, u32);

/// The physical pages of a process, by region and page in it.
type Pages = BTreeMap<(u32, u64), u64>;

/// The TLB of one NIC and the table behind it.
#[derive(Debug, Clone, Default)]
pub struct ReceiveTlb {
    entries: usize,
    table: BTreeMap<Process, Pages>,
    cached: BTreeMap<(Process, u32, u64), u64>,
    /// In the order of their coming.
    order: VecDeque<(Process, u32, u64)>,
}

impl ReceiveTlb {
    /// An empty one with room for so many pages.
    pub fn new(entries: usize) -> ReceiveTlb {
        ReceiveTlb { entries, ..ReceiveTlb::default() }
    }

    /// The driver makes a page of a process's region known.
    pub fn register(&mut self, group: u16, process: u32, region: u32, page: u64, physical: u64) {
        let process = (group, process);
        self.table.entry(process).or_default().insert((region, page), physical);
        let key = (process, region, page);
        if self.cached.remove(&key).is_some() {
            self.order.retain(|other| *other != key);
        }
    }

    /// The physical address, and whether the page had to be fetched; or why the packet is dropped.
    pub fn translate(&mut self, header: &Header) -> Result<(u64, bool), Refusal> {
        let (page, offset) = (header.address / PAGE, header.address % PAGE);
        let process = (header.group, header.process);
        let key = (process, header.region, page);
        if let Some(&physical) = self.cached.get(&key) {
            return Ok((physical * PAGE + offset, false));
        }
        let found = self.table.get(&process).and_then(|pages| pages.get(&(header.region, page)));
        let Some(&physical) = found else {
            return Err(self.why(header));
        };
        if self.order.len() == self.entries {
            let oldest = self.order.pop_front().expect("a TLB has at least one entry");
            self.cached.remove(&oldest);
        }
        self.order.push_back(key);
        self.cached.insert(key, physical);
        Ok((physical * PAGE + offset, true))
    }

    /// The first check that refuses the packet, in the order of the hardware's checks.
    fn why(&self, header: &Header) -> Refusal {
        let mut group = self.table.range((header.group, 0)..=(header.group, u32::MAX));
        if group.next().is_none() {
            return Refusal::Group;
        }
        match self.table.get(&(header.group, header.process)) {
            Some(pages) => {
                match pages.range((header.region, 0)..=(header.region, u64::MAX)).next() {
                    Some(_) => Refusal::Address,
                    None => Refusal::Region,
                }
            }
            None => Refusal::Process,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Kind;
    use super::*;
    use crate::packet::{Destination, Node};
    use proptest::prelude::*;

    fn header(group: u16, process: u32, region: u32, address: u64) -> Header {
        Header {
            kind: Kind::Botf,
            physical: false,
            promised: false,
            group,
            len: 8,
            process,
            region,
            address,
            to: Destination::Node(Node(0)),
            from: Node(1),
        }
    }

    #[test]
    fn each_check_refuses() {
        let mut tlb = ReceiveTlb::new(4);
        tlb.register(7, 1, 3, 0, 5);
        tlb.register(8, 2, 3, 0, 6);
        for _ in 0..2 {
            assert_eq!(tlb.translate(&header(9, 1, 3, 0)), Err(Refusal::Group));
            assert_eq!(
                tlb.translate(&header(8, 1, 3, 0)),
                Err(Refusal::Process),
                "of another group"
            );
            assert_eq!(tlb.translate(&header(7, 4, 3, 0)), Err(Refusal::Process));
            assert_eq!(tlb.translate(&header(7, 1, 4, 0)), Err(Refusal::Region));
            assert_eq!(tlb.translate(&header(7, 1, 3, PAGE)), Err(Refusal::Address));
            // The second time round the page is in the TLB, and that must change nothing.
            assert!(tlb.translate(&header(7, 1, 3, 12)).is_ok());
        }
        assert_eq!(tlb.translate(&header(7, 1, 3, 12)), Ok((5 * PAGE + 12, false)));
    }

    proptest! {
        /// With a TLB of any size the answers are those of the table alone.
        #[test]
        fn against_a_plain_map(entries in 1usize..5, steps in proptest::collection::vec((any::<bool>(), 0u16..2, 0u32..2, 0u32..2, 0u64..4, 0u64..99), 1..200)) {
            let mut tlb = ReceiveTlb::new(entries);
            let mut plain: BTreeMap<(u32, u32, u64), u64> = BTreeMap::new();
            for (register, group, process, region, page, physical) in steps {
                // A process is in one group all the time: that of its number.
                if register {
                    tlb.register(process as u16, process, region, page, physical);
                    plain.insert((process, region, page), physical);
                } else {
                    let expected = plain.get(&(process, region, page)).filter(|_| u32::from(group) == process).map(|physical| physical * PAGE + 1);
                    prop_assert_eq!(tlb.translate(&header(group, process, region, page * PAGE + 1)).ok().map(|(address, _)| address), expected);
                }
            }
        }
    }
}
