//! The checks that cost time. A user turns them on to find a mistake.
//!
//! | check | where |
//! |---|---|
//! | all members of a team make the same collective call, with the same arguments | [`Team::compare`](crate::Team::compare) |
//! | no thread waits for a lock that it has already | `sync/lock/mod.rs`, `dsm/protocol.rs` |
//!
//! Front ends have further checks, which they make when
//! [`Job::is_checked`](crate::Job::is_checked).

use crate::base::error::{Error, Quick, Result};
use crate::base::lock;
use crate::base::settings::{self, ENV_CHECK};
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

/// Whether the user has turned the checks on.
pub(crate) fn asked() -> Result<bool> {
    settings::value(ENV_CHECK).map_or(Ok(false), |value| is_on(&value))
}

/// Whether this value turns them on.
pub(crate) fn is_on(value: &OsStr) -> Result<bool> {
    match value.to_str() {
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        _ => Err(Error::Environment {
            name: ENV_CHECK,
            value: value.to_string_lossy().into_owned(),
            problem: "is neither 0 nor 1".into(),
            fix: "Give 1 for all checks; give 0, or unset it, for those alone that cost nothing",
        }),
    }
}

/// Locks that threads of this PE hold. A lock may be given back by another thread.
#[derive(Default)]
pub(crate) struct Holders(Mutex<Vec<(u64, ThreadId)>>);

impl Holders {
    fn all(&self) -> MutexGuard<'_, Vec<(u64, ThreadId)>> {
        lock(&self.0)
    }

    /// Whether this thread holds a lock for which `what` is true.
    pub(crate) fn have(&self, what: impl Fn(u64) -> bool) -> bool {
        let me = thread::current().id();
        self.all().iter().any(|&(held, by)| by == me && what(held))
    }

    /// Records that this thread has taken a lock.
    pub(crate) fn take(&self, what: u64) {
        self.all().push((what, thread::current().id()));
    }

    /// Records that a lock was given back.
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
    /// Refuses a lock that this thread holds already.
    #[inline]
    pub(crate) fn may_lock(&self, offset: u64) -> Quick<()> {
        if self.is_checked() && self.layer::<Holders>().have(|held| held == offset) {
            return Err(Box::new(Error::misuse(
                "this thread has this lock already, and would wait for itself: give it back first (in Rust, drop what `lock` gave; in C, shmem_clear_lock)",
            )));
        }
        Ok(())
    }

    /// Records that this thread has taken a lock.
    #[inline]
    pub(crate) fn locked(&self, offset: u64) {
        if self.is_checked() {
            self.layer::<Holders>().take(offset);
        }
    }

    /// Records that a lock is about to be given back.
    #[inline]
    pub(crate) fn unlocked(&self, offset: u64) {
        if self.is_checked() {
            self.layer::<Holders>().give(offset);
        }
    }
}
