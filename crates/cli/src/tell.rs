//! Messages of the command on standard error.

use std::fmt::Display;
use std::io::Write;

/// Writes a message. Where nobody reads it any more, there is nobody to tell, and what is under way
/// goes on.
pub fn tell(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "memonet: {text}");
}
