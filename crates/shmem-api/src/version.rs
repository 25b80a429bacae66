//! The version of the library.

/// The version of the library, which is that of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The name and version that the library reports.
pub const VENDOR: &str = concat!("memonet ", env!("CARGO_PKG_VERSION"));

/// The version as a number that grows with it.
pub fn number() -> u32 {
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
