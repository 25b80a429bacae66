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
//!   lib.rs                     the functions that other crates call
//!   header/      library/      the C headers; the Rust source of the library
//!   table/                     the table's contents, how they are read, and their rules
//!   near.rs      version.rs    the objects and the version that headers and library share
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

/// `shmemx.h`: extensions, and old names of standard functions.
pub fn header_x() -> String {
    extension::header(&TABLE)
}

/// `pshmem.h`, for profiling tools.
pub fn header_p() -> String {
    standard::profiling(&TABLE)
}

/// All headers, each with its path in the folder of headers. Old programs look for headers in
/// `mpp`.
pub fn headers() -> [(&'static str, String); 5] {
    [
        ("shmem.h", header()),
        ("shmemx.h", header_x()),
        ("pshmem.h", header_p()),
        ("mpp/shmem.h", "#include \"../shmem.h\"\n".to_owned()),
        ("mpp/shmemx.h", "#include \"../shmemx.h\"\n".to_owned()),
    ]
}

/// The source of the exported functions and of the constants. The module that includes it allows
/// `dead_code`, `missing_docs`, `clippy::missing_safety_doc` and
/// `clippy::undocumented_unsafe_blocks`.
pub fn rust() -> String {
    functions::source(&TABLE)
}

/// The source of the list of inlined functions. The module that includes it defines a `Names` of
/// two addresses.
pub fn inlined() -> String {
    inlined::source(&TABLE)
}

/// The names of the exported objects: those that inlined functions read, and the constants that are
/// handles.
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

/// The Rust signatures of the functions that implement the C API, by module.
pub fn signatures() -> String {
    signatures::text(&TABLE)
}
