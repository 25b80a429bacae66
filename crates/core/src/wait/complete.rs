//! Completing writes, and waking those that they are for.

use super::polling;
use crate::base::error::Quick;
use crate::base::shm;
use crate::endpoint::pe::Pe;

impl Pe {
    /// Orders everything before against everything after, at each PE.
    #[inline]
    pub(crate) fn fence(&self) -> Quick<()> {
        shm::compiler_fence();
        self.ring_completed();
        match self.far_fabric() {
            None => Ok(()),
            Some(fabric) => Ok(fabric.fence()?),
        }
    }

    /// Makes everything before visible at its targets, before anything that follows: loads too.
    #[inline]
    pub(crate) fn quiet(&self) -> Quick<()> {
        shm::full_fence();
        let completed = self.complete_unrung();
        self.ring_completed();
        completed?;
        self.surface()
    }

    /// [`quiet`](Self::quiet) where a store follows that tells of it: near, stores keep their order
    /// by themselves. What could not be returned earlier does not surface here: a protocol would
    /// take it for a failure of its own step, and leave in its midst.
    #[inline]
    pub(crate) fn complete_writes(&self) -> Quick<()> {
        let far = self.complete_unrung();
        self.ring_written();
        far
    }

    /// The end of a fence or quiet: [`ring_written`](Self::ring_written). A program that completes
    /// nothing again and again polls.
    #[inline]
    fn ring_completed(&self) {
        if self.may_have_written() {
            self.ring_each_written();
        } else if self.polls() && !self.has_far() {
            polling::has_completed_nothing(self);
        }
    }

    /// Wakes those of `targets` who sleep: called after what they wait for was written.
    pub(crate) fn ring_all(&self, targets: impl Iterator<Item = usize> + Clone) {
        self.order_rings();
        if cfg!(not(loom)) && self.crowded() {
            super::ring_elsewhere(self, targets.clone());
        }
        let all = self.record().is_one_node();
        // The fabric wakes those that are far.
        for target in targets.filter(|&target| all || self.is_near(target)) {
            self.control().doorbell(target).ring_ordered();
        }
    }
}
