//! Reliable multicast over datagrams that may be lost, doubled, delayed, reordered or damaged.
//!
//! One [`Writer`] copies a growing **log** of bytes to a fixed set of [`Reader`]s. Both are state
//! machines and nothing else: datagrams and the time are passed in, datagrams and the time of the
//! next step come out. Neither has a socket, a clock or a thread, so what carries them is the
//! caller's choice (UDP multicast, an InfiniBand switch, a simulated one), and tests run millions
//! of datagrams a second.
//!
//! ```text
//!      log of the writer                                        log of a reader
//!   floor        sent     end   limit              consumed  received   highest     consumed + capacity
//!     |===========|========|......|       ──►         |=========|==  ====|..............|
//!     kept for     not yet   may be                    being     in      gap, asked      room
//!     repairs      sent      written                   read      order   for by NAKs
//! ```
//!
//! A position is a number of bytes since the start of the channel and never falls, so nothing that
//! was sent once is ever sent under another name, and both sides keep the log in a ring of
//! [`Config::capacity`] bytes.
//!
//! | datagram | from, to | says |
//! |---|---|---|
//! | data | writer, all | the bytes of the log from a position on |
//! | heartbeat | writer, all | how far data has been sent: who misses the last of it learns so |
//! | status | reader, writer | how far this reader has received, seen and consumed the log |
//! | NAK | reader, all | which ranges this reader misses |
//! | bye | writer, all | this reader is none any more |
//!
//! # Contract
//!
//! | promise | how it is kept |
//! |---|---|
//! | what a reader has [received](Reader::received) is the log, in order, each byte once | a byte is stored only where it is missing; `received` is the start of the first gap; the checksum, the job, the channel and the epoch are right |
//! | what was received is never stored over | data is clipped to the gaps and to what lies beyond `highest`; a position returns only when the reader has consumed what was there |
//! | the writer never writes over what somebody needs | [`limit`](Writer::limit) is the least `consumed` of the live readers and the capacity; each of them has received at least that |
//! | everything arrives, if of each kind of datagram infinitely many do | see below |
//! | a slow reader stops the writer | `limit` waits for it, until the caller [drops](Writer::drop_reader) it, or it has been silent for [`Timing::dead_after`] |
//! | a dropped reader is told | each of its datagrams is answered with a bye; it takes nothing after that |
//! | a datagram that is not one of this channel's changes nothing | it is refused before anything is touched, see [`Refused`] |
//! | replays change nothing | data that is there is clipped away; of all others the [serial number](wire) must be higher than the last one's |
//!
//! **Why everything arrives.** Let position p be sent and missed by a live reader. Either the
//! reader knows of a byte at or beyond p (data, or a heartbeat, which the writer repeats for as
//! long as somebody has not said that it received all that was sent), then p lies in a gap, each
//! gap is asked for again and again, and each NAK that arrives has the range sent again, unless it
//! was repaired less than [`Timing::linger`] ago; or it does not, and the next heartbeat that
//! arrives tells it. A reader that misses nothing says so whenever a heartbeat asks, so the writer
//! learns of all progress that `limit` waits for. A gap that was not opened because there are too
//! many already ([`MAX_GAPS`]) is opened by a later heartbeat.
//!
//! **Who asks when.** A gap is asked for only after a random part of [`Timing::backoff_most`]:
//! datagrams may merely have changed places, and of the many readers that miss the same, the first
//! one's NAK, which all hear, makes the others wait for the repair, too.
//!
//! **How large datagrams are.** As large as [`Config::datagram`] says, until a reader has asked for
//! the same range again and again: then some link on the way drops what is so large, which nothing
//! else would tell of, and from then on none is larger than passes everywhere. NAKs and statuses
//! always are small enough.
//!
//! **How much is under way.** The writer sends at most [`Config::window`] bytes beyond what the
//! slowest reader has said that it saw. It should be about what the receivers' buffers hold. There
//! is no other congestion control: the network is the job's own, as InfiniBand's is.
//!
//! # Trade-offs
//!
//! * Positive acknowledgements (statuses) are few: one for each quarter of a window and each eighth
//!   of the capacity. They carry flow control and life signs; repair is by negative ones alone, so
//!   its cost does not grow with the number of readers that lose nothing.
//! * Repairs go to all. Where one reader alone has lost something the others pay a datagram that
//!   they clip away.
//! * Serial numbers refuse datagrams other than data that overtook each other. What they said is
//!   said again.

#![forbid(unsafe_code)]

mod caller;
mod config;
mod dice;
mod gaps;
mod limits;
mod reader;
pub mod wire;
mod writer;

pub use caller::{Log, Outgoing, Store, To};
pub use config::{Config, Nanos, Timing};
pub use gaps::MAX_GAPS;
pub use reader::Reader;
pub use wire::Refused;
pub use writer::Writer;
