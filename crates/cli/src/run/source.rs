//! Where output comes from, and where it goes.

use std::os::fd::BorrowedFd;

/// One of the launcher's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Target {
    /// The descriptor of this process.
    pub fn fd(self) -> BorrowedFd<'static> {
        match self {
            Target::Stdout => rustix::stdio::stdout(),
            Target::Stderr => rustix::stdio::stderr(),
        }
    }
}

/// A writer and its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// A PE, or [`LAUNCHER`].
    pub pe: usize,
    /// The output.
    pub target: Target,
}

/// The launcher itself as a source.
pub const LAUNCHER: usize = usize::MAX;
