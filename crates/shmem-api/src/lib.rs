//! The OpenSHMEM 1.6 C API as one table (`shmem.api`), and everything that is generated from it:
//! the headers, the exported functions, and the signatures of the operations that implement them.
//!
//! A C function `shmem_int_put` is a weak second name of `pshmem_int_put`, so that a profiling tool
//! may define the former and call the latter. `pshmem_int_put` is Rust, and one call:
//! `crate::calls::rma::put::<c_int>("shmem_int_put", Ctx::DEFAULT, dest, ..)`. All functions that
//! differ only in type, size or context share one operation, which is generic where they differ.
//!
//! # Layers
//!
//! Imports point down.
//!
//! ```text
//!   lib.rs                          what other crates call
//!   header/         library/        the C headers; the Rust source of the library
//!   table/                          what the table says, how it is read, and what must hold for it
//!   near.rs         version.rs      what headers and library agree on
//! ```

mod header;
mod library;
mod near;
mod table;
mod version;

use std::sync::LazyLock;

use header::{extension, standard};
use library::{functions, inlined, signatures};
use table::expand;
pub use table::model::{Error, Table};

static TABLE: LazyLock<Table> = LazyLock::new(|| match Table::parse(include_str!("shmem.api")) {
    Ok(table) => table,
    Err(error) => panic!("shmem.api, {error}"),
});

/// The table.
pub fn table() -> &'static Table {
    &TABLE
}

/// `shmem.h`.
pub fn header() -> String {
    standard::header(&TABLE)
}

/// `shmemx.h`: extensions, and standard functions by the names that they had before.
pub fn header_x() -> String {
    extension::header(&TABLE)
}

/// `pshmem.h`, for profiling tools.
pub fn header_p() -> String {
    standard::profiling(&TABLE)
}

/// All headers: the path in the folder of headers, and the text. `mpp` is where old programs look.
pub fn headers() -> [(&'static str, String); 5] {
    [
        ("shmem.h", header()),
        ("shmemx.h", header_x()),
        ("pshmem.h", header_p()),
        ("mpp/shmem.h", "#include \"../shmem.h\"\n".to_owned()),
        ("mpp/shmemx.h", "#include \"../shmemx.h\"\n".to_owned()),
    ]
}

/// The source of the exported functions and of the constants, to be included in a module that
/// allows `dead_code`, `missing_docs`, `clippy::missing_safety_doc` and
/// `clippy::undocumented_unsafe_blocks`.
pub fn rust() -> String {
    functions::source(&TABLE)
}

/// The source of what the library knows about inlined functions, to be included where a `Names` of
/// two addresses is in scope.
pub fn inlined() -> String {
    inlined::source(&TABLE)
}

/// The names of the exported objects, which are no functions: what inlined functions read, and the
/// constants that are handles.
pub fn objects() -> Vec<&'static str> {
    let handles = TABLE.constants.iter().filter(|constant| constant.is_handle());
    [near::OBJECT, near::READS]
        .into_iter()
        .chain(handles.map(|constant| constant.name.as_str()))
        .collect()
}

/// The names of all C functions. Each also exists with a `p` before it.
pub fn symbols() -> Vec<String> {
    let all = expand::functions(&TABLE).expect("a checked table");
    all.into_iter().map(|function| function.name).collect()
}

/// The Rust signature of every function that implements some of the C API, by module.
pub fn signatures() -> String {
    signatures::text(&TABLE)
}
