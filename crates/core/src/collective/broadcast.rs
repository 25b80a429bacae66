//! From one to all: broadcast and scatter.

use super::choice::{Algorithm, Call};
use super::steps::{Step, nothing};
use super::{Broadcast, Span, SymmetricRange, check_apart, check_disjoint, check_length};
use crate::base::error::{Quick, Result};
use crate::base::layout::{EAGER_BYTES, LINE};
use crate::base::shm::{self, Plain};
use crate::team::Team;
use crate::team::at_once::Named;
use crate::wait::yield_hint;
use std::panic::Location;

impl Team {
    /// Copies `from` of the member with rank `root` to `to` of every member, the root included.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_broadcast`; MPI: `MPI_Bcast`.
    ///
    /// A collective is no barrier: a member may return before another member has called. When it
    /// returns, its own data are complete.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u32>(4)?;
    /// if job.pe() == 1 {
    ///     window.write_from(0, &[5, 6, 7, 8]);
    /// }
    /// let all = window.span(0..4)?;
    /// job.world().broadcast_into(1, all, all)?; // in place
    /// assert_eq!(window.to_vec(), [5, 6, 7, 8]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// Before anything is exchanged, as for all collectives: [`NoSuchPe`](crate::Error::NoSuchPe),
    /// [`Length`](crate::Error::Length), and [`Misuse`](crate::Error::Misuse) when the spans
    /// overlap in part, or belong to another job or to another PE of this job.
    /// [`PeerFailed`](crate::Error::PeerFailed) when a member is gone.
    #[track_caller]
    pub fn broadcast_into<T: Plain>(
        &self,
        root: usize,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        let call = Named { name: "Team::broadcast_into", at: Location::caller() };
        if let Some((to, from)) = self.equal_pair(to, from).filter(|_| root < self.len()) {
            // SAFETY: places of this PE's segment, equally long.
            let ended = unsafe { self.broadcast_at_once(Some(&call), root, to, from) };
            if let Some(ended) = ended {
                return ended.map_err(|error| *error);
            }
        }
        self.broadcast_in_general(call, root, to, from)
    }

