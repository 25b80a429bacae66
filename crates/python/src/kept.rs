//! Guards that live as long as a program wants.

use memonet_core::{Job, Result};
use std::mem;
use std::sync::Arc;

/// A guard, and the lock from which it borrows.
///
/// A process that the PE has forked off has a copy of it. There it is forgotten: the data are still
/// the PE's, whose guard it is.
pub struct Kept<G, L> {
    job: Job,
    guard: Option<G>,
    // Behind the guard, so that it is dropped later.
    lock: Arc<L>,
}

impl<G, L> Kept<G, L> {
    /// Keeps a guard of `lock`.
    pub fn new(job: &Job, lock: Arc<L>, guard: G) -> Self {
        Kept { job: job.clone(), guard: Some(guard), lock }
    }

    /// The guard.
    pub fn guard(&mut self) -> &mut G {
        self.guard.as_mut().expect("only `release` and `drop` take it")
    }

    /// Gives the data back.
    pub fn release(mut self, give_back: impl FnOnce(G) -> Result<()>) -> Result<()> {
        self.job.refuse_child()?;
        self.guard.take().map_or(Ok(()), give_back)
    }
}

impl<G, L> Drop for Kept<G, L> {
    fn drop(&mut self) {
        if self.job.refuse_child().is_err() {
            mem::forget(self.guard.take());
            // What the guard borrows from stays, too.
            mem::forget(self.lock.clone());
        }
    }
}
