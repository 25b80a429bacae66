//! Collective calls on the heaps: all PEs ask for the same, compare, and take the same step; or all get an error.

use crate::error::{Error, Result};
use crate::heap::{Block, Heap};
use crate::layout::{MAX_WINDOWS, Request, SystemArea};
use crate::pe::Pe;
use crate::shm;
use crate::team::Team;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// The kind of the request of a PE that makes none.
const NONE: u64 = 0;
pub(crate) const KIND_WINDOW: u64 = 1;
pub(crate) const KIND_FREE: u64 = 2;
pub(crate) const KIND_RESTRICTED: u64 = 3;
pub(crate) const KIND_BLOCK: u64 = 5;
pub(crate) const KIND_FREE_BLOCK: u64 = 6;
pub(crate) const KIND_MULTICAST: u64 = 8;
pub(crate) const KIND_SHARED: u64 = 9;
/// The request of a PE that asked for something impossible: the others are not to wait for it.
const REFUSED: [u64; 4] = [4, 0, 0, 0];

/// How a step of a collective call went for a PE.
pub(crate) const UNKNOWN: u64 = 0;
const WELL: u64 = 1;
pub(crate) const FAILED: u64 = 2;

/// A collective call on the heap.
pub(crate) struct Collective<'a> {
    pub(crate) pe: &'a Arc<Pe>,
    pub(crate) world: &'a Team,
}

impl Collective<'_> {
    fn outcome_word(step: usize) -> u64 {
        (offset_of!(SystemArea, request) + offset_of!(Request, outcome) + 8 * step) as u64
    }

    /// Says how a step went for this PE.
    pub(crate) fn publish(&self, step: usize, outcome: u64) {
        // SAFETY: an aligned word of this PE's own request block, which others only read.
        unsafe { shm::store(self.pe.local(Self::outcome_word(step)).cast(), outcome) };
    }

    /// How a step went for a PE, as far as it has said.
    pub(crate) fn outcome(&self, step: usize, pe: usize) -> Result<u64> {
        Ok(self.pe.route(pe, Self::outcome_word(step)).load::<u64>(self.pe)?)
    }

    /// Tells the others how a step went for this PE, and gives the first PE for which it did not go well.
    pub(crate) fn failed(&self, step: usize, well: bool) -> Result<Option<usize>> {
        self.publish(step, if well { WELL } else { FAILED });
        self.world.barrier()?;
        for pe in 0..self.pe.npes() {
            if self.outcome(step, pe)? != WELL {
                return Ok(Some(pe));
            }
        }
        Ok(None)
    }

    /// Nobody may start the next collective call before everybody has ended this one.
    ///
    /// All have compared the requests by then, so this PE takes its own back: who asks for something while this PE is in a barrier of
    /// the program's own is not to take an earlier request for an answer. It is gone before this PE arrives at any other barrier.
    pub(crate) fn close(&self) -> Result<()> {
        self.world.barrier()?;
        // SAFETY: an aligned word of this PE's own request block, which others only read.
        unsafe { shm::store(self.pe.local(offset_of!(SystemArea, request) as u64).cast(), NONE) };
        Ok(())
    }
}

/// Compares this PE's request with everybody's, then frees what everybody has dropped. The heaps of all PEs go through the
/// same steps; the lock keeps other threads of this PE out, until the caller has closed the call and lets go of it. A `request`
/// that this PE had to refuse itself is its error, once the others have heard of it.
pub(crate) fn agree<'a>(call: &'a Collective<'_>, request: Result<[u64; 4]>) -> Result<MutexGuard<'a, Heap>> {
    let (request, refused) = match request {
        Ok(request) => (request, None),
        Err(error) => (REFUSED, Some(error)),
    };
    let pe = call.pe;
    let mut heap = pe.heap.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let field = |index: usize| (offset_of!(SystemArea, request) + 8 * index) as u64;
    let dropped_field = |index: usize| (offset_of!(SystemArea, request) + offset_of!(Request, dropped) + 8 * index) as u64;
    let words = heap.bitmap_words();
    debug_assert!(words <= MAX_WINDOWS / 64);
    let mut dropped: Vec<u64> = (0..words).map(|index| pe.dropped[index].load(Ordering::Acquire)).collect();
    for (index, &value) in request.iter().enumerate() {
        // SAFETY: an aligned word of this PE's own request block, which others only read.
        unsafe { shm::store(pe.local(field(index)).cast(), value) };
    }
    for (index, &value) in dropped.iter().enumerate() {
        // SAFETY: as above; `index` is below the bitmap's length.
        unsafe { shm::store(pe.local(dropped_field(index)).cast(), value) };
    }
    call.world.barrier()?;
    let mut unequal = None;
    for other in 0..pe.npes() {
        let mut theirs = [0u64; 4];
        for (index, value) in theirs.iter_mut().enumerate() {
            *value = pe.route(other, field(index)).load(pe)?;
        }
        if theirs != request && unequal.is_none() {
            unequal = Some((other, theirs));
        }
        if theirs[0] == NONE {
            // It does not take this step, and what it had dropped it has said for an earlier one.
            dropped.fill(0);
        }
        for (index, bits) in dropped.iter_mut().enumerate() {
            *bits &= pe.route(other, dropped_field(index)).load::<u64>(pe)?;
        }
    }
    for (index, &bits) in dropped.iter().enumerate() {
        for id in (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| index * 64 + bit) {
            pe.dropped[index].fetch_and(!(1 << (id % 64)), Ordering::Relaxed);
            if let Some(Block::Range(range)) = heap.free(id)
                && range.end - range.start >= RETURN_FROM
            {
                pe.control()
                    .mapping()
                    .release(pe.control().geometry().segment(pe.me()) + range.start, range.end - range.start);
            }
        }
    }
    let unequal = unequal.map(|(pe, theirs)| Error::Unequal {
        call: if matches!(request[0], KIND_BLOCK | KIND_FREE_BLOCK) {
            "memory"
        } else {
            "window"
        },
        pe,
        theirs: describe(theirs),
        ours: describe(request),
    });
    // What this PE did wrong is not to be blamed on others.
    match refused.or(unequal) {
        None => Ok(heap),
        Some(error) => {
            call.close()?;
            Err(error)
        }
    }
}

/// Freed ranges of at least this many bytes give their pages back at once.
pub(crate) const RETURN_FROM: u64 = 64 << 10;

fn describe([kind, size, align, options]: [u64; 4]) -> String {
    match kind {
        NONE => "nothing: it is in another collective call".into(),
        KIND_WINDOW => format!("a window of {size} bytes, aligned to {align}, options {options:#x}"),
        KIND_FREE => format!("a free of window {size}"),
        _ if [kind, size, align, options] == REFUSED => "a window that cannot be".into(),
        KIND_MULTICAST => format!("a multicast channel of {size} bytes, writer, readers and options {options:#x}"),
        KIND_SHARED => format!("a mutex, reader-writer lock or region, {size} bytes in all, kind, size and options {options:#x}"),
        KIND_RESTRICTED => format!("a restricted window of {size} bytes, rights {options:#x}"),
        KIND_BLOCK => format!("an allocation of {size} bytes, aligned to {align}"),
        KIND_FREE_BLOCK => format!("a free of the block at {size:#x}"),
        _ => "another call".into(),
    }
}
