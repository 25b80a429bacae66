//! Whether this process has but one thread. What only keeps its threads apart then needs no locked
//! instruction.

/// Whether this thread is the only one of its process, and no other begins before it starts one
/// itself. False where nobody says.
///
/// C libraries that say so (glibc from 2.32 on) do in a variable, `__libc_single_threaded`: it
/// becomes false before a first thread is started, and true again at most when all others have been
/// joined. So what this thread did while it was alone is known to any thread that comes later, and
/// what others did is known to it when it is alone again.
#[inline(always)]
pub(crate) fn is_single_threaded() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri))))]
    {
        use std::sync::atomic::{AtomicU8, Ordering};
        let flag: *const AtomicU8;
        // SAFETY: reads the variable's address from the table of such; weak, it is null where there
        // is no such variable.
        unsafe {
            std::arch::asm!(
                ".weak __libc_single_threaded",
                "mov {flag}, qword ptr [rip + __libc_single_threaded@GOTPCREL]",
                flag = lateout(reg) flag,
                options(nostack, preserves_flags, pure, nomem)
            );
        }
        // SAFETY: null, or libc's variable of one byte, which lives as long as the process.
        unsafe { flag.as_ref() }.is_some_and(|flag| flag.load(Ordering::Relaxed) != 0)
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(loom, miri)))))]
    {
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_noticed() {
        // The test runner has threads.
        std::thread::spawn(|| assert!(!is_single_threaded())).join().unwrap();
    }
}
