//! Locks between the threads of a process.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also where a thread has panicked while it held the lock: no code of this library
/// leaves data behind a lock half changed.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
