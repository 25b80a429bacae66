//! The library's side, in Rust.

pub mod functions;
pub mod inlined;
mod names;
pub mod signatures;
