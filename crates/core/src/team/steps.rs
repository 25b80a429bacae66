//! Steps: how members of a team tell each other that they have come to a collective, and give each
//! other a few bytes.
//!
//! A message is one cache line in the receiver's own segment: up to [`LINE`] bytes, and the number
//! of the step. The sender writes the bytes, then the number; the receiver waits until the line
//! shows the number, and reads the bytes from the same line. So a message is one transfer of one
//! cache line, and nothing else. Each pair of members has a line each way for each of [`TURNS`]
//! turns; step k uses those of turn k mod `TURNS`, and the eager buffers of the same turn.
//!
//! | call | meaning |
//! |---|---|
//! | [`step`](Team::step) | the team's next step: all members begin the same ones in the same order, and say the same of each. Begun when all that an earlier collective does is done |
//! | [`notify`](Team::notify) | sends to some members |
//! | [`push`](Team::push) | the same, through a fabric, with more than a line carries: it is put into their memory before they are told |
//! | [`await_from`](Team::await_from) | waits for those of some; what is sent is heard, in the same collective |
//! | [`serve`](Team::serve) | a root's: hears from all, and gives each, as it comes, what it is to have: put into its memory, and told of |
//! | [`meet`](Team::meet) | hears from all, in a step in which each tells all: a **meeting** |
//! | [`publish`](Team::publish), [`swap`](Team::swap) | a meeting by eager buffers: each fills its own, which others read, or, through a fabric, a part of everybody's |
//!
//! **Why no line is overwritten before it has been read, nor an eager buffer.** Let S write to what
//! R reads, in step j, which was used before in step k = j - `TURNS`. Members meet in barriers of
//! the team and in steps of which that was said. `step` sees to it that between them there is a
//! meeting whose end S has seen before j: it counts meetings, and where there was none since k,
//! makes one, a barrier. In that meeting S has heard from R, which told it after it had finished
//! every earlier collective: it has read what it had to read in k. As all members count the same,
//! all take part in that barrier. A barrier that is under way counts as a meeting, so `step` ends
//! it first. Nor does it matter whose eager buffer was read by whom: S has heard from all.
//!
//! So a collective in which all tell all needs nothing else, ever; and where one has nothing to
//! hear, as the root of a broadcast, up to `TURNS` of them follow each other before members have to
//! meet, and often they do so anyway.
//!
//! **When members leave.** A meeting counts once it is complete. A member that has got an error may
//! count less than the others: it comes to a barrier, which fails as the one before has. Where a
//! message was not heard, it may still come; so the team's place is never used again.
//!
//! **Large teams** have no lines; nor have those whose user wants none. There a meeting is a
//! barrier; in another step, each `notify` is a barrier at members that notify, and each
//! `await_from` one at members that await: as many at each member. Such a barrier comes before what
//! is read in the step, so it does not show that it was read. So `step` counts one more.
//!
//! A step orders nothing but its own messages, and what was in this PE's own memory before. What
//! was put into others' is told of after a [`fence`](crate::endpoint::pe::Pe::fence).

use super::Team;
use super::forced::Forced;
use super::place::SymmetricRange;
use crate::base::error::{Error, Result};
use crate::base::layout::{EAGER_BYTES, EagerBuffer, LINE, StepLine, SystemArea, TURNS};
use crate::base::shm;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::wait::{self, Awaiting, Terms};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a team counts. One thread at a time is in a collective of a team.
pub(crate) struct Steps {
    /// Whether messages go by lines; else, barriers take their place.
    lines: bool,
    /// Set while a thread waits in one.
    waiting: AtomicBool,
    begun: AtomicU64,
    /// Meetings that were steps; barriers count themselves.
    met: AtomicU64,
    /// For each turn, the number of meetings that shows that all have read what its last step sent.
    free_at: [AtomicU64; TURNS],
    /// Whether the last exchange of large blocks went from the last to the first.
    back: AtomicBool,
}

