//! memonet: **a send is a store**.
//!
//! ```
//! use memonet::{Cmp, Job};
//!
//! // In a program started by `memonet run`, `memonet::init()?` instead of `Job::threads`.
//! Job::threads(2, |job| -> memonet::Result<()> {
//!     let box_ = job.window::<u64>(1)?; // one word on every PE
//!     if job.pe() == 0 {
//!         box_.remote(1, 0)?.store(42); // one instruction
//!     } else {
//!         assert_eq!(box_.wait_until(0, Cmp::Ne, 0)?, 42);
//!     }
//!     job.barrier()
//! })?;
//! # Ok::<(), memonet::Error>(())
//! ```
//!
//! Everything is in [`memonet_core`], re-exported here.

pub use memonet_core::*;

/// Joins the job in which this process was started: by `memonet run`, or alone as a job of one PE.
///
/// # Errors
/// See [`Job::init_with`].
pub fn init() -> Result<Job> {
    memonet_fabrics::init()
}

/// The programs of the documents are compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/multicast.md")]
    struct Multicast;
    #[doc = include_str!("../../../docs/shared-data.md")]
    struct SharedData;
}