    /// A broadcast between near members, if nothing else has to be done. `None`: nothing was done.
    ///
    /// # Safety
    /// `to` and `from` are places of the segments, equally long. Where they overlap in part, `to`
    /// gets the mixture of bytes that the module's head describes.
    #[inline(always)]
    unsafe fn broadcast_at_once(
        &self,
        call: Option<&Named>,
        root: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Option<Quick<()>> {
        if from.bytes > LINE {
            // SAFETY: as the caller promises.
            return unsafe { self.broadcast_longer_at_once(call, root, to, from) };
        }
        let (into, here, bytes) = (self.here(to), self.here(from).cast_const(), from.bytes);
        let source = if self.rank() == root {
            // SAFETY: as the caller promises.
            unsafe { self.send_at_once(call, here, bytes) }.then_some(here)?
        } else {
            match self.hear_at_once(call, root, bytes)? {
                Ok(lines) => lines.of(root),
                Err(error) => return Some(Err(error)),
            }
        };
        // SAFETY: a line or a place of this PE, and another place.
        unsafe { copy_apart(into, source, bytes) };
        Some(Ok(()))
    }

    /// [`broadcast_at_once`](Self::broadcast_at_once) of more than a line: as
    /// [`hand_out`](Self::hand_out) does it.
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn broadcast_longer_at_once(
        &self,
        call: Option<&Named>,
        root: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Option<Quick<()>> {
        let (into, here, bytes) = (self.here(to), self.here(from).cast_const(), from.bytes);
        let is_published = bytes <= EAGER_BYTES;
        if self.rank() == root {
            // SAFETY: the source is readable, and no eager buffer.
            let has_sent = unsafe {
                match is_published {
                    true => self.publish_at_once(call, here, bytes),
                    false => self.send_at_once(call, here, 0),
                }
            };
            if !has_sent {
                return None;
            }
            // SAFETY: as the caller promises.
            unsafe { copy_apart(into, here, bytes) };
            return Some(if is_published { Ok(()) } else { self.await_answers(call) });
        }
        let step = match self.hear_at_once(call, root, 0)? {
            Ok(lines) => self.step_heard(&lines, root),
            Err(error) => return Some(Err(error)),
        };
        let place = if is_published { self.eager_buffer(step) } else { from };
        let there = self.there(root, place).mapped().expect("all members are near");
        // SAFETY: the root keeps what lies there until this member has answered, or published it.
        unsafe { copy_apart(into, there, bytes) };
        Some(if is_published { Ok(()) } else { self.answer_at_once(call, step, root) })
    }

    #[inline(never)]
    fn broadcast_in_general<T: Plain>(
        &self,
        call: Named,
        root: usize,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        self.collective_at(call.name, call.at, || {
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call(
                "broadcast_into",
                &[("root", root as u64), ("bytes", from.bytes as u64)],
            )?;
            check_apart(to, from)?;
            Ok(self.broadcast_places(Broadcast::new(root, to, from))?)
        })
    }

    /// [`broadcast_into`](Self::broadcast_into) between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    #[doc(hidden)]
    pub fn broadcast_places(&self, what: Broadcast) -> Result<()> {
        let Broadcast { root, to, from, .. } = what;
        self.check_rank(root)?;
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        check_length("bytes of source and destination", from.bytes, to.bytes)?;
        // SAFETY: both lie in the segments, and are equally long.
        let ended = unsafe { self.broadcast_at_once(None, root, what.own_to(self.rank()), from) };
        if let Some(ended) = ended {
            return Ok(ended?);
        }
        if self.goes_by_lines(from.bytes) {
            return Ok(self.hand_out(Algorithm::Line, what, |_| from)?);
        }
        let call = Call::Broadcast { bytes: from.bytes };
        let mut algorithm = self.choose(call);
        if algorithm == Algorithm::Network {
            return Ok(self.broadcast_in_network(what)?);
        }
        self.count_broadcast(from.bytes);
        if algorithm == Algorithm::Multicast {
            if self.broadcast_by_multicast(what)? {
                return Ok(());
            }
            algorithm = self.choose_without_multicast(call);
        }
        if let (Algorithm::Copied, Some(copies)) = (algorithm, self.copies()) {
            return Ok(self.broadcast_copied(copies, what)?);
        }
        if algorithm == Algorithm::Nodes {
            return Ok(self.broadcast_by_nodes(what)?);
        }
        if algorithm == Algorithm::Parts {
            if !what.root_keeps {
                return Ok(self.broadcast_in_parts(what)?);
            }
            // Members write parts into the destinations of all others.
            algorithm = Algorithm::Direct;
        }
        Ok(self.hand_out(algorithm, what, |_| from)?)
    }

    /// Gives each member its part of `from` of the member with rank `root`: the member with rank r
    /// gets the `to.len()` elements from `r * to.len()` on. *Collective.*
    ///
    /// MPI: `MPI_Scatter`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let (from, to) = (job.window::<u32>(6)?, job.window::<u32>(2)?);
    /// if job.pe() == 0 {
    ///     from.write_from(0, &[0, 1, 10, 11, 20, 21]);
    /// }
    /// job.world().scatter_into(0, to.span(0..2)?, from.span(0..6)?)?;
    /// assert_eq!(to.read(1), 10 * job.pe() as u32 + 1);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`all_gather_into`](Self::all_gather_into).
    #[track_caller]
    pub fn scatter_into<T: Plain>(
        &self,
        root: usize,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        self.collective("Team::scatter_into", || {
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call(
                "scatter_into",
                &[("root", root as u64), ("bytes for each", to.bytes as u64)],
            )?;
            check_disjoint(to, from)?;
            self.scatter_places(root, to, from)
        })
    }

    /// [`scatter_into`](Self::scatter_into) between places. *Collective.*
    pub(super) fn scatter_places(
        &self,
        root: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        self.check_rank(root)?;
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        check_length(
            "bytes of the source, and of all destinations",
            from.bytes,
            to.bytes * self.len(),
        )?;
        let call = Call::Scatter { each: to.bytes, all: from.bytes };
        let what = Broadcast::new(root, to, from);
        self.hand_out(self.choose(call), what, |rank| from.part(rank * to.bytes, to.bytes))
    }

    /// Copies a part of the root's source, as long as `to`, to each member's `to`. A member returns
    /// once it has its part. The root returns once no member needs its memory.
    #[inline(always)]
    fn hand_out(
        &self,
        algorithm: Algorithm,
        what: Broadcast,
        part: impl Fn(usize) -> SymmetricRange,
    ) -> Quick<()> {
        let Broadcast { root, to, from, .. } = what;
        let mine = part(self.rank());
        let step = self.step(false)?;
        if algorithm != Algorithm::Line && !self.is_near() {
            return self.push_out(algorithm, step, what, part);
        }
        let eager_buffer = self.eager_buffer(step);
        if self.rank() != root {
            self.await_from(step, root..root + 1)?;
            yield_hint::note_leader(self.pe(), self.members()[root]);
            match algorithm {
                Algorithm::Line => self.take_line(step, root, to),
                Algorithm::Published => self.take(
                    root,
                    eager_buffer.part((mine.offset - from.offset) as usize, mine.bytes),
                    to,
                )?,
                Algorithm::Direct => {
                    self.take(root, mine, to)?;
                    // D1 of the module's head.
                    let given = self.check_given(&|pe| self.has_notified(step, root, pe));
                    self.notify(step, root..root + 1, nothing)?;
                    given?;
                }
                other => other.is_not_for("parts of one member"),
            }
            return Ok(());
        }
        match algorithm {
            Algorithm::Line => self.notify(step, 0..self.len(), part)?,
            Algorithm::Published => {
                self.take(root, from, eager_buffer.part(0, from.bytes))?;
                self.notify(step, 0..self.len(), nothing)?;
            }
            Algorithm::Direct => self.notify(step, 0..self.len(), nothing)?,
            other => other.is_not_for("parts of one member"),
        }
        // The root copies while the others copy.
        self.take(root, mine, what.own_to(root))?;
        match algorithm {
            Algorithm::Direct => self.await_from(step, 0..self.len()),
            _ => Ok(()),
        }
    }

    /// [`hand_out`](Self::hand_out) through a fabric: the root writes each member's part into the
    /// member's eager buffer at once, or into its destination, once that may be written.
    fn push_out(
        &self,
        algorithm: Algorithm,
        step: Step,
        what: Broadcast,
        part: impl Fn(usize) -> SymmetricRange,
    ) -> Quick<()> {
        let Broadcast { root, to, .. } = what;
        let eager_buffer = self.eager_buffer(step);
        match (algorithm, self.rank() == root) {
            (Algorithm::Direct, true) if what.asks() => self.serve(step, to, &part)?,
            (Algorithm::Direct, true) => {
                self.push(step, 0..self.len(), to, |rank| self.here(part(rank)))?
            }
            (Algorithm::Direct, false) => {
                if what.asks() {
                    self.notify(step, root..root + 1, nothing)?;
                }
                return self.await_from(step, root..root + 1);
            }
            (_, true) => {
                self.push(step, 0..self.len(), eager_buffer.part(0, to.bytes), |rank| {
                    self.here(part(rank))
                })?
            }
            (_, false) => {
                self.await_from(step, root..root + 1)?;
                return self.take(self.rank(), eager_buffer.part(0, to.bytes), to);
            }
        }
        self.take(root, part(root), what.own_to(root))
    }
}

/// Copies, unless both are one place.
///
/// # Safety
/// As for [`shm::copy`].
#[inline(always)]
unsafe fn copy_apart(to: *mut u8, from: *const u8, bytes: usize) {
    if from != to.cast_const() {
        // SAFETY: as the caller promises.
        unsafe { shm::copy(to, from, bytes) };
    }
}
