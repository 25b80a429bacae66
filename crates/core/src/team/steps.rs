//! Steps: members of a team notify each other that they have come to a collective, and send each
//! other a few bytes.
//!
//! A message is one cache line in the receiver's segment: up to [`LINE`] bytes, and the number of
//! the step. The sender writes the bytes, then the number. The receiver waits until the line shows
//! the number, and reads the bytes from the same line. So a message is the transfer of one cache
//! line, and nothing else. Each pair of members has a line each way for each of [`TURNS`] turns.
//! Step k uses the lines of turn k mod `TURNS`, and the eager buffers of that turn.
//!
//! | call | meaning |
//! |---|---|
//! | [`step`](Team::step) | begins the team's next step, after an earlier collective is complete; all members begin equal steps in one order |
//! | [`notify`](Team::notify) | sends a line to some members |
//! | [`push`](Team::push) | through a fabric: puts data longer than a line into members' memory, then notifies them |
//! | [`await_from`](Team::await_from) | awaits the lines of some members; a collective awaits every line that is sent to it |
//! | [`notify_copied`](Team::notify_copied) | notifies all others by one write that the network copies |
//! | [`serve`](Team::serve) | at a root: awaits all members, and sends each its data as soon as that member has come: a put, then a notification |
//! | [`meet`](Team::meet) | awaits all members, in a step in which each notifies all: a **meeting** |
//! | [`publish`](Team::publish), [`swap`](Team::swap) | a meeting with eager buffers: each member fills its own, which others read; or, through a fabric, a part of every member's |
//!
//! **Proof that no line and no eager buffer is overwritten before it has been read.** Let S write,
//! in step j, to memory that R reads. The memory was used last in step k = j - `TURNS`. Members
//! meet in barriers of the team and in steps that are meetings.
//!
//! * I1: All members begin the same steps in the same order, and say alike which of them are
//!   meetings. So all count the same meetings.
//! * I2: Before S begins j, it has completed a meeting that each member began after it had finished
//!   k: `step` counts meetings, and where there was none since k, it makes one, a barrier. By I1,
//!   all members take part in that barrier.
//! * I3: A meeting inside of step k does not count for I2, as members read after it: `step` counts
//!   one more.
//! * I4: A barrier that is under way counts as a meeting already, so `step` completes it first.
//! * I5: In the meeting of I2, S has received from all members, so also from R; whose eager buffer
//!   R read does not matter. R sent after it had finished every earlier collective. So it has read
//!   whatever it had to read in k.
//!
//! So a collective in which all members notify all needs no further barrier. Where a member awaits
//! nothing, as the root of a broadcast, up to `TURNS` collectives follow each other before members
//! have to meet, and often they meet anyway.
//!
//! **When members leave.** A meeting counts once it is complete. A member whose meeting has failed
//! may count fewer than the others: its next `step` calls a barrier, which fails as the meeting
//! did. A message that was not awaited to its end may still arrive, so the team's slot is never
//! used again.
//!
//! **Large teams** have no lines; nor have teams whose user forces another way. There a meeting is
//! a barrier. In another step, each `notify` is a barrier at members that notify, and each
//! `await_from` one at members that await: as many at each member. Such a barrier is a meeting
//! inside of its step (I3).
//!
//! **Steps that go by nodes** (`collective/nodes.rs`) number a member's lines otherwise than by
//! ranks, so they have lines in large teams, too. They call `put_and_notify_line` and
//! `await_lines`. A member that has ended its part of such a step says so in a word of its own:
//! others may still wait for what it sent by a third member, and see there that it left nothing
//! undone.
//!
//! **Where the network copies writes** ([`copied`](Team::copied)), a member that sends the same to
//! all others writes it once: first the bytes, then the number, by the team's group, which keeps
//! them in order. To the receivers nothing differs.
//!
//! A step orders only its own messages, after writes to this PE's own memory. Before a notification
//! of puts into others' memory comes a [`fence`](crate::endpoint::pe::Pe::fence).

