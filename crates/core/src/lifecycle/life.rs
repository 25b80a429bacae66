//! The lives of PEs that are no processes: threads, and programs of a simulated machine. With its
//! program a PE ends: in order, or by a panic, of which it dies.

use crate::base::error::Cause;
use crate::base::status::State;
use crate::job::Job;
use crate::sync::left_place;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The value that a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Runs the program of a PE that has joined. If it panics, `keep` gets the panic before other PEs
/// learn of the death, which may make them panic, too.
pub(crate) fn live<R>(
    job: Job,
    program: impl FnOnce(Job) -> R,
    keep: impl FnOnce(Panic),
) -> Option<R> {
    let pe = job.pe.clone();
    let ended = catch_unwind(AssertUnwindSafe(|| program(job)));
    let ended = ended.map_err(keep).ok();
    if ended.is_some() {
        // An error here is of a write for which the PE has not waited.
        drop(pe.finalize());
        // One that cannot leave in order is gone all the same.
        pe.control().depart_from(pe.me(), State::Joined, State::Done);
    } else {
        pe.control().depart(pe.me(), State::Dead(Cause::Panic));
        left_place::forget(&pe);
    }
    ended
}
