//! A team's group for writes that the network copies.

use crate::base::error::Result;
use crate::base::shm::Word;
use crate::base::unwinding::unwinds;
use crate::endpoint::fabric::CopyGroup;
use crate::endpoint::pe::Pe;
use std::sync::Arc;

/// The least members. For one other member nothing is copied.
const LEAST: usize = 3;
/// The slot of the world, which all PEs make before any other team. Its group ends with the job.
const FIRST: usize = 0;

/// A group by which a member writes to all others at once. The group ends when all members have
/// dropped it.
pub(crate) struct Copies {
    pe: Arc<Pe>,
    group: CopyGroup,
    slot: usize,
}

impl Copies {
    /// Joins the group for the team in this slot, if the network serves it. All members come to the
    /// same answer: it depends on the fabric's answer alone, which is alike at all. Joining is a
    /// call in which a PE relays nothing, so all members must come to it without waiting for one
    /// that is there already.
    pub(crate) fn join(pe: &Arc<Pe>, members: &[usize], slot: usize) -> Result<Option<Arc<Self>>> {
        // Where PEs share nodes, these have faster ways.
        let asks = members.len() >= LEAST && pe.has_fabric() && !pe.record().is_mixed();
        let Some(offered) = (if asks { pe.fabric().copied_writes() } else { None }) else {
            return Ok(None);
        };
        let group = offered.join((slot != FIRST).then_some(members))?;
        Ok(group.map(|group| Arc::new(Copies { pe: pe.clone(), group, slot })))
    }

    /// Writes bytes at one offset of the segments of all other members. They become visible at each
    /// in the order of calls.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes.
    pub(crate) unsafe fn write(&self, to: u64, src: *const u8, len: usize) -> Result<()> {
        let offered = self.pe.fabric().copied_writes().expect("a fabric that has given a group");
        // SAFETY: as the caller promises.
        unsafe { offered.write(self.group, to, src, len) }
    }

    /// Stores a word at one offset of the segments of all other members.
    pub(crate) fn store<T: Word>(&self, to: u64, value: T) -> Result<()> {
        let bits = value.to_bits();
        // SAFETY: `bits` has 8 bytes, and a word at most as many. memonet runs on little-endian
        // processors only.
        unsafe { self.write(to, (&raw const bits).cast(), size_of::<T>()) }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // A PE that unwinds makes no calls of the fabric.
        if self.slot != FIRST
            && !unwinds()
            && let Some(offered) = self.pe.fabric().copied_writes()
            && let Err(error) = offered.leave(self.group)
        {
            self.pe.surface_later(error);
        }
    }
}