use super::Team;
use super::forced::Forced;
use super::place::SymmetricRange;
use crate::base::doorbell::Doorbell;
use crate::base::error::{Error, Quick};
use crate::base::layout::{
    BarrierSlot, EAGER_BYTES, EagerBuffer, LINE, StepLine, SystemArea, TURNS,
};
use crate::base::shm;
use crate::endpoint::copies::Copies;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::endpoint::{ending, errand};
use crate::sync::barrier::rank_of;
use crate::wait::{self, Awaiting, Terms};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A team's counters. One thread at a time is in a collective of a team.
pub(crate) struct Steps {
    /// Whether messages go by lines; else, barriers take their place.
    lines: bool,
    /// The other members, where all are mapped here and messages go by lines.
    pub(super) near: Option<Box<[NearMember]>>,
    /// Whether steps may be [made at once](super::at_once).
    pub(super) at_once: bool,
    /// Whether data go the shortest way that their length allows, which a line is for what fits it,
    /// and nothing has to be asked or noted before.
    by_shortest: bool,
    /// Set while a thread waits in a step.
    waiting: AtomicBool,
    pub(super) begun: AtomicU64,
    /// Steps that were meetings; barriers count themselves.
    met: AtomicU64,
    /// For each turn, the number of meetings after which its lines and eager buffers are free (I2).
    pub(super) free_at: [AtomicU64; TURNS],
    /// Whether the last exchange of large blocks went backwards.
    back: AtomicBool,
}

/// Another member whose memory is mapped here, and this member's line for the first turn there.
pub(super) struct NearMember {
    pub(super) rank: usize,
    line: *mut u8,
    /// Its line for the first turn in this PE's segment.
    own: *const u8,
    bell: Doorbell,
}

// SAFETY: addresses in mappings that the team keeps, used only through `crate::base::shm`.
unsafe impl Send for NearMember {}
// SAFETY: as above.
unsafe impl Sync for NearMember {}

impl NearMember {
    /// All other members of a team, if their memory is mapped here.
    fn all(pe: &Pe, members: &[usize], me: usize, slot: usize) -> Option<Box<[Self]>> {
        let others = members.iter().enumerate().filter(|&(rank, _)| rank != me);
        let near = |(rank, &member): (usize, &usize)| {
            let line = pe.route(member, line_at(slot, me, 0)).mapped()?;
            let own = pe.local(line_at(slot, rank, 0)).cast_const();
            Some(NearMember { rank, line, own, bell: pe.control().doorbell(member) })
        };
        others.map(near).collect()
    }

    /// This member's line in the other's segment.
    #[inline(always)]
    pub(super) fn there(&self, step: Step) -> *mut StepLine {
        self.line.cast::<StepLine>().wrapping_add(step.turn)
    }

    /// Whether the other's line in this PE's segment has come.
    #[inline(always)]
    pub(super) fn has_come(&self, step: Step) -> bool {
        let line = self.own.cast::<StepLine>().wrapping_add(step.turn);
        let number = line.wrapping_byte_add(offset_of!(StepLine, number));
        // SAFETY: an aligned word of a line in this PE's segment.
        unsafe { shm::load(number.cast::<u64>()) == step.number }
    }

    /// Wakes it if it sleeps. After [`Pe::order_rings`].
    #[inline(always)]
    pub(super) fn wake(&self) {
        self.bell.ring_ordered();
    }
}

impl Steps {
    /// The counters of a team in `slot`, of which this PE is the member with rank `me`.
    pub(crate) fn new(
        pe: &Pe,
        members: &[usize],
        me: usize,
        slot: usize,
        forced: Option<Forced>,
    ) -> Self {
        let lines = Team::has_lines(members.len(), forced);
        let near = NearMember::all(pe, members, me, slot).filter(|_| lines);
        Steps {
            lines,
            at_once: near.is_some() && pe.calls_at_once(),
            by_shortest: near.is_some() && forced.is_none() && !pe.is_checked(),
            near,
            waiting: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            met: AtomicU64::new(0),
            free_at: [const { AtomicU64::new(0) }; TURNS],
            back: AtomicBool::new(false),
        }
    }

