//! Whether all members of a team call the same collective with the same arguments. A collective
//! that is called with different ones moves what its members take for all of it, and tells nobody.
//!
//! Each member says what it calls in words of its own slot, stamped with the phase of the barrier
//! that follows; behind that barrier it reads what the others have said; behind a second one all
//! have read, and it takes its words back.
//!
//! *Nobody takes a member for one that compares, and does not.* A member that came to the first
//! barrier by another call has said nothing for this phase, and whatever it says later has the
//! stamp of a later one. So all that compare see it alike, and none of them goes to the second
//! barrier, to which that member need not come.

use super::Team;
use super::agree::digest;
use crate::base::error::{Error, Result};
use crate::base::layout::{BarrierSlot, SAID};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;

/// Words of the name, of which the rest is cut off.
const NAME: usize = 4;
/// Arguments at most.
const ARGUMENTS: usize = SAID - NAME - 1;

/// What a member says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    /// The phase, and half a digest of the whole name.
    stamp: u64,
    name: [u64; NAME],
    arguments: [u64; ARGUMENTS],
}

impl Said {
    fn new(phase: u64, name: &str, arguments: &[(&'static str, u64)]) -> Said {
        debug_assert!(arguments.len() <= ARGUMENTS);
        let mut said = Said {
            stamp: phase << 32 | u64::from(digest(name, "") as u32),
            name: [0; NAME],
            arguments: [0; ARGUMENTS],
        };
        for (word, bytes) in said.name.iter_mut().zip(name.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        for (word, &(_, value)) in said.arguments.iter_mut().zip(arguments) {
            *word = value;
        }
        said
    }

    fn words(self) -> [u64; SAID] {
        let mut words = [self.stamp; SAID];
        words[1..=NAME].copy_from_slice(&self.name);
        words[1 + NAME..].copy_from_slice(&self.arguments);
        words
    }

    fn of(words: [u64; SAID]) -> Said {
        let [stamp, rest @ ..] = words;
        let mut said = Said { stamp, name: [0; NAME], arguments: [0; ARGUMENTS] };
        said.name.copy_from_slice(&rest[..NAME]);
        said.arguments.copy_from_slice(&rest[NAME..]);
        said
    }

    fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().flat_map(|word| word.to_le_bytes()).collect();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }
}

impl Team {
    /// Compares a collective call and its arguments, three at most. Where members differ, each gets
    /// the error. *Collective.*
    ///
    /// # Errors
    /// [`Error::Unequal`], [`Error::OtherCall`], [`Error::PeerFailed`].
    pub fn compare(&self, call: &'static str, arguments: &[(&'static str, u64)]) -> Result<()> {
        self.compare_named(call, call, arguments)
    }

    /// [`compare`](Self::compare), where the user wants [checks](crate::Job::is_checked) that cost
    /// time.
    #[inline]
    pub(crate) fn check_call(
        &self,
        call: &'static str,
        arguments: &[(&'static str, u64)],
    ) -> Result<()> {
        match self.pe.is_checked() {
            true => self.compare(call, arguments),
            false => Ok(()),
        }
    }

    /// [`compare`](Self::compare) of a call whose name says more than `call` does.
    #[cold]
    pub(crate) fn compare_named(
        &self,
        call: &'static str,
        name: &str,
        arguments: &[(&'static str, u64)],
    ) -> Result<()> {
        let phase = self.barrier.phase() + 1;
        let mine = Said::new(phase, name, arguments);
        self.say(mine.words());
        self.barrier()?;
        let mut different = None;
        for &pe in self.members.iter().filter(|&&pe| pe != self.pe.me()) {
            let theirs = self.heard(pe)?;
            if (theirs.stamp >> 32) as u32 != phase as u32 {
                return Err(Error::OtherCall {
                    pe,
                    theirs:
                        "which is not compared: a barrier, or the making or freeing of something"
                            .into(),
                    ours: name.into(),
                });
            }
            if theirs != mine {
                different.get_or_insert((pe, theirs));
            }
        }
        self.barrier()?;
        self.say([0; SAID]);
        let Some((pe, theirs)) = different else { return Ok(()) };
        if (theirs.stamp, theirs.name) != (mine.stamp, mine.name) {
            let (theirs, ours) = (theirs.name(), name.into());
            return Err(Error::OtherCall { pe, theirs, ours });
        }
        let values = theirs.arguments.iter().zip(arguments);
        let (theirs, ours): (Vec<_>, Vec<_>) = values
            .filter(|(theirs, (_, ours))| *theirs != ours)
            .map(|(theirs, (name, ours))| (format!("{name} {theirs}"), format!("{name} {ours}")))
            .unzip();
        let (theirs, ours) = (theirs.join(", "), ours.join(", "));
        Err(Error::Unequal { call, pe, theirs, ours })
    }

    fn said_at(&self, word: usize) -> u64 {
        Pe::barrier_slot(self.slot) + (offset_of!(BarrierSlot, said) + 8 * word) as u64
    }

    fn say(&self, words: [u64; SAID]) {
        for (word, value) in words.into_iter().enumerate() {
            // SAFETY: an aligned word of this PE's own slot, which others only read.
            unsafe { shm::store(self.pe.local(self.said_at(word)).cast(), value) };
        }
    }

    fn heard(&self, pe: usize) -> Result<Said> {
        let mut words = [0; SAID];
        for (word, value) in words.iter_mut().enumerate() {
            *value = self.pe.route(pe, self.said_at(word)).load(&self.pe)?;
        }
        Ok(Said::of(words))
    }
}

/// The last part of a type's path.
pub(crate) fn short_type<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let said = Said::new(7, "exclusive_scan by Sum of elements of u64", &[("count", 5)]);
        assert_eq!(Said::of(said.words()), said);
        assert_eq!(said.name(), "exclusive_scan by Sum of element");
        assert_eq!(Said::new(1, "", &[]).name(), "");
        assert_ne!(said, Said::new(7, "exclusive_scan by Sum of elements of u32", &[("count", 5)]));
    }
}
