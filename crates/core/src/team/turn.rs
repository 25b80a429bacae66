//! Turns at making teams without a parent.
//!
//! Each PE has one set of words with which it agrees with others on such a team. So it takes part
//! in one agreement at a time: that of the set of PEs whose *turn* it is at this PE. Several
//! threads of a PE may call for teams at once, with PEs whose threads call for others. If each set
//! took the turns that are free and waited for the rest, sets could wait for each other in a
//! circle. So:
//!
//! 1. A thread that calls for a team notes the set (its PEs, in any order) among its PE's calls,
//!    where other PEs see it.
//! 2. The set's leader, its lowest PE, waits until all members have called. Then it takes the turns
//!    of all members, one after the other in the order of their numbers, and waits for each that
//!    another set has.
//! 3. A member waits until its PE's turn is the set's and the leader has all others. Then it
//!    removes its note. Now the members meet, and agree. After the last meeting each member gives
//!    its own turn back.
//!
//! *Meetings* have unique numbers: the leader, how often it has led, and which meeting of this turn
//! it is. To meet, a PE writes the number into its word at each other member, and waits for that
//! number, or a later one of this turn, from each.
//!
//! **Proof.**
//!
//! * T1: *A meeting's word is not overwritten before its owner has seen it.* Another set does not
//!   begin before it has the owner's turn, too. Numbers that a failed set has left behind match no
//!   later meeting.
//! * T2: *No two sets have a turn at once.* A set takes it by a compare-and-swap of 0. The PE that
//!   it is the turn of gives it back, after its last use of the words.
//! * T3: *All calls come to an end.* A set that waits for calls has no turns, so no set waits for
//!   it. A set that has turns has a thread of each member in the call, and waits only for turns of
//!   higher numbers than those it has. So of all sets that have turns, the one with the highest
//!   turn waits for no turn of another set. It gets the turns that it lacks, agrees, and gives all
//!   of them back. Then this holds for the others.
//! * T4: *Calls of a set that follow each other are not mixed up.* A member removes its note before
//!   the first meeting, so no note is left when a member is past the last meeting: what the leader
//!   sees in its next call was noted for that call. A turn that a member has yet to give back is
//!   not free. Two threads of a PE that call for the same PEs at once are refused.
//! * T5: *After a failure no set waits for ever.* The death of a member ends all waits of the set.
//!   Each member then gives back its own turn. The leader may take a member's turn after that
//!   member has done so; therefore it gives back the turns of all. A set that has failed never has
//!   a turn again.

use crate::base::error::{Error, Quick, Result};
use crate::base::layout::{MAX_CALLS, SystemArea, Turns};
use crate::base::lock;
use crate::base::shm;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::wait::{self, Awaiting, Terms};
use std::cell::Cell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The turns of a set of PEs; given back when dropped.
pub(crate) struct Turn<'a> {
    pe: &'a Pe,
    /// The set, in the order of PE numbers.
    pes: Vec<usize>,
    /// A digest of the set.
    set: u64,
    /// The place of this call among the PE's calls.
    call: usize,
    /// The number of the last meeting.
    meeting: Cell<u64>,
    /// All members have met for the last time.
    ended: bool,
}

/// The first bits, in the number of a meeting, of how often the leader has led, and of the leader.
const LED_SHIFT: u32 = 12;
const LEADER_SHIFT: u32 = 48;

impl<'a> Turn<'a> {
    /// Waits until this PE's turn is that of these PEs, of which it is one.
    pub(crate) fn wait(pe: &'a Pe, pes: &[usize]) -> Result<Self> {
        let mut pes = pes.to_vec();
        pes.sort_unstable();
        let set = super::agree::digest("set", &format!("{pes:?}"));
        let call = note(pe, set)?;
        let turn = Turn { pe, pes, set, call, meeting: Cell::new(0), ended: false };
        turn.come()?;
        Ok(turn)
    }

    fn come(&self) -> Quick<()> {
        let (pe, leader, terms) = (self.pe, self.pes[0], self.terms());
        if pe.me() == leader {
            let mut missing: Vec<usize> = self.pes[1..].to_vec();
            wait::until(pe, terms, || {
                missing.retain(|&member| !has_called(pe, member, self.set));
                missing.is_empty().then_some(())
            })?;
            // In order, so that T3 holds; by compare-and-swap for T2.
            for &member in &self.pes {
                let turn = pe.route(member, at(offset_of!(Turns, turn)));
                wait::until(pe, terms, || match turn.compare_swap::<u64>(pe, 0, self.set) {
                    Ok(0) => Some(Ok(())),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                })??;
            }
            let led = pe.layer::<Calls>().led.fetch_add(1, Ordering::Relaxed) + 1;
            self.meeting.set((leader as u64) << LEADER_SHIFT | led << LED_SHIFT);
            publish(pe, offset_of!(Turns, begins), self.meeting.get());
            pe.wake_all(self.pes[1..].iter().copied());
        } else {
            pe.ring(leader);
            // SAFETY: an aligned word of this PE's own segment.
            let turn = || unsafe { shm::load(pe.local(at(offset_of!(Turns, turn))).cast::<u64>()) };
            // A leader that has taken this PE's turn keeps its own until this PE has come to the
            // last meeting: so `begins` is of this set.
            let begins = pe.route(leader, at(offset_of!(Turns, begins)));
            let meeting = wait::until(pe, terms, || match turn() == self.set {
                true => begins.load::<u64>(pe).map_or_else(
                    |error| Some(Err(error)),
                    |number| (number != 0).then_some(Ok(number)),
                ),
                false => None,
            })??;
            self.meeting.set(meeting);
        }
        publish(pe, call_at(self.call), 0); // T4
        Ok(())
    }

