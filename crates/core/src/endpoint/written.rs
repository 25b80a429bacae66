//! The PEs to which a PE may have written without a wake-up: its next wait, fence or quiet wakes
//! them.

use super::pe::Pe;
use crate::base::shm;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// What a PE remembers of its writes to near PEs.
pub(crate) struct Marks {
    /// First, whether any of what follows is set; then for each near PE, whether it may have been
    /// written to, without a ring, since it was last looked after. Bytes, so that to remember is
    /// two stores.
    written: Box<[AtomicU8]>,
    /// Live remotes into each near PE; while there are some, any store may come at any time.
    live: Box<[AtomicU32]>,
}

impl Marks {
    pub(crate) fn new(near: usize) -> Self {
        Marks {
            written: (0..=near).map(|_| AtomicU8::new(0)).collect(),
            live: (0..near).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl Pe {
    /// Remembers a write without a signal; the next wait, fence or quiet wakes the target.
    #[inline]
    pub(crate) fn wrote(&self, target: usize) {
        if let Some(byte) = self.marks.written.get(1 + target) {
            byte.store(1, Ordering::Release);
            self.marks.written[0].store(1, Ordering::Release);
        }
    }

    /// The bytes in which [`wrote`](Self::wrote) remembers.
    pub(crate) fn written(&self) -> &[AtomicU8] {
        &self.marks.written
    }

    /// A remote into `target` comes into being: from now on stores may come that nobody counts.
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

    /// Bytes are taken back by exchanges, which are fences: what a thread remembers meanwhile is
    /// either found here, and its write visible before the ring; or its byte, and the first one
    /// after it, are set later, and stay. Without other threads there is no meanwhile, and stores
    /// do: they and the writes they stand for are this thread's own.
    pub(crate) fn wake_each_written(&self) {
        let alone = shm::alone();
        let take_back = |byte: &AtomicU8| {
            if alone {
                byte.store(0, Ordering::Relaxed);
            } else {
                byte.swap(0, Ordering::SeqCst);
            }
        };
        take_back(&self.marks.written[0]);
        let (mut stays, mixed) = (false, self.record().is_mixed());
        for (target, byte) in self.marks.written[1..].iter().enumerate() {
            if byte.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if self.marks.live[target].load(Ordering::Relaxed) == 0 {
                take_back(byte);
            }
            // Also one that was made between the two lines above.
            if self.marks.live[target].load(Ordering::Relaxed) != 0 {
                byte.store(1, Ordering::Relaxed);
                stays = true;
            }
            // A far one is woken by the fabric.
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

/// Whom this PE may have written to: the next wait, fence or quiet looks whether they sleep. Good
/// as long as the job's [`Segment`](crate::unstable::segment::Segment) lives.
#[derive(Clone, Copy)]
pub struct Written(*const AtomicU8);

// SAFETY: the address of bytes that threads change only as atomics.
unsafe impl Send for Written {}
// SAFETY: as above.
unsafe impl Sync for Written {}

impl Written {
    #[inline]
    pub(crate) fn of(pe: &Pe) -> Self {
        Written(pe.written().as_ptr())
    }

    /// As a pointer, to be kept in a word.
    pub fn as_ptr(self) -> *const AtomicU8 {
        self.0
    }

    /// What [`as_ptr`](Self::as_ptr) gave.
    ///
    /// # Safety
    /// It was given by that, and the segment lives.
    #[inline(always)]
    pub unsafe fn kept(pointer: *const AtomicU8) -> Self {
        Written(pointer)
    }

    /// Remembers PE `pe`.
    ///
    /// # Safety
    /// There is such a PE, and the segment lives.
    #[inline(always)]
    pub unsafe fn to(self, pe: usize) {
        // SAFETY: the caller promises that the bytes are there: one for each PE, after one for all.
        unsafe {
            (*self.0.add(1 + pe)).store(1, Ordering::Release);
            (*self.0).store(1, Ordering::Release);
        }
    }
}
