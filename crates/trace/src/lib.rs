//! Timelines of runs: what the programs of PEs have called and waited for, on a real or a simulated
//! machine; and the format, in which the simulator adds what its hardware has done.

pub mod chrome;
pub mod program;
