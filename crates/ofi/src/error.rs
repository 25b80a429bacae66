//! What goes wrong, as the library's errors.

use memonet_core::Error;

/// The fabric's name, for users too.
pub const NAME: &str = "ofi";

/// What the system refused.
pub(crate) fn system(call: impl Into<String>, answer: impl Into<std::io::Error>) -> Error {
    let hint = "Raise `ulimit -n`, or free some memory";
    Error::System { call: call.into(), answer: answer.into(), hint }
}

/// What the fabric says, as an error.
pub(crate) fn failed(problem: String) -> Error {
    Error::Fabric { fabric: NAME, problem, call: None }
}
