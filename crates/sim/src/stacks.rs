//! Stacks for very many coroutines: one mapping, cut into equal pieces.
//!
//! Linux 6.13 and later mark guard pages within a mapping, which costs nothing. On an older kernel
//! the lowest page of each stack becomes a mapping of its own that nobody may touch: two mappings
//! for each stack. A process has 65,530 of these, unless the system says otherwise. Where so many
//! PEs do not fit, the lowest word of each stack holds a mark instead, which is checked whenever
//! the PE gives up the CPU. A PE that has destroyed its mark may have written into its neighbour's
//! stack, so the process ends.
//!
//! The compiler has a function with a large frame touch every page of it first, so none steps over
//! a guard page. One may step over a mark: with more than 28,000 PEs on an older kernel, a stack
//! that is too small is not always noticed.

use crate::error::Error;
use corosensei::stack::{STACK_ALIGNMENT, Stack, StackPointer};
use std::rc::Rc;

/// `MADV_GUARD_INSTALL`, which libc does not name yet.
const GUARD_INSTALL: i32 = 102;
const MARK: u64 = 0x6d65_6d6f_6e65_7421;
const GUARD_BYTES: usize = 4096;
/// The most mappings of a process, where the system does not say.
const MAPPINGS: usize = 65_530;
/// Mappings that are left to the rest of the process: libraries, threads, windows, the program's.
const MAPPINGS_OF_OTHERS: usize = 8192;
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

/// A way to make a page of a stack's mapping a guard page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// A guard page within the mapping.
    Installed,
    /// A page that is a mapping of its own.
    Mapped,
}

/// Stacks for `n` coroutines, of `len` bytes each (rounded up to pages, and to `LEAST`), besides
/// the guard.
pub(crate) fn stacks(n: usize, len: usize) -> Result<Vec<Piece>, Error> {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let most = most.ok().and_then(|most| most.trim().parse().ok()).unwrap_or(MAPPINGS);
    stacks_with(n, len, &guards(n, most))
}

/// The guards to try for each of `n` stacks, where a process may have so many mappings. The mark
/// is for stacks that get none of these.
fn guards(n: usize, mappings: usize) -> Vec<Guard> {
    let mapped = n.saturating_mul(2).saturating_add(MAPPINGS_OF_OTHERS) <= mappings;
    let all = [Some(Guard::Installed), mapped.then_some(Guard::Mapped)];
    all.into_iter().flatten().collect()
}

fn stacks_with(n: usize, len: usize, guards: &[Guard]) -> Result<Vec<Piece>, Error> {
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
        let guarded = guards.iter().any(|guard| unsafe { guard.set(lowest) });
        if !guarded {
            // SAFETY: the lowest page of the piece is mapped, nothing uses it yet, and a page is
            // aligned for a word.
            unsafe { lowest.cast::<u64>().write(MARK) };
        }
        Piece { slab: slab.clone(), offset, len, marked: !guarded }
    };
    Ok((0..n).map(|number| piece(number * len)).collect())
}

impl Guard {
    /// Makes a page a guard page. Says whether it is one.
    ///
    /// # Safety
    /// The page is mapped, and nothing uses it.
    unsafe fn set(self, page: *mut u8) -> bool {
        let page = page.cast();
        match self {
            // SAFETY: the caller's promise.
            Guard::Installed => unsafe { libc::madvise(page, GUARD_BYTES, GUARD_INSTALL) == 0 },
            Guard::Mapped => {
                let nothing = rustix::mm::MprotectFlags::empty();
                // SAFETY: the caller's promise.
                unsafe { rustix::mm::mprotect(page, GUARD_BYTES, nothing) }.is_ok()
            }
        }
    }
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
// as it lives. Its lowest page is a guard page, or, where neither the kernel nor the number of
// mappings allows one, holds a mark whose loss ends the process.
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

#[cfg(test)]
mod tests {
    use super::*;
    use corosensei::Coroutine;
    use std::mem::MaybeUninit;
    use std::process::Command;

    #[test]
    fn guards_leave_mappings_to_others() {
        assert_eq!(guards(1000, MAPPINGS), [Guard::Installed, Guard::Mapped]);
        assert_eq!(guards(28_669, MAPPINGS), [Guard::Installed, Guard::Mapped]);
        assert_eq!(guards(28_670, MAPPINGS), [Guard::Installed]);
        assert_eq!(guards(usize::MAX, MAPPINGS), [Guard::Installed]);
        assert_eq!(guards(1, 100), [Guard::Installed]);
    }

    #[test]
    fn no_frame_steps_over_a_guard_page() {
        for guard in ["Installed", "Mapped"] {
            let test = "stacks::tests::in_a_process_of_its_own";
            let ended = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--ignored", "--nocapture", test])
                .env("MEMONET_TEST_GUARD", guard)
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&ended.stdout);
            let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
            // Linux before 6.13 installs none, and the process says so.
            let none = guard == "Installed" && told.contains("no such guard");
            assert!(signal == Some(libc::SIGSEGV) || none, "{guard}: {ended:?}");
        }
    }

    /// Has a frame that is larger than the stack, and touches its lower end alone.
    #[inline(never)]
    fn step_over() {
        let mut frame = [MaybeUninit::<u64>::uninit(); 12_000];
        frame[0].write(7);
        std::hint::black_box(&mut frame);
    }

    #[test]
    #[ignore = "started by `no_frame_steps_over_a_guard_page`"]
    fn in_a_process_of_its_own() {
        let guard = match std::env::var("MEMONET_TEST_GUARD").as_deref() {
            Ok("Installed") => Guard::Installed,
            Ok("Mapped") => Guard::Mapped,
            _ => return,
        };
        let stack = stacks_with(2, LEAST, &[guard]).unwrap().remove(1);
        if stack.marked {
            return println!("no such guard");
        }
        let mut steps = Coroutine::<(), (), (), _>::with_stack(stack, |_, ()| step_over());
        let _ = steps.resume(());
        unreachable!("the frame has stepped over the guard page");
    }
}
