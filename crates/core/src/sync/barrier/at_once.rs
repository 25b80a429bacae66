//! Passing a barrier in a call in which nothing else has to be done.
//!
//! Between the look that finds the others' arrivals and the next store of this PE, each instruction
//! adds to the barrier's time where CPUs are near. So what a general call checks step by step is
//! asked here in one place: all members are near, each with a CPU of its own; nobody records; the
//! process has one thread; the phase before is complete. Then a call has nothing to do but to wake
//! whom it has written to, to arrive, and to look. What else it has to note, it notes once it has
//! arrived, while the others' lines are under way.

use super::{Barrier, Phases, Selected, Slot};
use crate::base::shm;
use crate::endpoint::ending;
use crate::wait;
use std::sync::atomic::Ordering;

/// What [`Barrier::pass_at_once`] has done.
pub(crate) enum AtOnce {
    /// Arrived, and the phase is complete.
    Passed,
    /// Arrived. The call has to wait: [`Barrier::go_on_passing`].
    Arrived,
    /// Nothing: the general call follows.
    Nothing,
}

/// Whether a barrier of these members can ever be passed at once.
pub(super) fn is_possible(slot: &Slot, way: &Selected) -> bool {
    slot.pe.calls_at_once() && slot.copies.is_none() && matches!(way, Selected::Everyone(_))
}

impl Barrier {
    /// Arrives at the next phase, and looks for its end, if nothing else has to be done. `note` is
    /// called once this PE has arrived. The thread must be in no call of a team, which this one
    /// would be a part of.
    #[inline(always)]
    pub(crate) fn pass_at_once(&self, note: impl FnOnce()) -> AtOnce {
        let Selected::Everyone(way) = &self.way else { return AtOnce::Nothing };
        let before = self.phase();
        // Of a process with one thread, none other can be in this barrier from here to the end.
        if !self.at_once
            || !shm::is_single_threaded()
            || self.busy.load(Ordering::Relaxed)
            || self.complete.load(Ordering::Relaxed) != before
            || ending::refusal(&self.slot.pe).is_some()
        {
            return AtOnce::Nothing;
        }
        let (slot, phase) = (&self.slot, before + 1);
        // As in `arrive_next`: near, stores keep their order, and `publish_done` comes before the
        // arrival.
        slot.pe.wake_written();
        slot.publish_done(phase);
        if way.arrive(slot, phase).is_err() {
            unreachable!("a near member can be told");
        }
        self.arrived.store(phase, Ordering::Relaxed);
        note();
        if !wait::look_awake(|| way.is_complete(slot, phase)) {
            return AtOnce::Arrived;
        }
        self.complete.store(phase, Ordering::Relaxed);
        AtOnce::Passed
    }
}
