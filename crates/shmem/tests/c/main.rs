//! The library as C and C++ programs meet it: compiled with the wrappers, linked in every way, run
//! as jobs.

mod addresses;
mod common;
mod example;
mod exec;
mod exits;
mod heap;
mod inlined;
mod installed;
mod long_waits;
mod polling;
mod simulated;
mod statics;
mod stats;
mod symbols;
mod trace;
mod wrappers;
