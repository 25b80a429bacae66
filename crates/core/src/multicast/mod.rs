//! Multicast: one PE writes blocks, and many read all of them, in order.
//!
//! ```
//! # use memonet_core::{Job, MulticastOptions};
//! # Job::threads(3, |job| -> memonet_core::Result<()> {
//! let mut channel = job.multicast::<u64>(0, &[1, 2], MulticastOptions::new())?;
//! if job.pe() == 0 {
//!     channel.publish(&[1, 2, 3])?; // a block of any size
//!     let mut block = channel.claim(2)?; // or written where the readers read it
//!     block.copy_from_slice(&[4, 5]);
//!     block.commit()?;
//! } else {
//!     let mut block = Vec::new();
//!     channel.recv(&mut block)?; // copied,
//!     assert_eq!(block, [1, 2, 3]);
//!     let block = channel.peek()?; // or read where it is
//!     assert_eq!(*block, [4, 5]);
//!     block.pop();
//! }
//! # job.barrier()
//! # }).unwrap().into_iter().for_each(|r| r.unwrap());
//! ```
//!
//! # Contract
//!
//! | promise | meaning |
//! |---|---|
//! | blocks arrive | each reader gets all blocks that were published, whole, in order, once, until the reader or the writer leaves |
//! | bound | a reader that has about [`capacity`](MulticastOptions::capacity) bytes unread stops the writer, each block counted with some 8 bytes more: never before seven eighths of the capacity, never after all of it |
//! | slow readers | they stop the writer, or are dropped once they have stopped it for as long as [`drop_slow`](MulticastOptions::drop_slow) says. Then the writer goes on, [`dropped`](Multicast::dropped) names them, and their next call says [`Error::Dropped`]. A writer that only [tries](Multicast::try_claim) is not stopped and drops no reader |
//! | death | of the writer: readers get the blocks that it published, as far as they have come to their host, then [`Error::PeerFailed`]. So they do where a panic drops the writer's end, whether or not its process goes on. Of a reader: the writer's next call that waits for it says `PeerFailed`, and when the writer leaves, so do the readers' calls, in place of `Closed`; or the writer goes on without it, if the channel [survives readers](MulticastOptions::survive_readers). A reader that has left may die, but for one that passes blocks on along a tree, or to its host |
//! | silence | with datagrams to each PE, a PE that cannot be reached may be alive. A PE that was silent for ten seconds counts as dead ([`Error::Silent`]); time in which the PE that waits for it computed, or was stopped, does not count. So no PE of such a channel may compute for longer without a call that waits |
//! | leaving | the writer no longer waits for a reader that has dropped its end. When the writer has dropped its end, readers get the blocks that it published, then [`Error::Closed`], unless a death has ended the channel |
//! | in place | [`claim`](Multicast::claim) and [`peek`](Multicast::peek) give the memory of the ring itself for blocks of up to [`most_in_place`](Multicast::most_in_place) elements; larger blocks are in private memory, and copied in parts |
//!
//! # How it is built
//!
//! All deliveries share the **ring** ([`ring`]): a log of records at positions that only grow. A
//! record is a header word and a block.
//!
//! | delivery | the log is | chosen |
//! |---|---|---|
//! | [`Near`](Delivery::Near) | in the writer's segment, read in place by all | where all PEs of the channel are near |
//! | [`Tree`](Delivery::Tree) | copied from ring to ring along a tree by puts with signals (`tree`) | else |
//! | [`Hosts`](Delivery::Hosts) | sent once to a ring on each host, which that host's readers read in place (`hosts`) | between hosts, where UDP multicast passes and a tree would send many copies |
//! | [`Datagrams`](Delivery::Datagrams) | sent once to a ring in each reader's segment, and repaired (`datagrams`, [`memonet_repair`]): by a fabric whose network copies datagrams (`network`), or by UDP multicast (`sockets`) | by a fabric: with two readers or more, as long as its copies are faster than a tree; by UDP: on request, as it needs a network that takes multicast |
//!
//! [`ENV_MULTICAST`] forces one, where it can serve.
//!
//! Readers report their positions to the writer of their ring, each in a line of its own, in the
//! segment that this writer reads at least cost (`position`). The writer looks at the lines only
//! when its last look does not allow the next record. A reader reports after each eighth of the
//! ring, or of its short laps, and before it waits. So while all keep up, neither side reads a word
//! that the other has just written, but for the record itself: a header and a short block arrive in
//! one cache line.
//!
//! # Proof, for the near ring
//!
//! Let `p` be the end of the published log, and `m` the least position that the readers still taken
//! into account have reported.
//!
//! * M1: *A reader sees a header only when its block is complete.* The writer stores the block,
//!   then the header; the reader loads the header, then the block. Stores become visible in order
//!   ([`crate::base::shm`]).
//! * M2: *A reader takes no old bytes for a header.* It looks only at the end of the last record
//!   that it has seen. The writer stores zero there before it stores that record's header, and
//!   nothing else until the next record's header. So the reader sees there zero, or that header.
//! * M3: *Nothing is overwritten that may still be read.* All that the writer stores for a record
//!   from `p` on, the zero behind it included, ends at most at `m` plus the length of the ring. A
//!   reader that has reported `m` does not read below it, as it stores its position only after it
//!   is done with all below.
//! * M4: *No PE waits for ever.* Before a reader sleeps, it reports its whole progress, and the
//!   writer wakes the readers after each header; the rest is the
//!   [doorbell](crate::base::doorbell)'s proof. A writer without room waits for stores of
//!   positions, and each reader wakes it after its store. Without a report, a reader holds back
//!   less than an eighth of the ring, and any record fits into the rest.
//! * M5: *Dropped readers do not break M3.* A dropped reader may still be reading when the writer
//!   goes on. So on a channel that drops readers, they copy, and then check whether they were
//!   dropped; the writer says so before it overwrites. Bytes that were copied before the reader
//!   finds the word unset had not been overwritten. References are given out only to such copies.

