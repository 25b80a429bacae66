//! Reductions and scans through a fabric, by puts alone. A get waits for an answer, and in some
//! networks for software on the other host.
//!
//! The elements are taken in rounds. In each round every member combines one part of the elements.
//! All members put their elements of that part into its *room*, side by side. The member combines
//! them in the order of ranks, and puts the results where they belong.
//!
//! The room is the member's eager buffer where the round fits. For longer rounds it is the
//! destination at the round's elements, which has room for exactly one part of each member. Then
//! all members must be in the call before anybody puts. All parts must be combined, into private
//! memory, before any result is put. A member whose source is there too sends from a copy.
//!
//! A larger reduction to one member is not made this way: only the root's destination may be
//! written, so the other members have no room.

use super::operator::{Elements, Goal};
use super::{EAGER_BYTES, Scratch, SymmetricRange};
use crate::base::error::Quick;
use crate::base::shm;
use crate::team::Team;

/// The most bytes of a part.
const MOST_PART_BYTES: usize = 64 << 10;

impl Team {
    /// Reduces or scans all elements, in rounds.
    pub(super) fn combine_pushed(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let (n, size) = (self.len(), elements.size);
        let mut done = 0;
        while done < from.bytes {
            let left = (from.bytes - done) / size;
            let (part, count) = if left * size > EAGER_BYTES {
                let part = (left / n).min((MOST_PART_BYTES / size).max(1));
                (part, part * n)
            } else {
                let count = left.min(EAGER_BYTES / (n * size) * n);
                (count.div_ceil(n), count)
            };
            let range = |place: SymmetricRange| place.part(done, count * size);
            self.round(elements, goal, part * size, range(to), range(from))?;
            done += count * size;
        }
        Ok(())
    }

    /// One round, of parts of `bytes` bytes; the last parts may be shorter.
    fn round(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        bytes: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let (n, me, small) = (self.len(), self.rank(), to.bytes <= EAGER_BYTES);
        let mut copy = Scratch::new(0);
        let source = if small || to.offset == from.offset {
            copy = Scratch::new(n * bytes);
            // SAFETY: the copy is private, and has room for all parts; the place lies in this PE's
            // segment.
            unsafe { shm::copy(copy.ptr(), self.here(from), from.bytes) };
            copy.ptr()
        } else {
            self.here(from)
        };
        let theirs = |rank: usize| source.wrapping_add(rank * bytes).cast_const();
        let room = if small {
            self.swap(bytes, theirs)?
        } else {
            self.pass_barrier()?;
            self.swap_in(self.step(true)?, to, theirs)?
        };
        drop(copy);
        let mine =
            to.part((me * bytes).min(to.bytes), bytes.min(to.bytes.saturating_sub(me * bytes)));
        let mut results = Scratch::new(if scans(goal) { n * bytes } else { bytes });
        self.combine_room(elements, goal, room, mine.bytes, &mut results)?;
        if !small {
            self.pass_barrier()?;
        }
        let results = results.ptr();
        let result = |rank: usize| {
            results.wrapping_add(if scans(goal) { rank * bytes } else { 0 }).cast_const()
        };
        let step = self.step(!matches!(goal, Goal::Root(_)))?;
        if !matches!(goal, Goal::Root(root) if root != me) {
            // SAFETY: the results are private and as long as the part, which lies in this PE's
            // segment.
            unsafe { shm::copy(self.here(mine), result(me), mine.bytes) };
        }
        match goal {
            Goal::Root(root) if root == me => self.await_from(step, 0..n),
            Goal::Root(root) => self.push(step, root..root + 1, mine, result),
            _ => {
                self.push(step, 0..n, mine, result)?;
                self.meet(step)
            }
        }
    }

    /// Combines this member's part, of which all members have put their elements into the room. The
    /// results are one total, or of a scan one for each rank.
    fn combine_room(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        room: SymmetricRange,
        bytes: usize,
        results: &mut Scratch,
    ) -> Quick<()> {
        let apart = room.bytes / self.len();
        let mut scratch = [Scratch::new(apart), Scratch::new(apart)];
        let (scratch, results) = (scratch.each_mut().map(Scratch::ptr), results.ptr());
        let load = |rank: usize, into: *mut u8| {
            let theirs = self.here(room).wrapping_add(rank * apart);
            // SAFETY: the room lies in this PE's segment, and the scratch memory is as long as a
            // part.
            unsafe { shm::copy(into, theirs, bytes) };
            Ok(())
        };
        let each = |rank: usize, result: *const u8| {
            // SAFETY: of a scan, the results have room for a part of each rank.
            unsafe { shm::copy(results.add(rank * apart), result, bytes) };
            Ok(())
        };
        // SAFETY: the scratch memory is private and aligned, and the results have room for a total.
        unsafe {
            let total = elements.combine_ranks(goal, 0..self.len(), bytes, scratch, load, each)?;
            if !scans(goal) {
                shm::copy(results, total, bytes);
            }
        }
        Ok(())
    }
}

/// Whether each rank gets a result of its own.
fn scans(goal: Goal) -> bool {
    matches!(goal, Goal::Inclusive | Goal::Exclusive)
}
