//! How the library ends a job that cannot go on.

use super::caller;
use memonet_core::Job;
use memonet_core::unstable::{ending, recorder};
use std::fmt::Display;
use std::sync::OnceLock;

/// The job, once this process has joined it.
static JOB: OnceLock<&'static Job> = OnceLock::new();

/// Makes messages name the PE of `job` from now on.
pub fn set_job(job: &'static Job) {
    let _ = JOB.set(job);
}

/// Ends the job because of a call that cannot succeed.
#[cold]
#[inline(never)]
pub fn die(call: &'static str, why: impl Display) -> ! {
    if ending::is_under_way() {
        // Only the first reason is reported: later ones may be its consequences.
        ending::end(1);
    }
    // The program's handlers, which run at the end, make calls of their own.
    recorder::end_call();
    if let Some(job) = JOB.get() {
        if job.is_exiting() {
            // The call fails because a PE ends the job on purpose, which is no error to report.
            job.await_exit();
        }
        eprintln!("memonet: PE {}: {call}: {why}{}", job.pe(), at());
    } else {
        eprintln!("memonet: {call}: {why}{}", at());
    }
    ending::end(1)
}

/// Where the program made the call.
fn at() -> String {
    caller::place().map_or_else(String::new, |place| format!(" (at {place})"))
}

/// The value of a result. Ends the job if the result is an error.
#[inline(always)]
pub fn or_die<R>(call: &'static str, result: memonet_core::Result<R>) -> R {
    match result {
        Ok(value) => value,
        Err(error) => fail(call, error),
    }
}

/// Ends the job because of an error. The message names the C function, not the one that it stands
/// on.
#[cold]
#[inline(never)]
pub fn fail(call: &'static str, error: memonet_core::Error) -> ! {
    die(call, error.of_call(None))
}
