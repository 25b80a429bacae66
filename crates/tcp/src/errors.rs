//! The fabric's name, and its errors.

use memonet_core::Error;

/// The fabric's name, for users too.
pub const NAME: &str = "tcp";

/// What the system refused.
pub(crate) fn system(call: impl Into<String>, answer: impl Into<std::io::Error>) -> Error {
    let hint = "Raise `ulimit -n`, or free some memory";
    Error::System { call: call.into(), answer: answer.into(), hint }
}

/// What the fabric says, as an error.
pub(crate) fn failed(problem: String) -> Error {
    Error::Fabric { fabric: NAME, problem, call: None }
}

/// Why there is no stream to `pe` where this process has no descriptor left.
pub(crate) fn no_room(pe: u32) -> String {
    format!(
        "no stream to PE {pe}: this process has as many open descriptors as it may. Raise `ulimit -n`, also the hard limit, or close files"
    )
}

/// What an operation fails with that its target did not allow.
pub(crate) fn refused(pe: u32) -> Error {
    failed(format!(
        "PE {pe} refused an access to its part of a restricted window: the window is gone there, or this PE has no right to it"
    ))
}
