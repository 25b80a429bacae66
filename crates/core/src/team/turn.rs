//! Taking turns at making teams without a parent.
//!
//! Each PE has one set of words with which it agrees with others on such a team, so it takes part
//! in one agreement at a time: that of the set whose *turn* it is there. Several threads of a PE
//! may call for teams at once, with PEs whose threads call for others; if each set took the turns
//! that it can get and waited for the rest, they could wait for each other in a circle. So:
//!
//! 1. A thread that calls for a team notes the set (its PEs, whatever their order) among its PE's
//!    calls, where the others see it.
//! 2. The set's leader, its lowest PE, waits until all members have called. Then it takes the turns
//!    of all of them, one after the other in the order of their numbers, and waits where another
//!    set has one.
//! 3. A member waits until the turn of its PE is the set's and the leader has all others; then it
//!    takes its note back. Now the members meet, and agree; behind the last meeting each gives its
//!    own turn back.
//!
//! *Meetings* have numbers that no others ever have: the leader's, how often it has led, and which
//! meeting of these it is. To meet is to write the number into a word of each other member that is
//! for this PE, and to wait for it, or a later one of this turn, from each. A word is not written
//! for another set before its owner has seen what it waits for: that set does not begin before it
//! has the owner's turn, too. Numbers that a failed set has left behind are nobody's.
//!
//! *No two sets have a turn at once*: it is taken by a compare-and-swap of nothing, and given back
//! by the PE that it is the turn of, behind its last use of the words.
//!
//! *All calls come to an end.* A set that waits for calls has no turns, so nobody waits for it. A
//! set that has some has all of its members' threads here, and waits for nothing but turns of
//! higher numbers than those it has. So of all sets that have turns, the one with the highest turn
//! waits for none that another has; it gets those that it lacks, agrees, and gives all of them
//! back. Then the same holds of the others.
//!
//! *Calls of the same set, one after the other, are not mixed up.* A member takes its note back
//! before the first meeting, so none is left when somebody is past the last one, and what the
//! leader sees in its next call was noted for that. A turn that a member has yet to give back is
//! not free. Two threads of a PE that call for the same PEs at once are refused.
//!
//! *A failure is no dead end.* The death of a member ends all waits of the set; each member gives
//! back its own turn, and the leader, who may have taken it only after that, those of all. A set
//! that has failed so never has a turn again.

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
    /// In the order of their numbers.
    pes: Vec<usize>,
    /// The set as a word.
    set: u64,
    /// Which of the PE's calls this is.
    call: usize,
    /// The number of the last meeting.
    meeting: Cell<u64>,
    /// All have met for the last time.
    ended: bool,
}

/// Where, in the number of a meeting, how often the leader has led begins, and where who that is.
const LED: u32 = 12;
const LEADER: u32 = 48;

impl<'a> Turn<'a> {
    /// Waits until it is the turn of these PEs, of which this PE is one, at this one.
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
            for &member in &self.pes {
                let turn = pe.route(member, at(offset_of!(Turns, turn)));
                wait::until(pe, terms, || match turn.compare_swap::<u64>(pe, 0, self.set) {
                    Ok(0) => Some(Ok(())),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                })??;
            }
            let led = pe.layer::<Calls>().led.fetch_add(1, Ordering::Relaxed) + 1;
            self.meeting.set((leader as u64) << LEADER | led << LED);
            publish(pe, offset_of!(Turns, begins), self.meeting.get());
            pe.wake_all(self.pes[1..].iter().copied());
        } else {
            pe.ring(leader);
            // SAFETY: an aligned word of this PE's own segment.
            let turn = || unsafe { shm::load(pe.local(at(offset_of!(Turns, turn))).cast::<u64>()) };
            // The leader, once it has given this PE the turn, keeps its own until this PE has come
            // to the last meeting.
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
        publish(pe, call_at(self.call), 0);
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
            at >> LED == meeting >> LED && at >= meeting
        };
        wait::until(pe, self.terms(), || others().all(here).then_some(()))?;
        Ok(())
    }

    /// All waits are for all members.
    fn terms(&self) -> Terms<'_> {
        Terms::forever(Awaiting::WordOf(&self.pes))
    }

    /// All members have met for the last time.
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
        let all = leads && !self.ended;
        for &member in self.pes.iter().filter(|&&member| all || member == pe.me()) {
            let word = pe.route(member, at(offset_of!(Turns, turn)));
            // Nobody waits for the turn of a PE that is gone.
            if let Err(error) = word.compare_swap::<u64>(pe, self.set, 0)
                && pe.control().departure(member).is_none()
            {
                pe.surface_later(error.into());
            }
        }
        calls(pe)[self.call] = 0;
        // Leaders who wait for the turn may be anywhere, in other threads of this PE too.
        pe.wake_all(0..pe.npes());
    }
}

/// What a PE's threads call for.
struct Calls {
    /// Sets of PEs of which they make a team.
    sets: Mutex<[u64; MAX_CALLS]>,
    /// How often this PE has led such a set.
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

/// The sets that threads of this PE call for, as they themselves know.
fn calls(pe: &Pe) -> MutexGuard<'_, [u64; MAX_CALLS]> {
    lock(&pe.layer::<Calls>().sets)
}

/// Notes a call where the other PEs see it.
fn note(pe: &Pe, set: u64) -> Result<usize> {
    let mut calls = calls(pe);
    if calls.contains(&set) {
        return Err(Error::Misuse(
            "two threads of a PE make a team of the same PEs at once: the others could not tell which is which",
        ));
    }
    let call = calls.iter().position(|&set| set == 0).ok_or(Error::TooMany {
        what: "threads of a PE that make teams of their own members at once",
        limit: MAX_CALLS,
    })?;
    calls[call] = set;
    publish(pe, call_at(call), set);
    Ok(call)
}

/// Where a call is noted in [`Turns`].
fn call_at(call: usize) -> usize {
    offset_of!(Turns, calls) + 8 * call
}

/// Writes a field that others only read.
fn publish(pe: &Pe, field: usize, value: u64) {
    // SAFETY: an aligned word of this PE's own segment, to which only this PE writes.
    unsafe { shm::store(pe.local(at(field)).cast(), value) };
}

/// Whether a thread of a member has called for a set. Of a member that cannot be asked, its failure
/// tells.
fn has_called(pe: &Pe, member: usize, set: u64) -> bool {
    let call = |index: usize| pe.route(member, at(call_at(index))).load::<u64>(pe);
    (0..MAX_CALLS).any(|index| call(index).is_ok_and(|called| called == set))
}
