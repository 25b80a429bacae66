//! The library's groups: packets that the switches copy to all members.
//!
//! A packet to a group names no process of its own: all PEs of a job share the process number
//! [`ALL`], under which the driver registers the pages of each segment beside the PE's own number.
//! So one header fits all members, wherever their pages lie. A kick page for a group has a seed
//! with a region's address, which each member's receive TLB looks up.
//!
//! The drivers write a group's entry into the table of each switch between the members, one after
//! the other, when the last member has asked; then they tell the members by a store. One entry
//! serves all members as senders, because a switch sends no copy back to where a packet came from.

use crate::host::Wanted;
use crate::op::Op;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The process number that all PEs of a job share, for packets to groups.
pub const ALL: u32 = u32::MAX;
/// The first of the library's numbers for groups in the switches' tables. Those below it are for
/// programs that use the NIC without the library.
pub const FIRST: u16 = 1 << 15;
/// In a kick page's name, the PE that stands for a group: this and the group's number.
pub const GROUPS: u32 = 1 << 31;
/// The same for a barrier: this and the place of its group.
pub const BARRIERS: u32 = GROUPS | 1 << 30;

/// A group.
pub struct Group {
    pub members: Arc<[u32]>,
    pub wanted: Wanted,
    /// Its number in the switches' tables. None before all have joined, and when it has ended.
    pub number: Option<u16>,
    /// The calls of members that have asked to join.
    pub joining: Vec<Op>,
    /// Members that have left it.
    pub left: usize,
    /// Of a barrier: members that have arrived at the phase that is not complete, as the core
    /// processor of the first member's NIC counts them.
    pub arrived: usize,
    /// Of a barrier: the complete phases that each member's NIC has been told of.
    pub complete: BTreeMap<u32, u64>,
}

/// All groups of a machine.
#[derive(Default)]
pub struct Groups {
    /// Lists of members that were asked for. All members that ask share one.
    lists: Vec<Arc<[u32]>>,
    /// The groups of a list: one for each time that its members have asked.
    known: BTreeMap<(usize, Wanted), Vec<usize>>,
    /// How often a PE has asked for a list, for each purpose.
    asked: BTreeMap<(u32, usize, Wanted), usize>,
    pub groups: Vec<Group>,
    /// Numbers in use.
    pub taken: BTreeSet<u16>,
    /// PEs that have left the job.
    pub gone: BTreeSet<u32>,
}

impl Groups {
    /// The group that a PE asks for with these members, for this purpose.
    pub fn of(&mut self, pe: u32, members: &Arc<[u32]>, wanted: Wanted) -> usize {
        // Lists that share memory compare equal without being read.
        let list = self.lists.iter().position(|list| list == members).unwrap_or_else(|| {
            self.lists.push(members.clone());
            self.lists.len() - 1
        });
        let times = self.asked.entry((pe, list, wanted)).or_insert(0);
        let known = self.known.entry((list, wanted)).or_default();
        if known.len() == *times {
            known.push(self.groups.len());
            let members = self.lists[list].clone();
            self.groups.push(Group {
                members,
                wanted,
                number: None,
                joining: Vec::new(),
                left: 0,
                arrived: 0,
                complete: BTreeMap::new(),
            });
        }
        *times += 1;
        known[*times - 1]
    }
}
