//! Data in memory that all PEs have mapped, behind a queue.

use crate::base::error::{Cause, Error, Result};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::wait::limit::Patience;
use crate::wait::{self, Awaiting, Terms};

use crate::endpoint::recorder::objects::Counters;
use crate::sync::tickets::{Mode, Tickets, holder, is_open};

/// The data and their lock.
pub(super) struct NearData {
    pub(super) tickets: Tickets,
    pub(super) data: *mut u8,
    pub(super) bytes: usize,
    /// Has the last released version while a guard may change the data.
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
        counters.used();
        if !self.tickets.was_last(pe) {
            counters.handed_over();
            if mode == Mode::Exclusive {
                self.tickets.set_last(pe, false);
            }
        }
        if let (Mode::Exclusive, Some(shadow)) = (mode, self.shadow) {
            // SAFETY: data and shadow do not overlap and have one length; this thread is in alone.
            unsafe { shm::copy(shadow, self.data, self.bytes) };
            self.tickets.set_last(pe, true);
        }
        Ok(Some(ticket))
    }

    /// The queue, where nothing else is to be done to change the data.
    pub(super) fn without_shadow(&self) -> Option<Tickets> {
        self.shadow.is_none().then_some(self.tickets)
    }

    #[cold]
    fn poisoned<R>(&self, pe: &Pe, ticket: u32, mode: Mode) -> Result<R> {
        match mode {
            Mode::Exclusive => self.tickets.leave_broken(pe, ticket),
            Mode::Shared => self.tickets.leave(pe, ticket, mode),
        }
        Err(super::panicked(self.tickets.poison()))
    }

    #[inline(always)]
    pub(super) fn leave(&self, pe: &Pe, ticket: u32, mode: Mode) {
        if mode == Mode::Exclusive && self.shadow.is_some() {
            self.tickets.set_last(pe, false);
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
            None => self.tickets.leave_broken(pe, ticket),
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
            // As any reader, if the queue still moves.
            if let Ok(Some(ticket)) = tickets.try_enter(pe, Mode::Shared) {
                copy(self.data, to);
                let broken = tickets.poison();
                tickets.leave(pe, ticket, Mode::Shared);
                if broken == 0 {
                    return Ok(());
                }
            }
            let (seen, broken) = (tickets.turns(), tickets.poison() as usize);
            let who = match (broken, holder(seen)) {
                (0, None) if is_open(seen) => {
                    tickets.close(pe);
                    continue;
                }
                // Until the turn changes, nobody comes in alone: all wait behind one that died.
                (0, None) => {
                    copy(self.data, to);
                    if tickets.turns() == seen {
                        return Ok(());
                    }
                    wait::give_way(pe);
                    continue;
                }
                (0, Some(who)) => who,
                (number, _) => number - 1,
            };
            let departed = pe.control().state(who).departed();
            if departed.is_some() || broken != 0 {
                let from = match self.shadow {
                    Some(shadow) if tickets.is_kept() => Some(shadow),
                    None if !torn => None,
                    _ => Some(self.data),
                };
                if let Some(from) = from {
                    copy(from, to);
                }
                // It may have left before it departed. Who departed while it was in changes no data
                // any more, nor does anybody change broken ones.
                if broken == 0 && tickets.turns() != seen {
                    continue;
                }
                let cause = departed.unwrap_or(Cause::Panic);
                return from.map(|_| ()).ok_or_else(|| pe.failed(who, cause));
            }
            if who == pe.me() {
                return Err(super::held_here());
            }
            let members = [who];
            let changed = || (holder(tickets.turns()) != Some(who)).then_some(());
            let terms = Terms::forever(Awaiting::WordOf(&members, None));
            match wait::until(pe, terms, changed).map_err(|error| *error) {
                // The loop looks at the holder again.
                Ok(()) => {}
                Err(Error::PeerFailed { pe, .. }) if pe == who => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::status::State;
    use crate::job::Job;

    const BYTES: usize = 64;
    const SHADOW: usize = 1024;
    const TAIL: usize = 2048;

    /// What PE 0 finds as the released data after PE 1 has done this, and died. `meanwhile`: what
    /// PE 0 has until then.
    fn released_after(
        meanwhile: impl Fn(&Pe, &NearData) -> Option<u32> + Sync,
        dying: impl Fn(&Pe, &NearData) + Sync,
    ) -> Vec<u8> {
        let found = Job::threads(2, |job| {
            let window = job.window::<u64>(1024).unwrap();
            let part = window.near_ptr(0, 0).unwrap().cast::<u8>();
            // SAFETY: the window has room for all, is new, and outlives the data.
            let tickets = unsafe { Tickets::new(part, part.wrapping_add(TAIL), &job.pe) };
            let (data, shadow) = (part.wrapping_add(128), Some(part.wrapping_add(SHADOW)));
            let near = NearData { tickets, data, bytes: BYTES, shadow };
            let mut ticket = None;
            if job.pe() == 0 {
                window.write_from(128 / 8, &[1; BYTES / 8]);
                ticket = meanwhile(&job.pe, &near);
            }
            job.barrier().unwrap();
            if job.pe() == 1 {
                dying(&job.pe, &near);
                job.pe.control().depart(1, State::Dead(Cause::Signal(9)));
                return Vec::new();
            }
            while job.pe.control().state(1).departed().is_none() {
                std::thread::yield_now();
            }
            ticket.into_iter().for_each(|ticket| near.leave(&job.pe, ticket, Mode::Exclusive));
            let mut found = vec![0; BYTES];
            near.rescue(&job.pe, &mut found, false).unwrap();
            found
        });
        found.unwrap().swap_remove(0)
    }

    fn fill(data: *mut u8, value: u8) {
        // SAFETY: the window has so many bytes there; its PE is in alone.
        unsafe { shm::copy(data, [value; BYTES].as_ptr(), BYTES) };
    }

    fn nothing(_: &Pe, _: &NearData) -> Option<u32> {
        None
    }

    fn words(value: u64) -> Vec<u8> {
        value.to_ne_bytes().repeat(BYTES / 8)
    }

    fn enter(pe: &Pe, near: &NearData) -> u32 {
        let ticket = near.enter(pe, &Counters::own(), Mode::Exclusive, Patience::Forever).unwrap();
        ticket.expect("it waits for ever")
    }

    /// The copy in the shadow is not whole yet, but nothing is changed.
    #[test]
    fn a_death_before_the_shadow_is_whole() {
        let found = released_after(nothing, |pe, near| {
            near.tickets.enter(pe, Mode::Exclusive).unwrap();
            fill(near.shadow.unwrap(), 99);
        });
        assert_eq!(found, words(1));
    }

    /// The one behind an open ticket has died, so nobody closes that.
    #[test]
    fn a_death_while_it_waits() {
        let enter_and_fill = |pe: &Pe, near: &NearData| {
            let ticket = enter(pe, near);
            fill(near.data, 97);
            Some(ticket)
        };
        let found = released_after(enter_and_fill, |_, near| {
            near.tickets.draw().unwrap();
        });
        assert_eq!(found, [97; BYTES]);
    }

    #[test]
    fn a_death_while_data_are_changed() {
        let found = released_after(nothing, |pe, near| {
            enter(pe, near);
            fill(near.data, 99);
        });
        assert_eq!(found, words(1));
    }

    #[test]
    fn a_death_after_data_were_changed() {
        let found = released_after(nothing, |pe, near| {
            for value in [98, 99] {
                let ticket = enter(pe, near);
                fill(near.data, value);
                near.leave(pe, ticket, Mode::Exclusive);
            }
        });
        assert_eq!(found, [99; BYTES]);
    }
}
