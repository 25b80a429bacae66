//! Whether this process is the one that used the fabric first, or was forked off by it.

use memonet_core::{Error, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One more than the forks between this process and the first that counted.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// Never 0; in a child it is another than in its parent.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// From now on, forks are counted.
pub(crate) fn count() -> Result<()> {
    extern "C" fn in_child() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    static DONE: OnceLock<i32> = OnceLock::new();
    // SAFETY: the function has the signature that libc calls, and stays loaded as long as libc
    // knows it.
    match *DONE.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(in_child)) }) {
        0 => Ok(()),
        errno => {
            Err(crate::errors::system("pthread_atfork", std::io::Error::from_raw_os_error(errno)))
        }
    }
}

/// What a child is told.
pub(crate) fn not_the_pe() -> Error {
    Error::misuse(
        "this process was forked off by the PE, and has no way to far PEs: leave those to the \
         process that joined, or fork before that",
    )
}
