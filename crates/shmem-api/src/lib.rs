//! The OpenSHMEM 1.6 C API, as one table (`shmem.api`), and what is made from it: the headers, the
//! exported functions, and the signatures of what must implement them.
//!
//! A C function `shmem_int_put` is a weak second name of `pshmem_int_put`, so that a profiling tool
//! may define the former and call the latter. That one is Rust, and one call:
//! `crate::rma::put::<c_int>("shmem_int_put", Ctx::DEFAULT, dest, ..)`. All functions that do the
//! same to different types, sizes or contexts are one operation, generic where they differ.

mod check;
mod expand;
mod extension;
mod generic;
mod header;
mod inline;
mod prototype;
mod rust;
mod signatures;
mod table;

use std::sync::LazyLock;

pub use table::{Error, Table};

/// The library's version: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the library says that it is.
const VENDOR: &str = concat!("memonet ", env!("CARGO_PKG_VERSION"));

/// The version as a number that grows with it.
fn version() -> u32 {
    let part = |text: &str| text.parse::<u32>().expect("cargo's version is three numbers");
    let [major, minor, patch] = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ]
    .map(part);
    assert!(
        minor < 100 && patch < 100,
        "a version of more than two digits does not fit into the number"
    );
    major * 10000 + minor * 100 + patch
}

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
    header::standard(&TABLE)
}

/// `shmemx.h`: extensions, and standard functions by the names that they had before.
pub fn header_x() -> String {
    extension::header(&TABLE)
}

/// `pshmem.h`, for profiling tools.
pub fn header_p() -> String {
    header::profiling(&TABLE)
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
    rust::source(&TABLE)
}

/// The names of the exported objects, which are no functions: what inlined functions read, and the
/// constants that are handles.
pub fn objects() -> Vec<&'static str> {
    let handles = TABLE.constants.iter().filter(|constant| constant.is_handle());
    [inline::OBJECT, inline::READS]
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
