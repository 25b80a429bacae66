//! Threads that may not read the cycle counter.

/// While this value lives, its thread may not read the cycle counter, like PEs.
pub struct NoCycles(());

impl NoCycles {
    pub fn begin() -> NoCycles {
        allow_cycles(libc::PR_TSC_SIGSEGV);
        NoCycles(())
    }
}

impl Drop for NoCycles {
    fn drop(&mut self) {
        allow_cycles(libc::PR_TSC_ENABLE);
    }
}

/// A processor without such a switch refuses the call, and has no cost to avoid.
fn allow_cycles(how: i32) {
    // SAFETY: concerns this thread's cycle counter alone.
    unsafe { libc::prctl(libc::PR_SET_TSC, how) };
}
