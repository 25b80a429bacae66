//! What both ends of a channel must agree on, and when they do things.

/// A moment or a span, in nanoseconds of the caller's clock; only differences mean anything.
pub type Nanos = u64;

/// A channel, equal at all its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Config {
    /// Random number of the job.
    pub job: u64,
    /// The channel's number in the job,
    pub channel: u32,
    /// and how many channels have had that number before.
    pub epoch: u32,
    /// How many readers there are; they are numbered from 0.
    pub readers: u16,
    /// Bytes of the log that both sides keep, at most
    /// [`wire::MOST_APART`](crate::wire::MOST_APART).
    pub capacity: u64,
    /// Most bytes that are sent beyond what the slowest reader has seen.
    pub window: u64,
    /// Most bytes of a datagram, at least [`wire::LEAST_DATAGRAM`](crate::wire::LEAST_DATAGRAM):
    /// what the links of all ends take. Where a link between them takes less, datagrams become
    /// small.
    pub datagram: usize,
    /// When things are done.
    pub timing: Timing,
}

/// Spans of time of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// From the last data to the first heartbeat; each further one comes after twice the time,
    pub heartbeat_first: Nanos,
    /// up to this.
    pub heartbeat_most: Nanos,
    /// A missing range is first asked for after at least this,
    pub backoff_least: Nanos,
    /// and at most this.
    pub backoff_most: Nanos,
    /// From one NAK to the next for the same range; doubles each time,
    pub retry_first: Nanos,
    /// up to this.
    pub retry_most: Nanos,
    /// A range that was repaired so short a time ago is not repaired again: the repair is on its
    /// way.
    pub linger: Nanos,
    /// An end of which nothing was heard for so long is given up.
    pub dead_after: Nanos,
}

impl Timing {
    /// For a local network: round trips of some ten to hundred microseconds.
    pub const LOCAL: Timing = Timing {
        heartbeat_first: 200_000,
        heartbeat_most: 20_000_000,
        backoff_least: 20_000,
        backoff_most: 100_000,
        retry_first: 500_000,
        retry_most: 50_000_000,
        linger: 200_000,
        dead_after: 10_000_000_000,
    };
}
