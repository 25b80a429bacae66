//! Data in memory that all PEs have mapped, behind a queue.

use crate::base::error::{Cause, Error, Result};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::wait::limit::Patience;
use crate::wait::{self, Awaiting, Terms};

use crate::endpoint::recorder::objects::Counters;
use crate::sync::tickets::{Mode, Tickets};

/// What the holder's word has of a PE.
#[inline(always)]
fn mark(pe: &Pe) -> u32 {
    (pe.me() as u32 + 1) << 1
}

/// The data and their lock.
pub(super) struct NearData {
    pub(super) tickets: Tickets,
    pub(super) data: *mut u8,
    pub(super) bytes: usize,
    /// Holds the last released version while a guard may change the data.
    pub(super) shadow: Option<*mut u8>,
}

impl NearData {
    /// Enters; `None` if that needs waiting, and there is no patience.
    #[inline(always)]
    pub(super) fn enter(
        &self,
        pe: &Pe,
        counters: &Counters,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<Option<u32>> {
        let ticket = match patience {
            Patience::Forever => self.tickets.enter(pe, mode)?,
            Patience::Try => match self.tickets.try_enter(pe, mode)? {
                Some(ticket) => ticket,
                None => return Ok(None),
            },
            Patience::Within(limit) => self.tickets.enter_within(pe, mode, limit)?,
        };
        if self.tickets.poison() != 0 {
            return self.poisoned(pe, ticket, mode);
        }
        self.begin(pe, counters);
        if mode == Mode::Exclusive {
            if let Some(shadow) = self.shadow {
                // SAFETY: data and shadow do not overlap and have one length; this thread is in
                // alone.
                unsafe { shm::copy(shadow, self.data, self.bytes) };
            }
            self.tickets.set_holder(mark(pe) | 1);
        }
        Ok(Some(ticket))
    }

    /// Enters alone, if that is one instruction.
    #[inline(always)]
    pub(super) fn enter_at_once(&self, pe: &Pe, counters: &Counters) -> Option<u32> {
        // A shadow takes a copy, so it is no matter of one instruction.
        if self.shadow.is_some() {
            return None;
        }
        let ticket = self.tickets.enter_again(Mode::Exclusive)?;
        if self.tickets.poison() != 0 {
            self.tickets.leave(pe, ticket, Mode::Exclusive);
            return None;
        }
        self.begin(pe, counters);
        self.tickets.set_holder(mark(pe) | 1);
        Some(ticket)
    }

    /// Counts a use.
    #[inline(always)]
    fn begin(&self, pe: &Pe, counters: &Counters) {
        counters.used();
        if self.tickets.holder() != mark(pe) {
            counters.handed_over();
        }
    }

    #[cold]
    fn poisoned<R>(&self, pe: &Pe, ticket: u32, mode: Mode) -> Result<R> {
        let number = self.tickets.poison();
        self.tickets.leave(pe, ticket, mode);
        Err(super::panicked(number))
    }

    #[inline(always)]
    pub(super) fn leave(&self, pe: &Pe, ticket: u32, mode: Mode) {
        if mode == Mode::Exclusive {
            self.tickets.set_holder(mark(pe));
        }
        self.tickets.leave(pe, ticket, mode);
    }

    /// Ends the guard of a writer that panics.
    #[cold]
    pub(super) fn leave_broken(&self, pe: &Pe, ticket: u32) {
        match self.shadow {
            Some(shadow) => {
                // SAFETY: as in `enter`: the writer is in alone until it leaves.
                unsafe { shm::copy(self.data, shadow, self.bytes) };
                self.leave(pe, ticket, Mode::Exclusive);
            }
            None => {
                self.tickets.set_poison(pe.me() as u32 + 1);
                self.tickets.leave(pe, ticket, Mode::Exclusive);
            }
        }
    }

    /// Copies the data into `to`, which is as long, after a death or a panic: the last released
    /// version, or with `torn` one that may be half changed.
    pub(super) fn rescue(&self, pe: &Pe, to: &mut [u8], torn: bool) -> Result<()> {
        let copy = |from: *const u8, to: &mut [u8]| {
            // SAFETY: `from` is the data or their shadow, of one length with `to`, which is
            // private.
            unsafe { shm::copy(to.as_mut_ptr(), from, to.len()) }
        };
        let tickets = self.tickets;
        loop {
            let (turns, holder) = (tickets.turns(), tickets.holder());
            if holder & 1 == 0 {
                copy(self.data, to);
                // If both words are unchanged, no writer has entered meanwhile.
                if (tickets.turns(), tickets.holder()) == (turns, holder) {
                    return Ok(());
                }
                continue;
            }
            let who = (holder >> 1) as usize - 1;
            let departed = pe.control().state(who).departed();
            if departed.is_some() || tickets.poison() != 0 {
                // After a death or a panic no further thread enters.
                match self.shadow {
                    Some(shadow) => copy(shadow, to),
                    None if torn => copy(self.data, to),
                    None => {
                        let cause = departed.unwrap_or(Cause::Panic);
                        return Err(pe.failed(who, cause));
                    }
                }
                return Ok(());
            }
            if who == pe.me() {
                return Err(super::held_here());
            }
            let (members, changed) = ([who], || (tickets.holder() != holder).then_some(()));
            let terms = Terms::forever(Awaiting::WordOf(&members, None));
            match wait::until(pe, terms, changed).map_err(|error| *error) {
                // The loop looks at the holder again.
                Ok(()) | Err(Error::PeerFailed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
