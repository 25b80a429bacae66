//! What all parts need.

use memonet_core::Error;
use rustix::io::Errno;
use std::time::Duration;

/// The longest that a fence takes: the others have to start within it.
pub const FENCE: Duration = Duration::from_secs(30);

pub fn system(call: &str, e: Errno, hint: &'static str) -> Error {
    Error::System { call: call.into(), answer: e.into(), hint }
}
