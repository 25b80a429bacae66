//! What everything stands on: errors, the layout of shared memory, and the primitives that access
//! it.

pub(crate) mod address;
pub(crate) mod doorbell;
pub(crate) mod error;
pub mod layout;
pub(crate) mod memory;
pub(crate) mod process;
pub mod settings;
pub mod shm;
pub(crate) mod status;
