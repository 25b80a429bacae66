//! Static data in processes that the program forks off: each gets a private copy of what its parent
//! shares with the job.
//!
//! The copy is made before the fork, and moved into place in the child. Where the program is linked
//! statically, libc's own data are among the shared pages, and libc works on them in the child
//! before anybody else does: so the parent waits until the child has its copy, and a program with
//! threads, of which libc would lose count, is refused its fork.

use crate::state::near;
use crate::state::shared::Shared;
use memonet_core::Job;
use memonet_core::segment::page_size;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What a child is to find in place of the shared pages, and the job that has them.
static FOR_CHILDREN: OnceLock<(Job, Vec<Shared>)> = OnceLock::new();
/// Whether libc is part of the executable.
pub static LINKED_STATICALLY: AtomicBool = AtomicBool::new(false);
/// Whether this process is a child that has its copy: what it forks off gets a copy of that from
/// the kernel.
static HAS_ITS_OWN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Where the copies for the fork that this thread is making begin; 0: there are none. Of the
    /// thread, which is the only one that the child has.
    static COPIES: Cell<usize> = const { Cell::new(0) };
    /// A word that the child shares, in which it says that it has its copy; null: nobody asks.
    static SEPARATE: Cell<*mut u32> = const { Cell::new(std::ptr::null_mut()) };
}

/// Whether this process has copies of what its parent shares with the job.
pub fn has_copies() -> bool {
    HAS_ITS_OWN.load(Ordering::Relaxed)
}

/// Threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// A page that parent and child share.
fn shared_page() -> *mut c_void {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    unsafe { libc::mmap(std::ptr::null_mut(), page_size(), prot, flags, -1, 0) }
}

/// The word at the beginning of a shared page.
///
/// # Safety
/// `word` lies in a page of [`shared_page`] that stays mapped.
unsafe fn separate<'a>(word: *mut u32) -> &'a AtomicU32 {
    // SAFETY: aligned, mapped, and used as an atomic by both processes.
    unsafe { AtomicU32::from_ptr(word) }
}

/// From now on, children get copies.
pub fn copy_for_children(job: &Job, shared: &[Shared]) {
    if !shared.is_empty() && FOR_CHILDREN.set((job.clone(), shared.to_vec())).is_ok() {
        // SAFETY: the three functions have the signature that libc calls, and stay loaded as long
        // as the program.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork_in_parent),
                Some(after_fork_in_child),
            )
        };
    }
}

/// The shared pages, and where the copy of each range begins, from the first on.
fn copies() -> impl Iterator<Item = (&'static Shared, usize)> {
    let all = FOR_CHILDREN.get().into_iter().flat_map(|(_, all)| all);
    all.scan(0, |next, shared| {
        let at = std::mem::replace(next, *next + shared.pages.len());
        Some((shared, at))
    })
}

fn bytes_of_copies() -> usize {
    copies().map(|(shared, _)| shared.pages.len()).sum()
}

/// Copies the shared pages that exist to private memory. Where that cannot be had, the child shares
/// its parent's variables, and is told so on standard error.
extern "C" fn before_fork() {
    let Some((job, _)) = FOR_CHILDREN.get().filter(|_| !HAS_ITS_OWN.load(Ordering::Relaxed)) else {
        return;
    };
    if LINKED_STATICALLY.load(Ordering::Relaxed) {
        if threads() > 1 {
            eprintln!(
                "memonet: fork: a statically linked program with threads cannot fork while its static data is symmetric: link it dynamically"
            );
            // SAFETY: ends the process; what else could be done would corrupt it.
            unsafe { libc::_exit(1) };
        }
        let page = shared_page();
        SEPARATE.set(if page == libc::MAP_FAILED { std::ptr::null_mut() } else { page.cast() });
    }
    let bytes = bytes_of_copies();
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        eprintln!(
            "memonet: no memory for a copy of {bytes} bytes of static data: a process forked off now shares them with its parent"
        );
        return;
    }
    COPIES.set(base as usize);
    for (shared, at) in copies() {
        for part in job.touched(shared.offset, shared.pages.len()) {
            let (from, to) = (shared.pages.start + part.start, base as usize + at + part.start);
            // SAFETY: a part of the pages, and as much of the mapping made just now.
            unsafe { memonet_core::shm::copy(to as *mut u8, from as *const u8, part.len()) };
        }
    }
}

extern "C" fn after_fork_in_parent() {
    let word = SEPARATE.replace(std::ptr::null_mut());
    if !word.is_null() {
        // A child that was killed in between never says so; a second is far more than one needs.
        for _ in 0..20_000 {
            // SAFETY: the page of `before_fork`, unmapped below.
            if unsafe { separate(word) }.load(Ordering::Acquire) != 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // SAFETY: as above; nobody else in this process knows it.
        unsafe { libc::munmap(word.cast(), page_size()) };
    }
    let base = COPIES.replace(0);
    if base != 0 {
        // SAFETY: the mapping of `before_fork`, which only it and this know.
        unsafe { libc::munmap(base as *mut c_void, bytes_of_copies()) };
    }
}

extern "C" fn after_fork_in_child() {
    let base = COPIES.replace(0);
    let moved = base == 0
        || copies().all(|(Shared { pages, .. }, at)| {
            let (from, to, bytes) = (base + at, pages.start, pages.len());
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: moves a part of the private copy over the shared pages that it is a copy of.
            unsafe {
                libc::mremap(from as *mut c_void, bytes, bytes, flags, to as *mut c_void)
                    != libc::MAP_FAILED
            }
        });
    let word = SEPARATE.replace(std::ptr::null_mut());
    if !word.is_null() {
        // SAFETY: the page of `before_fork`, of which the child has a mapping of its own.
        unsafe {
            separate(word).store(1, Ordering::Release);
            libc::munmap(word.cast(), page_size());
        }
    }
    if !moved {
        const WHY: &str = "memonet: fork: the child cannot have its own copy of the static data, and ends: the kernel refuses to map it \
            (raise vm.max_map_count?)\n";
        // SAFETY: both may be called in a child of a process with threads; the text is as long as
        // it says.
        unsafe {
            libc::write(2, WHY.as_ptr().cast(), WHY.len());
            libc::_exit(1);
        }
    }
    if base != 0 {
        HAS_ITS_OWN.store(true, Ordering::Relaxed);
        // What is mapped at the variables' addresses is not what peers have mapped any more. Only
        // now, as the words may lie among them.
        near::call_functions();
    }
}
