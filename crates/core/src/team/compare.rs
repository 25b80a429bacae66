//! Checks that all members of a team call the same collective with the same arguments. Without the
//! check, a collective that is called with different arguments moves wrong data, and reports
//! nothing.
//!
//! Each member publishes its call in words of its own slot, stamped with the phase of the barrier
//! that follows. After that barrier it reads the words of the others. After a second barrier all
//! have read, and it clears its words.
//!
//! **Proof that no member is taken for one that compares when it does not.**
//!
//! * C1: A member that came to the first barrier by another call has published nothing for this
//!   phase, and whatever it publishes later has the stamp of a later phase.
//! * C2: So all members that compare see that member alike. None of them calls the second barrier,
//!   to which that member need not come.

use super::Team;
use super::agree::digest;
use crate::base::error::{Error, Result};
use crate::base::layout::{BarrierSlot, SAID};
use crate::base::shm;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use std::mem::offset_of;

/// Words of a call's name. A longer name is cut off.
const NAME_WORDS: usize = 4;
/// The most arguments of a call.
const ARGUMENTS: usize = SAID - NAME_WORDS - 1;

/// A call, as a member publishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    /// The phase, and half a digest of the whole name.
    stamp: u64,
    name: [u64; NAME_WORDS],
    arguments: [u64; ARGUMENTS],
}

impl Call {
    fn new(phase: u64, name: &str, arguments: &[(&'static str, u64)]) -> Call {
        debug_assert!(arguments.len() <= ARGUMENTS);
        let mut call = Call {
            stamp: phase << 32 | u64::from(digest(name, "") as u32),
            name: [0; NAME_WORDS],
            arguments: [0; ARGUMENTS],
        };
        for (word, bytes) in call.name.iter_mut().zip(name.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        for (word, &(_, value)) in call.arguments.iter_mut().zip(arguments) {
            *word = value;
        }
        call
    }

    fn words(self) -> [u64; SAID] {
        let mut words = [self.stamp; SAID];
        words[1..=NAME_WORDS].copy_from_slice(&self.name);
        words[1 + NAME_WORDS..].copy_from_slice(&self.arguments);
        words
    }

    fn of(words: [u64; SAID]) -> Call {
        let [stamp, rest @ ..] = words;
        let mut call = Call { stamp, name: [0; NAME_WORDS], arguments: [0; ARGUMENTS] };
        call.name.copy_from_slice(&rest[..NAME_WORDS]);
        call.arguments.copy_from_slice(&rest[NAME_WORDS..]);
        call
    }

    fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().flat_map(|word| word.to_le_bytes()).collect();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }
}

impl Team {
    /// Compares a collective call and its arguments, of which there are at most three. Where
    /// members differ, each gets the error. *Collective.*
    ///
    /// # Errors
    /// [`Error::Unequal`], [`Error::OtherCall`], [`Error::PeerFailed`].
    pub fn compare(&self, call: &'static str, arguments: &[(&'static str, u64)]) -> Result<()> {
        self.compare_named(call, call, arguments)
    }

    /// [`compare`](Self::compare), where the user has turned on [checks](crate::Job::is_checked)
    /// that cost time.
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

    /// [`compare`](Self::compare) of a call whose name has more detail than `call`.
    #[cold]
    pub(crate) fn compare_named(
        &self,
        call: &'static str,
        name: &str,
        arguments: &[(&'static str, u64)],
    ) -> Result<()> {
        // A child that has copies of these objects must not write the PE's words.
        ending::refuse_child(&self.pe)?;
        let phase = self.barrier.phase() + 1;
        let mine = Call::new(phase, name, arguments);
        self.publish_call(mine.words());
        self.inner_barrier()?;
        let mut different = None;
        for &pe in self.members.iter().filter(|&&pe| pe != self.pe.me()) {
            let theirs = self.published_by(pe)?;
            // C1. By C2 no member that compares calls the second barrier.
            if (theirs.stamp >> 32) as u32 != phase as u32 {
                return Err(Error::OtherCall {
                    pe,
                    theirs:
                        "which is not compared: a barrier, or the making or freeing of something"
                            .into(),
                    ours: name.into(),
                    call: None,
                });
            }
            if theirs != mine {
                different.get_or_insert((pe, theirs));
            }
        }
        self.inner_barrier()?;
        self.publish_call([0; SAID]);
        let Some((pe, theirs)) = different else { return Ok(()) };
        if (theirs.stamp, theirs.name) != (mine.stamp, mine.name) {
            let (theirs, ours) = (theirs.name(), name.into());
            return Err(Error::OtherCall { pe, theirs, ours, call: None });
        }
        let values = theirs.arguments.iter().zip(arguments);
        let (theirs, ours): (Vec<_>, Vec<_>) = values
            .filter(|(theirs, (_, ours))| *theirs != ours)
            .map(|(theirs, (name, ours))| (format!("{name} {theirs}"), format!("{name} {ours}")))
            .unzip();
        let (theirs, ours) = (theirs.join(", "), ours.join(", "));
        Err(Error::Unequal { call, pe, theirs, ours, at: None })
    }

    fn call_at(&self, word: usize) -> u64 {
        Pe::barrier_slot(self.slot) + (offset_of!(BarrierSlot, said) + 8 * word) as u64
    }

    fn publish_call(&self, words: [u64; SAID]) {
        for (word, value) in words.into_iter().enumerate() {
            // SAFETY: an aligned word of this PE's own slot, which other PEs only read.
            unsafe { shm::store(self.pe.local(self.call_at(word)).cast(), value) };
        }
    }

    fn published_by(&self, pe: usize) -> Result<Call> {
        let mut words = [0; SAID];
        for (word, value) in words.iter_mut().enumerate() {
            *value = self.pe.route(pe, self.call_at(word)).load(&self.pe)?;
        }
        Ok(Call::of(words))
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
    fn published_calls_are_read_back() {
        let call = Call::new(7, "exclusive_scan by Sum of elements of u64", &[("count", 5)]);
        assert_eq!(Call::of(call.words()), call);
        assert_eq!(call.name(), "exclusive_scan by Sum of element");
        assert_eq!(Call::new(1, "", &[]).name(), "");
        assert_ne!(call, Call::new(7, "exclusive_scan by Sum of elements of u32", &[("count", 5)]));
    }
}
