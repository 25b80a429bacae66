//! Far writes that fail after their call has returned: the error is kept for the next quiet.

use super::pe::Pe;
use crate::base::error::{Error, Quick};
use crate::base::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// What could not be returned to the caller of the write.
#[derive(Default)]
pub(crate) struct Late {
    error: Mutex<Option<Error>>,
    /// Whether there is one: near, a quiet looks at nothing else.
    is_late: AtomicBool,
}

impl Pe {
    /// What could not be returned before: for the program's own calls.
    #[inline]
    pub(crate) fn surface(&self) -> Quick<()> {
        if self.late.is_late.load(Ordering::Relaxed) { self.surface_now() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn surface_now(&self) -> Quick<()> {
        let mut late = lock(&self.late.error);
        self.late.is_late.store(false, Ordering::Relaxed);
        Ok(late.take().map_or(Ok(()), Err)?)
    }

    /// Keeps an error that cannot be returned for the next quiet.
    pub(crate) fn surface_later(&self, error: Error) {
        let mut late = lock(&self.late.error);
        *late = Some(error);
        self.late.is_late.store(true, Ordering::Relaxed);
    }

    /// Completes far writes where no error can be returned: it surfaces at the next quiet instead.
    pub(crate) fn flush_far(&self) {
        if let Some(fabric) = self.far_fabric()
            && let Err(error) = fabric.quiet()
        {
            self.surface_later(error);
        }
    }

    /// [`complete_writes`](Self::complete_writes), but for waking sleepers, which the caller may
    /// put off until it has notified another PE.
    #[inline]
    pub(crate) fn complete_without_waking(&self) -> Quick<()> {
        crate::base::shm::compiler_fence();
        match self.far_fabric() {
            Some(fabric) => Ok(fabric.quiet()?),
            None => Ok(()),
        }
    }
}
