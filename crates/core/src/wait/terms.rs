//! What a wait depends on, and when it ends without what it looks for.

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
}

impl<'a> Terms<'a> {
    /// A wait for as long as it takes.
    #[inline(always)]
    pub(crate) fn forever(awaiting: Awaiting<'a>) -> Self {
        Terms { awaiting, patience: Patience::Forever }
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
        self.departed_member(pe)
    }

    #[cold]
    fn departed_member(&self, pe: &Pe) -> Option<Error> {
        let (members, done) = (self.awaiting.members(), self.awaiting.done());
        let mut left = 0;
        let mut finalized = None;
        let first = pe.control().first_death();
        let first = first.filter(|other| members.is_none_or(|members| members.contains(other)));
        let everyone = 0..if members.is_none() { pe.npes() } else { 0 };
        let members = members.unwrap_or_default().iter().copied();
        for other in first.into_iter().chain(members).chain(everyone) {
            match pe.control().state(other).departed() {
                Some(Cause::Finalized) if done.is_some_and(|done| done(other)) => {}
                Some(Cause::Finalized) => finalized = Some(other),
                // A PE that died is to blame, not one that left because of that.
                Some(cause) => return Some(Error::PeerFailed { pe: other, cause }),
                None if other != pe.me() => left += 1,
                None => {}
            }
        }
        if !self.awaiting.is_word() {
            left = 0;
        }
        // No other PE may ever write this word: waiting on would be a hang.
        (left == 0)
            .then_some(finalized)
            .flatten()
            .map(|pe| Error::PeerFailed { pe, cause: Cause::Finalized })
    }
}
