//! How a job begins and ends.

pub(crate) mod adopt;
pub(crate) mod finalizing;
pub mod launch;
pub(crate) mod watch;