    /// Whether the next exchange of large blocks goes backwards, as every other one does.
    pub(crate) fn turn_round(&self) -> bool {
        let back = !self.back.load(Ordering::Relaxed);
        self.back.store(back, Ordering::Relaxed);
        back
    }

    #[inline]
    pub(crate) fn are_lines(&self) -> bool {
        self.lines
    }

    /// Whether so many bytes of each member go by lines between near members, and nothing has to be
    /// asked, checked or noted before.
    #[inline(always)]
    pub(crate) fn is_short(&self, bytes: usize) -> bool {
        self.by_shortest && bytes <= LINE
    }
}

/// Offset in a segment of one of the lines of a team's slot.
#[inline]
fn line_at(slot: usize, line: usize, turn: usize) -> u64 {
    Pe::lines(slot) + ((line * TURNS + turn) * size_of::<StepLine>()) as u64
}

/// A step of a team.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(super) number: u64,
    pub(super) turn: usize,
    pub(super) meeting: bool,
}

impl Step {
    #[inline(always)]
    pub(super) fn numbered(number: u64, meeting: bool) -> Step {
        Step { number, turn: number as usize % TURNS, meeting }
    }
}

/// The messages of all members in a step.
pub(crate) struct Lines(*const u8);

impl Lines {
    /// Address of a member's message.
    #[inline]
    pub(crate) fn of(&self, rank: usize) -> *const u8 {
        self.0.wrapping_add(rank * TURNS * size_of::<StepLine>())
    }
}

/// The bytes of a message that only says that its sender has come: none.
pub(crate) fn nothing(_rank: usize) -> SymmetricRange {
    SymmetricRange { offset: 0, bytes: 0 }
}

impl Team {
    pub(super) fn meetings(&self) -> u64 {
        self.split_barrier().phase() + self.steps().met.load(Ordering::Relaxed)
    }

    /// Begins the next step. `meeting` says whether it will be one.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed) where members have to meet first.
    #[inline(always)]
    pub(crate) fn step(&self, meeting: bool) -> Quick<Step> {
        if let Some(error) = ending::refusal(self.pe()) {
            return Err(error.into());
        }
        let steps = self.steps();
        let step = Step::numbered(steps.begun.load(Ordering::Relaxed) + 1, meeting);
        let free_at = &steps.free_at[step.turn];
        // I4.
        self.split_barrier().complete_for_collective()?;
        // I2.
        while self.meetings() < free_at.load(Ordering::Relaxed) {
            self.pass_barrier()?;
        }
        steps.begun.store(step.number, Ordering::Relaxed);
        let inside = u64::from(meeting || !steps.lines); // I3
        free_at.store(self.meetings() + inside + 1, Ordering::Relaxed);
        Ok(step)
    }

    /// Notifies members that this one has come, and sends each of them up to [`LINE`] bytes of this
    /// PE's memory. Does not wait, and skips this member.
    pub(crate) fn notify(
        &self,
        step: Step,
        ranks: Range<usize>,
        what: impl Fn(usize) -> SymmetricRange,
    ) -> Quick<()> {
        if !self.steps().lines {
            return if step.meeting { Ok(()) } else { self.pass_barrier() };
        }
        if let (Some(near), None) = (&self.steps().near, self.copies()) {
            self.notify_near(step, near, ranks, what);
            return Ok(());
        }
        let (me, pe) = (self.rank(), self.pe());
        let offset = self.line_at(step, me);
        if let Some((copies, place)) = self.copied(ranks.clone(), &what) {
            if place.bytes > 0 {
                // SAFETY: the place lies in this PE's segment.
                unsafe { copies.write(offset, self.here(place), place.bytes) }?;
            }
            return self.notify_copied(step, copies);
        }
        let others = || ranks.clone().filter(|&rank| rank != me);
        // Nothing here depends on the memory that others write.
        let kept = pe.keep_writes();
        for rank in others() {
            let (place, line) = (what(rank), pe.route(self.members()[rank], offset));
            debug_assert!(place.bytes <= LINE);
            // SAFETY: the place lies in this PE's segment; the line, which has room for `LINE`
            // bytes, in the member's. They do not overlap.
            unsafe {
                line.put_and_notify(
                    pe,
                    self.here(place),
                    place.bytes,
                    line.add(offset_of!(StepLine, number)),
                    step.number,
                )?
            };
        }
        drop(kept);
        if pe.has_near_peers() {
            pe.wake_all(others().map(|rank| self.members()[rank]));
        }
        Ok(())
    }

