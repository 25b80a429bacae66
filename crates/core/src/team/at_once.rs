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
use crate::base::layout::{StepLine, TURNS};
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
        // The lines of the next turn rest: the others' last looks there are long past. So they are
        // here when the next step stores to them.
        let next = Step { turn: (step.turn + 1) % TURNS, ..step };
        near.iter().for_each(|other| shm::prefetch_to_write(other.there(next).cast()));
        self.count(call);
        if !wait::look_later(|| near.iter().all(|other| other.has_come(step)))
            && let Err(error) = self.await_after_all(call, step, 0, self.len())
        {
            return Some(Err(error));
        }
        self.count_meeting();
        Some(Ok(self.lines(step)))
    }

    /// Sends all other members a line with these bytes, in a step in which this one awaits nothing.
    /// False: more has to be done than that, and nothing was.
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
        self.count(call);
        true
    }

    /// Awaits a line with so many bytes of another member, in a step in which this one sends
    /// nothing. `None`: more has to be done than that, and nothing was.
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
        let (step, _) = self.step_at_once(call, bytes, false)?;
        self.count(call);
        if !wait::look_awake(|| self.is_notified(step, rank))
            && let Err(error) = self.await_after_all(call, step, rank, rank + 1)
        {
            return Some(Err(error));
        }
        Some(Ok(self.lines(step)))
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
        let number = begun.load(Ordering::Relaxed) + 1;
        let (turn, meetings) = (number as usize % TURNS, self.meetings());
        if meetings < free_at[turn].load(Ordering::Relaxed)
            || !shm::is_single_threaded()
            || call.is_some() && calls::is_of_team()
            || ending::refusal(self.pe()).is_some()
            || !self.split_barrier().is_at_rest()
        {
            return None;
        }
        self.pe().wake_written();
        begun.store(number, Ordering::Relaxed);
        free_at[turn].store(meetings + u64::from(meeting) + 1, Ordering::Relaxed);
        Some((Step { number, turn, meeting }, near))
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
        let wait = || self.await_from(step, first..end);
        match call {
            Some(call) => Ok(self.collective_after_all(call.name, call.at, wait)?),
            None => wait(),
        }
    }
}
