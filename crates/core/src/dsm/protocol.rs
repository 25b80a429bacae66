//! The ways to a lock's data. Near, the data lie in the memory of their home. Far, they lie with
//! the PE that had them last, or at a home with copies for readers.

use super::data::{CacheLine, LINE};
use super::homed::{self, Homed};
use super::migratory::Migratory;
use super::near::NearData;
use super::rwlock::LockOptions;
use crate::base::error::{Error, Quick, Result};
use crate::base::log::log;
use crate::base::shm;
use crate::endpoint::check::Holders;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::objects::{Counters, ObjectKind};
use crate::endpoint::route::Route;
use crate::job::Job;
use crate::sync::tickets::{self, Mode, Tickets};
use crate::wait::limit::Patience;
use crate::window::Window;

pub(super) enum Protocol {
    Near(NearData),
    Migratory(Migratory),
    Homed(Homed),
    /// One of the others, checked for a thread that locks twice.
    Checked(Box<Checked>),
}

impl Protocol {
    /// Makes a lock whose data begin as `initial`: so many `bytes`, aligned to `align`. Gives the
    /// address to which its guards refer, too. *Collective.*
    ///
    /// # Safety
    /// `initial` is private memory of `bytes`.
    pub(super) unsafe fn make(
        job: &Job,
        initial: *const u8,
        bytes: usize,
        align: usize,
        options: LockOptions,
        kind: ObjectKind,
    ) -> Result<(Protocol, *mut u8, Window<CacheLine>)> {
        let (pe, shadow) = (job.pe.clone(), options.shadow);
        // Small data share the lock's cache line: one miss brings both.
        let data_at = tickets::HEAD.next_multiple_of(align);
        let shadow_at = (data_at + bytes).next_multiple_of(LINE);
        let tail_at =
            if shadow { shadow_at + bytes } else { data_at + bytes }.next_multiple_of(LINE);
        // A PE that keeps migratory data sends nothing, so its death may take the last release with
        // it. That is what a shadow excludes.
        let moves = kind == ObjectKind::Mutex && !shadow;
        let near = pe.record().is_one_node();
        let how = match (near, moves) {
            (true, _) => "in one place, as all PEs share memory",
            (false, true) => "travel with the lock, from holder to holder",
            (false, false) => "at a home, as readers share them or a holder may die",
        };
        log!(Debug, pe.me(), "{bytes} bytes of a {}: {how}", kind.name());
        let size = match (!near, moves) {
            (true, true) => Migratory::size(bytes, pe.npes()),
            (true, false) => Homed::size(bytes, pe.npes()),
            (false, _) => tail_at + tickets::tail_for(pe.npes()),
        };
        let start = |offset: u64| {
            let home = super::home_of(offset, pe.npes());
            if let (true, Route::Near(part)) = (near && home == pe.me(), pe.route(home, offset)) {
                // SAFETY: the new window has room for the data there, and no PE uses it before all
                // PEs have left the call; the caller promises the source.
                unsafe { shm::copy(part.wrapping_add(data_at), initial, bytes) };
            }
        };
        let terms = [bytes, align, usize::from(shadow)];
        let window = super::window(job, kind, size, &terms, options.element, start)?;
        let offset = window.inner.heap_offset().expect("it is a window of the heap");
        let home = super::home_of(offset, pe.npes());
        let part = match pe.route(home, offset) {
            Route::Near(part) if near => Some(part),
            _ => None,
        };
        let Some(part) = part else {
            if moves {
                // SAFETY: the window has that size, is new, and outlives the lock.
                let migratory = unsafe { Migratory::new(pe, offset, bytes) };
                // SAFETY: no PE uses the lock before the barrier; the caller promises the source.
                unsafe { migratory.start(initial) }?;
                job.world().inner_barrier()?;
                let data = migratory.data();
                return Ok((Protocol::Migratory(migratory), data, window));
            }
            let homed = Homed::new(pe, offset, bytes);
            homed.start(initial, || job.world().inner_barrier())?;
            let data = homed.local(homed::COPY);
            return Ok((Protocol::Homed(homed), data, window));
        };
        // SAFETY: the window has room for both at these aligned places, is new, and outlives the
        // lock.
        let tickets = unsafe { Tickets::new(part, part.wrapping_add(tail_at), &pe) };
        let data = part.wrapping_add(data_at);
        let near =
            NearData { tickets, data, bytes, shadow: shadow.then(|| part.wrapping_add(shadow_at)) };
        Ok((Protocol::Near(near), data, window))
    }