mod circle;
mod claim;
mod datagrams;
mod hosts;
mod make;
#[cfg(all(test, loom))]
pub(crate) mod model;
mod network;
mod position;
mod reader;
mod ring;
mod sockets;
mod stream;
mod tree;
mod writer;

use crate::base::settings::{self, ENV_MULTICAST};
use crate::base::shows;
pub(crate) use circle::Circle;
pub use claim::{Claim, Peek};
pub use make::MulticastOptions;
use sockets::Group;

use crate::base::error::{Error, Result};
use crate::base::shm::Plain;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use std::marker::PhantomData;

/// How a channel's log reaches the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The log stays in the writer's segment, which all readers have mapped.
    Near,
    /// Puts carry the log from ring to ring.
    Tree,
    /// Datagrams carry the log to all readers at once: by the fabric's network, or UDP multicast.
    Datagrams,
    /// UDP multicast carries the log to one PE of each other host, and the readers of a host read
    /// in place what came there.
    Hosts,
}

impl std::fmt::Display for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Delivery::Near => "near",
            Delivery::Tree => "tree",
            Delivery::Datagrams => "datagrams",
            Delivery::Hosts => "hosts",
        })
    }
}

/// The way that [`ENV_MULTICAST`] forces.
enum Forced {
    Near,
    Tree,
    Network,
    Hosts,
    Sockets(Group),
}

impl Forced {
    /// The way that is set.
    fn read() -> Result<Option<Self>> {
        let Some(value) = settings::value(ENV_MULTICAST) else {
            return Ok(None);
        };
        let group = |text: &str| text.strip_prefix("udp:").and_then(Group::parse);
        if let Some(group) = value.to_str().and_then(group) {
            return Ok(Some(Forced::Sockets(group)));
        }
        match value.to_str() {
            Some("near") => Ok(Some(Forced::Near)),
            Some("tree") => Ok(Some(Forced::Tree)),
            Some("network") => Ok(Some(Forced::Network)),
            Some("hosts") => Ok(Some(Forced::Hosts)),
            _ => Err(Error::Environment {
                name: ENV_MULTICAST,
                value: value.to_string_lossy().into_owned(),
                problem: "is no way for multicast".into(),
                fix: "Use near, tree, network, hosts or udp:GROUP:PORT, with a multicast address and the first of 256 ports (1 to 65280), as in udp:239.77.0.1:7700, or unset it",
            }),
        }
    }
}

