//! How a job begins and ends.

pub(crate) mod adopt;
pub(crate) mod finalizing;
pub(crate) mod inherit;
pub mod launch;
pub(crate) mod pulse;
pub(crate) mod start;
pub(crate) mod watch;
