//! A tree with eight children each: a parent sees all of its children arrive with one load. The
//! root announces completion to its children, and they to theirs. Up to nine members, this is one
//! step up and one down. Where the network copies writes, the root announces it to all at once.

use super::everyone::byte_mask;
use super::{Mailbox, Phases, Slot};
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use crate::endpoint::errand::{Step, Test, all_at};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

const FAN: usize = 8;

pub(super) struct Tree {
    /// This PE's byte in its parent's word.
    parent: Option<Mailbox>,
    children: Vec<Mailbox>,
    mask: u64,
    /// The last phase of which this PE has notified its parent.
    passed_up: AtomicU64,
}

impl Tree {
    pub(super) fn new(slot: &Slot) -> Self {
        let (rank, n) = (slot.rank, slot.members.len());
        let children: Vec<_> = (FAN * rank + 1..n.min(FAN * rank + FAN + 1))
            .map(|c| slot.mailbox(c, slot.word(c, offset_of!(BarrierSlot, release))))
            .collect();
        let parent = (rank > 0).then(|| {
            let up = (rank - 1) / FAN;
            slot.mailbox(up, slot.word(up, offset_of!(BarrierSlot, gather)).add((rank - 1) % FAN))
        });
        Tree { parent, mask: byte_mask(0..children.len()), children, passed_up: AtomicU64::new(0) }
    }
}

impl Phases for Tree {
    const PASSIVE: bool = false;

    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()> {
        // A leaf notifies its parent now; any other PE, after its children have arrived.
        self.poll(slot, phase).map(drop)
    }

    fn steps(&self, slot: &Slot, phase: u64, steps: &mut Vec<Step>) -> bool {
        let wait = |word, test| Step::Await { offset: slot.offset(word), test };
        let Tree { parent, children, mask, .. } = self;
        if !children.is_empty() {
            let test = Test::Bytes { mask: *mask, phase };
            steps.push(wait(offset_of!(BarrierSlot, gather), test));
        }
        if let Some(parent) = parent {
            steps.extend(parent.step(phase as u8));
            steps.push(wait(offset_of!(BarrierSlot, release), Test::AtLeast(phase)));
        }
        steps.extend(children.iter().filter_map(|child| child.step(phase)));
        let mut all = parent.iter().chain(children);
        slot.copies.is_none() && all.all(|other| other.step(0u8).is_some())
    }

    fn made(&self, phase: u64, notified: usize, complete: bool) {
        if complete || notified > 0 {
            self.passed_up.store(phase, Ordering::Relaxed);
        }
    }

    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool> {
        if self.passed_up.load(Ordering::Relaxed) < phase {
            if !all_at(slot.read_own(offset_of!(BarrierSlot, gather)), self.mask, phase) {
                return Ok(false);
            }
            if let Some(parent) = &self.parent {
                slot.notify(parent, phase as u8);
            }
            self.passed_up.store(phase, Ordering::Relaxed);
        }
        if self.parent.is_some() && slot.read_own(offset_of!(BarrierSlot, release)) < phase {
            return Ok(false);
        }
        match (&slot.copies, &self.parent) {
            (Some(copies), None) => {
                slot.notify_all(copies, offset_of!(BarrierSlot, release), phase);
            }
            (Some(_), Some(_)) => {}
            (None, _) => self.children.iter().for_each(|child| slot.notify(child, phase)),
        }
        Ok(true)
    }
}