    /// [`notify`](Self::notify) where all members' memory is mapped here.
    #[inline(always)]
    fn notify_near(
        &self,
        step: Step,
        near: &[NearMember],
        ranks: Range<usize>,
        what: impl Fn(usize) -> SymmetricRange,
    ) {
        let others = || near.iter().filter(|other| ranks.contains(&other.rank));
        for other in others() {
            let (place, line) = (what(other.rank), other.there(step));
            debug_assert!(place.bytes <= LINE);
            let number = line.wrapping_byte_add(offset_of!(StepLine, number)).cast::<u64>();
            // SAFETY: the place lies in this PE's segment; the line, which has room for `LINE`
            // bytes, in the member's. They do not overlap.
            unsafe {
                shm::copy(line.cast(), self.here(place), place.bytes);
                shm::store(number, step.number);
            }
        }
        self.pe().wake_all(others().map(|other| self.members()[other.rank]));
    }

    /// Puts data into `to` of members through a fabric, and notifies each after its put. Begins
    /// with the member after this one: so not all put to one member at once.
    pub(crate) fn push(
        &self,
        step: Step,
        ranks: Range<usize>,
        to: SymmetricRange,
        what: impl Fn(usize) -> *const u8,
    ) -> Quick<()> {
        self.put_to(step, ranks, |_| to, what)
    }

    /// Puts data into a place of each other member through a fabric, and notifies each after its
    /// put.
    pub(crate) fn deal(
        &self,
        step: Step,
        to: impl Fn(usize) -> SymmetricRange,
        what: impl Fn(usize) -> *const u8,
    ) -> Quick<()> {
        self.put_to(step, 0..self.len(), to, what)
    }

    fn put_to(
        &self,
        step: Step,
        ranks: Range<usize>,
        to: impl Fn(usize) -> SymmetricRange,
        what: impl Fn(usize) -> *const u8,
    ) -> Quick<()> {
        let same = |rank| (to(rank), what(rank));
        if let Some((copies, (to, from))) = self.copied(ranks.clone(), same) {
            if to.bytes > 0 {
                // SAFETY: the callers' sources are readable for the place's bytes.
                unsafe { copies.write(to.offset, from, to.bytes) }?;
            }
            return match (self.steps().lines, step.meeting) {
                (true, _) => self.notify_copied(step, copies),
                (false, true) => Ok(()),
                (false, false) => self.pass_barrier(),
            };
        }
        let (me, first) = (self.rank(), self.rank() + 1);
        let order = (0..ranks.len()).map(|next| ranks.start + (first + next) % ranks.len());
        // As in `notify`.
        let kept = self.pe().keep_writes();
        for rank in order.filter(|&rank| rank != me) {
            self.put_and_notify(step, rank, to(rank), what(rank))?;
        }
        drop(kept);
        match self.steps().lines || step.meeting {
            true => Ok(()),
            false => self.pass_barrier(),
        }
    }

    /// Puts data into a member's `to`, then notifies it. Without lines, the barrier that follows
    /// notifies.
    fn put_and_notify(
        &self,
        step: Step,
        rank: usize,
        to: SymmetricRange,
        from: *const u8,
    ) -> Quick<()> {
        if !self.steps().lines {
            // SAFETY: the callers' sources are readable for the place's bytes, and lie elsewhere.
            return Ok(unsafe { self.deliver(rank, to, from) }?);
        }
        // SAFETY: as above; this member has a line in the other's segment.
        unsafe { self.put_and_notify_line(step, (rank, self.rank()), to, from) }
    }

