//! Static data in children of `fork`: each child gets a private copy of the pages that its parent
//! shares with the job.
//!
//! The parent makes the copy before the fork, and the child moves it into place. In a statically
//! linked program, libc's own data are among the shared pages, and libc writes them in the child
//! before all handlers run. There the parent waits until the child has its copy; and a program with
//! threads may not fork, because libc would lose count of the threads.

use crate::state::near;
use crate::state::shared::Shared;
use memonet_core::unstable::segment::page_size;
use memonet_core::{Error, Job, Result};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The job, and the shared pages that a child gets a copy of.
static FOR_CHILDREN: OnceLock<(Job, Vec<Shared>)> = OnceLock::new();
/// Whether the executable contains libc.
pub static LINKED_STATICALLY: AtomicBool = AtomicBool::new(false);
/// Whether this process is a child with a private copy. Its own children get a copy from the
/// kernel.
static HAS_ITS_OWN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The address of the copies for the fork that this thread makes; 0: there are none. It is
    /// local to the thread because the child has only the thread that forks.
    static COPIES: Cell<usize> = const { Cell::new(0) };
    /// A word that parent and child share; the child sets it when it has its copy. Null: the parent
    /// does not wait.
    static SEPARATE: Cell<*mut u32> = const { Cell::new(std::ptr::null_mut()) };
}

/// Whether this process has private copies of the pages that its parent shares with the job.
pub fn has_copies() -> bool {
    HAS_ITS_OWN.load(Ordering::Relaxed)
}

/// Threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Maps a page that parent and child share.
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

/// Has the functions below called at each fork. Comes before all others of the library, so that a
/// child has its own copy when their handlers run. In a statically linked program, their variables
/// are among the shared pages.
///
/// # Errors
/// [`Error::System`] without memory.
pub fn watch() -> Result<()> {
    static DONE: OnceLock<i32> = OnceLock::new();
    // SAFETY: the three functions have the signature that libc calls. The library is never
    // unloaded, so they stay valid.
    let register = || unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        )
    };
    match *DONE.get_or_init(register) {
        0 => Ok(()),
        errno => {
            let why = std::io::Error::from_raw_os_error(errno);
            Err(Error::System {
                call: "pthread_atfork".into(),
                answer: why,
                hint: "Free some memory",
            })
        }
    }
}

/// From now on, children get private copies of the shared pages.
pub fn copy_for_children(job: &Job, shared: &[Shared]) {
    if !shared.is_empty() {
        // The first job of a process stays its only one.
        let _ = FOR_CHILDREN.set((job.clone(), shared.to_vec()));
    }
}

/// The shared ranges, each with the offset of its copy behind the first copy.
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

/// Copies the shared pages that exist to private memory. Where there is no memory for the copy, the
/// child shares its parent's variables, and a message on standard error says so.
extern "C" fn before_fork() {
    let Some((job, _)) = FOR_CHILDREN.get().filter(|_| !HAS_ITS_OWN.load(Ordering::Relaxed)) else {
        return;
    };
    if LINKED_STATICALLY.load(Ordering::Relaxed) {
        if threads() > 1 {
            eprintln!(
                "memonet: fork: a statically linked program with threads cannot fork while its static data is symmetric: link it dynamically"
            );
            // SAFETY: `_exit` may be called at any point. Going on would corrupt libc's data.
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
            "memonet: fork: there is no memory for a copy of {bytes} bytes of static data: the child shares them with its parent"
        );
        return;
    }
    COPIES.set(base as usize);
    for (shared, at) in copies() {
        for part in job.touched(shared.offset, shared.pages.len()) {
            let (from, to) = (shared.pages.start + part.start, base as usize + at + part.start);
            // SAFETY: `part` lies within the shared range, and the mapping above has room for all
            // ranges one behind the other.
            unsafe {
                memonet_core::unstable::shm::copy(to as *mut u8, from as *const u8, part.len())
            };
        }
    }
}

extern "C" fn after_fork_in_parent() {
    let word = SEPARATE.replace(std::ptr::null_mut());
    if !word.is_null() {
        // A child that is killed before it has its copy never sets the word; a second is far more
        // than the copy takes.
        for _ in 0..20_000 {
            // SAFETY: `before_fork` mapped the page, and only the line below unmaps it.
            if unsafe { separate(word) }.load(Ordering::Acquire) != 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // SAFETY: `before_fork` mapped the page, and this thread alone has its address.
        unsafe { libc::munmap(word.cast(), page_size()) };
    }
    let base = COPIES.replace(0);
    if base != 0 {
        // SAFETY: `before_fork` made the mapping of this length, and this thread alone has its
        // address.
        unsafe { libc::munmap(base as *mut c_void, bytes_of_copies()) };
    }
}

extern "C" fn after_fork_in_child() {
    let base = COPIES.replace(0);
    let moved = base == 0
        || copies().all(|(Shared { pages, .. }, at)| {
            let (from, to, bytes) = (base + at, pages.start, pages.len());
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            // SAFETY: the range `from` is a part of the copies that `before_fork` mapped. It holds
            // the bytes of the pages that it replaces, so the program's data stay as they are.
            unsafe {
                libc::mremap(from as *mut c_void, bytes, bytes, flags, to as *mut c_void)
                    != libc::MAP_FAILED
            }
        });
    let word = SEPARATE.replace(std::ptr::null_mut());
    if !word.is_null() {
        // SAFETY: `before_fork` mapped the page; the child has its own mapping, which it unmaps
        // once.
        unsafe {
            separate(word).store(1, Ordering::Release);
            libc::munmap(word.cast(), page_size());
        }
    }
    if !moved {
        const WHY: &str = "memonet: fork: the child cannot have its own copy of the static data, and ends: the kernel refuses to map it \
            (raise vm.max_map_count?)\n";
        // SAFETY: both functions may be called in a child of a process with threads. The length is
        // that of the text.
        unsafe {
            libc::write(2, WHY.as_ptr().cast(), WHY.len());
            libc::_exit(1);
        }
    }
    if base != 0 {
        HAS_ITS_OWN.store(true, Ordering::Relaxed);
        // The pages at the variables' addresses are no longer those that peers have mapped. This
        // comes last because the words that it writes may lie on these pages.
        near::has_own_statics();
    }
}