impl Steps {
    pub(crate) fn new(members: usize, forced: Option<Forced>) -> Self {
        Steps {
            lines: Team::has_lines(members, forced),
            waiting: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            met: AtomicU64::new(0),
            free_at: [const { AtomicU64::new(0) }; TURNS],
            back: AtomicBool::new(false),
        }
    }

    /// Which way the next exchange of large blocks goes: every other one back.
    pub(crate) fn turn_round(&self) -> bool {
        let back = !self.back.load(Ordering::Relaxed);
        self.back.store(back, Ordering::Relaxed);
        back
    }

    #[inline]
    pub(crate) fn are_lines(&self) -> bool {
        self.lines
    }
}

/// A step of a team.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    number: u64,
    turn: usize,
    meeting: bool,
}

/// What a message carries that only says that its sender has come.
pub(crate) fn nothing(_rank: usize) -> SymmetricRange {
    SymmetricRange { offset: 0, bytes: 0 }
}

impl Team {
    fn meetings(&self) -> u64 {
        self.split_barrier().phase() + self.steps().met.load(Ordering::Relaxed)
    }

    /// Begins the next step; `meeting`: it will be one.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed) where members have to meet first.
    pub(crate) fn step(&self, meeting: bool) -> Result<Step> {
        if let Some(error) = ending::refusal(self.pe()) {
            return Err(error);
        }
        let steps = self.steps();
        let number = steps.begun.load(Ordering::Relaxed) + 1;
        let turn = number as usize % TURNS;
        self.split_barrier().complete_for_collective()?;
        while self.meetings() < steps.free_at[turn].load(Ordering::Relaxed) {
            self.barrier()?;
        }
        steps.begun.store(number, Ordering::Relaxed);
        steps.free_at[turn]
            .store(self.meetings() + u64::from(meeting || !steps.lines) + 1, Ordering::Relaxed);
        Ok(Step { number, turn, meeting })
    }

    /// Tells members that this one has come, and gives each of them what it is to have, up to
    /// [`LINE`] bytes of this PE's memory. Does not wait, and passes over this member.
    pub(crate) fn notify(
        &self,
        step: Step,
        ranks: Range<usize>,
        what: impl Fn(usize) -> SymmetricRange,
    ) -> Result<()> {
        if !self.steps().lines {
            return if step.meeting { Ok(()) } else { self.barrier() };
        }
        let (me, pe) = (self.rank(), self.pe());
        let offset = self.line_at(step, me);
        let others = || ranks.clone().filter(|&rank| rank != me);
        for rank in others() {
            let (place, line) = (what(rank), pe.route(self.members()[rank], offset));
            debug_assert!(place.bytes <= LINE);
            // SAFETY: the place lies in this PE's segment; the line, which has room for so much, in
            // the member's. They do not overlap.
            unsafe {
                line.put_and_store(
                    pe,
                    self.here(place),
                    place.bytes,
                    line.add(offset_of!(StepLine, number)),
                    step.number,
                )?
            };
        }
        if pe.has_near_peers() {
            pe.wake_all(others().map(|rank| self.members()[rank]));
        }
        Ok(())
    }

    /// Tells members as [`notify`](Self::notify) does, and before that puts what each is to have
    /// into its `to`, through a fabric. Begins behind this member, so that not all put to the same
    /// one.
    pub(crate) fn push(
        &self,
        step: Step,
        ranks: Range<usize>,
        to: SymmetricRange,
        what: impl Fn(usize) -> *const u8,
    ) -> Result<()> {
        let (me, first) = (self.rank(), self.rank() + 1);
        let order = (0..ranks.len()).map(|next| ranks.start + (first + next) % ranks.len());
        for rank in order.filter(|&rank| rank != me) {
            self.hand(step, rank, to, what(rank))?;
        }
        match self.steps().lines || step.meeting {
            true => Ok(()),
            false => self.barrier(),
        }
    }

