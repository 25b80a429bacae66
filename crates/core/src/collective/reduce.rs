//! Reductions and scans: combining the elements of all members.
//!
//! Small: each member sends or publishes all of its elements, and combines those of the ranks that
//! it needs. Larger: the elements are cut into as many parts as there are members. Each member
//! walks through the ranks with its part, and writes the results, after each rank or at the end,
//! where they belong. No other member reads or writes this part anywhere, so source and destination
//! may be the same.

use super::choice::{Algorithm, Call};
use super::network::as_words;
use super::operator::{Elements, Goal, Number, Operator, Sum};
use super::steps::{Lines, Step, nothing};
use super::{BLOCK_BYTES, EAGER_BYTES, Scratch, Span, SymmetricRange, check_apart, check_length};
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{self, Plain};
use crate::team::Team;
use crate::team::at_once::Named;
use crate::team::compare::short_type;
use std::mem::MaybeUninit;
use std::panic::Location;

/// Makes the team unusable for this PE when an operator panics: dropped by nothing else. The PE has
/// left the call in its midst, and the others would take its next call for the rest of this one.
pub(super) struct NoPanic<'a>(pub(super) &'a Team);

impl Drop for NoPanic<'_> {
    fn drop(&mut self) {
        if let Ok(whole) = self.0.split_barrier().hold() {
            std::mem::forget(whole);
        }
    }
}

impl Team {
    /// Combines the elements of all members, in the order of ranks; all members get the result.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_sum_reduce` and its kin; MPI: `MPI_Allreduce`.
    ///
    /// The order is fixed, so all members get the same bits of a floating-point sum, every time.
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    ///
    /// ```
    /// # use memonet_core::{Job, Sum};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let w = job.window::<f64>(2)?;
    /// w.write_from(0, &[job.pe() as f64, 1.0]);
    /// let all = w.span(0..2)?;
    /// job.world().all_reduce_into(Sum, all, all)?; // in place
    /// assert_eq!(w.to_vec(), [3.0, 3.0]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    #[track_caller]
    pub fn all_reduce_into<T: Plain>(
        &self,
        operator: impl Operator<T>,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        let call = Named { name: "Team::all_reduce_into", at: Location::caller() };
        if let Some((into, here, bytes)) = self.short_pair(to, from) {
            // SAFETY: a place of this PE.
            match unsafe { self.meet_at_once(Some(&call), here, bytes) } {
                Some(Ok(lines)) => {
                    // SAFETY: places of this PE, of as many whole elements as the lines have.
                    unsafe { self.combine_lines(&operator, &lines, here, into, bytes) };
                    return Ok(());
                }
                Some(Err(error)) => return Err(*error),
                None => {}
            }
        }
        self.all_reduce_in_general(call, operator, to, from)
    }

    #[inline(never)]
    fn all_reduce_in_general<T: Plain>(
        &self,
        call: Named,
        operator: impl Operator<T>,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        self.collective_at(call.name, call.at, || self.combined(operator, Goal::All, to, from))
    }

    /// Combines the elements of all members, in the order of ranks; the member with rank `root`
    /// gets the result. *Collective.*
    ///
    /// MPI: `MPI_Reduce`.
    ///
    /// ```
    /// # use memonet_core::{Job, Max};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<i64>(2)?;
    /// window.write(0, [3, -4, 8][job.pe()]);
    /// job.world().reduce_into(Max, 0, window.span(1..2)?, window.span(0..1)?)?;
    /// if job.pe() == 0 {
    ///     assert_eq!(window.read(1), 8);
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn reduce_into<T: Plain>(
        &self,
        operator: impl Operator<T>,
        root: usize,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        self.collective("Team::reduce_into", || self.combined(operator, Goal::Root(root), to, from))
    }

