//! The configuration on which all ends of a channel agree.

/// A time or a duration in nanoseconds of the caller's clock. Only differences of times mean
/// anything.
pub type Nanos = u64;

/// The configuration of a channel, equal at all its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Config {
    /// The random number of the job.
    pub job: u64,
    /// The number of the channel in the job.
    pub channel: u32,
    /// The number of channels that had this number before.
    pub epoch: u32,
    /// The number of readers, which are numbered from 0.
    pub readers: u16,
    /// The number of bytes of the log that both sides keep, at most
    /// [`wire::MOST_APART`](crate::wire::MOST_APART).
    pub capacity: u64,
    /// The largest number of bytes that the writer sends beyond what the slowest reader has seen.
    pub window: u64,
    /// The largest size of a datagram in bytes that the links of all ends take, at least
    /// [`wire::LEAST_DATAGRAM`](crate::wire::LEAST_DATAGRAM). If a link between them takes less,
    /// datagrams become small.
    pub datagram: usize,
    /// The durations of the protocol.
    pub timing: Timing,
}

/// The durations of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timing {
    /// From the last data to the first heartbeat. The time doubles with each further heartbeat.
    pub heartbeat_first: Nanos,
    /// The longest time between two heartbeats.
    pub heartbeat_most: Nanos,
    /// The shortest time from the discovery of a gap to its first NAK.
    pub backoff_least: Nanos,
    /// The longest time from the discovery of a gap to its first NAK.
    pub backoff_most: Nanos,
    /// From the first NAK for a range to the second. The time doubles with each further NAK.
    pub retry_first: Nanos,
    /// The longest time between two NAKs for a range.
    pub retry_most: Nanos,
    /// The time after a repair during which the writer does not repeat it: the repair is on its
    /// way.
    pub linger: Nanos,
    /// The time of silence after which an end counts as dead.
    pub dead_after: Nanos,
}

impl Timing {
    /// For a local network with round trips of ten to a hundred microseconds.
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
