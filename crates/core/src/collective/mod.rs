//! Collectives over teams: all members call, and each gets its part of what all contribute.
//!
//! Every collective is built of four means, and names no fabric:
//!
//! * **Steps** ([`steps`]): a member notifies others that it has come to the call, by a cache line
//!   in the receiver's segment. The line also carries up to [`LINE`](crate::base::layout::LINE)
//!   bytes.
//! * An **eager buffer** of [`EAGER_BYTES`] bytes in each member's slot of the team. Near, its
//!   owner publishes data there, and the members that the owner notifies read them. Far, other
//!   members put there what its owner needs.
//! * **Direct** reads and writes of the members' windows, for larger data. A source is read after
//!   its owner has notified the reader that it has come; the owner keeps it until the reader has
//!   notified it in turn. A destination is written after its owner has notified the writer that it
//!   has come; the owner then awaits the notification that all data are there.
//! * The team's **barrier**, where each member needs data of each.
//!
//! | collective | up to a line | up to an eager buffer | larger |
//! |---|---|---|---|
//! | broadcast, scatter | the root sends each member its part, and returns | the root publishes, and returns; the members read | near: the root notifies all, these copy from its source at once and notify it; it waits for all; far: each member notifies the root, unless destinations are [`Ready`](Destinations); the root writes into the member's destination and notifies it; larger broadcasts to more members [in parts](parts), or [copied](copied) by the network |
//! | all-reduce, scans | each member sends to all; each combines what it needs, in the order of ranks | each member publishes; each combines what it needs, in the order of ranks | barrier; each combines a part of the elements for all, [`BLOCK_BYTES`] at a time, and writes it where it belongs; barrier |
//! | reduce | all send to the root, and return | all publish, notify the root, and return | as all-reduce |
//! | all-gather, all-to-all | each member sends to all | all publish, each reads its part | barrier, unless destinations are [`Ready`](Destinations); written straight into the final place; barrier |
//! | gather | all send to the root, and return | as larger | the root notifies all; these write straight into its destination, and notify it |
//! | collect | as larger | each member sends its length to all, and publishes its data if they are short | after the lengths: written straight into the final place; barrier |
//! | all-to-all at strides | as larger | packed, published, each reads its part | barrier; packed and written where the destination is contiguous; else read: near, element by element; far, with what lies between; barrier |
//!
//! **Far, collectives use puts** where they can. A get waits for an answer, and in some networks
//! for software on the other host. Data that fit an eager buffer are put, with the notification,
//! into the eager buffers of the members that need them. Where each member needs data of each, an
//! eager buffer has a part for each member ([`swap`](Team::swap)), if the parts fit. Larger
//! reductions and scans go by the members' destinations ([`pushed`]). Gets remain in larger
//! reductions to one member, in larger blocks with strides at both ends, and in reductions of teams
//! so large that an eager buffer cannot hold an element of each member.
//!
//! Where the fabric offers writes that the network copies
//! ([`CopiedWrites`](crate::endpoint::fabric::CopiedWrites)), a member that sends the same to all
//! others sends it once, in whatever collective.
//!
//! Where the fabric offers to make collectives in the network (`network`), it makes some of those
//! of all PEs: broadcasts of a few bytes, reductions and scans of a few numbers. Where it offers
//! datagrams that the network copies (`multicast`), larger broadcasts to two or more members go by
//! datagrams instead of directly, once that pays.
//!
//! **Where members are on several nodes**, and some share one, most collectives go inside a node by
//! memory, and between nodes by one member of each ([`nodes`]).
//!
//! A member's memory is read and written only while the member is in the call, or before that if
//! its destination is [`Ready`](Destinations::Ready). A member stays in the call no longer than
//! these accesses need: where PEs share CPUs, a collective costs each PE as many turns as the
//! notifications need to go around. **A collective is no barrier**, and completes no puts: a member
//! may return before another has called. Only all-reduce, scans, all-gather, collect and
//! all-to-all, in which each member needs data of each, cannot end before all members have come.
//!
//! **When a member dies**, the others give up at different moments. A member that does not know of
//! the death yet goes on for a while. So the destination of a call that has failed may still be
//! written until all members know. And a member may read memory of a PE that has given up and has
//! written something else there:
//!
//! * D1: Data read in others' windows count only if no member is gone after the reading. D2 says
//!   why this suffices.
//! * D2: A PE that gives up has seen the death before it writes. So a member that reads what this
//!   PE wrote, or receives from a member that read it, sees the death, too.
//!
//! **Other collectives do not use multicast**, as it does not win there. Near, a channel copies
//! once more than members that read the root's window at once: to three members on two CPUs, 4 KiB,
//! 64 KiB, 1 MiB and 16 MiB with a barrier took 3.0, 5.1, 44 and 1054 us, by a channel 3.3, 9.0, 85
//! and 1979. UDP over the links of one machine copies for each reader. Where each member needs data
//! of each, all of them come through the member's own link: that link is the bound, however often
//! the others send.
//!
//! **Arguments.** A member checks its own arguments before it notifies others. A wrong argument is
//! its error at once: nothing is read or written. When the arguments of all members are wrong, all
//! get the error, and the team is as it was. When only some members' are, the others wait for these
//! as for any member that does not call, until these leave the job: [`Error::PeerFailed`]. An error
//! at all members would need a word of every member read in every collective, or a look at it in
//! every wait. (Making teams and windows is rarer, and does compare.) If the refused member makes
//! its next call instead, the members' calls no longer match. Only the
//! [check](crate::Job::is_checked) that compares calls notices that.
//!
//! Collectives of places, which front ends call, do not check whether source and destination
//! overlap. Where they overlap but must not, any mixture of the old bytes arrives.
//!
//! Sums of floating-point numbers are always taken in the order of ranks, so all members get the
//! same bits, every time.

