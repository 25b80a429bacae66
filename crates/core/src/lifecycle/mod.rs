//! How a job begins and ends.

pub(crate) mod adopt;
mod alike;
pub(crate) mod departures;
pub(crate) mod finalizing;
mod foreign;
pub(crate) mod inherit;
pub mod launch;
pub(crate) mod life;
pub(crate) mod pulse;
pub(crate) mod start;
pub(crate) mod watch;
pub(crate) mod wired;