    /// Completes this PE's writes, then waits until all members are here.
    pub(crate) fn meet(&self) -> Result<()> {
        let (pe, geometry) = (self.pe, self.pe.control().geometry());
        let meeting = self.meeting.get() + 1;
        self.meeting.set(meeting);
        pe.complete_writes()?;
        let others = || self.pes.iter().copied().filter(|&other| other != pe.me());
        for other in others() {
            pe.route(other, geometry.mail(pe.me())).store(pe, meeting);
        }
        pe.wake_all(others());
        let here = |other: usize| {
            // SAFETY: an aligned word of this PE's own segment.
            let at = unsafe { shm::load(pe.local(geometry.mail(other)).cast::<u64>()) };
            at >> LED_SHIFT == meeting >> LED_SHIFT && at >= meeting // T1
        };
        wait::until(pe, self.terms(), || others().all(here).then_some(()))?;
        Ok(())
    }

    /// Terms of all waits of the set: all members live.
    fn terms(&self) -> Terms<'_> {
        Terms::forever(Awaiting::WordOf(&self.pes, None))
    }

    /// Ends the turn, after all members have met for the last time.
    pub(crate) fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let pe = self.pe;
        publish(pe, call_at(self.call), 0);
        let leads = pe.me() == self.pes[0];
        if leads && self.meeting.get() != 0 {
            publish(pe, offset_of!(Turns, begins), 0);
        }
        let all = leads && !self.ended; // T5
        for &member in self.pes.iter().filter(|&&member| all || member == pe.me()) {
            let word = pe.route(member, at(offset_of!(Turns, turn)));
            // No set gets the turn of a PE that is gone: the error is not reported.
            if let Err(error) = word.compare_swap::<u64>(pe, self.set, 0)
                && pe.control().departure(member).is_none()
            {
                pe.surface_later(error.into());
            }
        }
        calls(pe)[self.call] = 0;
        // Leaders that wait for the turn may be any PEs, even other threads of this one.
        pe.wake_all(0..pe.npes());
    }
}

/// Calls of a PE's threads for teams.
struct Calls {
    /// Digests of the sets that they call for; 0: no call.
    sets: Mutex<[u64; MAX_CALLS]>,
    /// How often this PE has led a set.
    led: AtomicU64,
}

impl Layer for Calls {
    fn new(_pe: &Pe) -> Self {
        Calls { sets: Mutex::new([0; MAX_CALLS]), led: AtomicU64::new(0) }
    }
}

/// Offset of a field of [`Turns`] in a segment.
fn at(field: usize) -> u64 {
    (offset_of!(SystemArea, turns) + field) as u64
}

/// The sets that threads of this PE call for, as this PE keeps them.
fn calls(pe: &Pe) -> MutexGuard<'_, [u64; MAX_CALLS]> {
    lock(&pe.layer::<Calls>().sets)
}

/// Notes a call where other PEs see it.
fn note(pe: &Pe, set: u64) -> Result<usize> {
    let mut calls = calls(pe);
    if calls.contains(&set) {
        return Err(Error::misuse(
            "two threads of a PE make a team of the same PEs at once: the others could not tell which is which",
        ));
    }
    let call = calls.iter().position(|&set| set == 0).ok_or(Error::TooMany {
        what: "threads of a PE that make teams of their own members at once",
        limit: MAX_CALLS,
        call: None,
    })?;
    calls[call] = set;
    publish(pe, call_at(call), set);
    Ok(call)
}

/// Offset in [`Turns`] of a call's note.
fn call_at(call: usize) -> usize {
    offset_of!(Turns, calls) + 8 * call
}

/// Writes a field of [`Turns`] that other PEs only read.
fn publish(pe: &Pe, field: usize, value: u64) {
    // SAFETY: an aligned word of this PE's own segment, to which only this PE writes.
    unsafe { shm::store(pe.local(at(field)).cast(), value) };
}

/// Whether a thread of a member has called for a set. False where the member cannot be asked: the
/// wait then ends by its failure.
fn has_called(pe: &Pe, member: usize, set: u64) -> bool {
    let call = |index: usize| pe.route(member, at(call_at(index))).load::<u64>(pe);
    (0..MAX_CALLS).any(|index| call(index).is_ok_and(|called| called == set))
}