    /// Puts data into a member's `to`, then notifies it by one of its lines.
    ///
    /// # Safety
    /// `from` is readable for the place's bytes and does not overlap with the place. The line is
    /// this member's in this step.
    pub(crate) unsafe fn put_and_notify_line(
        &self,
        step: Step,
        (rank, line): (usize, usize),
        to: SymmetricRange,
        from: *const u8,
    ) -> Quick<()> {
        let pe = self.pe();
        let (place, number) = (self.there(rank, to), self.number_at(step, line, rank));
        // SAFETY: as the caller promises.
        unsafe { place.put_and_notify(pe, from, to.bytes, number, step.number) }?;
        if let Route::Near(_) = number {
            pe.ring(self.members()[rank]);
        }
        Ok(())
    }

    /// The group for writes that the network copies, and what all other members get, if `ranks` are
    /// all members and `what` is the same for all others.
    pub(crate) fn copied<T: PartialEq>(
        &self,
        ranks: Range<usize>,
        what: impl Fn(usize) -> T,
    ) -> Option<(&Copies, T)> {
        let copies = self.copies().filter(|_| ranks == (0..self.len()))?;
        let mut others = ranks.filter(|&rank| rank != self.rank()).map(what);
        let first = others.next()?;
        others.all(|other| other == first).then_some((copies, first))
    }

    /// Notifies all other members by one write that the network copies.
    pub(crate) fn notify_copied(&self, step: Step, copies: &Copies) -> Quick<()> {
        let line = self.line_at(step, self.rank());
        Ok(copies.store(line + offset_of!(StepLine, number) as u64, step.number)?)
    }

