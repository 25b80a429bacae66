//! What the driver sets up for programs: their process group, header seeds, pages that others may
//! write.
//!
//! The hardware checks none of this. A receiver believes a seed's group, and, if the seed says that
//! its address is physical, the address. So the driver refuses a seed of another group than the
//! program's, and every physical page that does not exist or is the library's.

use super::header::{Header, JOB, Kind, PAGE};
use super::memory::NicMemory;
use super::slot::MemorySlot;
use crate::packet::{Destination, Node};

/// Refuses the library's process group.
fn is_free(group: u16) -> Result<(), String> {
    match group {
        JOB => Err(format!("process group {JOB} is the library's; take another number")),
        _ => Ok(()),
    }
}

impl MemorySlot {
    /// Puts the program on a node into a process group.
    pub(super) fn attach(&mut self, node: Node, group: u16) -> Result<(), String> {
        is_free(group)?;
        self.slots[node.index()].group = group;
        Ok(())
    }

    /// Fills an entry of a node's header table. The NIC writes the sender and the kind of packet.
    pub(super) fn map(&mut self, node: Node, kick_page: u32, seed: Header) -> Result<(), String> {
        let group = self.slots[node.index()].group;
        if !seed.physical && seed.group != group {
            return Err(format!(
                "a header seed of process group {}, and the program is in group {group}: attach it to that group first",
                seed.group
            ));
        }
        let targets = match seed.to {
            Destination::Node(node) => node.0..node.0 + 1,
            _ => 0..self.slots.len() as u32,
        };
        if let Some(target) = targets.clone().find(|&target| target as usize >= self.slots.len()) {
            return Err(format!("a header seed for node {target}: there is no node {target}"));
        }
        if seed.physical {
            let page = seed.address / PAGE;
            targets.clone().try_for_each(|target| self.check_page(Node(target), page))?;
            targets.for_each(|target| self.slots[target as usize].frames.reserve(page));
        }
        let seed = Header { kind: Kind::Aotf, promised: false, from: node, ..seed };
        self.slots[node.index()].htlb.set(kick_page, Some(seed.encode()))
    }

    /// Lets packets of a group write to a physical page of a node.
    pub(super) fn register(
        &mut self,
        node: Node,
        group: u16,
        (process, region): (u32, u32),
        page: u64,
        to: u64,
    ) -> Result<(), String> {
        is_free(group)?;
        self.check_page(node, to)?;
        let slot = &mut self.slots[node.index()];
        slot.frames.reserve(to);
        slot.receive_tlb.register(group, process, region, page, to);
        Ok(())
    }

    /// Refuses a physical page that a program may not have.
    fn check_page(&self, node: Node, page: u64) -> Result<(), String> {
        let is = &self.is;
        let at = page
            .checked_mul(PAGE)
            .filter(|&at| NicMemory::has(is.llcm_bytes, is.bank_bytes, at, PAGE));
        let at = at.ok_or_else(|| format!("the NIC of node {} has no page {page:#x}", node.0))?;
        if at == is.llcm_bytes - PAGE || self.slots[node.index()].frames.segment(at).is_some() {
            return Err(format!(
                "page {page:#x} of the NIC of node {} is the library's; take another",
                node.0
            ));
        }
        Ok(())
    }
}
