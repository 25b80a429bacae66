//! OpenSHMEM 1.6 on memonet.
//!
//! A thin front end: each C function is one call of an operation in the module that the table of
//! the API names (`memonet-shmem-api` holds the table, and makes the header and the exported
//! functions of it). An operation finds the offset of a symmetric address, and asks the core for
//! the rest.
//!
//! | to see | read |
//! |---|---|
//! | the way of a `shmem_long_p` | [`rma`], [`near`], [`state::State::spot`], `memonet_core::segment` |
//! | why a global variable is symmetric | [`statics`] |
//! | how a program is told what it did wrong | [`state::die`], [`state::State::symmetric`] |

#![allow(clippy::too_many_arguments, reason = "the standard's")]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "to Rust, all of it is private: the C functions are the interface"
)]

mod active_set;
mod amo;
mod barrier;
mod cache;
mod collective;
mod context;
mod environment;
mod handle;
mod legacy;
mod lock;
mod memory;
mod mutex;
mod near;
mod operation;
mod order;
mod region;
mod rma;
mod session;
mod setup;
mod signal;
mod state;
mod statics;
mod sync;
mod team;
mod transfer;
mod window;

/// The exported functions.
mod api {
    #![allow(
        dead_code,
        missing_docs,
        clippy::missing_safety_doc,
        clippy::undocumented_unsafe_blocks,
        reason = "made from a table: the header documents the functions, and each is one call; not every constant is used"
    )]
    include!(env!("MEMONET_API"));
}
