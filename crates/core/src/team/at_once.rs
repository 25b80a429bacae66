//! Steps in calls in which nothing else has to be done.
//!
//! The counterpart of [passing a barrier at once](crate::sync::barrier::AtOnce), and for the same
//! reason. All members are near, each with a CPU of its own; nobody records; the process has one
//! thread. Then a step is a line to each other member, and the looks for theirs. A call that finds
//! nothing soon becomes a general one, which goes on with the same step.
//!
//! A call of the program is noted and counted once its lines are sent, and must be no part of
//! another call of a team. Or it is given as none: a part of a call that is counted already.
//!
//! What these functions give fits two registers.

use super::Team;
use super::steps::{Lines, NearMember, Step, Steps};
use crate::base::error::Quick;
use crate::base::layout::{EAGER_BYTES, StepLine, TURNS};
use crate::base::shm;
use crate::endpoint::{calls, ending};
use crate::wait;
use std::mem::offset_of;
use std::panic::Location;
use std::sync::atomic::Ordering;

/// A call of the program, which has not been noted yet.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) at: &'static Location<'static>,
}

impl Team {
    /// Sends all other members a line with these bytes, and awaits theirs. `None`: more has to be
    /// done than that, and nothing was. Without `call`, this is a part of one that is counted.
    ///
    /// # Errors
    /// As for [`meet`](Self::meet).
    ///
    /// # Safety
    /// `from` is readable for `bytes`, and outside of all lines.
    #[inline(never)]
    pub(crate) unsafe fn meet_at_once(
        &self,
        call: Option<&Named>,
        from: *const u8,
        bytes: usize,
    ) -> Option<Quick<Lines>> {
        let (step, near) = self.step_at_once(call, bytes, true)?;
        // SAFETY: as the caller promises; so many bytes go by lines.
        unsafe { self.send_lines(step, near, from, bytes) };
        prepare_next(step, near);
        self.count(call);
        if !wait::look_later(|| near.iter().all(|other| other.has_come(step)))
            && let Err(error) = self.await_after_all(call, step, 0, self.len())
        {
            return Some(Err(error));
        }
        self.count_meeting();
        Some(Ok(self.lines(step)))
    }

    /// Sends all other members a line with these bytes, in a step in which this one awaits nothing,
    /// or [answers](Self::await_answers). False: more has to be done than that, and nothing was.
    ///
    /// # Safety
    /// As for [`meet_at_once`](Self::meet_at_once).
    #[inline(never)]
    pub(crate) unsafe fn send_at_once(
        &self,
        call: Option<&Named>,
        from: *const u8,
        bytes: usize,
    ) -> bool {
        let Some((step, near)) = self.step_at_once(call, bytes, false) else { return false };
        // SAFETY: as the caller promises; so many bytes go by lines.
        unsafe { self.send_lines(step, near, from, bytes) };
        prepare_next(step, near);
        self.count(call);
        true
    }

    /// Copies so many bytes into this PE's eager buffer, and sends all other members a line without
    /// any, in a step in which this one awaits nothing. False: more has to be done than that, and
    /// nothing was.
    ///
    /// # Safety
    /// `from` is readable for `bytes`, at most [`EAGER_BYTES`], and outside of the buffer.
    #[inline(never)]
    pub(crate) unsafe fn publish_at_once(
        &self,
        call: Option<&Named>,
        from: *const u8,
        bytes: usize,
    ) -> bool {
        debug_assert!(bytes <= EAGER_BYTES);
        let Some((step, near)) = self.step_at_once(call, 0, false) else { return false };
        // SAFETY: the buffer lies in this PE's segment; the caller promises the source.
        unsafe {
            shm::copy(self.here(self.eager_buffer(step)), from, bytes);
            self.send_lines(step, near, from, 0);
        }
        prepare_next(step, near);
        self.count(call);
        true
    }

    /// Awaits a line with so many bytes of another member, in a step in which this one sends
    /// nothing, or an [answer](Self::answer_at_once). `None`: more has to be done than that, and
    /// nothing was.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    #[inline(never)]
    pub(crate) fn hear_at_once(
        &self,
        call: Option<&Named>,
        rank: usize,
        bytes: usize,
    ) -> Option<Quick<Lines>> {
        let (step, near) = self.step_at_once(call, bytes, false)?;
        if bytes == 0 {
            // The line of an answer, if one follows.
            only(near, rank)
                .iter()
                .for_each(|other| shm::prefetch_to_write(other.there(step).cast()));
        }
        self.count(call);
        if !wait::look_awake(|| self.is_notified(step, rank))
            && let Err(error) = self.await_after_all(call, step, rank, rank + 1)
        {
            return Some(Err(error));
        }
        Some(Ok(self.lines(step)))
    }

