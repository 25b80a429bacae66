//! What an end of a channel and its caller exchange: datagrams to send, and bytes of the log.

/// The receivers of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    /// The writer and all readers.
    All,
    /// The writer.
    Writer,
}

/// A datagram in the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// The length of the datagram in bytes.
    pub len: usize,
    /// The receivers.
    pub to: To,
}

/// The log of a writer.
pub trait Log {
    /// Copies the bytes from `position` on, which are between the writer's
    /// [floor](crate::Writer::floor) and the committed end.
    fn read(&self, position: u64, to: &mut [u8]);
}

/// The log of a reader.
pub trait Store {
    /// Stores bytes from `position` on. They were missing, and lie within one capacity of the
    /// consumed position.
    fn write(&mut self, position: u64, from: &[u8]);
}
