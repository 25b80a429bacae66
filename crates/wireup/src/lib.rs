//! How processes that another launcher has started exchange what they need to form a job.
//!
//! A launcher of MPI programs offers its processes a store: each process puts values under keys,
//! all meet in a fence, and then each gets what the others have put. [`Exchange`] is that store.
//!
//! | launchers | protocol | here |
//! |---|---|---|
//! | Hydra (`mpiexec` of MPICH and Intel MPI), `srun --mpi=pmi2` | PMI-1, lines of text on the descriptor `PMI_FD` | [`pmi`] |
//! | Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix` | PMIx, by the library `libpmix.so.2` | [`pmix`] |
//!
//! A program's MPI uses the same store, before memonet or after it. So memonet leaves sessions open
//! that MPI may need, and keeps to keys of its own.
//!
//! Nothing here starts a thread (libpmix does), and every call has a time limit.

mod error;
mod exchange;
pub mod nodes;
pub mod pmi;
pub mod pmix;

pub use error::{Error, Result};
pub use exchange::Exchange;
