//! A PE's place in its job: its number, the memory of its peers, and the way to far peers.

pub(crate) mod awaiting;
pub(crate) mod belongs;
pub mod callers;
pub mod calls;
pub(crate) mod check;
pub(crate) mod control;
pub(crate) mod copies;
pub(crate) mod descriptor;
pub mod ending;
pub(crate) mod errand;
pub mod fabric;
mod late;
pub(crate) mod layers;
mod marks;
pub mod mixture;
mod moved;
mod network;
pub(crate) mod pe;
pub(crate) mod progress;
pub mod record;
pub mod recorder;
pub(crate) mod route;
mod typed;
mod virtual_clock;
pub(crate) mod written;
