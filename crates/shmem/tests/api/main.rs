//! The C API as C programs see it, family by family, against a sequential model of what the
//! specification says.
//!
//! The programs are in `c/`. What differs from type to type is in none of them: `types.h` is
//! generated from the table of the API, so a type that is added there is tested here, and
//! `coverage.rs` fails where a function is added that no program calls.

mod coverage;
mod families;
mod misuse;
mod program;
mod setup;
mod types;
