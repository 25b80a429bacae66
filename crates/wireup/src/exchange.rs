//! The store that a launcher offers.

use crate::error::Result;
use std::time::Duration;

/// A store by which the processes of one launcher tell each other.
///
/// All processes make the same fences in the same order. A value that a process has put is there
/// for all after the next fence.
pub trait Exchange {
    /// This process's number, below [`size`](Self::size).
    fn rank(&self) -> u32;

    /// How many processes there are.
    fn size(&self) -> u32;

    /// Puts a value under a key of this process's own: up to 20 letters, digits and `-`. A key is
    /// used once.
    ///
    /// # Errors
    /// Any [`Error`](crate::Error) of the launcher's.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()>;

    /// Waits until all processes have come to this fence, which is `named` for the error, and no
    /// longer than `limit`.
    ///
    /// # Errors
    /// [`Error::Fence`](crate::Error::Fence) when the limit has passed: no further call to the
    /// launcher is possible then.
    fn fence(&mut self, named: &'static str, limit: Duration) -> Result<()>;

    /// The value that a process has put under a key before the last fence.
    ///
    /// # Errors
    /// [`Error::Nothing`](crate::Error::Nothing), or any other of the launcher's.
    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>>;
}