mod broadcast;
mod choice;
mod copied;
mod exchange;
mod multicast;
mod network;
mod nodes;
mod operator;
mod parts;
mod pushed;
mod reduce;
mod split;
mod staging;
mod strided;
mod values;

pub use crate::team::place::SymmetricRange;
pub use choice::Algorithm as CollectiveAlgorithm;
pub use operator::{
    And, By, Elements, Goal, Max, Min, Number, NumberKind, Numbers, Operator, Or, Product, Sum, Xor,
};

use crate::base::error::{Error, Quick, Result};
use crate::base::layout::{EAGER_BYTES, LINE};
use crate::base::shm::{self, Plain};
use crate::base::shows;
use crate::endpoint::belongs::check_together;
use crate::team::Team;
use crate::team::steps::{self, Step};
use crate::window::Window;
use crate::window::segment::Segment;
use std::ops::Range;

/// Bytes that are combined at once: two such blocks stay in a core's first cache.
const BLOCK_BYTES: usize = 8 << 10;

/// A range of elements of a window, at one place of every PE's part. Collectives read from spans
/// and write to spans. [`Window::span`] makes them.
pub struct Span<'a, T> {
    place: SymmetricRange,
    window: &'a Window<T>,
}

shows!([T] Span<'_, T> as "Span", |it| window = it.window, bytes = it.place.bytes);

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
    /// job.world().all_reduce_into(Sum, window.span(3..4)?, window.span(0..1)?)?;
    /// assert_eq!(window.to_vec(), [2, 0, 0, 4]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Misuse`] for a restricted window, because not every PE may
    /// reach its parts.
    #[track_caller]
    pub fn span(&self, range: Range<usize>) -> Result<Span<'_, T>> {
        self.inner.pe.call("Window::span", Some(self.inner.made), || {
            let count = range
                .end
                .checked_sub(range.start)
                .ok_or(Error::misuse("a range that ends before it starts"))?;
            let bytes = self.range(range.start, count)?;
            let offset = self.inner.heap_offset().ok_or(Error::misuse(
                "collectives work on ordinary windows, not on restricted ones",
            ))?;
            Ok(Span {
                place: SymmetricRange {
                    offset: offset + bytes as u64,
                    bytes: count * size_of::<T>(),
                },
                window: self,
            })
        })
    }
}

impl<T: Plain> Span<'_, T> {
    /// The number of elements.
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
    /// At once. The members made all destinations ready before the first member called, as
    /// OpenSHMEM asks of programs.
    Ready,
}

