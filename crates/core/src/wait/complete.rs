//! Completing writes, and waking the PEs that they are for.

use super::polling;
use crate::base::error::Quick;
use crate::base::shm;
use crate::endpoint::fabric::Fabric;
use crate::endpoint::pe::Pe;

impl Pe {
    /// Orders everything before against everything after, at each PE.
    #[inline]
    pub(crate) fn fence(&self) -> Quick<()> {
        shm::compiler_fence();
        self.wake_completed();
        match self.far_fabric() {
            None => Ok(()),
            Some(fabric) => Ok(fabric.fence()?),
        }
    }

    /// Makes everything before visible at its targets, before anything that follows: loads too.
    #[inline]
    pub(crate) fn quiet(&self) -> Quick<()> {
        shm::full_fence();
        let completed = self.complete_without_waking();
        self.wake_completed();
        completed?;
        self.surface()
    }

    /// [`quiet`](Self::quiet) where it neither waits nor fails, and nobody records it. False: more
    /// has to be done than that, and nothing was.
    #[inline(always)]
    pub(crate) fn quiet_at_once(&self) -> bool {
        let is_near = self.has_only_near_writes();
        if is_near {
            shm::full_fence();
            self.wake_completed();
        }
        is_near
    }

    /// [`fence`](Self::fence), likewise.
    #[inline(always)]
    pub(crate) fn fence_at_once(&self) -> bool {
        let is_near = self.has_only_near_writes();
        if is_near {
            shm::compiler_fence();
            self.wake_completed();
        }
        is_near
    }

    #[inline(always)]
    fn has_only_near_writes(&self) -> bool {
        !self.has_fabric() && self.recorder().is_none() && !self.has_late()
    }

    /// [`quiet`](Self::quiet) of notifications, too: the PE is about to leave.
    pub(crate) fn quiet_all(&self) -> Quick<()> {
        shm::full_fence();
        let completed = self.far_fabric().map_or(Ok(()), <dyn Fabric>::quiet_all);
        self.wake_completed();
        completed?;
        self.surface()
    }

    /// [`quiet`](Self::quiet) before a store that announces it: near, stores keep their order by
    /// themselves. An error of an earlier write does not surface here: a protocol would take it for
    /// a failure of its own step, and leave in its midst.
    #[inline]
    pub(crate) fn complete_writes(&self) -> Quick<()> {
        let far = self.complete_without_waking();
        self.wake_written();
        far
    }

    /// The end of a fence or quiet: [`wake_written`](Self::wake_written). A program that again and
    /// again has nothing to complete polls.
    #[inline]
    fn wake_completed(&self) {
        if self.may_have_written() {
            self.wake_each_written();
        } else if self.polls() && !self.has_fabric() {
            polling::has_completed_nothing(self);
        }
    }

    /// Wakes those of `targets` that sleep: called after what they wait for was written.
    pub(crate) fn wake_all(&self, targets: impl Iterator<Item = usize> + Clone) {
        self.order_rings();
        if cfg!(not(loom)) && self.crowded() {
            super::wake::wake_elsewhere(self, targets.clone());
        }
        let all = self.record().is_one_node();
        // The fabric wakes those that are far.
        for target in targets.filter(|&target| all || self.is_near(target)) {
            self.control().doorbell(target).ring_ordered();
        }
    }
}
