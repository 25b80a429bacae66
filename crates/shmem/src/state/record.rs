//! Records the program's calls under their C names, where the job's launcher asks for it.
//!
//! While a PE records, the [table of near memory](crate::state::near) lists no PEs. So every call
//! comes here: by its exported function, or, where that has a short way to near memory, by its long
//! way.

use memonet_core::Job;
use memonet_core::unstable::recorder::Recording;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The job that is recorded; null: none.
static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());

/// Makes calls be recorded from now on, if this job is.
pub fn set_job(job: &'static Job) {
    if job.is_recorded() {
        JOB.store(std::ptr::from_ref(job).cast_mut(), Ordering::Release);
    }
}

/// Begins a call, which ends when the value is dropped; `None` where nothing is recorded.
#[inline(always)]
pub fn call(name: &'static str) -> Option<Recording> {
    let job = JOB.load(Ordering::Acquire);
    if job.is_null() { None } else { begin(job, name) }
}

#[cold]
#[inline(never)]
fn begin(job: *const Job, name: &'static str) -> Option<Recording> {
    // SAFETY: `call` got it from `set_job`, whose argument lives for ever.
    unsafe { &*job }.begin_call(name)
}
