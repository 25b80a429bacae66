//! Synchronisation of PEs: barriers, locks in words of segments, tickets.

pub(crate) mod barrier;
pub(crate) mod left_place;
pub(crate) mod lock;
pub(crate) mod slots;
pub(crate) mod tickets;
