//! Errors of far writes whose call has returned. The next quiet reports them.

use crate::base::error::{Error, Quick};
use crate::base::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The last error that could not be returned to its caller.
#[derive(Default)]
pub(crate) struct Late {
    error: Mutex<Option<Error>>,
    /// Whether there is an error: a quiet of near PEs reads only this.
    is_late: AtomicBool,
}

impl Late {
    /// Gives the error, if there is one, and forgets it.
    #[inline]
    pub(super) fn surface(&self) -> Quick<()> {
        if self.is_late.load(Ordering::Relaxed) { self.surface_now() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn surface_now(&self) -> Quick<()> {
        let mut late = lock(&self.error);
        self.is_late.store(false, Ordering::Relaxed);
        Ok(late.take().map_or(Ok(()), Err)?)
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    pub(super) fn keep(&self, error: Error) {
        let mut late = lock(&self.error);
        *late = Some(error);
        self.is_late.store(true, Ordering::Relaxed);
    }
}
