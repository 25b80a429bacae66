//! Stacks for very many coroutines: one mapping, cut into equal pieces.
//!
//! A guard page that is a mapping of its own costs two of the kernel's 65,530 mappings for each
//! stack. Linux 6.13 and later mark guard pages within a mapping, which costs none. On an older
//! kernel the lowest word of each stack holds a mark instead, and the mark is checked whenever the
//! PE gives up the CPU. A PE that has destroyed its mark may have written into its neighbour's
//! stack, so the process ends.

use crate::error::Error;
use corosensei::stack::{STACK_ALIGNMENT, Stack, StackPointer};
use std::rc::Rc;

/// `MADV_GUARD_INSTALL`, which libc does not name yet.
const GUARD_INSTALL: i32 = 102;
const MARK: u64 = 0x6d65_6d6f_6e65_7421;
const GUARD_BYTES: usize = 4096;
/// The least bytes of a stack: enough for the library's calls, and for a panic with its message,
/// also where nothing is optimised.
const LEAST: usize = 64 << 10;

struct Slab {
    base: *mut u8,
    len: usize,
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the range is this slab's own mapping, and every stack in it holds the slab.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// A stack: a piece of the slab.
pub(crate) struct Piece {
    slab: Rc<Slab>,
    offset: usize,
    len: usize,
    marked: bool,
}

/// Stacks for `n` coroutines, of `len` bytes each (rounded up to pages, and to `LEAST`), besides
/// the guard.
pub(crate) fn stacks(n: usize, len: usize) -> Result<Vec<Piece>, Error> {
    let failed =
        |cause: rustix::io::Errno| Error::Stacks { pes: n, bytes: len, cause: cause.into() };
    let with_guard =
        |len: usize| len.max(LEAST).checked_next_multiple_of(GUARD_BYTES)?.checked_add(GUARD_BYTES);
    let sizes = with_guard(len).and_then(|len| Some((len, len.checked_mul(n)?)));
    let (len, whole) = sizes.ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
    let (prot, flags) = (
        rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
        rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE,
    );
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, prot, flags) }
        .map_err(failed)?;
    // A huge page would give memory to a hundred stacks that never touch it. A refusal costs only
    // memory. SAFETY: the range was mapped just now, and the advice keeps its content.
    let _ = unsafe { rustix::mm::madvise(base, whole, rustix::mm::Advice::LinuxNoHugepage) };
    let slab = Rc::new(Slab { base: base.cast(), len: whole });
    let piece = |offset: usize| {
        let lowest = slab.base.wrapping_add(offset);
        // SAFETY: this is the lowest page of the piece. It lies in the mapping, and nothing uses it
        // yet.
        let guarded = unsafe { libc::madvise(lowest.cast(), GUARD_BYTES, GUARD_INSTALL) } == 0;
        if !guarded {
            // SAFETY: the lowest page of the piece is mapped, nothing uses it yet, and a page is
            // aligned for a word.
            unsafe { lowest.cast::<u64>().write(MARK) };
        }
        Piece { slab: slab.clone(), offset, len, marked: !guarded }
    };
    Ok((0..n).map(|number| piece(number * len)).collect())
}

impl Piece {
    fn lowest(&self) -> *mut u8 {
        self.slab.base.wrapping_add(self.offset)
    }
}

/// The mark of a stack, if the stack has one.
pub(crate) struct Mark(Option<*const u64>);

impl Piece {
    /// The stack's mark.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.marked.then(|| self.lowest().cast_const().cast()))
    }
}

impl Mark {
    /// Ends the process when the mark is gone.
    ///
    /// # Safety
    /// The stack still exists, and its coroutine does not run.
    pub(crate) unsafe fn check(&self, pe: usize) {
        // SAFETY: the word lies in the stack's mapping. The caller promises that the stack exists
        // and that nothing writes to it now.
        if self.0.is_some_and(|mark| unsafe { mark.read() } != MARK) {
            eprintln!(
                "memonet: PE {pe} of the simulation has overrun its stack, and what lies below it; give the PEs larger stacks"
            );
            std::process::abort();
        }
    }
}

// SAFETY: the piece has `len` bytes of mapped, aligned memory of its own, many pages, for as long
// as it lives. Its lowest page is a guard page, or, on a kernel that cannot mark one, holds a mark
// whose loss ends the process.
unsafe impl Stack for Piece {
    fn base(&self) -> StackPointer {
        let top = self.lowest().addr() + self.len;
        debug_assert_eq!(top % STACK_ALIGNMENT, 0);
        StackPointer::new(top).expect("no mapping ends at address 0")
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.lowest().addr()).expect("no mapping begins at address 0")
    }
}
