//! Collectives over teams: all members call, all get their part of what all have.
//!
//! Every one of them is built of the same few things, and names no fabric:
//!
//! * **steps** ([`steps`]): a member tells others that it has come, in a cache line of theirs which
//!   also carries up to [`LINE`](crate::base::layout::LINE) bytes;
//! * an **eager buffer** of [`EAGER_BYTES`] bytes in each member's slot of the team: near, what is
//!   published there is read by those who have been told; through a fabric, others put there what
//!   its owner needs;
//! * **direct** reads and writes of the members' windows, for what is larger: of a source whose
//!   owner has said that it has come, until that has been told that it was read; into a destination
//!   whose owner has said that it has come, which then waits until it is told that all is there;
//! * the team's **barrier**, where each needs something of each.
//!
//! | collective | up to a line | up to an eager buffer | larger |
//! |---|---|---|---|
//! | broadcast, scatter | the root tells each what it is to have, and goes | the root publishes, and goes; all read | near, the root tells all, these copy from its source at once and tell it; it waits for all; far, each tells the root, which writes into its destination and tells it |
//! | all-reduce, scans | all tell all; each combines what it needs, in the order of ranks | all publish, the same | barrier; each combines a part of the elements for all, [`BLOCK`] bytes at a time, and writes it where it belongs; barrier |
//! | reduce | all tell the root, and go | all publish and tell the root, and go | as all-reduce |
//! | all-gather, all-to-all | all tell all | all publish, each reads its part | barrier, unless destinations are [`Ready`](Destinations); written straight into the final place; barrier |
//! | gather | all tell the root, and go | as larger | the root tells all; these write straight into its destination, and tell it |
//! | collect | as larger | all tell all how much they have, and publish it if it is little | then written straight into the final place; barrier |
//! | all-to-all at strides | as larger | packed, published, each reads its part | barrier; packed and written where the destination is contiguous; else read, near element by element, far with what lies between; barrier |
//!
//! **Through a fabric nobody reads**, where it can be helped: gets wait for an answer, and in some
//! networks for software on the other's host. What is up to an eager buffer is put into the eager
//! buffers of those who need it, as into lines, with the news: a root's by itself; where each needs
//! something of each, into a part of the eager buffer for each member ([`swap`](Team::swap)), if
//! they fit. Larger reductions and scans go by the members' destinations ([`pushed`]). What is left
//! to gets are larger reductions to one, larger blocks with strides at both ends, and reductions in
//! teams of which not one element each fits in an eager buffer.
//!
//! Where the fabric offers to make some of them in the network, those of all PEs go there
//! (`network`): broadcasts of a few bytes, reductions and scans of a few integers. Where it offers
//! datagrams that the network copies, larger broadcasts to two or more go by those (`multicast`),
//! in place of the direct way, once that pays.
//!
//! So a member's memory is read and written only while it is in the call (or its destination is
//! [`Ready`](Destinations::Ready) before), and it need not be there longer than that takes: where
//! PEs share CPUs, a collective costs as many turns of each as news must go around. **A collective
//! is no barrier**, and it completes no puts: a member may be done before another has begun. Only
//! those in which each needs something of each (all-reduce, scans, all-gather, collect, all-to-all)
//! cannot be over before all members have come.
//!
//! **When a member dies**, others give up at different moments, and those who have not heard of it
//! go on for a while. So a call that has failed may still have its destination written, until they
//! hear. And they may read in the memory of one who has given up and uses it for something else: so
//! wherever somebody reads in others' windows, what came of that counts only if nobody is gone
//! behind it. Who gives up has seen that before it writes, so who reads what it wrote, or hears
//! from one who did, sees it too.
//!
//! **Multicast elsewhere** does not win. Near, a channel copies once more than members that read
//! the root's window at once: to three members on two CPUs, 4 KiB, 64 KiB, 1 MiB and 16 MiB with a
//! barrier took 3.0, 5.1, 44 and 1054 us, by a channel 3.3, 9.0, 85 and 1979. UDP over the links of
//! one machine copies for each reader. And where each is to have something of each, a member's own
//! link, by which all of it comes, is the bound however often the others send.
//!
//! **Arguments.** What a member can see to be wrong with its own arguments is its error at once,
//! before it tells the others anything: nothing is read or written. When all members are wrong, all
//! get the error, and the team is as it was. When only some are, the others wait for them, as for
//! any member that does not call, until these leave the job: [`Error::PeerFailed`]. A refusal that
//! all heard of would need a word of every member read in every collective, or a look at it in
//! every wait. (Making teams and windows is rarer, and does compare.) Should the refused member
//! make its next call instead, the team's calls are no longer the same ones at all members, which
//! nobody notices but the [check](crate::Job::is_checked) that compares them.
//!
//! Collectives of places, which front ends call, do not look whether source and destination
//! overlap: where they must not and do, what arrives is any mixture of what was there.
//!
//! Sums of floating-point numbers are always taken in the order of ranks, so all members get the
//! same bits, every time.