    #[inline(always)]
    pub(super) fn enter(
        &self,
        pe: &Pe,
        counters: &Counters,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<Option<u32>> {
        match self {
            Protocol::Near(near) => near.enter(pe, counters, mode, patience),
            Protocol::Migratory(migratory) => Ok(migratory.enter(counters, patience)?),
            Protocol::Homed(homed) => {
                let ticket = homed.enter(counters, mode, patience)?;
                if ticket.is_some() && mode == Mode::Exclusive {
                    homed.keep_twin();
                }
                Ok(ticket)
            }
            Protocol::Checked(checked) => checked.enter(pe, counters, mode, patience),
        }
    }

    #[inline(always)]
    pub(super) fn leave(
        &self,
        pe: &Pe,
        counters: &Counters,
        ticket: u32,
        mode: Mode,
        changed: bool,
    ) -> Quick<()> {
        match self {
            Protocol::Near(near) => {
                near.leave(pe, ticket, mode);
                Ok(())
            }
            Protocol::Migratory(migratory) => migratory.leave(counters, ticket, changed),
            Protocol::Homed(homed) => homed.leave(counters, ticket, mode, changed),
            Protocol::Checked(checked) => {
                checked.leave(ticket).leave(pe, counters, ticket, mode, changed)
            }
        }
    }

    /// Ends the guard of a writer that panics, with the data half changed. Far, no other PE has
    /// seen the changes.
    #[cold]
    pub(super) fn leave_broken(&self, pe: &Pe, counters: &Counters, ticket: u32) -> Quick<()> {
        match self {
            Protocol::Near(near) => {
                near.leave_broken(pe, ticket);
                Ok(())
            }
            Protocol::Migratory(migratory) => {
                migratory.restore_twin();
                migratory.leave(counters, ticket, false)
            }
            Protocol::Homed(homed) => {
                homed.restore_twin();
                homed.leave(counters, ticket, Mode::Exclusive, false)
            }
            Protocol::Checked(checked) => checked.leave(ticket).leave_broken(pe, counters, ticket),
        }
    }

    /// Copies into `to` what is left of the data after a death.
    pub(super) fn rescue(&self, pe: &Pe, to: &mut [u8], torn: bool) -> Result<()> {
        if let Protocol::Checked(checked) = self {
            return checked.way.rescue(pe, to, torn);
        }
        super::check_broken(
            pe,
            matches!(self, Protocol::Near(near) if near.tickets.poison() != 0),
        )?;
        match self {
            Protocol::Near(near) => near.rescue(pe, to, torn)?,
            Protocol::Migratory(migratory) => migratory.newest(to)?,
            Protocol::Homed(homed) => homed.released(to)?,
            Protocol::Checked(_) => unreachable!("unwrapped above"),
        }
        Ok(())
    }
}

/// A way to the data, and the threads that have them. Tickets of guards that exist at the same time
/// differ.
pub(super) struct Checked {
    way: Protocol,
    holders: Holders,
}

impl Checked {
    pub(super) fn new(way: Protocol) -> Self {
        Checked { way, holders: Holders::default() }
    }

    /// As [`Protocol::enter`], but an error for a thread that would wait for itself without a
    /// deadline.
    fn enter(
        &self,
        pe: &Pe,
        counters: &Counters,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<Option<u32>> {
        if matches!(patience, Patience::Forever) && self.holders.have(|_| true) {
            return Err(Error::misuse(
                "this thread has it already, and would wait for itself, or for a writer between the two: give it back first (in Rust, drop the guard; in C, shmemx_mutex_release or shmemx_rwlock_release)",
            ));
        }
        let ticket = self.way.enter(pe, counters, mode, patience)?;
        ticket.iter().for_each(|&ticket| self.holders.take(ticket.into()));
        Ok(ticket)
    }

    /// Forgets the holder of a ticket, and gives the way by which its guard leaves.
    fn leave(&self, ticket: u32) -> &Protocol {
        self.holders.give(ticket.into());
        &self.way
    }
}