    /// Puts something into a member's `to`, and tells it; without lines, the barrier that follows
    /// does.
    fn hand(&self, step: Step, rank: usize, to: SymmetricRange, from: *const u8) -> Result<()> {
        let pe = self.pe();
        if !self.steps().lines {
            // SAFETY: the callers' sources are readable for the place's bytes, and lie elsewhere.
            return unsafe { self.deliver(rank, to, from) };
        }
        let line = self.told_at(step, self.rank(), rank);
        // SAFETY: as above; the line is the one that this member has in the other's segment.
        unsafe { self.there(rank, to).put_and_store(pe, from, to.bytes, line, step.number) }?;
        if let Route::Near(_) = line {
            pe.ring(self.members()[rank]);
        }
        Ok(())
    }

    /// Hears from all, and puts what each is to have into its `to`, as soon as it has come; whoever
    /// then hears of this member has all of it.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    pub(crate) fn serve(
        &self,
        step: Step,
        to: SymmetricRange,
        what: impl Fn(usize) -> SymmetricRange,
    ) -> Result<()> {
        let mut missing: Vec<usize> = (0..self.len()).filter(|&rank| rank != self.rank()).collect();
        if !self.steps().lines {
            self.barrier()?;
            return self.push(step, 0..self.len(), to, |rank| self.here(what(rank)));
        }
        while !missing.is_empty() {
            let come = |&rank: &usize| self.has_come(step, rank);
            let waits_for =
                |pe: usize| missing.iter().any(|rank| self.members()[*rank] == pe && !come(rank));
            let next = self.wait_in_step(&|pe| !waits_for(pe), || missing.iter().position(come))?;
            let rank = missing.remove(next);
            self.hand(step, rank, to, self.here(what(rank)))?;
        }
        Ok(())
    }

    /// Offset in a segment of the line in which a member tells its owner.
    fn line_at(&self, step: Step, rank: usize) -> u64 {
        Pe::lines(self.slot()) + ((rank * TURNS + step.turn) * size_of::<StepLine>()) as u64
    }

    /// The word by which one member tells another.
    fn told_at(&self, step: Step, who: usize, whom: usize) -> Route {
        let number = self.line_at(step, who) + offset_of!(StepLine, number) as u64;
        self.pe().route(self.members()[whom], number)
    }

    /// Where a member's message to this one lies.
    pub(crate) fn line(&self, step: Step, rank: usize) -> *const u8 {
        self.pe().local(self.line_at(step, rank))
    }

    /// Whether a member's message has come; as if from this one itself.
    #[inline]
    fn has_come(&self, step: Step, rank: usize) -> bool {
        let number = self.line(step, rank).wrapping_add(offset_of!(StepLine, number));
        // SAFETY: an aligned word of a line in this PE's segment.
        rank == self.rank() || unsafe { shm::load(number.cast::<u64>()) } == step.number
    }

    /// Waits for the messages of members.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed) when a member is gone, and not all have come;
    /// [`Misuse`](Error::Misuse) beside another thread.
    pub(crate) fn await_from(&self, step: Step, ranks: Range<usize>) -> Result<()> {
        if !self.steps().lines {
            return self.barrier();
        }
        let missing = |pe: usize| {
            ranks.clone().any(|rank| self.members()[rank] == pe && !self.has_come(step, rank))
        };
        let mut next = ranks.start;
        self.wait_in_step(&|pe| !missing(pe), || {
            while next < ranks.end && self.has_come(step, next) {
                next += 1;
            }
            (next == ranks.end).then_some(())
        })
    }

    /// Waits in a step until `look` gives something. Of `done` PEs nothing is missing: these may
    /// leave the job.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    #[inline]
    pub(crate) fn wait_in_step<R>(
        &self,
        done: &dyn Fn(usize) -> bool,
        look: impl FnMut() -> Option<R>,
    ) -> Result<R> {
        let terms = Terms::forever(Awaiting::Step { members: self.members(), done });
        let waiting = &self.steps().waiting;
        // As in barriers: it may miss two that come within nanoseconds of each other, and costs
        // nothing.
        if waiting.load(Ordering::Relaxed) {
            return Err(Error::Misuse(
                "two threads of one PE are in collectives of the same team at once; give each its own, or let one thread do it",
            ));
        }
        waiting.store(true, Ordering::Relaxed);
        let waited = wait::until(self.pe(), terms, look);
        waiting.store(false, Ordering::Relaxed);
        if let Err(error) = &waited {
            self.split_barrier().keep_slot();
            self.split_barrier().end_if_interrupted(error);
        }
        Ok(waited?)
    }

    /// Waits for the messages of all, in a step that is a meeting.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    pub(crate) fn meet(&self, step: Step) -> Result<()> {
        self.await_from(step, 0..self.len())?;
        // A barrier counts itself.
        let Steps { lines, met, .. } = self.steps();
        met.store(met.load(Ordering::Relaxed) + u64::from(*lines), Ordering::Relaxed);
        Ok(())
    }

    /// Whether what was read in others' memory is what they gave: who waits there until all have
    /// read gives up when a member is gone, and may write there then. Looked at behind the reading,
    /// also that of others who have put what they made of it here; `done` are those who, though
    /// they have left, had read.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed).
    pub(crate) fn check_given(&self, done: &dyn Fn(usize) -> bool) -> Result<()> {
        shm::compiler_fence();
        let terms = Terms::forever(Awaiting::Step { members: self.members(), done });
        terms.departed(self.pe()).map_or(Ok(()), Err)
    }

    /// Whether a member, as a PE of the job, has told the one with rank `whom` of a step; false
    /// where there are no lines.
    pub(crate) fn has_told(&self, step: Step, whom: usize, pe: usize) -> bool {
        let Some(rank) =
            self.members().iter().position(|&member| member == pe).filter(|_| self.steps().lines)
        else {
            return false;
        };
        let told = self.told_at(step, rank, whom).load::<u64>(self.pe());
        told.is_ok_and(|number| number == step.number)
    }

    /// The eager buffer of a step, in each member's slot.
    pub(crate) fn eager_buffer(&self, step: Step) -> SymmetricRange {
        SymmetricRange {
            offset: (offset_of!(SystemArea, eager_buffers)
                + self.slot() * size_of::<EagerBuffer>()
                + step.turn * EAGER_BYTES) as u64,
            bytes: EAGER_BYTES,
        }
    }

    /// A meeting before which each has published a place of its own, or something else that
    /// `publish` puts into the eager buffer.
    pub(crate) fn publish(
        &self,
        publish: impl FnOnce(SymmetricRange) -> Result<()>,
    ) -> Result<SymmetricRange> {
        let step = self.step(true)?;
        let eager_buffer = self.eager_buffer(step);
        publish(eager_buffer)?;
        self.notify(step, 0..self.len(), nothing)?;
        self.meet(step)?;
        Ok(eager_buffer)
    }

    /// A meeting in which each puts `bytes` into the eager buffer of each, where they lie by rank:
    /// all that it gets, its own included.
    pub(crate) fn swap(
        &self,
        bytes: usize,
        what: impl Fn(usize) -> *const u8,
    ) -> Result<SymmetricRange> {
        let step = self.step(true)?;
        self.swap_in(step, self.eager_buffer(step).part(0, self.len() * bytes), what)
    }

    /// The same by another room, an equal part of it for each, which all may write now.
    pub(crate) fn swap_in(
        &self,
        step: Step,
        room: SymmetricRange,
        what: impl Fn(usize) -> *const u8,
    ) -> Result<SymmetricRange> {
        let (me, bytes) = (self.rank(), room.bytes / self.len());
        let mine = room.part(me * bytes, bytes);
        // SAFETY: the room lies in this PE's segment, and what the callers give is readable, and
        // lies elsewhere.
        unsafe { shm::copy(self.here(mine), what(me), bytes) };
        self.push(step, 0..self.len(), mine, what)?;
        self.meet(step)?;
        Ok(room)
    }
}
