//! Teams without a parent: only their own members are in the call.
//!
//! The agreement on a slot needs a barrier of the members before they have one. Each pair of PEs has a word for that in each
//! other's segment, which says how often the one has told the other that it is there. A meeting is: tell all, wait for all. Only
//! the teller writes the word, in growing numbers, and what it has told before is complete before it tells again; so a word is never
//! behind. Two PEs come to their common meetings in the same order, or they would wait for each other anyway; so the k-th message
//! of one to the other belongs to their k-th common meeting, whoever else is there.
//!
//! The scratch words of the agreement are those of one slot, whatever the team: a last meeting sees to it that nobody writes
//! them for the next team while a member still reads.

use super::Team;
use super::agree::Council;
use crate::barrier::Algorithm;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::pe::{Mail, Pe};
use crate::shm;
use crate::wait::{self, Terms};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;

/// Whose words the agreements use.
const SLOT: usize = 1;

impl Job {
    /// The team of `pes`, in this order, of which this PE is one. *Collective over these alone*: no other PE takes part. One
    /// thread of a PE at a time.
    ///
    /// # Errors
    /// [`Error::NoSuchPe`], and [`Error::Misuse`] for a list in which a PE stands twice or this PE not at all, at this PE alone;
    /// [`Error::Unequal`] when members name different lists of the same PEs, [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn team_among(&self, pes: &[usize]) -> Result<Team> {
        self.world.check(pes)?;
        let rank = pes.iter().position(|&pe| pe == self.pe());
        let rank = rank.ok_or(Error::Misuse("a team without a parent is made by its own members: this PE is none"))?;
        Algorithm::choose(&self.pe, pes.len())?;
        let mail = RefCell::new(self.pe.mail.lock().unwrap_or_else(PoisonError::into_inner));
        let meet = || meet(&self.pe, pes, &mut mail.borrow_mut());
        let council = Council {
            pe: &self.pe,
            members: pes,
            slot: SLOT,
            meet: &meet,
            proposals: &AtomicUsize::new(0),
        };
        let slot = council.agree("team_among", Ok(format!("{pes:?}")), pes);
        meet()?;
        Team::in_slot(&self.pe, pes.into(), rank, &slot?)
    }
}

/// Waits until all of `pes` are here.
fn meet(pe: &Pe, pes: &[usize], mail: &mut BTreeMap<usize, Mail>) -> Result<()> {
    pe.complete_writes()?;
    let geometry = pe.control().geometry();
    let others = || pes.iter().copied().filter(|&other| other != pe.me());
    for other in others() {
        let mail = mail.entry(other).or_default();
        mail.sent += 1;
        pe.route(other, geometry.mail(pe.me())).store(pe, mail.sent);
    }
    pe.ring_all(others());
    let terms = Terms {
        members: Some(pes),
        ..Terms::default()
    };
    wait::until(pe, terms, || {
        // SAFETY: an aligned word of this PE's own segment.
        let here = |other: usize| unsafe { shm::load(pe.local(geometry.mail(other)).cast::<u64>()) } > mail[&other].seen;
        others().all(here).then_some(())
    })?;
    others().for_each(|other| mail.entry(other).or_default().seen += 1);
    Ok(())
}
