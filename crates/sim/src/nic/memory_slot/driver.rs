//! What the driver sets up for programs: their process group, header seeds, pages that others may
//! write.
//!
//! The hardware checks none of this. A receiver believes a seed's group, and, if the seed says that
//! its address is physical, the address. So the driver stamps the program's own group, and refuses
//! every physical page that does not exist, or is the library's or another group's. A physical page
//! belongs to the first group that has it mapped or registered, or that writes it.
//!
//! Header table, TLBs and the registers with the users' groups lie behind [`CONTROL`], where the
//! MMU maps nothing for programs.

use super::header::{Header, JOB, Kind, PAGE};
use super::memory::{CONTROL, NicMemory};
use super::slot::{MemorySlot, Slot};
use crate::op::Op;
use crate::packet::{Destination, Node};

/// Refuses the library's process group.
fn is_free(group: u16) -> Result<(), String> {
    match group {
        JOB => Err(format!("process group {JOB} is the library's; take another number")),
        _ => Ok(()),
    }
}

impl MemorySlot {
    /// Puts a program into a process group.
    pub(super) fn attach(&mut self, op: Op, group: u16) -> Result<(), String> {
        is_free(group)?;
        self.user(op).group = group;
        Ok(())
    }

    /// The number under which the NIC knows a kick page of a program, if that is in its view.
    pub(super) fn in_view(&mut self, op: Op, kick_page: u64) -> Result<u32, String> {
        let pages = self.is.kick_pages();
        match kick_page < pages.into() {
            true => Ok(self.user(op).first_page + kick_page as u32),
            false => Err(format!(
                "there is no kick page {kick_page} in this program's view, which has {pages}"
            )),
        }
    }

    /// Fills an entry of a node's header table. The NIC writes the sender and the kind of packet.
    pub(super) fn map(
        &mut self,
        node: Node,
        op: Op,
        kick_page: u32,
        seed: Header,
    ) -> Result<(), String> {
        let page = self.in_view(op, kick_page.into())?;
        let group = self.user(op).group;
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
            let pages = targets.map(|target| (Node(target), seed.address / PAGE));
            pages.clone().try_for_each(|(target, page)| self.check_page(target, page, group))?;
            pages.for_each(|(target, page)| self.slot(target).frames.reserve(page, group));
        }
        self.user(op).kicks.give_to_program(kick_page);
        let seed = Header { kind: Kind::Aotf, promised: false, group, from: node, ..seed };
        self.slot(node).htlb.set(page, Some(seed.encode()))
    }

    /// Lets packets of the program's own group write to a physical page of its node.
    pub(super) fn register(
        &mut self,
        node: Node,
        op: Op,
        (group, process, region): (u16, u32, u32),
        page: u64,
        to: u64,
    ) -> Result<(), String> {
        is_free(group)?;
        let own = self.user(op).group;
        if group != own {
            return Err(format!(
                "a page for process group {group}, and the program is in group {own}: attach it to that group first"
            ));
        }
        self.check_page(node, to, group)?;
        let slot = self.slot(node);
        slot.frames.reserve(to, group);
        slot.receive_tlb.register(group, process, region, page, to);
        Ok(())
    }

    /// Refuses a physical page that the programs of a group may not have.
    fn check_page(&self, node: Node, page: u64, group: u16) -> Result<(), String> {
        let is = &self.is;
        let at = page
            .checked_mul(PAGE)
            .filter(|&at| NicMemory::has(is.llcm_bytes, is.bank_bytes, at, PAGE));
        let at = at.ok_or_else(|| format!("the NIC of node {} has no page {page:#x}", node.0))?;
        match self.owner(node, at) {
            None => Ok(()),
            Some(owner) if owner == group => Ok(()),
            Some(owner) => Err(format!(
                "page {page:#x} of the NIC of node {} is {}; take another",
                node.0,
                name(owner)
            )),
        }
    }

    /// The process group that has a physical address: the library's for its segments, and for the
    /// mailboxes in the last page of LLCM.
    fn owner(&self, node: Node, at: u64) -> Option<u16> {
        let frames = &self.slots[node.index()].frames;
        let is_librarys =
            at / PAGE == self.is.llcm_bytes / PAGE - 1 || frames.segment(at).is_some();
        if is_librarys { Some(JOB) } else { frames.group(at / PAGE) }
    }

    /// Refuses an access of a program to physical memory that is not in its view: the MMU of its
    /// host has no such page for it, and the access faults.
    pub(super) fn check_access(
        &mut self,
        node: Node,
        op: Op,
        at: u64,
        len: u64,
    ) -> Result<(), String> {
        if at >= CONTROL {
            return Err(format!(
                "an access at {at:#x} faults: header table, TLBs and process groups are the driver's; ask it (attach, map, register)"
            ));
        }
        if !NicMemory::has(self.is.llcm_bytes, self.is.bank_bytes, at, len) {
            return Err(format!("the NIC has no {len} bytes at {at:#x}"));
        }
        let group = self.user(op).group;
        for page in at / PAGE..(at + len).div_ceil(PAGE) {
            match self.owner(node, page * PAGE) {
                Some(owner) if owner != group => {
                    return Err(format!(
                        "an access to page {page:#x} of the NIC faults: the page is {}, and the program is in group {group}",
                        name(owner)
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives pages that a program writes, and that nobody has, to its group.
    pub(super) fn grant(&mut self, node: Node, op: Op, at: u64, len: u64) {
        let group = self.user(op).group;
        for page in at / PAGE..(at + len).div_ceil(PAGE) {
            self.slot(node).frames.reserve(page, group);
        }
    }

    fn slot(&mut self, node: Node) -> &mut Slot {
        &mut self.slots[node.index()]
    }
}

/// Whose a page is, in words.
fn name(owner: u16) -> String {
    match owner {
        JOB => "the library's".into(),
        group => format!("process group {group}'s"),
    }
}
