//! Blocks between members: gather, all-gather, collect, all-to-all.

use super::choice::{Algorithm, Call};
use super::steps::nothing;
use super::{Destinations, EAGER_BYTES, Span, SymmetricRange, check_disjoint, check_length};
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::Plain;
use crate::team::Team;

/// The head of an eager buffer, with the bytes that a member contributes and has room for.
const HEAD_BYTES: usize = 64;

/// Bytes of a piece. Two PEs with a CPU each, blocks of 16, 32, 64 KiB again and again: 0.68, 0.77,
/// 0.93 of the time of whole blocks in one direction; 1 MiB in whole blocks to and fro: 0.82.
const PIECE_BYTES: usize = 8 << 10;
/// The longest block that is copied in pieces.
const MOST_IN_PIECES_BYTES: usize = 64 << 10;

impl Team {
    /// Gives every member the elements of all members, in the order of ranks: the elements of rank
    /// r begin at `r * from.len()` of `to`. *Collective.*
    ///
    /// OpenSHMEM: `shmem_fcollect`; MPI: `MPI_Allgather`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let (from, to) = (job.window::<u32>(1)?, job.window::<u32>(3)?);
    /// from.write(0, job.pe() as u32 * 10);
    /// job.world().all_gather_into(to.span(0..3)?, from.span(0..1)?)?;
    /// assert_eq!(to.to_vec(), [0, 10, 20]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Length`](crate::Error::Length) when `to` is not exactly as long as all elements; else as
    /// for [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn all_gather_into<T: Plain>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        self.collective("Team::all_gather_into", || {
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call("all_gather_into", &[("bytes of each", from.bytes as u64)])?;
            check_disjoint(to, from)?;
            Ok(self.gather_places(None, to, from, Destinations::InTheCall)?)
        })
    }

    /// Gives the member with rank `root` the elements of all members, as in
    /// [`all_gather_into`](Self::all_gather_into). *Collective.*
    ///
    /// MPI: `MPI_Gather`.
    ///
    /// # Errors
    /// As for [`all_gather_into`](Self::all_gather_into).
    #[track_caller]
    pub fn gather_into<T: Plain>(
        &self,
        root: usize,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        self.collective("Team::gather_into", || {
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call(
                "gather_into",
                &[("root", root as u64), ("bytes of each", from.bytes as u64)],
            )?;
            check_disjoint(to, from)?;
            Ok(self.gather_places(Some(root), to, from, Destinations::InTheCall)?)
        })
    }

    /// Gives every member the elements of all members, one after the other in the order of ranks.
    /// Members may contribute different numbers of elements. Returns the number of all elements.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_collect`; MPI: `MPI_Allgatherv`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let (from, to) = (job.window::<u32>(3)?, job.window::<u32>(6)?);
    /// from.fill(0..3, job.pe() as u32);
    /// let count = job.pe() + 1; // PE 0 gives one element, PE 1 two, PE 2 three
    /// assert_eq!(job.world().collect_into(to.span(0..6)?, from.span(0..count)?)?, 6);
    /// assert_eq!(to.to_vec(), [0, 1, 1, 2, 2, 2]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Length`](crate::Error::Length), at every member, when the `to` of one member does not have
    /// room for all elements; else as for [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn collect_into<T: Plain>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<usize> {
        self.collective("Team::collect_into", || {
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call("collect_into", &[])?;
            check_disjoint(to, from)?;
            Ok(self.collect_places(to, from)? / size_of::<T>())
        })
    }

    /// Gives every member one block of each member. A block has `to.len()` elements divided by the
    /// number of members. At the member with rank r, block s of `to` is block r of `from` of the
    /// member with rank s. *Collective.*
    ///
    /// OpenSHMEM: `shmem_alltoall`; MPI: `MPI_Alltoall`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let (from, to) = (job.window::<usize>(3)?, job.window::<usize>(3)?);
    /// (0..3).for_each(|to| from.write(to, 10 * job.pe() + to));
    /// job.world().all_to_all_into(to.span(0..3)?, from.span(0..3)?)?;
    /// assert_eq!(to.to_vec(), [job.pe(), 10 + job.pe(), 20 + job.pe()]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Length`](crate::Error::Length) when the spans differ in length, or cannot be cut into
    /// equal blocks; else as for [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn all_to_all_into<T: Plain>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        self.collective("Team::all_to_all_into", || {
            let beyond = from.len() % self.len();
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call("all_to_all_into", &[("bytes of all", from.bytes as u64)])?;
            check_length("elements beyond equal blocks, and none", beyond, 0)?;
            check_disjoint(to, from)?;
            Ok(self.all_to_all_places(to, from, Destinations::InTheCall)?)
        })
    }

    /// [`gather_into`](Self::gather_into) to `root`, or to all members, between places, for front
    /// ends. `writable` is for a gather to all: a root's destination is written once the root has
    /// come.
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`all_gather_into`](Self::all_gather_into).
    #[doc(hidden)]
    pub fn gather_places(
        &self,
        root: Option<usize>,
        to: SymmetricRange,
        from: SymmetricRange,
        writable: Destinations,
    ) -> Result<()> {
        root.map_or(Ok(()), |root| self.check_rank(root))?;
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        check_length(
            "bytes of the destination, and of all sources",
            to.bytes,
            from.bytes * self.len(),
        )?;
        let block = |rank: usize| to.part(rank * from.bytes, from.bytes);
        let (me, all) = (self.rank(), 0..self.len());
        let call = Call::Gather { each: from.bytes, all: to.bytes, to_all: root.is_none() };
        let done = match (root, self.choose(call)) {
            (_, Algorithm::Line) => {
                let step = self.step(root.is_none())?;
                if root != Some(me) {
                    self.notify(step, root.map_or(all.clone(), |root| root..root + 1), |_| from)?;
                }
                match root {
                    None => self.meet(step)?,
                    Some(root) if root == me => self.await_from(step, all.clone())?,
                    Some(_) => return Ok(()),
                }
                for rank in all.filter(|&rank| rank != me) {
                    self.take_line(step, rank, block(rank));
                }
                self.take(me, from, block(me))
            }
            (None, Algorithm::Nodes) => self.all_gather_by_nodes(to, from, writable),
            (Some(root), Algorithm::Nodes) => match self.gather_by_nodes(root, from)? {
                Some(room) => self.take(me, room, to),
                None => Ok(()),
            },
            (None, Algorithm::Pushed) => {
                let eager_buffer = self.swap(from.bytes, |_| self.here(from))?;
                self.take(me, eager_buffer, to)
            }
            (None, Algorithm::Published) => {
                let eager_buffer = self.publish(|eager_buffer| {
                    self.take(me, from, eager_buffer.part(0, from.bytes))
                })?;
                all.into_iter().try_for_each(|rank| {
                    self.take(rank, eager_buffer.part(0, from.bytes), block(rank))
                })
            }
            (None, Algorithm::Direct) => self.give_all(|_| from, block(me), writable),
            (Some(root), Algorithm::Direct) => {
                let step = self.step(false)?;
                if root == me {
                    self.notify(step, all.clone(), nothing)?;
                    self.take(me, from, block(me))?;
                    return Ok(self.await_from(step, all)?);
                }
                self.await_from(step, root..root + 1)?;
                self.give(root, from, block(me))?;
                self.pe().fence()?;
                self.notify(step, root..root + 1, nothing)
            }
            (_, other) => other.is_not_for("a gather"),
        };
        Ok(done?)
    }

    /// Writes a part of this member's source to `to` of each member.
    fn give_all(
        &self,
        part: impl Fn(usize) -> SymmetricRange,
        to: SymmetricRange,
        writable: Destinations,
    ) -> Quick<()> {
        if writable == Destinations::InTheCall {
            self.pass_barrier()?;
        }
        if let Some((copies, from)) = self.copied(0..self.len(), &part) {
            // SAFETY: the source lies in this PE's segment, as `check_places` has found.
            unsafe { copies.write(to.offset, self.here(from), from.bytes) }?;
            self.take(self.rank(), part(self.rank()), to)?;
            return self.pass_barrier();
        }
        // A program that repeats the call finds in its caches the bytes that it has copied last. So
        // every other call goes backwards.
        let back = self.steps().turn_round();
        let bytes = self.piece(to.bytes);
        let pieces = to.bytes.div_ceil(bytes).max(1);
        // Nothing here depends on the memory that others write, and a barrier follows.
        let kept = self.pe().keep_writes();
        for done in 0..self.len() * pieces {
            let next = if back { self.len() * pieces - 1 - done } else { done };
            // Each member begins or ends with itself: so not all write to one member at once.
            let (rank, at) = ((self.rank() + next / pieces) % self.len(), next % pieces * bytes);
            let bytes = bytes.min(to.bytes - at);
            self.give(rank, part(rank).part(at, bytes), to.part(at, bytes))?;
        }
        kept.go_along();
        self.pass_barrier()
    }

    /// Bytes of the pieces in which a block is copied. Pieces are short where the next call,
    /// backwards, finds some of them in the first cache. A longer block is whole in the second
    /// cache; PEs that share a CPU find there what others have copied; a message is better sent
    /// whole.
    fn piece(&self, bytes: usize) -> usize {
        let own_cache = self.is_near() && !self.pe().crowded();
        if own_cache && bytes <= MOST_IN_PIECES_BYTES { PIECE_BYTES } else { bytes.max(1) }
    }

    /// [`collect_into`](Self::collect_into) between places, for front ends. Returns the bytes of
    /// all sources; `to` may be longer. *Collective.*
    ///
    /// # Errors
    /// As for [`collect_into`](Self::collect_into).
    #[doc(hidden)]
    pub fn collect_places(&self, to: SymmetricRange, from: SymmetricRange) -> Result<usize> {
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        let (me, small) = (
            self.rank(),
            match self.choose(Call::Collect) {
                Algorithm::Published => EAGER_BYTES - HEAD_BYTES,
                Algorithm::Direct => 0,
                other => other.is_not_for("a collect"),
            },
        );
        let step = self.step(true)?;
        let eager_buffer = self.eager_buffer(step);
        // SAFETY: two aligned words at the head of this PE's own eager buffer, which others read
        // after the notification below.
        unsafe {
            crate::base::shm::store(self.here(eager_buffer).cast(), from.bytes as u64);
            crate::base::shm::store(self.here(eager_buffer.part(8, 8)).cast(), to.bytes as u64);
        }
        if from.bytes <= small {
            self.take(me, from, eager_buffer.part(HEAD_BYTES, from.bytes))?;
        }
        self.notify(step, 0..self.len(), |_| eager_buffer.part(0, 16))?;
        self.meet(step)?;
        let head = |at: usize| {
            let word = |rank: usize| match self.steps().are_lines() && rank != me {
                // SAFETY: an aligned word of a line in this PE's segment.
                true => Ok(unsafe {
                    crate::base::shm::load::<u64>(self.line(step, rank).wrapping_add(at).cast())
                }),
                false => self.there(rank, eager_buffer.part(at, 8)).load::<u64>(self.pe()),
            };
            let words = (0..self.len()).map(|rank| Ok(word(rank)? as usize));
            words.collect::<Result<Vec<usize>>>()
        };
        let mut counts = head(0)?;
        // A member in another collective may have sent any number. This PE's own count is certain,
        // so whatever it writes stays inside of `to`.
        counts[me] = from.bytes;
        let total = counts.iter().try_fold(0usize, |total, &count| total.checked_add(count));
        let total = total.unwrap_or(usize::MAX);
        let room = head(8)?.into_iter().fold(to.bytes, usize::min);
        if total > room {
            // All members see the same numbers, so all return here.
            return Err(Error::Length {
                what: "bytes of all sources, and the smallest destination",
                left: total,
                right: room,
                call: None,
            });
        }
        let starts =
            counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count)));
        let starts: Vec<usize> = starts.collect();
        if counts.iter().all(|&count| count <= small) {
            for (rank, (&start, &count)) in starts.iter().zip(&counts).enumerate() {
                self.take(rank, eager_buffer.part(HEAD_BYTES, count), to.part(start, count))?;
            }
            return Ok(total);
        }
        // The meeting above shows that all members are in the call: destinations may be written.
        self.give_all(|_| from, to.part(starts[self.rank()], from.bytes), Destinations::Ready)?;
        Ok(total)
    }

    /// [`all_to_all_into`](Self::all_to_all_into) between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`all_to_all_into`](Self::all_to_all_into).
    #[doc(hidden)]
    pub fn all_to_all_places(
        &self,
        to: SymmetricRange,
        from: SymmetricRange,
        writable: Destinations,
    ) -> Result<()> {
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        check_length("bytes of source and destination", from.bytes, to.bytes)?;
        check_length("bytes beyond equal blocks, and none", from.bytes % self.len(), 0)?;
        let (bytes, me) = (from.bytes / self.len(), self.rank());
        let block = |place: SymmetricRange, rank: usize| place.part(rank * bytes, bytes);
        let done = match self.choose(Call::AllToAll { each: bytes, all: from.bytes }) {
            Algorithm::Line => {
                let step = self.step(true)?;
                self.notify(step, 0..self.len(), |rank| block(from, rank))?;
                self.meet(step)?;
                for rank in (0..self.len()).filter(|&rank| rank != me) {
                    self.take_line(step, rank, block(to, rank));
                }
                self.take(me, block(from, me), block(to, me))
            }
            Algorithm::Pushed => {
                let eager_buffer = self.swap(bytes, |rank| self.here(block(from, rank)))?;
                self.take(me, eager_buffer, to)
            }
            Algorithm::Published => {
                let eager_buffer = self.publish(|eager_buffer| {
                    self.take(me, from, eager_buffer.part(0, from.bytes))
                })?;
                (0..self.len())
                    .try_for_each(|rank| self.take(rank, block(eager_buffer, me), block(to, rank)))
            }
            Algorithm::Direct => self.give_all(|rank| block(from, rank), block(to, me), writable),
            other => other.is_not_for("an all-to-all"),
        };
        Ok(done?)
    }
}