    /// Sends each member its data as soon as that member has come: puts them into its `to`, then
    /// notifies it.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    pub(crate) fn serve(
        &self,
        step: Step,
        to: SymmetricRange,
        what: impl Fn(usize) -> SymmetricRange,
    ) -> Quick<()> {
        let mut missing: Vec<usize> = (0..self.len()).filter(|&rank| rank != self.rank()).collect();
        if !self.steps().lines {
            self.pass_barrier()?;
            return self.push(step, 0..self.len(), to, |rank| self.here(what(rank)));
        }
        while !missing.is_empty() {
            let come = |&rank: &usize| self.has_come(step, rank);
            let done = |pe: usize| rank_of(self.members(), pe).is_none_or(|rank| come(&rank));
            let next = self.wait_in_step(&done, || missing.iter().position(come))?;
            let rank = missing.remove(next);
            self.put_and_notify(step, rank, to, self.here(what(rank)))?;
        }
        Ok(())
    }

    /// Offset in a segment of one of the lines by which members notify the segment's owner: that of
    /// a rank, unless the step numbers the lines otherwise.
    #[inline]
    fn line_at(&self, step: Step, line: usize) -> u64 {
        line_at(self.slot(), line, step.turn)
    }

    /// The number in a line of a member.
    fn number_at(&self, step: Step, line: usize, receiver: usize) -> Route {
        let number = self.line_at(step, line) + offset_of!(StepLine, number) as u64;
        self.pe().route(self.members()[receiver], number)
    }

    /// Address of a member's message to this one.
    pub(crate) fn line(&self, step: Step, rank: usize) -> *const u8 {
        self.pe().local(self.line_at(step, rank))
    }

    /// The messages of all members to this one.
    pub(crate) fn lines(&self, step: Step) -> Lines {
        Lines(self.line(step, 0))
    }

    /// Whether a member's message has come; true for this member itself.
    #[inline]
    fn has_come(&self, step: Step, rank: usize) -> bool {
        rank == self.rank() || self.is_notified(step, rank)
    }

    /// Whether the message of a line has come.
    #[inline]
    pub(super) fn is_notified(&self, step: Step, line: usize) -> bool {
        let number = self.line(step, line).wrapping_add(offset_of!(StepLine, number));
        // SAFETY: an aligned word of a line in this PE's segment.
        unsafe { shm::load(number.cast::<u64>()) == step.number }
    }

    /// Waits for the messages of lines, in a step that goes by nodes.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from). A member counts as gone unless it had done its part
    /// of the step, as what it owed may reach this one through others.
    pub(crate) fn await_lines(&self, step: Step, lines: Range<usize>) -> Quick<()> {
        let mut next = lines.start;
        self.wait_in_step(&|pe| self.has_relayed(step, pe), || {
            while next < lines.end && self.is_notified(step, next) {
                next += 1;
            }
            (next == lines.end).then_some(())
        })
    }

    /// Publishes that this member has done its part of a step that goes by nodes, in case it leaves
    /// the job now.
    pub(crate) fn publish_relayed(&self, step: Step) {
        // SAFETY: an aligned word of this PE's own slot.
        unsafe { shm::store(self.pe().local(self.relayed_at()).cast::<u64>(), step.number) };
    }

    /// Whether a member has done its part of a step that goes by nodes.
    pub(crate) fn has_relayed(&self, step: Step, pe: usize) -> bool {
        let last = self.pe().route(pe, self.relayed_at()).load::<u64>(self.pe());
        last.is_ok_and(|last| last >= step.number)
    }

    fn relayed_at(&self) -> u64 {
        Pe::barrier_slot(self.slot()) + offset_of!(BarrierSlot, relayed) as u64
    }

    /// Counts a step that goes by nodes as a meeting.
    pub(crate) fn count_meeting(&self) {
        let met = &self.steps().met;
        met.store(met.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Waits for the messages of members.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed) when a member is gone, and not all messages have come;
    /// [`Misuse`](Error::Misuse) when another thread waits in a step.
    #[inline]
    pub(crate) fn await_from(&self, step: Step, ranks: Range<usize>) -> Quick<()> {
        if !self.steps().lines {
            return self.pass_barrier();
        }
        let done = |pe: usize| {
            let rank = rank_of(self.members(), pe).filter(|rank| ranks.contains(rank));
            rank.is_none_or(|rank| self.has_come(step, rank))
        };
        let words = || {
            let others = ranks.clone().filter(|&rank| rank != self.rank());
            others.map(|rank| self.step_of_line(step, rank)).collect()
        };
        let mut next = ranks.start;
        self.wait_for_words(&done, words, || {
            while next < ranks.end && self.has_come(step, next) {
                next += 1;
            }
            (next == ranks.end).then_some(())
        })
    }

    /// The wait for the message of a line as a step of an errand.
    fn step_of_line(&self, step: Step, line: usize) -> errand::Step {
        let offset = self.line_at(step, line) + offset_of!(StepLine, number) as u64;
        errand::Step::Await { offset, test: errand::Test::Equal(step.number) }
    }

    /// Waits in a step until `look` gives something. PEs that are `done` may leave the job: nothing
    /// of theirs is missing.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    #[inline]
    pub(crate) fn wait_in_step<R>(
        &self,
        done: &dyn Fn(usize) -> bool,
        look: impl FnMut() -> Option<R>,
    ) -> Quick<R> {
        self.wait_by(done, |terms| wait::until(self.pe(), terms, look))
    }

    /// [`wait_in_step`](Self::wait_in_step) for a look that gives something once words pass tests,
    /// one after the other.
    #[inline]
    fn wait_for_words<R>(
        &self,
        done: &dyn Fn(usize) -> bool,
        words: impl FnOnce() -> Vec<errand::Step>,
        look: impl FnMut() -> Option<R>,
    ) -> Quick<R> {
        self.wait_by(done, |terms| wait::errand::until_passed(self.pe(), terms, words, look))
    }

    #[inline]
    fn wait_by<R>(
        &self,
        done: &dyn Fn(usize) -> bool,
        wait: impl FnOnce(Terms<'_>) -> Quick<R>,
    ) -> Quick<R> {
        let (members, meeting) = (self.members(), self.meeting());
        let terms = Terms::forever(Awaiting::Step { members, done, meeting });
        let waiting = &self.steps().waiting;
        // As in barriers, this may miss two threads that come within nanoseconds of each other, and
        // costs nothing.
        if waiting.load(Ordering::Relaxed) {
            return Err(Error::misuse(
                "two threads of one PE are in collectives of the same team at once; give each its own, or let one thread do it",
            ).into());
        }
        waiting.store(true, Ordering::Relaxed);
        let waited = wait(terms);
        waiting.store(false, Ordering::Relaxed);
        if let Err(error) = &waited {
            self.split_barrier().keep_slot();
            self.split_barrier().end_if_interrupted(error);
        }
        waited
    }

    /// Waits for the messages of all members, in a step that is a meeting.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    #[inline]
    pub(crate) fn meet(&self, step: Step) -> Quick<()> {
        self.await_from(step, 0..self.len())?;
        // A barrier counts itself.
        let Steps { lines, met, .. } = self.steps();
        met.store(met.load(Ordering::Relaxed) + u64::from(*lines), Ordering::Relaxed);
        Ok(())
    }

    /// Checks that data read in others' memory are the data that these members gave. A member keeps
    /// its memory until all have read it, but gives up when a member is gone, and may then write
    /// there. So this is called after this member has read, or after others have put here what they
    /// made of data that they read. `done` says of members that have left in order whether they had
    /// read before.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed).
    pub(crate) fn check_given(&self, done: &dyn Fn(usize) -> bool) -> Quick<()> {
        shm::compiler_fence();
        let (members, meeting) = (self.members(), self.meeting());
        let terms = Terms::forever(Awaiting::Step { members, done, meeting });
        terms.lost_member(self.pe()).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Whether a member, as a PE of the job, has notified the member with rank `receiver` in a
    /// step; false where there are no lines.
    pub(crate) fn has_notified(&self, step: Step, receiver: usize, pe: usize) -> bool {
        let Some(rank) = rank_of(self.members(), pe).filter(|_| self.steps().lines) else {
            return false;
        };
        let number = self.number_at(step, rank, receiver).load::<u64>(self.pe());
        number.is_ok_and(|number| number == step.number)
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

    /// A meeting before which each member has published data: `publish` writes them into the
    /// member's eager buffer.
    pub(crate) fn publish(
        &self,
        publish: impl FnOnce(SymmetricRange) -> Quick<()>,
    ) -> Quick<SymmetricRange> {
        let step = self.step(true)?;
        let eager_buffer = self.eager_buffer(step);
        publish(eager_buffer)?;
        self.notify(step, 0..self.len(), nothing)?;
        self.meet(step)?;
        Ok(eager_buffer)
    }

    /// A meeting in which each member puts `bytes` bytes into the eager buffer of each. Gives the
    /// part of this member's eager buffer with the bytes of all members, its own included, in the
    /// order of ranks.
    pub(crate) fn swap(
        &self,
        bytes: usize,
        what: impl Fn(usize) -> *const u8,
    ) -> Quick<SymmetricRange> {
        let step = self.step(true)?;
        self.swap_in(step, self.eager_buffer(step).part(0, self.len() * bytes), what)
    }

    /// [`swap`](Self::swap) by another room than eager buffers, with an equal part for each member.
    /// All members may already write there.
    pub(crate) fn swap_in(
        &self,
        step: Step,
        room: SymmetricRange,
        what: impl Fn(usize) -> *const u8,
    ) -> Quick<SymmetricRange> {
        let (me, bytes) = (self.rank(), room.bytes / self.len());
        let mine = room.part(me * bytes, bytes);
        // SAFETY: the room lies in this PE's segment; the callers' sources are readable, and lie
        // elsewhere.
        unsafe { shm::copy(self.here(mine), what(me), bytes) };
        self.push(step, 0..self.len(), mine, what)?;
        self.meet(step)?;
        Ok(room)
    }
}
