//! What a wait depends on, and when it ends without what it looks for.

use super::bells::Bells;
use super::limit::Limit;
use crate::base::error::{Cause, Error};
use crate::base::shm;
use crate::endpoint::ending;
use crate::endpoint::fabric::Awaited;
use crate::endpoint::pe::Pe;

/// What a wait depends on, and for how long.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms<'a> {
    /// Whose death ends the wait; `None`: anybody's.
    pub(crate) members: Option<&'a [usize]>,
    /// For a barrier: whether a member that has finalised had done its part before. `None`: a word;
    /// finalised PEs end the wait once nobody else is left who could write it.
    pub(crate) arrived: Option<&'a dyn Fn(usize) -> bool>,
    /// For a barrier: where all of its members sleep.
    pub(crate) bells: Option<Bells>,
    /// When to give up.
    pub(crate) limit: Option<&'a Limit>,
}

impl Terms<'_> {
    pub(super) fn words(&self) -> bool {
        self.arrived.is_none()
    }

    /// For who reports a deadlock.
    pub(super) fn what(&self) -> Awaited {
        match (self.arrived, self.members) {
            (None, None) => Awaited::AnyWord,
            (None, Some(_)) => Awaited::SomeWord,
            (Some(_), None) => Awaited::Lock,
            (Some(_), Some(_)) => Awaited::Barrier,
        }
    }

    /// The error with which the wait must end where its time is up.
    pub(super) fn late(&self, pe: &Pe) -> Option<Error> {
        self.limit.filter(|limit| limit.is_over(pe)).map(Limit::error)
    }

    /// The error with which the wait must end, if what it waits for has not happened.
    pub(crate) fn departed(&self, pe: &Pe) -> Option<Error> {
        if let Some(error) = ending::refusal(pe) {
            return Some(error);
        }
        // SAFETY: the header's counter lies in the mapping that `pe` holds.
        if unsafe { shm::load(pe.control().departures()) } == 0 {
            return None;
        }
        let mut left = 0;
        let mut finalized = None;
        let all = pe
            .control()
            .first_death()
            .into_iter()
            .chain(0..pe.npes())
            .filter(|&other| self.members.is_none_or(|m| m.contains(&other)));
        for other in all {
            match pe.control().state(other).departed() {
                Some(Cause::Finalized) if self.arrived.is_some_and(|arrived| arrived(other)) => {}
                Some(Cause::Finalized) => finalized = Some(other),
                // Who died is to blame, not who left because of that.
                Some(cause) => return Some(Error::PeerFailed { pe: other, cause }),
                None if other != pe.me() => left += 1,
                None => {}
            }
        }
        if self.arrived.is_some() {
            left = 0;
        }
        // Nobody else may ever write this word: waiting on would be a hang.
        (left == 0)
            .then_some(finalized)
            .flatten()
            .map(|pe| Error::PeerFailed { pe, cause: Cause::Finalized })
    }
}
