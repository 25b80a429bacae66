//! What everything stands on: errors, the layout of shared memory, and the primitives that access
//! it.

pub(crate) mod access;
pub(crate) mod address;
pub(crate) mod bells;
pub(crate) mod clock;
pub(crate) mod compare;
pub mod digest;
pub(crate) mod doorbell;
pub(crate) mod element;
pub(crate) mod error;
pub mod layout;
pub mod log;
pub(crate) mod memory;
pub(crate) mod process;
pub mod settings;
pub mod shm;
pub(crate) mod status;
pub mod unwinding;

/// `Debug` of a type whose users want to know some values, and not its parts: `shows!([generics]
/// Type as "Name", |it| name = value, ...)`.
macro_rules! shows {
    ([$($generics:tt)*] $type:ty as $name:literal, |$it:ident| $($field:ident = $value:expr),*) => {
        impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                f.debug_struct($name)
                    $(.field(stringify!($field), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use shows;

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks a mutex of this process whose data are whole at every moment, so that a thread which
/// panicked with it has left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`lock`], unless another thread has it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
