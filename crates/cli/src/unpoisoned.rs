//! Locks of a process in which a thread has panicked.

use std::sync::{LockResult, PoisonError};

/// The guard, also where a thread has panicked while it held the lock. The data are whole all the
/// same: nothing that changes data under a lock can panic between two steps of a change.
pub fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}