mod broadcast;
mod choice;
mod exchange;
mod multicast;
mod network;
mod operator;
mod pushed;
mod reduce;
mod strided;

pub use crate::team::place::SymmetricRange;
pub use choice::Algorithm as CollectiveAlgorithm;
pub use operator::{And, By, Integers, Max, Min, Number, Operator, Or, Product, Sum, Xor};
pub use reduce::{Elements, Goal};

use crate::base::error::{Error, Result};
use crate::base::layout::EAGER_BYTES;
use crate::base::shm::{self, Plain};
use crate::endpoint::belongs::check_together;
use crate::team::Team;
use crate::team::steps::{self, Step};
use crate::window::Window;
use crate::window::segment::Segment;
use std::ops::Range;

/// Bytes that are combined at once: two such blocks stay in a core's first cache.
const BLOCK: usize = 8 << 10;

/// A range of elements of a window, at the same place on every PE. Collectives read from spans and
/// write to spans. Made by [`Window::span`].
pub struct Span<'a, T> {
    place: SymmetricRange,
    window: &'a Window<T>,
}

impl<T> Clone for Span<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Span<'_, T> {}

impl<T: Plain> Window<T> {
    /// Elements `range` of every PE's part, as source or destination of a collective.
    ///
    /// ```
    /// # use memonet_core::{Job, Sum};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u64>(4)?;
    /// window.write(0, 2);
    /// job.world().all_reduce(Sum, window.span(3..4)?, window.span(0..1)?)?;
    /// assert_eq!(window.to_vec(), [2, 0, 0, 4]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Misuse`] for a restricted window, because not every PE may
    /// reach its parts.
    pub fn span(&self, range: Range<usize>) -> Result<Span<'_, T>> {
        let count = range
            .end
            .checked_sub(range.start)
            .ok_or(Error::Misuse("a range that ends before it starts"))?;
        let bytes = self.range(range.start, count)?;
        let offset = self
            .inner
            .heap_offset()
            .ok_or(Error::Misuse("collectives work on ordinary windows, not on restricted ones"))?;
        Ok(Span {
            place: SymmetricRange { offset: offset + bytes as u64, bytes: count * size_of::<T>() },
            window: self,
        })
    }
}

impl<T: Plain> Span<'_, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.place.bytes / size_of::<T>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.place.bytes == 0
    }
}

/// When the members' destinations may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destinations {
    /// Once their owners have come to the call.
    InTheCall,
    /// At once: the members made sure that all destinations were ready before the first member
    /// called, as OpenSHMEM asks of programs.
    Ready,
}

impl Segment {
    /// The `bytes` of every segment from `offset` on, if there are so many, as source or
    /// destination of a collective of a front end.
    ///
    /// # Safety
    /// As for [`at`](Self::at), at every PE.
    pub unsafe fn place(&self, offset: u64, bytes: usize) -> Option<SymmetricRange> {
        // SAFETY: only asked whether there are such bytes.
        unsafe { self.at(0, offset, bytes) }.map(|_| SymmetricRange { offset, bytes })
    }
}