/// A broadcast between places, for front ends.
#[derive(Debug, Clone, Copy)]
pub struct Broadcast {
    /// The rank whose source is copied.
    pub root: usize,
    /// Every member's destination.
    pub to: SymmetricRange,
    /// Every member's source.
    pub from: SymmetricRange,
    /// Whether the root's destination keeps its contents.
    pub root_keeps: bool,
    /// When destinations may be written.
    pub writable: Destinations,
}

impl Broadcast {
    /// Into the destinations of all members, once these have come.
    pub fn new(root: usize, to: SymmetricRange, from: SymmetricRange) -> Self {
        Broadcast { root, to, from, root_keeps: false, writable: Destinations::InTheCall }
    }

    /// Where a member's own copy goes: a root that keeps its destination copies nothing.
    fn own_to(&self, rank: usize) -> SymmetricRange {
        if self.root_keeps && rank == self.root { self.from } else { self.to }
    }

    /// Whether members say that they have come before longer data go into their destinations.
    fn asks(&self) -> bool {
        self.writable == Destinations::InTheCall
    }
}

impl Segment {
    /// `bytes` bytes of every segment from `offset` on, for a collective of a front end. `None`
    /// where a segment does not have so many.
    ///
    /// # Safety
    /// As for [`at`](Self::at), at every PE.
    pub unsafe fn place(&self, offset: u64, bytes: usize) -> Option<SymmetricRange> {
        // SAFETY: nothing uses the spot: only its existence counts.
        unsafe { self.at(0, offset, bytes) }.map(|_| SymmetricRange { offset, bytes })
    }
}

/// Checks that source and destination are the same elements, or have none in common.
#[inline]
fn check_apart(to: SymmetricRange, from: SymmetricRange) -> Quick<()> {
    if to.is_apart(from) {
        Ok(())
    } else {
        Err(Error::misuse(
            "source and destination of a collective overlap: they must be the same elements, or have none in common",
        )
        .into())
    }
}

fn check_disjoint(to: SymmetricRange, from: SymmetricRange) -> Quick<()> {
    if to.overlaps(from) {
        return Err(Error::misuse(
            "source and destination of this collective overlap: they must not",
        )
        .into());
    }
    Ok(())
}

fn check_length(what: &'static str, left: usize, right: usize) -> Quick<()> {
    if left == right { Ok(()) } else { Err(Error::Length { what, left, right, call: None }.into()) }
}

/// Copies and checks that all collectives use.
impl Team {
    /// Copies the bytes of a member's line, as many as the place has, to a place of this PE.
    fn take_line(&self, step: Step, rank: usize, to: SymmetricRange) {
        // SAFETY: the line lies in this PE's segment, and so does the place, as `check_places` has
        // found. They do not overlap: lines are not part of windows.
        unsafe { shm::copy(self.here(to), self.line(step, rank), to.bytes) };
    }

    /// Copies a place of a member to one of this PE. Does nothing where they are the same.
    fn take(&self, rank: usize, from: SymmetricRange, to: SymmetricRange) -> Quick<()> {
        if rank == self.rank() && from.offset == to.offset {
            return Ok(());
        }
        // SAFETY: the destination lies in this PE's segment. Different places do not overlap, or
        // the caller gets the mixture of bytes that the module's head describes.
        Ok(unsafe { self.fetch(rank, from, self.here(to)) }?)
    }

    /// Copies a place of this PE to one of a member. Does nothing where they are the same.
    fn give(&self, rank: usize, from: SymmetricRange, to: SymmetricRange) -> Quick<()> {
        if rank == self.rank() && from.offset == to.offset {
            return Ok(());
        }
        // SAFETY: as in `take`.
        Ok(unsafe { self.deliver(rank, to, self.here(from)) }?)
    }

    /// The place of a span that belongs to this team's job and PE.
    #[inline]
    fn own<T>(&self, span: Span<'_, T>) -> Quick<SymmetricRange> {
        check_together(&**self.pe(), span.window)?;
        Ok(span.place)
    }

