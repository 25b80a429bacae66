//! Where the data of a lock are, and how one comes to them: near, in their home's memory; far, with
//! who had them last, or at a home with copies for who reads.

use super::checked::Checked;
use super::data::{CacheLine, LINE};
use super::homed::{self, Homed};
use super::migratory::Migratory;
use super::near::NearData;
use super::stats::Counters;
use crate::base::error::{Quick, Result};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::job::Job;
use crate::sync::tickets::{self, Mode, Tickets};
use crate::wait::limit::Patience;
use crate::window::Window;

pub(super) enum Protocol {
    Near(NearData),
    Migratory(Migratory),
    Homed(Homed),
    /// Any of these, where the user wants mistakes to be found.
    Checked(Box<Checked>),
}

/// What a lock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mutex,
    RwLock,
}

impl Kind {
    /// What it is called where its use is reported.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
        }
    }
}

impl Protocol {
    /// Makes the memory of a lock whose data are `initial` at first: these `bytes`, aligned to
    /// `align`. Gives where guards find them, too. *Collective.*
    ///
    /// # Safety
    /// `initial` is private memory of `bytes`.
    pub(super) unsafe fn make(
        job: &Job,
        initial: *const u8,
        bytes: usize,
        align: usize,
        shadow: bool,
        kind: Kind,
    ) -> Result<(Protocol, *mut u8, Window<CacheLine>)> {
        let pe = job.pe.clone();
        // Small data share a cache line with the lock.
        let data_at = tickets::HEAD.next_multiple_of(align);
        let shadow_at = (data_at + bytes).next_multiple_of(LINE);
        let tail_at =
            if shadow { shadow_at + bytes } else { data_at + bytes }.next_multiple_of(LINE);
        // Who keeps the data must send nothing, and cannot have told anybody what they are when it
        // dies.
        let moves = kind == Kind::Mutex && !shadow;
        let near = pe.record().is_one_node();
        let size = match (!near, moves) {
            (true, true) => Migratory::size(bytes, pe.npes()),
            (true, false) => Homed::size(bytes, pe.npes()),
            (false, _) => tail_at + tickets::tail_for(pe.npes()),
        };
        let start = |offset: u64| {
            let home = super::home_of(offset, pe.npes());
            if let (true, Route::Near(part)) = (near && home == pe.me(), pe.route(home, offset)) {
                // SAFETY: the new window has room for the data there, and no PE uses it before all
                // have left the call; the caller promises the source.
                unsafe { shm::copy(part.wrapping_add(data_at), initial, bytes) };
            }
        };
        let terms = [bytes, align, usize::from(shadow)];
        let window = super::window(job, kind.name(), size, &terms, start)?;
        let offset = window.inner.heap_offset().expect("it is a window of the heap");
        let home = super::home_of(offset, pe.npes());
        let part = match pe.route(home, offset) {
            Route::Near(part) if near => Some(part),
            _ => None,
        };
        let Some(part) = part else {
            if moves {
                // SAFETY: the window has that size; it is new, and lives as long as the lock.
                let owned = unsafe { Migratory::new(pe, offset, bytes) };
                // SAFETY: nobody has it before the barrier below; the caller promises the source.
                unsafe { owned.start(initial) }?;
                job.barrier()?;
                let data = owned.data();
                return Ok((Protocol::Migratory(owned), data, window));
            }
            let shared = Homed::new(pe, offset, bytes);
            shared.start(initial, || job.barrier())?;
            let data = shared.local(homed::COPY);
            return Ok((Protocol::Homed(shared), data, window));
        };
        // SAFETY: the window has room for both where they are put, aligned as it is; it is new, and
        // lives as long as the lock.
        let tickets = unsafe { Tickets::new(part, part.wrapping_add(tail_at), pe.npes()) };
        let data = part.wrapping_add(data_at);
        let place =
            NearData { tickets, data, bytes, shadow: shadow.then(|| part.wrapping_add(shadow_at)) };
        Ok((Protocol::Near(place), data, window))
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
            Protocol::Near(place) => place.enter(pe, counters, mode, patience),
            Protocol::Migratory(owned) => Ok(owned.enter(counters, patience)?),
            Protocol::Homed(shared) => {
                let ticket = shared.enter(counters, mode, patience)?;
                if ticket.is_some() && mode == Mode::Alone {
                    shared.keep_twin();
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
            Protocol::Near(place) => {
                place.leave(pe, ticket, mode);
                Ok(())
            }
            Protocol::Migratory(owned) => owned.leave(counters, ticket, changed),
            Protocol::Homed(shared) => shared.leave(counters, ticket, mode, changed),
            Protocol::Checked(checked) => {
                checked.leave(ticket).leave(pe, counters, ticket, mode, changed)
            }
        }
    }

    /// The end of a guard whose thread panics, with the data half changed. Far, nobody else has
    /// seen that.
    #[cold]
    pub(super) fn leave_broken(&self, pe: &Pe, counters: &Counters, ticket: u32) -> Quick<()> {
        match self {
            Protocol::Near(place) => {
                place.leave_broken(pe, ticket);
                Ok(())
            }
            Protocol::Migratory(owned) => {
                owned.restore_twin();
                owned.leave(counters, ticket, false)
            }
            Protocol::Homed(shared) => {
                shared.restore_twin();
                shared.leave(counters, ticket, Mode::Alone, false)
            }
            Protocol::Checked(checked) => checked.leave(ticket).leave_broken(pe, counters, ticket),
        }
    }

    /// What is left of the data after a death.
    pub(super) fn rescue(&self, pe: &Pe, to: &mut [u8], torn: bool) -> Result<()> {
        if let Protocol::Checked(checked) = self {
            return checked.way.rescue(pe, to, torn);
        }
        super::check_broken(
            pe,
            matches!(self, Protocol::Near(place) if place.tickets.poison() != 0),
        )?;
        match self {
            Protocol::Near(place) => place.rescue(pe, to, torn)?,
            Protocol::Migratory(owned) => owned.newest(to)?,
            Protocol::Homed(shared) => shared.released(to)?,
            Protocol::Checked(_) => unreachable!("taken off above"),
        }
        Ok(())
    }
}
