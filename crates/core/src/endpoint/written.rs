//! The PEs to which a PE may have written without a wake-up: its next wait, fence or quiet wakes
//! them.

use super::pe::Pe;
use crate::base::shm;
use std::sync::atomic::{AtomicU8, Ordering};

impl Pe {
    /// Marks a write without a signal; the next wait, fence or quiet wakes the target.
    #[inline]
    pub(crate) fn wrote(&self, target: usize) {
        if let Some(byte) = self.marks.written.get(1 + target) {
            byte.store(1, Ordering::Release);
            self.marks.written[0].store(1, Ordering::Release);
        }
    }

    /// The bytes that [`wrote`](Self::wrote) sets.
    pub(crate) fn written(&self) -> &[AtomicU8] {
        &self.marks.written
    }

    /// Counts a new remote into `target`: from now on its stores may come at any time, unmarked.
    pub(crate) fn remote_made(&self, target: usize) {
        if let Some(live) = self.marks.live.get(target) {
            live.fetch_add(1, Ordering::Relaxed);
            self.wrote(target);
        }
    }

    pub(crate) fn remote_dropped(&self, target: usize) {
        if let Some(live) = self.marks.live.get(target) {
            live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Wakes the PEs that this one may have written to and that sleep on words.
    #[inline]
    pub(crate) fn wake_written(&self) {
        if self.may_have_written() {
            self.wake_each_written();
        }
    }

    /// Whether this PE may have written since it last woke its targets.
    #[inline]
    pub(crate) fn may_have_written(&self) -> bool {
        self.marks.written[0].load(Ordering::Relaxed) != 0
    }

    /// Clears marks by exchanges, which are fences. So a mark that another thread sets meanwhile is
    /// either found here, with its write visible before the wake-up; or that mark, and the summary
    /// after it, are set later, and stay. In a process with one thread there is no meanwhile, and
    /// plain stores do: the marks and the writes they stand for are this thread's own.
    pub(crate) fn wake_each_written(&self) {
        let is_single = shm::is_single_threaded();
        let clear = |byte: &AtomicU8| {
            if is_single {
                byte.store(0, Ordering::Relaxed);
            } else {
                byte.swap(0, Ordering::SeqCst);
            }
        };
        clear(&self.marks.written[0]);
        let (mut stays, mixed) = (false, self.record().is_mixed());
        for (target, byte) in self.marks.written[1..].iter().enumerate() {
            if byte.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if self.marks.live[target].load(Ordering::Relaxed) == 0 {
                clear(byte);
            }
            // Also sees a remote that was made between the two lines above.
            if self.marks.live[target].load(Ordering::Relaxed) != 0 {
                byte.store(1, Ordering::Relaxed);
                stays = true;
            }
            // The fabric wakes far PEs.
            if mixed && !self.is_near(target) {
                continue;
            }
            self.control().doorbell(target).ring_for_words(self.control().membarrier());
        }
        if stays {
            self.marks.written[0].store(1, Ordering::Relaxed);
        }
    }
}

/// The marks of PEs that this PE may have written to. Valid as long as the job's
/// [`Segment`](crate::unstable::segment::Segment) lives.
#[derive(Clone, Copy, Debug)]
pub struct Written(*const AtomicU8);

// SAFETY: threads access the bytes only as atomics.
unsafe impl Send for Written {}
// SAFETY: as above.
unsafe impl Sync for Written {}

impl Written {
    #[inline]
    pub(crate) fn of(pe: &Pe) -> Self {
        Written(pe.written().as_ptr())
    }

    /// The marks as a pointer, which fits into a word.
    pub fn as_ptr(self) -> *const AtomicU8 {
        self.0
    }

    /// The marks behind a pointer that [`as_ptr`](Self::as_ptr) gave.
    ///
    /// # Safety
    /// `as_ptr` gave the pointer, and the segment lives.
    #[inline(always)]
    pub unsafe fn kept(pointer: *const AtomicU8) -> Self {
        Written(pointer)
    }

    /// Marks PE `pe`.
    ///
    /// # Safety
    /// The PE is near, and the segment lives.
    #[inline(always)]
    pub unsafe fn to(self, pe: usize) {
        // SAFETY: the caller promises the segment, so the bytes live: one for all PEs, then one for
        // each.
        unsafe {
            (*self.0.add(1 + pe)).store(1, Ordering::Release);
            (*self.0).store(1, Ordering::Release);
        }
    }
}