    /// The step in which a line of this member was heard.
    #[inline(always)]
    pub(crate) fn step_heard(&self, lines: &Lines, rank: usize) -> Step {
        let number = lines.of(rank).wrapping_add(offset_of!(StepLine, number)).cast::<u64>();
        // SAFETY: an aligned word of a line in this PE's segment.
        Step::numbered(unsafe { shm::load(number) }, false)
    }

    /// After [`hear_at_once`](Self::hear_at_once) without bytes: says, in the same step, that this
    /// member has read the sender's memory.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) where a member was gone when it had.
    pub(crate) fn answer_at_once(
        &self,
        call: Option<&Named>,
        step: Step,
        rank: usize,
    ) -> Quick<()> {
        let given = self.check_given(&|pe| self.has_notified(step, rank, pe));
        let others = self.steps().near.as_deref().unwrap_or_default();
        // SAFETY: no bytes are copied.
        unsafe { self.send_lines(step, only(others, rank), NOTHING.as_ptr(), 0) };
        given.or_else(|error| self.after_all(call, || Err(error)))
    }

    /// After [`send_at_once`](Self::send_at_once) without bytes: awaits the others' answers.
    ///
    /// # Errors
    /// As for [`await_from`](Self::await_from).
    pub(crate) fn await_answers(&self, call: Option<&Named>) -> Quick<()> {
        let Steps { begun, near, .. } = self.steps();
        // Since this step was begun, the caller has only copied.
        let step = Step::numbered(begun.load(Ordering::Relaxed), false);
        let others = near.as_deref().unwrap_or_default();
        match wait::look_later(|| others.iter().all(|other| other.has_come(step))) {
            true => Ok(()),
            false => self.await_after_all(call, step, 0, self.len()),
        }
    }

    /// Begins the next step, as [`step`](Self::step) does, if nothing else has to be done.
    #[inline(always)]
    fn step_at_once(
        &self,
        call: Option<&Named>,
        bytes: usize,
        meeting: bool,
    ) -> Option<(Step, &[NearMember])> {
        let Steps { at_once, near, begun, free_at, .. } = self.steps();
        let near = near.as_deref().filter(|_| *at_once && self.goes_by_lines(bytes))?;
        let step = Step::numbered(begun.load(Ordering::Relaxed) + 1, meeting);
        let (free_at, meetings) = (&free_at[step.turn], self.meetings());
        if meetings < free_at.load(Ordering::Relaxed)
            || !shm::is_single_threaded()
            || call.is_some() && calls::is_of_team()
            || ending::refusal(self.pe()).is_some()
            || !self.split_barrier().is_at_rest()
        {
            return None;
        }
        self.pe().wake_written();
        begun.store(step.number, Ordering::Relaxed);
        free_at.store(meetings + u64::from(meeting) + 1, Ordering::Relaxed);
        Some((step, near))
    }

    /// # Safety
    /// As for [`meet_at_once`](Self::meet_at_once); so many bytes go by lines.
    #[inline(always)]
    unsafe fn send_lines(&self, step: Step, near: &[NearMember], from: *const u8, bytes: usize) {
        for other in near {
            let line = other.there(step);
            let number = line.wrapping_byte_add(offset_of!(StepLine, number)).cast::<u64>();
            // SAFETY: the caller promises the source; the line lies in the member's segment.
            unsafe {
                shm::copy(line.cast(), from, bytes);
                shm::store(number, step.number);
            }
        }
        self.pe().order_rings();
        near.iter().for_each(NearMember::wake);
    }

    #[inline(always)]
    fn count(&self, call: Option<&Named>) {
        if let Some(call) = call {
            self.count_passed(call.name, call.at);
        }
    }

    /// The lines of the ranks from `first` to `end` do not come soon.
    #[cold]
    #[inline(never)]
    fn await_after_all(
        &self,
        call: Option<&Named>,
        step: Step,
        first: usize,
        end: usize,
    ) -> Quick<()> {
        self.after_all(call, || self.await_from(step, first..end))
    }

    /// What is left of a call that was counted, or is a part of one.
    fn after_all(&self, call: Option<&Named>, rest: impl FnOnce() -> Quick<()>) -> Quick<()> {
        match call {
            Some(call) => Ok(self.collective_after_all(call.name, call.at, rest)?),
            None => rest(),
        }
    }
}

/// Fetches the lines that the next step stores to. They rest, but where a member is some steps
/// behind: the others' last looks there are long past.
#[inline(always)]
fn prepare_next(step: Step, near: &[NearMember]) {
    let next = Step { turn: (step.turn + 1) % TURNS, ..step };
    near.iter().for_each(|other| shm::prefetch_to_write(other.there(next).cast()));
}

/// The bytes of a line without any.
const NOTHING: [u8; 0] = [];

/// The member with this rank alone.
#[inline(always)]
fn only(others: &[NearMember], rank: usize) -> &[NearMember] {
    others.iter().position(|other| other.rank == rank).map_or(&[], |at| &others[at..=at])
}