/// Checks the value of [`ENV_MULTICAST`].
pub(crate) fn check_setting() -> Result<()> {
    Forced::read().map(drop)
}

/// A PE's end of a channel on which one writer publishes blocks of `T` to a set of readers. Made by
/// [`Job::multicast`](crate::Job::multicast).
///
/// The writer calls [`publish`](Self::publish) and [`claim`](Self::claim); readers call
/// [`recv`](Self::recv) and [`peek`](Self::peek); each from one thread at a time. A PE that is
/// neither has an end that can do nothing.
///
/// Aeron: a `Publication` and its `Subscription`s. `offer` is [`publish`](Self::publish),
/// `tryClaim` is [`try_claim`](Self::try_claim), and `poll` is [`try_peek`](Self::try_peek) or
/// [`try_recv`](Self::try_recv). MPI: repeated `MPI_Bcast`.
///
/// ```
/// # use memonet_core::{Error, Job, MulticastOptions};
/// # use std::time::Duration;
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let options = MulticastOptions::new().capacity(1 << 16).drop_slow(Duration::from_secs(60));
/// let mut channel = job.multicast::<u32>(0, &[1, 2], options)?;
/// if job.pe() == 0 {
///     for number in 0..100 {
///         channel.publish(&[number, number * number])?;
///     }
/// } else {
///     let (mut block, mut blocks) = (Vec::new(), 0);
///     loop {
///         match channel.recv(&mut block) {
///             Ok(()) => blocks += 1,
///             Err(Error::Closed { .. }) => break, // the writer has dropped its end
///             Err(error) => return Err(error),
///         }
///     }
///     assert_eq!((blocks, &block[..]), (100, &[99, 99 * 99][..]));
/// }
/// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Multicast<T> {
    /// This PE.
    pe: usize,
    end: End,
    delivery: Delivery,
    /// The parts of a block that have come.
    block: Vec<T>,
    /// Whether `block` is complete.
    assembled: bool,
    element: PhantomData<fn(T) -> T>,
}

shows!([T] Multicast<T> as "Multicast", |it| element = std::any::type_name::<T>(), writes = matches!(it.end, End::Writer(_)), delivery = it.delivery);

fn no_reader() -> Error {
    Error::misuse("this PE is no reader of this multicast channel")
}

/// The reader that died first without having left, as far as is known.
fn first_dead(pe: &Pe, readers: &[usize], has_left: impl Fn(usize) -> bool) -> Option<usize> {
    let deaths = readers.iter().filter_map(|&reader| Some((pe.control().death(reader)?.0, reader)));
    // The death comes first: who is gone has said before that it has left.
    deaths.filter(|&(_, reader)| !has_left(reader)).min().map(|(_, reader)| reader)
}

fn finalised() -> Error {
    Error::misuse("this PE has finalised, and so left its multicast channels")
}

enum End {
    Writer(Box<writer::Writer>),
    Reader(Box<reader::Reader>),
    Neither,
}

impl<T: Plain> Multicast<T> {
    #[inline]
    fn writer(&mut self) -> Result<&mut writer::Writer> {
        match &mut self.end {
            End::Writer(writer) => writer.refuse_departed().map(|()| &mut **writer),
            _ => Err(Error::misuse("this PE is not the writer of this multicast channel")),
        }
    }

    #[inline]
    fn reader(&mut self) -> Result<&mut reader::Reader> {
        match &mut self.end {
            End::Reader(reader) => ending::refuse_child(&reader.pe).map(|()| &mut **reader),
            _ => Err(no_reader()),
        }
    }

    /// How blocks travel on this channel.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// The number of elements of the largest block that is written and read in place. 0 at a PE
    /// that is neither writer nor reader.
    pub fn most_in_place(&self) -> usize {
        let bytes = match &self.end {
            End::Writer(writer) => writer.ring().most(),
            End::Reader(reader) => reader.ring().most(),
            End::Neither => 0,
        };
        bytes / size_of::<T>()
    }

    /// The readers without which the writer has gone on, because they were slow or had died. Always
    /// empty at a reader.
    pub fn dropped(&self) -> &[usize] {
        match &self.end {
            End::Writer(writer) => writer.dropped(),
            _ => &[],
        }
    }
}
