//! What a wait depends on, and when it ends without what it looks for.
//!
//! # One order of deaths
//!
//! *Contract.* If PEs die that a wait depends on, the wait names the one that died first, in an
//! order of all deaths of the job that is one for all its nodes. So waits that depend on the same
//! PEs name the same one, on whatever node they are.
//!
//! *Proof.* 1. On one node, the launcher publishes deaths one after the other, each with the next
//! [place](crate::base::status::Place). On several, their one launcher gives the places and tells
//! each node's agent in their order, and the agent publishes in that order. Under another launcher,
//! one of the agents does so (`fabrics/src/wired/order.rs`). So at any moment, a node has published
//! a beginning of the order. 2. A death and its place are one word, which does not change. 3. A
//! look at all members is not one moment. But when a first look has found a death in place p, all
//! deaths before it are published; a second look therefore sees each of them, and the least place
//! it finds among the members is p or the least of those before it. A death that is published
//! meanwhile has a later place than these. 4. Of two waits with the same members, both of which
//! have seen a death, each names the least place of a beginning of the order. The longer beginning
//! only adds later places, so it is the same one.
//!
//! *Limits.* PEs of [`Job::threads`](crate::Job::threads), and on one node those of other
//! launchers, publish deaths themselves, so two that die at once may be seen in either order. An
//! agent that hears nothing of who gives the places publishes a death in the [last
//! place](crate::base::status::Place::LAST), until it gets one.

use super::attention;
use super::limit::Patience;
use crate::base::error::{Cause, Error};
use crate::base::shm;
use crate::endpoint::awaiting::Awaiting;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;

/// What a wait depends on, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) awaiting: Awaiting<'a>,
    pub(crate) patience: Patience<'a>,
    /// When the wait began: in cycles, or in virtual nanoseconds; 0: not yet.
    pub(super) since: u64,
    pub(super) is_uninterrupted: bool,
}

impl<'a> Terms<'a> {
    /// A wait for as long as it takes.
    #[inline(always)]
    pub(crate) fn forever(awaiting: Awaiting<'a>) -> Self {
        Terms::new(awaiting, Patience::Forever)
    }

    /// A wait within a limit.
    #[inline(always)]
    pub(crate) fn new(awaiting: Awaiting<'a>, patience: Patience<'a>) -> Self {
        Terms { awaiting, patience, since: 0, is_uninterrupted: false }
    }

    /// A wait that a call for attention does not end: others depend on what its caller does next.
    #[inline(always)]
    pub(crate) fn uninterrupted(self) -> Self {
        Terms { is_uninterrupted: true, ..self }
    }

    /// Whether a call for attention may end the wait now.
    #[inline(always)]
    pub(super) fn is_called(&self, pe: &Pe) -> bool {
        attention::is_called(pe) && !self.is_uninterrupted
    }

    /// The rest of a wait of a simulated PE, which has just looked in vain.
    #[cold]
    pub(crate) fn go_on(self, pe: &Pe) -> Self {
        Terms { since: crate::wait::nanos(pe).max(1), ..self }
    }

    /// The error with which the wait must end, if what it waits for has not happened.
    pub(crate) fn departed(&self, pe: &Pe) -> Option<Error> {
        self.lost_member(pe).or_else(|| match self.awaiting {
            Awaiting::Leave => None,
            _ if self.is_uninterrupted => None,
            _ => pe.lost_neighbour(),
        })
    }

    /// Whether `error` ends this wait, and no other that depends on the same PEs.
    pub(crate) fn is_own(&self, pe: &Pe, error: &Error) -> bool {
        match error {
            Error::Interrupted { .. } => true,
            Error::PeerFailed { .. } | Error::Fabric { .. } => self.lost_member(pe).is_none(),
            _ => false,
        }
    }

    /// The error of a PE on which the wait depends.
    pub(crate) fn lost_member(&self, pe: &Pe) -> Option<Error> {
        if let Some(error) = ending::refusal(pe) {
            return Some(error);
        }
        // SAFETY: the header's counter lies in the mapping that `pe` holds.
        let departures = unsafe { shm::load(pe.control().departures()) };
        let departed = if departures == 0 { None } else { self.departed_member(pe) };
        departed.or_else(|| self.unreachable_member(pe))
    }

    /// The error of a member whose part is still to come, and that the fabric cannot reach.
    fn unreachable_member(&self, pe: &Pe) -> Option<Error> {
        let mut unreachable = pe.far_fabric()?.unreachable();
        let (members, done) = (self.awaiting.members(), self.awaiting.done());
        unreachable.retain(|&(other, _)| {
            members.is_none_or(|members| members.contains(&(other as usize)))
                && !done.is_some_and(|done| done(other as usize))
        });
        unreachable.into_iter().next().map(|(_, error)| error)
    }

    #[cold]
    fn departed_member(&self, pe: &Pe) -> Option<Error> {
        // The second look is step 3 of the proof.
        if let Some((dead, cause)) = self.first_death(pe).and_then(|_| self.first_death(pe)) {
            return Some(pe.failed(dead, cause));
        }
        let done = self.awaiting.done();
        let mut left = 0;
        let mut finalized = None;
        for other in self.members(pe) {
            match pe.control().state(other).departed() {
                Some(Cause::Finalized) if done.is_some_and(|done| done(other)) => {}
                Some(Cause::Finalized) => finalized = Some(other),
                // One that has died by now is seen at the next look.
                _ if other != pe.me() => left += 1,
                _ => {}
            }
        }
        if !self.awaiting.is_word() {
            left = 0;
        }
        // No other PE may ever write this word: waiting on would be a hang.
        let finalized = (left == 0).then_some(finalized).flatten();
        finalized.map(|other| pe.failed(other, Cause::Finalized))
    }

    /// The PEs that the wait depends on.
    fn members(&self, pe: &Pe) -> impl Iterator<Item = usize> {
        let members = self.awaiting.members();
        let everyone = 0..if members.is_none() { pe.npes() } else { 0 };
        members.unwrap_or_default().iter().copied().chain(everyone)
    }

    /// The first of these PEs that died: it is to blame, not one that died or left because of that.
    fn first_death(&self, pe: &Pe) -> Option<(usize, Cause)> {
        let deaths = self.members(pe).filter_map(|other| {
            let (place, cause) = pe.control().death(other)?;
            Some((place, other, cause))
        });
        deaths.min_by_key(|&(place, other, _)| (place, other)).map(|(_, dead, cause)| (dead, cause))
    }
}