    /// The destination and the source of a call: spans of this team's job and PE, equally long and
    /// apart. `None` for others.
    #[inline(always)]
    fn equal_pair<T: Plain>(
        &self,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Option<(SymmetricRange, SymmetricRange)> {
        let (to, from) = (self.own(to).ok()?, self.own(from).ok()?);
        let is_equal = to.bytes == from.bytes && size_of::<T>() > 0;
        (is_equal && to.is_apart(from)).then_some((to, from))
    }

    /// [`equal_pair`](Self::equal_pair), by addresses, with the bytes, of a call that may go by
    /// lines.
    #[inline(always)]
    fn short_pair<T: Plain>(
        &self,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Option<(*mut u8, *const u8, usize)> {
        let (to, from) = self.equal_pair(to, from).filter(|(_, from)| from.bytes <= LINE)?;
        Some((self.here(to), self.here(from).cast_const(), to.bytes))
    }

    /// Checks that places lie inside of this job's segments: they may have been made in another
    /// job.
    #[inline]
    fn check_places(&self, to: SymmetricRange, from: SymmetricRange) -> Quick<()> {
        let end = self.pe().control().geometry().segment_stride;
        let inside = |place: SymmetricRange| place.offset + place.bytes as u64 <= end;
        if inside(to) && inside(from) {
            Ok(())
        } else {
            Err(Error::misuse("this place is one of another job").into())
        }
    }

    fn check_rank(&self, rank: usize) -> Quick<()> {
        if rank < self.len() {
            Ok(())
        } else {
            Err(Error::NoSuchPe { pe: rank, npes: self.len(), call: None }.into())
        }
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
    use crate::base::layout::STAGING_BYTES;
    use crate::job::Job;

    /// An operator that panics at the second element leaves the destination as it was.
    #[test]
    fn nothing_is_written_before_all_is_combined() {
        Job::threads(2, |job| {
            let window = job.window::<u64>(4).unwrap();
            window.write_from(0, &[1, 2, 7, 7]);
            let (from, to) = (window.span(0..2).unwrap(), window.span(2..4).unwrap());
            let operator = By(|a: u64, b: u64| if a == 2 { panic!("at 2") } else { a + b });
            let call = || job.world().all_reduce_into(operator, to, from);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
            assert_eq!(window.to_vec(), [1, 2, 7, 7]);
            let next = job.world().all_reduce_into(Sum, to, from);
            assert!(matches!(next, Err(Error::Misuse { .. })), "{next:?}");
            std::mem::forget(window);
        })
        .unwrap();
    }

    /// Elements that are longer than a staging area are combined by another way.
    #[test]
    fn an_operator_may_panic_at_a_long_element() {
        type Long = [u8; STAGING_BYTES[1] as usize + 1];
        Job::threads(2, |job| {
            let call = || {
                let mut given = vec![[1; size_of::<Long>()]; 2];
                let operator = By(|_: Long, _: Long| panic!("at the first"));
                let call = || job.world().all_reduce_slice(operator, &mut given);
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err()
            };
            // Its values are on the stack.
            let with_room = std::thread::Builder::new().stack_size(64 << 20);
            let unwound = std::thread::scope(|scope| {
                with_room.spawn_scoped(scope, call).unwrap().join().unwrap()
            });
            let next = job.barrier();
            assert!(unwound && matches!(next, Err(Error::Misuse { .. })), "{next:?}");
        })
        .unwrap();
    }

    /// A place beyond the end stands for one of a job with larger segments.
    #[test]
    fn places_beyond_the_segment() {
        Job::threads(1, |job| {
            let (team, end) = (job.world(), job.pe.control().geometry().segment_stride);
            let (good, bad) = (
                SymmetricRange { offset: end - 16, bytes: 8 },
                SymmetricRange { offset: end - 4, bytes: 8 },
            );
            let bytes = Elements { size: 1, combine: &|_, _, _| {}, numbers: None };
            for (to, from) in [(good, bad), (bad, good)] {
                for refused in [
                    team.broadcast_places(Broadcast::new(0, to, from)),
                    team.gather_places(None, to, from, Destinations::Ready),
                    team.collect_places(to, from).map(drop),
                    team.all_to_all_places(to, from, Destinations::Ready),
                    team.all_to_alls_places((to, 1), (from, 1), 1, 8),
                    team.combine_places(&bytes, Goal::All, to, from),
                ] {
                    assert!(matches!(refused, Err(Error::Misuse { .. })), "{refused:?}");
                }
            }
        })
        .unwrap();
    }
}
