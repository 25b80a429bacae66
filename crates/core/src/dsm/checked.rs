//! A lock of which each thread is told that asks for what it has already, where that is checked.

use super::protocol::Protocol;
use super::stats::Counters;
use crate::base::error::{Error, Result};
use crate::endpoint::check::Holders;
use crate::endpoint::pe::Pe;
use crate::sync::tickets::Mode;
use crate::wait::limit::Patience;

/// A way to the data, and who has them. Tickets of guards that exist at the same time differ.
pub(super) struct Checked {
    pub(super) way: Protocol,
    holders: Holders,
}

impl Checked {
    pub(super) fn new(way: Protocol) -> Self {
        Checked { way, holders: Holders::default() }
    }

    /// Comes in, as [`Protocol::enter`] does. With a deadline, a wait for oneself ends by itself.
    pub(super) fn enter(
        &self,
        pe: &Pe,
        counters: &Counters,
        mode: Mode,
        patience: Patience<'_>,
    ) -> Result<Option<u32>> {
        if matches!(patience, Patience::Forever) && self.holders.have(|_| true) {
            return Err(Error::Misuse(
                "this thread has it already, and would wait for itself, or for a writer between the two: give it back first (in Rust, drop the guard; in C, shmemx_mutex_release)",
            ));
        }
        let ticket = self.way.enter(pe, counters, mode, patience)?;
        ticket.iter().for_each(|&ticket| self.holders.take(ticket.into()));
        Ok(ticket)
    }

    /// The guard with this ticket ends.
    pub(super) fn leave(&self, ticket: u32) -> &Protocol {
        self.holders.give(ticket.into());
        &self.way
    }
}
