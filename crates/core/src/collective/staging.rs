//! The memory by which collectives take values: a **staging area** for each team in each member's
//! segment, of a source and a destination that are equally long.
//!
//! A call on values copies them into its source, makes the collective between sources and
//! destinations that front ends make between places of windows, and copies the result out of its
//! destination. More data go in pieces, one collective after the other. So a value costs what an
//! element of a window costs, two copies by this CPU, and no allocation.
//!
//! **How long.** A quarter of the heap's size is for all areas, within the bounds of
//! [`STAGING_BYTES`](crate::base::layout::STAGING_BYTES) for a half. All members find the same
//! length in the job's geometry, so they cut alike: they need not agree on it, and it cannot fail.
//! Pages of the area come into being when the team first uses them. They stay for the next team in
//! the slot, as all that a slot has.
//!
//! **Contract and proof.** The collectives between places keep two promises (head of
//! [`collective`](super)): a member that has returned needs nothing more of others' memory to be
//! kept for it, and nobody needs its memory any more; and nobody writes a destination before its
//! owner has come to the call. Therefore:
//!
//! * S1: *A source is not overwritten while somebody reads it.* Only its owner writes it, before a
//!   collective begins. The collective before it has returned, so nobody reads the source for that
//!   one any more.
//! * S2: *A destination is not overwritten before its owner has read it.* Others may have begun the
//!   next call, or the next piece, long ago. They write into this destination only once its owner
//!   has come to that call, too. It comes only after it has copied the last result out.
//! * S3: *One thread at a time uses the area.* A thread takes it with [`Team::stage`]; another one,
//!   or an operator that calls its own team, is refused. Nothing is written before.
//! * S4: *A call that has failed changes no later result.* After such a call others may still write
//!   here for a while. The team's later calls fail like this one, and its slot is not used again,
//!   as after any failed collective ([`steps`](crate::team::steps)). What a member reads meanwhile
//!   does not count, by D1.
//! * S5: *A forked child changes nothing.* It is refused before it writes.
//!
//! The area is memory that peers write, so it is accessed through [`shm`] alone. Whatever calls
//! members mix up, a PE gets bytes, and any bytes are a value of plain data.

use super::SymmetricRange;
use crate::base::error::{Error, Quick};
use crate::base::shm;
use crate::endpoint::ending;
use crate::team::Team;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a call uses the team's staging area.
#[derive(Default)]
struct InUse(AtomicBool);

/// A team's staging area, while one call uses it.
pub(super) struct Staging<'a> {
    team: &'a Team,
    /// Offset of the source; the destination follows.
    offset: u64,
    /// Bytes of each half.
    half: usize,
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        self.team.in_use().store(false, Ordering::Release);
    }
}

impl Team {
    fn in_use(&self) -> &AtomicBool {
        &self.layers().get(InUse::default).0
    }

    /// Takes the staging area for one call.
    ///
    /// # Errors
    /// [`Error::Misuse`] while another call uses it (S3), and in a forked child (S5).
    pub(super) fn stage(&self) -> Quick<Staging<'_>> {
        if let Some(refused) = ending::refusal(self.pe()) {
            return Err(refused.into());
        }
        let in_use = self.in_use();
        // A process of one thread needs no exchange.
        let was_in_use = match shm::is_single_threaded() {
            true => in_use.load(Ordering::Relaxed),
            false => in_use.swap(true, Ordering::Acquire),
        };
        if was_in_use {
            return Err(Error::misuse(
                "a collective call on values began while another one of the same team was under way, in another thread of this PE or in an operator; give each thread its own team, or let one do it",
            ).into());
        }
        in_use.store(true, Ordering::Relaxed);
        let geometry = self.pe().control().geometry();
        let offset = geometry.staging(self.slot()).start;
        Ok(Staging { team: self, offset, half: geometry.staging_bytes })
    }
}

impl Staging<'_> {
    /// Bytes of each half.
    #[inline(always)]
    pub(super) fn half(&self) -> usize {
        self.half
    }

    /// The first bytes of the source.
    #[inline(always)]
    pub(super) fn source(&self, bytes: usize) -> SymmetricRange {
        SymmetricRange { offset: self.offset, bytes: self.half }.part(0, bytes)
    }

    /// The first bytes of the destination.
    #[inline(always)]
    pub(super) fn destination(&self, bytes: usize) -> SymmetricRange {
        let offset = self.offset + self.half as u64;
        SymmetricRange { offset, bytes: self.half }.part(0, bytes)
    }

    /// Copies private bytes into a place of this PE's own area.
    #[inline(always)]
    pub(super) fn write(&self, to: SymmetricRange, from: &[u8]) {
        let to = to.part(0, from.len());
        // SAFETY: `part` has checked that the place, which lies in the area, has room.
        unsafe { shm::copy(self.team.here(to), from.as_ptr(), from.len()) }
    }

    /// Copies a place of this PE's own area to private bytes.
    #[inline(always)]
    pub(super) fn read(&self, from: SymmetricRange, to: &mut [u8]) {
        let from = from.part(0, to.len());
        // SAFETY: as in `write`.
        unsafe { shm::copy(to.as_mut_ptr(), self.team.here(from), to.len()) }
    }
}
