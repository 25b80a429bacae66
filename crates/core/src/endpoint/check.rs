//! The checks that cost time, which a user turns on to find a mistake.
//!
//! | check | where |
//! |---|---|
//! | all members of a team make the same collective call, with the same arguments | [`Team::compare`](crate::Team::compare) |
//! | no thread takes a lock that it has already, and would wait for itself | `lock.rs`, `dsm/checked.rs` |
//!
//! What a front end can see better than the core, it checks itself when
//! [`Job::is_checked`](crate::Job::is_checked).

use crate::base::error::{Error, Quick, Result};
use crate::base::lock;
use crate::base::settings::ENV_CHECK;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// Whether the user wants them.
pub(crate) fn asked() -> Result<bool> {
    match std::env::var_os(ENV_CHECK) {
        None => Ok(false),
        Some(value) if value == "0" => Ok(false),
        Some(value) if value == "1" => Ok(true),
        Some(value) => Err(Error::Environment {
            name: ENV_CHECK,
            value: value.to_string_lossy().into_owned(),
            problem: "is neither 0 nor 1".into(),
            fix: "Give 1 for all checks; give 0, or unset it, for those alone that cost nothing",
        }),
    }
}

/// Which threads of this PE have what. A thread that has something may leave it to another to give
/// it back.
#[derive(Default)]
pub(crate) struct Holders(Mutex<Vec<(u64, ThreadId)>>);

impl Holders {
    fn all(&self) -> MutexGuard<'_, Vec<(u64, ThreadId)>> {
        lock(&self.0)
    }

    /// Whether this thread has something that is `what`.
    pub(crate) fn have(&self, what: impl Fn(u64) -> bool) -> bool {
        let me = thread::current().id();
        self.all().iter().any(|&(held, by)| by == me && what(held))
    }

    /// This thread has taken it.
    pub(crate) fn take(&self, what: u64) {
        self.all().push((what, thread::current().id()));
    }

    /// It was given back.
    pub(crate) fn give(&self, what: u64) {
        let mut all = self.all();
        if let Some(at) = all.iter().position(|&(held, _)| held == what) {
            all.swap_remove(at);
        }
    }
}

impl Layer for Holders {
    fn new(_pe: &Pe) -> Self {
        Self::default()
    }
}

/// Locks in words of the segments, by offset.
impl Pe {
    /// Refuses a lock that this thread has already.
    #[inline]
    pub(crate) fn may_lock(&self, offset: u64) -> Quick<()> {
        if self.is_checked() && self.layer::<Holders>().have(|held| held == offset) {
            return Err(Box::new(Error::Misuse(
                "this thread has this lock already, and would wait for itself: give it back first (in Rust, drop what `lock` gave; in C, shmem_clear_lock)",
            )));
        }
        Ok(())
    }

    /// This thread has taken a lock.
    #[inline]
    pub(crate) fn locked(&self, offset: u64) {
        if self.is_checked() {
            self.layer::<Holders>().take(offset);
        }
    }

    /// A lock is about to be given back.
    #[inline]
    pub(crate) fn unlocked(&self, offset: u64) {
        if self.is_checked() {
            self.layer::<Holders>().give(offset);
        }
    }
}
