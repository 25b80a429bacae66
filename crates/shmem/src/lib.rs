//! OpenSHMEM 1.6 on memonet.
//!
//! A thin front end: each C function is one call of an operation, in the module that the API's
//! table names. `memonet-shmem-api` holds the table; it generates the header and the exported
//! functions from it. An operation finds the offset of a symmetric address and asks the core for
//! everything else.
//!
//! # Layers
//!
//! Imports point down.
//!
//! ```text
//!   api        the exported functions, generated from the table
//!   calls/     the operations, one file for each module of the table; what one of them alone
//!              keeps (barriers, mutexes, windows, active sets) stands beside it
//!   state/     what every call needs:
//!                environment   the standard's variables
//!                address       symmetric addresses, and why one is none
//!                argument      PEs, teams and counts that a program gives
//!                library       the job, joined once, and whether the library is initialised
//!                statics       the program's static data as symmetric memory
//!                near          the table by which a call finds near memory
//!                caller        where the program has called the library
//!                contexts, teams, handle, fatal, shared, lock
//! ```
//!
//! | to see | read |
//! |---|---|
//! | what a `shmem_long_p` does | [`calls::rma`], [`state::near`], [`state::State::spot`], `memonet_core::unstable::segment` |
//! | why a global variable is symmetric | `state/statics` |
//! | how a program learns what it did wrong | [`state::die`], [`state::State::symmetric`] |

#![allow(clippy::too_many_arguments, reason = "the standard's")]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "to Rust, all of it is private: the C functions are the interface"
)]

mod calls;
mod state;

/// The exported functions.
mod api {
    #![allow(
        dead_code,
        missing_docs,
        clippy::missing_safety_doc,
        clippy::undocumented_unsafe_blocks,
        reason = "made from a table: the header documents the functions, and each is one call; not every constant is used"
    )]
    include!(concat!(env!("OUT_DIR"), "/api.rs"));
}
