//! The operations that the C functions call, by module of the API's table.

pub mod active_set;
pub mod amo;
pub mod barrier;
pub mod cache;
pub mod collective;
pub mod context;
pub mod legacy;
pub mod lock;
pub mod memory;
pub mod messages;
pub mod multicast;
pub mod mutex;
pub mod operation;
pub mod order;
pub mod region;
pub mod rma;
pub mod rwlock;
pub mod session;
pub mod setup;
pub mod signal;
pub mod supersteps;
pub mod sync;
pub mod team;
pub mod transfer;
pub mod window;
