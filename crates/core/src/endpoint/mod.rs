//! A PE's place in its job: who it is, where everybody's memory is, and the way to far peers.

pub(crate) mod awaiting;
pub(crate) mod belongs;
pub(crate) mod check;
pub(crate) mod control;
pub mod ending;
pub mod fabric;
pub(crate) mod late;
pub(crate) mod layers;
pub(crate) mod pe;
pub(crate) mod prepared;
pub(crate) mod progress;
pub mod record;
pub(crate) mod route;
pub(crate) mod written;
