//! Other names of the exported functions.

/// The name by which profiling tools call a function.
pub fn profiling(name: &str) -> String {
    format!("p{name}")
}

/// The name of a function that nobody else has one for: of the library's own, whatever the others
/// stand for.
pub fn own(name: &str) -> String {
    format!("memonet_own_{name}")
}