/// Source and destination are the same elements, or have none in common.
fn check_apart(to: SymmetricRange, from: SymmetricRange) -> Result<()> {
    if to.is_apart(from) {
        Ok(())
    } else {
        Err(Error::Misuse(
            "source and destination of a collective overlap: they must be the same elements, or have none in common",
        ))
    }
}

fn check_disjoint(to: SymmetricRange, from: SymmetricRange) -> Result<()> {
    if to.overlaps(from) {
        return Err(Error::Misuse(
            "source and destination of this collective overlap: they must not",
        ));
    }
    Ok(())
}

fn check_length(what: &'static str, left: usize, right: usize) -> Result<()> {
    if left == right { Ok(()) } else { Err(Error::Length { what, left, right }) }
}

/// What collectives are made of.
impl Team {
    /// Copies what a member gave to this one in a step to a place, which is as long as that.
    fn take_line(&self, step: Step, rank: usize, to: SymmetricRange) {
        // SAFETY: the line, and the place as `check_places` has found, lie in this PE's segment,
        // and not in the same part of it.
        unsafe { shm::copy(self.here(to), self.line(step, rank), to.bytes) };
    }

    /// Copies a place of a member to one of this PE; nothing where they are the same.
    fn take(&self, rank: usize, from: SymmetricRange, to: SymmetricRange) -> Result<()> {
        if rank == self.rank() && from.offset == to.offset {
            return Ok(());
        }
        // SAFETY: the destination lies in this PE's segment, and different places do not overlap,
        // or the caller gets the mixture that it asked for.
        unsafe { self.fetch(rank, from, self.here(to)) }
    }

    /// Copies a place of this PE to one of a member; nothing where they are the same.
    fn give(&self, rank: usize, from: SymmetricRange, to: SymmetricRange) -> Result<()> {
        if rank == self.rank() && from.offset == to.offset {
            return Ok(());
        }
        // SAFETY: as in `take`.
        unsafe { self.deliver(rank, to, self.here(from)) }
    }

    /// Where a span lies, if it is one of this team's job and PE.
    fn own<T>(&self, span: Span<'_, T>) -> Result<SymmetricRange> {
        check_together(&**self.pe(), span.window)?;
        Ok(span.place)
    }

    /// A place is inside of the segments of the job that it was made in; this may be another.
    fn check_places(&self, to: SymmetricRange, from: SymmetricRange) -> Result<()> {
        let end = self.pe().control().geometry().segment_stride;
        let inside = |place: SymmetricRange| place.offset + place.bytes as u64 <= end;
        if inside(to) && inside(from) {
            Ok(())
        } else {
            Err(Error::Misuse("this place is one of another job"))
        }
    }

    fn check_rank(&self, rank: usize) -> Result<()> {
        if rank < self.len() { Ok(()) } else { Err(Error::NoSuchPe { pe: rank, npes: self.len() }) }
    }
}

/// Private memory for elements of any type.
struct Scratch(Vec<Aligned>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Aligned([u8; 64]);

impl Scratch {
    fn new(bytes: usize) -> Self {
        Scratch(vec![Aligned([0; 64]); bytes.div_ceil(64)])
    }

    fn ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    /// As if it were one of a job with larger segments.
    #[test]
    fn places_beyond_the_segment() {
        Job::threads(1, |job| {
            let (team, end) = (job.world(), job.pe.control().geometry().segment_stride);
            let (good, bad) = (
                SymmetricRange { offset: end - 16, bytes: 8 },
                SymmetricRange { offset: end - 4, bytes: 8 },
            );
            let bytes = Elements { size: 1, combine: &|_, _, _| {}, integers: None };
            for (to, from) in [(good, bad), (bad, good)] {
                for refused in [
                    team.broadcast_places(0, to, from),
                    team.gather_places(None, to, from, Destinations::Ready),
                    team.collect_places(to, from).map(drop),
                    team.all_to_all_places(to, from, Destinations::Ready),
                    team.all_to_alls_places((to, 1), (from, 1), 1, 8),
                    team.combine_places(&bytes, Goal::All, to, from),
                ] {
                    assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
                }
            }
        })
        .unwrap();
    }
}
