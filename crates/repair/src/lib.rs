//! Reliable multicast over datagrams that may be lost, duplicated, delayed, reordered or damaged.
//!
//! One [`Writer`] copies a growing **log** of bytes to a fixed set of [`Reader`]s. Both are pure
//! state machines: the caller passes datagrams and the time in, and gets datagrams and the time of
//! the next step out. Neither has a socket, a clock or a thread. So the caller chooses the carrier
//! (UDP multicast, an InfiniBand switch, a simulated one), and tests run millions of datagrams a
//! second.
//!
//! ```text
//! log of the writer                                        log of a reader floor        sent
//! end   limit              consumed  received   highest     consumed + capacity
//!     |===========|========|......|       ──►         |=========|==  ====|..............|
//!     kept for     not yet   may be                    being     in      gap, asked      room
//!     repairs      sent      written                   read      order   for by NAKs
//! ```
//!
//! A position is the number of bytes since the start of the channel. Positions never fall, so a
//! byte keeps its position for ever. Both sides keep the log in a ring of [`Config::capacity`]
//! bytes.
//!
//! | datagram | from, to | says |
//! |---|---|---|
//! | data | writer, all | the bytes of the log from a position on |
//! | heartbeat | writer, all | how far data has been sent: a reader that misses the end learns of it |
//! | status | reader, writer | how far this reader has received, seen and consumed the log |
//! | NAK | reader, all | which ranges this reader misses |
//! | bye | writer, all | the writer has dropped this reader |
//!
//! # Contract
//!
//! | promise | how it is kept |
//! |---|---|
//! | the bytes that a reader has [received](Reader::received) are the log, in order, each byte once | a byte is stored only where it is missing; `received` is the start of the first gap; the checksum, the job, the channel and the epoch are right |
//! | received bytes are never overwritten | data is clipped to the gaps and to positions beyond `highest`; a place of the ring is reused only when the reader has consumed its bytes |
//! | the writer never overwrites bytes that a reader needs | [`limit`](Writer::limit) is the least `consumed` of the live readers plus the capacity; each of them has received at least that |
//! | all bytes arrive, if infinitely many datagrams of each kind arrive | steps R1 to R5 below |
//! | a slow reader stops the writer | `limit` waits for it, until the caller [drops](Writer::drop_reader) it, or it has been silent for [`Timing::dead_after`] |
//! | a dropped reader learns of it | the writer answers each of its datagrams with a bye; it takes nothing after that |
//! | a datagram of another channel changes nothing | each end refuses it before it changes anything, see [`Refused`] |
//! | replays change nothing | data that has arrived is clipped away; the [serial number](wire) of any other datagram must be higher than the last one's |
//!
//! **Why all bytes arrive.** Let position p be sent, and let a live reader miss it.
//!
//! * R1: If the reader knows of a byte at or beyond p, from data or from a heartbeat, p lies in a
//!   gap.
//! * R2: The reader sends NAKs for each gap again and again. For each NAK that arrives, the writer
//!   sends the range again, unless it did so less than [`Timing::linger`] ago.
//! * R3: If the reader knows of no such byte, the next heartbeat that arrives names one. The writer
//!   repeats heartbeats until all readers have reported that they received all that was sent.
//! * R4: A reader without gaps answers each heartbeat that asks with a status. So the writer learns
//!   of all progress that `limit` waits for.
//! * R5: If there are too many gaps ([`MAX_GAPS`]) to open another, a later heartbeat opens it.
//!
//! **The time of a NAK.** A reader waits a random time, up to [`Timing::backoff_most`], before it
//! asks for a gap. The datagrams may only have been reordered. And all readers that miss a range
//! hear the first reader's NAK, and then wait for the repair too.
//!
//! **The size of datagrams.** Datagrams are as large as [`Config::datagram`] allows, until a reader
//! has asked for one range again and again. Then some link drops datagrams of this size, of which
//! there is no other sign, and the writer sends only datagrams that every network takes. NAKs and
//! statuses are always that small.
//!
//! **The amount in flight.** The writer sends at most [`Config::window`] bytes beyond what the
//! slowest reader has reported as seen. The window should match the receivers' buffers. There is no
//! other congestion control: the network belongs to the job, as an InfiniBand network does.
//!
//! # Trade-offs
//!
//! * Positive acknowledgements (statuses) are few: one for each quarter of a window and each eighth
//!   of the capacity. They carry flow control and signs of life. Only negative acknowledgements
//!   cause repairs, so the cost of repairs does not grow with readers that lose nothing.
//! * Repairs go to all readers. If one reader has lost a datagram, the others receive a datagram
//!   that they clip away.
//! * Serial numbers make an end refuse a status, heartbeat or NAK that a later one has overtaken.
//!   Its contents are sent again.

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
pub use gaps::{Gap, Gaps, MAX_GAPS};
pub use reader::Reader;
pub use wire::Refused;
pub use writer::Writer;
