//! A PE's place in its job: who it is, where everybody's memory is, and the way to far peers.

pub(crate) mod belongs;
pub(crate) mod check;
pub(crate) mod control;
pub(crate) mod descriptors;
pub mod ending;
pub mod fabric;
pub(crate) mod pe;
pub(crate) mod route;
