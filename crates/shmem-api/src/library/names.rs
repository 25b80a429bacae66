//! Other names of the exported functions.

/// The name by which profiling tools call a function.
pub fn profiling(name: &str) -> String {
    format!("p{name}")
}

/// The name of the library's own function, which no tool can replace.
pub fn own(name: &str) -> String {
    format!("memonet_own_{name}")
}
