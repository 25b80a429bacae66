//! The Rust source of the library.

pub mod functions;
pub mod inlined;
mod names;
pub mod signatures;
