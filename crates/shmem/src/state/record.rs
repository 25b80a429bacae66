//! Notes the program's calls under their C names: for reports of long waits, and in the records of
//! the job, where its launcher asks for these.
//!
//! While a PE records, the [table of near memory](crate::state::near) lists no PEs. So every call
//! comes here: by its exported function, or, where that has a short way to near memory, by its long
//! way.

use memonet_core::Job;
use memonet_core::unstable::calls::Ends;
use memonet_core::unstable::recorder::Recording;
use memonet_core::unstable::segment::begin_waiting;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The job that is recorded; null: none.
static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());

/// Makes calls be recorded from now on, if this job is.
pub fn set_job(job: &'static Job) {
    if job.is_recorded() {
        JOB.store(std::ptr::from_ref(job).cast_mut(), Ordering::Release);
    }
}

/// A call of the program, until it is dropped.
#[must_use = "dropped, it ends the call"]
pub struct Begun {
    _waits: Option<Ends>,
    _recorded: Option<Recording>,
}

/// Begins a call that may wait for other PEs: a report of long waits names it, and it is recorded.
#[inline(always)]
pub fn call(name: &'static str) -> Begun {
    Begun { _waits: begin_waiting(name), _recorded: brief(name) }
}

/// Begins a call that waits for no other PE; `None` where nothing is recorded.
#[inline(always)]
pub fn brief(name: &'static str) -> Option<Recording> {
    let job = JOB.load(Ordering::Acquire);
    if job.is_null() { None } else { begin(job, name) }
}

#[cold]
#[inline(never)]
fn begin(job: *const Job, name: &'static str) -> Option<Recording> {
    // SAFETY: `brief` got it from `set_job`, whose argument lives for ever.
    unsafe { &*job }.begin_call(name)
}