    /// Gives each member the combination of its own elements and the elements of all lower ranks.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_sum_inscan`; MPI: `MPI_Scan`.
    ///
    /// ```
    /// # use memonet_core::{Job, Sum};
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u64>(1)?;
    /// window.write(0, job.pe() as u64 + 1); // 1, 2, 3, 4
    /// let word = window.span(0..1)?;
    /// job.world().scan_into(Sum, word, word)?; // 1, 3, 6, 10
    /// assert_eq!(window.read(0), [1, 3, 6, 10][job.pe()]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn scan_into<T: Plain>(
        &self,
        operator: impl Operator<T>,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        self.collective("Team::scan_into", || self.combined(operator, Goal::Inclusive, to, from))
    }

    /// Gives each member the sum of the elements of all lower ranks; the first member gets zeros.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_sum_exscan`; MPI: `MPI_Exscan`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<usize>(1)?;
    /// let mine = 10 + job.pe(); // elements that this PE has
    /// window.write(0, mine);
    /// let word = window.span(0..1)?;
    /// job.world().exclusive_scan_into(word, word)?; // the index of its first element among those of all
    /// assert_eq!(window.read(0), [0, 10, 21][job.pe()]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn exclusive_scan_into<T: Number>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<()>
    where
        Sum: Operator<T>,
    {
        self.collective("Team::exclusive_scan_into", || {
            self.combined(Sum, Goal::Exclusive, to, from)
        })
    }

    /// Compares a reduction or scan of values, or, if `into`, of spans.
    #[cold]
    pub(super) fn compare_combined<T: Plain, O>(
        &self,
        goal: Goal,
        into: bool,
        elements: usize,
    ) -> Quick<()> {
        let (call, root) = match (goal, into) {
            (Goal::All, true) => ("all_reduce_into", 0),
            (Goal::All, false) => ("all_reduce", 0),
            (Goal::Root(root), true) => ("reduce_into", root as u64),
            (Goal::Root(root), false) => ("reduce", root as u64),
            (Goal::Inclusive, true) => ("scan_into", 0),
            (Goal::Inclusive, false) => ("scan", 0),
            (Goal::Exclusive, true) => ("exclusive_scan_into", 0),
            (Goal::Exclusive, false) => ("exclusive_scan", 0),
        };
        let name = format!("{call} by {} of {}", short_type::<O>(), short_type::<T>());
        Ok(self.compare_named(call, &name, &[("elements", elements as u64), ("root", root)])?)
    }

    fn combined<T: Plain, O: Operator<T>>(
        &self,
        operator: O,
        goal: Goal,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Quick<()> {
        let elements = from.len();
        let (to, from) = (self.own(to)?, self.own(from)?);
        if self.pe().is_checked() {
            self.compare_combined::<T, O>(goal, true, elements)?;
        }
        check_apart(to, from)?;
        // SAFETY: any bytes are a value of plain data.
        unsafe { self.combine_elements(operator, goal, to, from) }
    }

    /// Reductions and scans of elements of a type, between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    ///
    /// # Safety
    /// Any bytes are a value of `T`.
    pub unsafe fn combine_values<T: Copy>(
        &self,
        operator: impl Operator<T>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        Ok(unsafe { self.combine_elements(operator, goal, to, from) }?)
    }

    /// # Safety
    /// As for [`combine_values`](Self::combine_values).
    #[inline(always)]
    pub(super) unsafe fn combine_elements<T: Copy>(
        &self,
        operator: impl Operator<T>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let bytes = from.bytes;
        let whole = to.bytes == bytes && size_of::<T>() > 0 && bytes.is_multiple_of(size_of::<T>());
        if goal == Goal::All && whole && self.goes_by_lines(bytes) {
            // SAFETY: as the caller promises; these are whole elements that fit a line.
            return unsafe { self.all_reduce_in_lines(operator, to, from) };
        }
        // SAFETY: as the caller promises.
        unsafe { self.combine_any(operator, goal, to, from) }
    }

    /// All-reduce of whole elements that fit a line: [`combine_small`](Self::combine_small) without
    /// what only other reductions need. This is most of the time that the shortest ones take.
    ///
    /// # Safety
    /// As for [`combine_values`](Self::combine_values); the places are equally long, and no longer
    /// than a line.
    #[inline(always)]
    unsafe fn all_reduce_in_lines<T: Copy>(
        &self,
        operator: impl Operator<T>,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let (lines, here, into) = self.exchange_lines(to, from)?;
        // SAFETY: as the caller promises.
        unsafe { self.combine_lines(&operator, &lines, here, into, from.bytes) };
        Ok(())
    }

    /// Combines the elements in all members' lines, and this member's own at `here`.
    ///
    /// # Safety
    /// `here` and `into` are places of this PE of so many bytes. They are whole elements, and fit a
    /// line. Any bytes are a value of `T`.
    #[inline(always)]
    unsafe fn combine_lines<T: Copy>(
        &self,
        operator: &impl Operator<T>,
        lines: &Lines,
        here: *const u8,
        into: *mut u8,
        bytes: usize,
    ) {
        let me = self.rank();
        let mut sums = MaybeUninit::<super::Aligned>::uninit();
        let sums = sums.as_mut_ptr().cast::<u8>();
        let given = |rank: usize, at: usize| {
            let all = if rank == me { here } else { lines.of(rank) };
            let mut element = MaybeUninit::<T>::uninit();
            // SAFETY: `at` is the offset of an element in this member's source or in a line of the
            // same length. Both lie in this PE's segment. Any bytes are a value.
            unsafe {
                shm::copy(element.as_mut_ptr().cast(), all.wrapping_add(at), size_of::<T>());
                element.assume_init()
            }
        };
        let unwound = NoPanic(self);
        for at in (0..bytes).step_by(size_of::<T>()) {
            let sum = (1..self.len())
                .fold(given(0, at), |sum, rank| operator.combine(sum, given(rank, at)));
            // SAFETY: the block is private, and longer than a line.
            unsafe { sums.add(at).cast::<T>().write_unaligned(sum) };
        }
        std::mem::forget(unwound);
        // SAFETY: the place lies in this PE's segment. It is as long as the elements, all of which
        // have been written above.
        unsafe { shm::copy(into, sums, bytes) };
    }

    /// Sends all members what is in `from`, and awaits theirs. Gives the addresses of `from` and
    /// `to` besides.
    fn exchange_lines(
        &self,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<(Lines, *const u8, *mut u8)> {
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        let (here, into) = (self.here(from).cast_const(), self.here(to));
        // SAFETY: a place of this PE.
        let lines = match unsafe { self.meet_at_once(None, here, from.bytes) } {
            Some(lines) => lines?,
            None => {
                let step = self.step(true)?;
                self.notify(step, 0..self.len(), |_| from)?;
                self.meet(step)?;
                self.lines(step)
            }
        };
        Ok((lines, here, into))
    }

    /// Reductions and scans of any kind.
    ///
    /// # Safety
    /// As for [`combine_values`](Self::combine_values).
    #[inline(never)]
    unsafe fn combine_any<T: Copy>(
        &self,
        operator: impl Operator<T>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let combine = |into: *mut u8, with: *const u8, count: usize| {
            let (into, with) = (into.cast::<T>(), with.cast::<T>());
            for at in 0..count {
                // SAFETY: `combine_places` hands over two blocks of so many elements, private and
                // apart. They are aligned to 64 bytes, and elements may ask for more.
                unsafe {
                    let (lower, higher) =
                        (into.add(at).read_unaligned(), with.add(at).read_unaligned());
                    into.add(at).write_unaligned(operator.combine(lower, higher));
                }
            }
        };
        let elements =
            Elements { size: size_of::<T>(), combine: &combine, numbers: operator.numbers() };
        let unwound = NoPanic(self);
        let combined = self.combine(&elements, goal, to, from);
        std::mem::forget(unwound);
        combined
    }

    /// Reductions and scans between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast_into`](Self::broadcast_into).
    #[doc(hidden)]
    pub fn combine_places(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Result<()> {
        Ok(self.combine(elements, goal, to, from)?)
    }

    fn combine(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        if let Goal::Root(root) = goal {
            self.check_rank(root)?;
        }
        self.check_places(to, from)?;
        self.note_call(from.bytes);
        check_length("bytes of source and destination", from.bytes, to.bytes)?;
        match from.bytes.checked_rem(elements.size) {
            None => {
                return Err(Error::misuse("elements that are combined must have a size").into());
            }
            Some(rest) => check_length("bytes beyond whole elements, and none", rest, 0)?,
        }
        let algorithm = self.choose(Call::Combine {
            bytes: from.bytes,
            element: elements.size,
            goal,
            words: as_words(elements, goal, from.bytes),
        });
        match (algorithm, elements.numbers) {
            (Algorithm::Network, Some(numbers)) => {
                self.combine_in_network(elements.size, numbers, goal, to, from)
            }
            (Algorithm::Nodes, _) if from.bytes * self.len() > EAGER_BYTES => {
                self.all_reduce_by_chain(elements, to, from)
            }
            (Algorithm::Rounds, _) => self.combine_pushed(elements, goal, to, from),
            (Algorithm::Line | Algorithm::Published | Algorithm::Nodes, _) => {
                self.combine_small(algorithm, elements, goal, to, from)
            }
            (Algorithm::Direct, _) => self.combine_directly(elements, goal, to, from),
            (other, _) => other.is_not_for("a reduction"),
        }
    }

    /// Each member combines a part for all, between the members' windows.
    fn combine_directly(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        self.pass_barrier()?;
        let block = (BLOCK_BYTES / elements.size).max(1) * elements.size;
        let (mine, end) = {
            let count = from.bytes / elements.size;
            let cut = |rank: usize| {
                (count as u128 * rank as u128 / self.len() as u128) as usize * elements.size
            };
            (cut(self.rank()), cut(self.rank() + 1))
        };
        let mut scratch = [Scratch::new(block), Scratch::new(block)];
        for at in (mine..end).step_by(block) {
            let bytes = block.min(end - at);
            self.walk(elements, goal, to.part(at, bytes), from.part(at, bytes), &mut scratch)?;
        }
        self.pass_barrier()?;
        // D1 of the module's head.
        self.check_given(&|_| true)
    }

    /// Combines one block of all ranks, and delivers the results.
    fn walk(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
        scratch: &mut [Scratch; 2],
    ) -> Result<()> {
        let (all, scratch) = (0..self.len(), scratch.each_mut().map(Scratch::ptr));
        // SAFETY: the scratch blocks are private, and at least as long as the places.
        let load = |rank: usize, into: *mut u8| unsafe { self.fetch(rank, from, into) };
        // SAFETY: as above.
        let give = |rank: usize, result: *const u8| unsafe { self.deliver(rank, to, result) };
        // SAFETY: as above; blocks are aligned.
        let total =
            unsafe { elements.combine_ranks(goal, all.clone(), from.bytes, scratch, load, give) }?;
        match goal {
            Goal::All => all.into_iter().try_for_each(|rank| give(rank, total)),
            Goal::Root(root) => give(root, total),
            Goal::Inclusive | Goal::Exclusive => Ok(()),
        }
    }

    /// Each member sends or publishes its elements, and combines those that it needs.
    fn combine_small(
        &self,
        algorithm: Algorithm,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let me = self.rank();
        let Some(given) = self.exchange_small(algorithm, goal, from)? else {
            return Ok(());
        };
        let ranks = match goal {
            Goal::All | Goal::Root(_) => 0..self.len(),
            Goal::Inclusive => 0..me + 1,
            Goal::Exclusive => 0..me,
        };
        let mut memory = [const { MaybeUninit::<super::Aligned>::uninit() }; 2 * EAGER_BYTES / 64];
        let (sum, next) = memory.split_at_mut(EAGER_BYTES / 64);
        let scratch = [sum.as_mut_ptr().cast::<u8>(), next.as_mut_ptr().cast::<u8>()];
        let load = |rank: usize, into: *mut u8| {
            // SAFETY: both halves of `memory` have room for an eager buffer. A line, and this
            // member's own source, lie in this PE's segment.
            unsafe {
                match given {
                    _ if rank == me => shm::copy(into, self.here(from), from.bytes),
                    Given::Lines(step) => shm::copy(into, self.line(step, rank), from.bytes),
                    Given::Buffers(step) => {
                        let theirs = self.eager_buffer(step).part(0, from.bytes);
                        self.fetch(rank, theirs, into)?;
                    }
                    Given::Room(head, room) => {
                        self.fetch(head, room.part(rank * from.bytes, from.bytes), into)?;
                    }
                }
            }
            Ok(())
        };
        // SAFETY: as above; the halves are private and aligned. The total is as long as the place,
        // which lies in this PE's segment.
        unsafe {
            let total =
                elements.combine_ranks(goal, ranks, from.bytes, scratch, load, |_, _| Ok(()))?;
            shm::copy(self.here(to), total, to.bytes);
        }
        Ok(())
    }

    /// Gives the elements of all members to those that combine them; `None` at the others.
    fn exchange_small(
        &self,
        algorithm: Algorithm,
        goal: Goal,
        from: SymmetricRange,
    ) -> Quick<Option<Given>> {
        let (me, all) = (self.rank(), 0..self.len());
        let root = match goal {
            Goal::Root(root) => Some(root),
            _ => None,
        };
        if algorithm == Algorithm::Nodes {
            return Ok(match root {
                Some(root) => self.gather_by_nodes(root, from)?.map(|room| Given::Room(me, room)),
                None => {
                    let (head, room) = self.spread_by_nodes(from, None)?;
                    Some(Given::Room(head, room))
                }
            });
        }
        let by_lines = algorithm == Algorithm::Line;
        let step = self.step(root.is_none())?;
        if root != Some(me) {
            let notified = root.map_or(all.clone(), |root| root..root + 1);
            if by_lines {
                self.notify(step, notified, |_| from)?;
            } else {
                self.take(me, from, self.eager_buffer(step).part(0, from.bytes))?;
                self.notify(step, notified, nothing)?;
            }
        }
        match root {
            None => self.meet(step)?,
            Some(root) if root == me => self.await_from(step, all)?,
            Some(_) => return Ok(None),
        }
        Ok(Some(if by_lines { Given::Lines(step) } else { Given::Buffers(step) }))
    }
}

/// Where the elements of other members are.
#[derive(Clone, Copy)]
enum Given {
    /// In their lines.
    Lines(Step),
    /// In their eager buffers.
    Buffers(Step),
    /// In a room of this member, side by side.
    Room(usize, SymmetricRange),
}
