//! The functions that measure rows, one file per kind of operation. The table of specifications
//! names them.

pub mod barriers;
pub mod blocks;
pub mod collectives;
pub mod far;
pub mod far_libfabric;
pub mod far_meetings;
pub mod far_multicast;
pub mod far_shared;
pub mod far_startup;
pub mod multicast;
pub mod mutex_far;
pub mod near_beside_far;
pub mod process;
pub mod shared;
pub mod simulated;
pub mod simulated_call;
pub mod startup;
pub mod waits;
pub mod words;
