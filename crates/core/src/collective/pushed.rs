//! Reductions and scans through a fabric, by puts alone: gets are software on the other's host in
//! some networks, and wait for an answer in all.
//!
//! The elements are taken in rounds. In each, every member has a part to combine: all put their
//! elements of that part into its room, side by side; it combines them in the order of ranks, and
//! puts what comes of it where that belongs. The room is its eager buffer; of what is longer than
//! that, the destination itself at the round's elements, which takes exactly one part of each
//! member. Then all have to be in the call before, and all parts combined, into private memory,
//! before the results come; and who has its source there sends from a copy.
//!
//! One member's result has no room elsewhere: only its own destination may be written.

use super::{EAGER_BYTES, Elements, Goal, Scratch, SymmetricRange};
use crate::base::error::Result;
use crate::base::shm;
use crate::team::Team;

/// Most bytes of a part.
const PART: usize = 64 << 10;

impl Team {
    /// All in rounds.
    pub(super) fn combine_pushed(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Result<()> {
        let (n, size) = (self.len(), elements.size);
        let mut done = 0;
        while done < from.bytes {
            let left = (from.bytes - done) / size;
            let (part, count) = if left * size > EAGER_BYTES {
                let part = (left / n).min((PART / size).max(1));
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

    /// One round, of parts of so many bytes; the last ones may have less.
    fn round(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        bytes: usize,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Result<()> {
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
            self.barrier()?;
            self.swap_in(self.step(true)?, to, theirs)?
        };
        drop(copy);
        let mine =
            to.part((me * bytes).min(to.bytes), bytes.min(to.bytes.saturating_sub(me * bytes)));
        let mut results = Scratch::new(if scans(goal) { n * bytes } else { bytes });
        self.combine_room(elements, goal, room, mine.bytes, &mut results);
        if !small {
            self.barrier()?;
        }
        let results = results.ptr();
        let result = |rank: usize| {
            results.wrapping_add(if scans(goal) { rank * bytes } else { 0 }).cast_const()
        };
        let step = self.step(!matches!(goal, Goal::Root(_)))?;
        if !matches!(goal, Goal::Root(root) if root != me) {
            // SAFETY: results are private, and as long as the part, which lies in this PE's
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

    /// Combines this member's part, of which all have put theirs into the room: what all get, or
    /// what each gets, by rank.
    fn combine_room(
        &self,
        elements: &Elements<'_>,
        goal: Goal,
        room: SymmetricRange,
        bytes: usize,
        results: &mut Scratch,
    ) {
        let apart = room.bytes / self.len();
        let (mut sum, mut next) = (Scratch::new(apart), Scratch::new(apart));
        let (sum, next, results) = (sum.ptr(), next.ptr(), results.ptr());
        for rank in 0..self.len() {
            let theirs = self.here(room).wrapping_add(rank * apart);
            // SAFETY: sum and next are private, aligned, zeroed when made, and as long as a part;
            // the room lies in this PE's segment; results are private, and have room for a part of
            // each rank, where each gets its own.
            unsafe {
                if goal == Goal::Exclusive {
                    shm::copy(results.add(rank * apart), sum, bytes);
                }
                if rank == 0 {
                    shm::copy(sum, theirs, bytes);
                } else {
                    shm::copy(next, theirs, bytes);
                    (elements.combine)(sum, next, bytes / elements.size);
                }
                if goal == Goal::Inclusive {
                    shm::copy(results.add(rank * apart), sum, bytes);
                }
            }
        }
        if !scans(goal) {
            // SAFETY: as above.
            unsafe { shm::copy(results, sum, bytes) };
        }
    }
}

/// Whether each gets something else.
fn scans(goal: Goal) -> bool {
    matches!(goal, Goal::Inclusive | Goal::Exclusive)
}
