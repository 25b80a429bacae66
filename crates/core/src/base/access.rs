//! What others may do with memory that belongs to a PE.

/// What others may do with a PE's part of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Write it.
    Write,
    /// Both, and atomics.
    #[default]
    ReadWrite,
}

impl Access {
    /// The less of what stands for reading and for writing, as far as this includes them; 0 where
    /// it includes nothing.
    #[inline(always)]
    pub(crate) fn least(self, reading: usize, writing: usize) -> usize {
        match self {
            Access::None => 0,
            Access::Read => reading,
            Access::Write => writing,
            Access::ReadWrite => reading.min(writing),
        }
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        match self {
            Access::None => 0,
            Access::Read => 1,
            Access::Write => 2,
            Access::ReadWrite => 3,
        }
    }

    /// Whether this includes all of `wanted`.
    #[inline]
    pub fn allows(self, wanted: Access) -> bool {
        self.bits() & wanted.bits() == wanted.bits()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Access::None => "no",
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read and write",
        }
    }
}
