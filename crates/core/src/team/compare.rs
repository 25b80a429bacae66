//! Whether all members of a team call the same collective with the same arguments. For front ends that look for mistakes: a collective
//! that is called with different ones moves what its members take for all of it, and tells nobody.

use super::Team;
use super::agree::digest;
use crate::error::{Error, Result};
use crate::layout::{BarrierSlot, SAID};
use crate::pe::Pe;
use crate::shm;
use std::mem::offset_of;

impl Team {
    /// Compares a call and its arguments, three at most. *Collective.* Where members differ, each gets the error.
    ///
    /// Each member says what it calls in words of its own, which it takes back behind a second barrier: then all have read them, and who comes
    /// to a barrier that is not of this has said nothing.
    ///
    /// # Errors
    /// [`Error::Unequal`], [`Error::PeerFailed`].
    pub fn compare(&self, call: &'static str, arguments: &[(&'static str, u64)]) -> Result<()> {
        let mut mine = [0; SAID];
        mine[0] = digest(call, "");
        for (word, &(_, value)) in mine[1..].iter_mut().zip(arguments) {
            *word = value;
        }
        let at = |word: usize| Pe::barrier_slot(self.slot) + (offset_of!(BarrierSlot, said) + 8 * word) as u64;
        let say = |words: [u64; SAID]| {
            for (word, value) in words.into_iter().enumerate() {
                // SAFETY: an aligned word of this PE's own slot, which others only read.
                unsafe { shm::store(self.pe.local(at(word)).cast(), value) };
            }
        };
        say(mine);
        self.barrier()?;
        let mut different = None;
        for &pe in self.members.iter().filter(|&&pe| pe != self.pe.me()) {
            let mut theirs = [0; SAID];
            for (word, value) in theirs.iter_mut().enumerate() {
                *value = self.pe.route(pe, at(word)).load(&self.pe)?;
            }
            if theirs != mine && different.is_none() {
                different = Some((pe, theirs));
            }
        }
        self.barrier()?;
        say([0; SAID]);
        let Some((pe, theirs)) = different else { return Ok(()) };
        let unequal = |theirs: String, ours: String| Err(Error::Unequal { call, pe, theirs, ours });
        if theirs[0] != mine[0] {
            return unequal("the arguments of another collective".into(), "its own".into());
        }
        let values = theirs[1..].iter().zip(arguments);
        let (theirs, ours): (Vec<_>, Vec<_>) = values
            .filter(|(theirs, (_, ours))| *theirs != ours)
            .map(|(theirs, (name, ours))| (format!("{name} {theirs}"), format!("{name} {ours}")))
            .unzip();
        unequal(theirs.join(", "), ours.join(", "))
    }
}
