//! How the library ends a job that cannot go on.

use memonet_core::{Job, ending};
use std::fmt::Display;
use std::sync::OnceLock;

/// The job to end, once this process has joined it.
static JOB: OnceLock<&'static Job> = OnceLock::new();

/// Messages name this process by its place in `job` from now on.
pub fn set_job(job: &'static Job) {
    let _ = JOB.set(job);
}

/// Ends the job because of a call that cannot be carried out.
#[cold]
#[inline(never)]
pub fn die(call: &'static str, why: impl Display) -> ! {
    if ending::is_under_way() {
        // Only the first reason counts: the others may be its consequences.
        ending::end(1);
    }
    if let Some(job) = JOB.get() {
        if job.is_exiting() {
            // It fails because the job is being ended on purpose: that is not to be commented on.
            job.await_exit();
        }
        eprintln!("memonet: PE {}: {call}: {why}", job.pe());
    } else {
        eprintln!("memonet: {call}: {why}");
    }
    ending::end(1)
}

/// The result, or the end of the job.
#[inline(always)]
pub fn or_die<R>(call: &'static str, result: memonet_core::Result<R>) -> R {
    match result {
        Ok(value) => value,
        Err(error) => die(call, error),
    }
}
