//! What an end of a channel and its caller exchange: datagrams to send, and bytes of the log.

/// To whom a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    /// The writer and all readers.
    All,
    /// The writer.
    Writer,
}

/// A datagram that was written into the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// Its length.
    pub len: usize,
    /// Where it goes.
    pub to: To,
}

/// The writer's log: where the bytes of a position are.
pub trait Log {
    /// Copies the bytes from `position` on, which are between the writer's
    /// [floor](crate::Writer::floor) and the committed end.
    fn read(&self, position: u64, to: &mut [u8]);
}

/// A reader's log: where the bytes of a position go.
pub trait Store {
    /// Keeps bytes from `position` on, which were missing, and lie within a capacity of what is
    /// consumed.
    fn write(&mut self, position: u64, from: &[u8]);
}
