//! Agreement on a slot for a new team or barrier: all members take the same slot, or all get an
//! error.
//!
//! Members of other teams, in other threads, may search at the same time. So each member claims the
//! slot that all found free, and all compare whether every claim succeeded. Where one did not, all
//! give the slot up and try another. Teams begin their search at different slots, so they seldom
//! meet twice.
//!
//! * A1: *A member returns only after all have learnt the outcome.* A member's own error is in its
//!   proposal: all see it after one barrier, and return. A member that finds a proposal that
//!   contradicts its own says so in its claim, as the others need not have compared these two; all
//!   return after the second barrier.
//! * A2: *Nothing of the slot's last use is left.* A slot is free at a member only after all that
//!   shared its last use with this member have dropped it. Late members of that use may still read
//!   not only the barrier's words, but also its scratch words after the last barrier, and eager
//!   buffers.
//!   Where the second barrier fails at a member, the slot stays taken there: it may have succeeded
//!   at others, which then have a team in it.
//! * A3: *A slot that was dropped just before the call is found.* A late member that is in this
//!   call may have dropped it too late for the first attempt. So where no slot is free, the members
//!   search once more.
//! * A4: *No scratch word is overwritten before it has been read.* The words of a claim are free
//!   when the first barrier of the next attempt or call is passed. A proposal may be the last word
//!   that is read in a call, so two words take turns: each is written again only after the barrier
//!   of the proposal between.

use super::Team;
use crate::base::digest::Digest;
use crate::base::error::{Error, Result};
use crate::base::layout::{BarrierSlot, MAX_BARRIERS, MAX_LINED, StepLine, TURNS};
use crate::base::shm;
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The proposal of a member whose own arguments are wrong. No digest has this value.
const WRONG: u64 = 0;

/// The outcome of a member's claim, in the two lowest bits of a word. Where the claim succeeded,
/// the bits above count the teams and barriers that the member has dropped in that slot.
const CLAIMED: u64 = 1;
/// No claim of this call can succeed.
const REFUSED: u64 = 2;
const OUTCOME_MASK: u64 = 3;

/// A slot that all members have taken.
pub(super) struct Agreed {
    pub(super) slot: usize,
    /// Further slots that all members had free: the same number at each.
    pub(super) left: usize,
    /// The teams and barriers that each PE of the job had dropped in the slot before; 0 for PEs
    /// that are no members.
    ended: Vec<u64>,
}

impl Agreed {
    /// The teams and barriers that each of these members had dropped in the slot before.
    pub(super) fn ended(&self, pes: &[usize]) -> Arc<[u64]> {
        pes.iter().map(|&pe| self.ended[pe]).collect()
    }
}

/// Where the search of a team of one PE begins.
const FIRST_ALONE: usize = 31;

/// All slots, in the order of a search that begins there.
fn from(start: usize) -> impl Iterator<Item = usize> {
    (0..MAX_BARRIERS).map(move |slot| (start + slot) % MAX_BARRIERS)
}

/// Attempts to find a slot: as many as teams could interfere with each other.
const ATTEMPTS: usize = 64;

/// A call and its arguments as one word, for comparison.
pub(super) fn digest(call: &str, arguments: &str) -> u64 {
    let bytes = call.bytes().chain([0]).chain(arguments.bytes());
    Digest::new().bytes(bytes).value() | 1
}

/// Members that search for a slot together.
pub(super) struct Council<'a> {
    pub(super) pe: &'a Pe,
    pub(super) members: &'a [usize],
    /// The slot with their scratch words, which no other council uses now.
    pub(super) slot: usize,
    /// A barrier of the members.
    pub(super) meet: &'a dyn Fn() -> Result<()>,
    /// Proposals that were made with these scratch words: even at all members, or odd at all.
    pub(super) proposals: &'a AtomicUsize,
}

/// The outcome of all members' proposals.
struct Proposed {
    /// Slots that are free at all members.
    free: [u64; MAX_BARRIERS / 64],
    /// A peer whose proposal differs from this PE's.
    contradiction: Option<usize>,
}

/// The outcome of all members' claims.
struct Claimed {
    /// Whether this PE's claim succeeded.
    mine: bool,
    by_all: bool,
    /// The teams and barriers that each PE had dropped in the slot before.
    ended: Vec<u64>,
    contradiction: Option<usize>,
}

impl Team {
    /// [`Council::agree`] of this team's members.
    pub(super) fn agree(
        &self,
        call: &'static str,
        arguments: Result<String>,
        peers: &[usize],
    ) -> Result<Agreed> {
        let council = Council {
            pe: &self.pe,
            members: &self.members,
            slot: self.slot,
            meet: &|| self.inner_barrier(),
            proposals: &self.proposals,
        };
        council.agree(call, arguments, peers)
    }
}

impl Council<'_> {
    /// Finds a barrier slot that is free at every member, clears it, and takes it. All members get
    /// the same slot.
    ///
    /// `arguments` describes the arguments of this member's `call`, which must be equal at each of
    /// `peers`; or it is the error of wrong arguments.
    pub(super) fn agree(
        &self,
        call: &'static str,
        arguments: Result<String>,
        peers: &[usize],
    ) -> Result<Agreed> {
        // A child that has copies of these objects must not write the PE's words.
        ending::refuse_child(self.pe)?;
        let mine = arguments.as_ref().map_or(WRONG, |arguments| digest(call, arguments));
        let unequal = |pe: usize, theirs: &str, ours: String| Error::Unequal {
            call,
            pe,
            theirs: theirs.into(),
            ours,
            at: None,
        };
        let mut none_before = false;
        for attempt in 0..ATTEMPTS {
            let proposed = match self.propose(mine, peers)? {
                Ok(proposed) => proposed,
                Err(wrong) => {
                    return Err(unequal(wrong, "arguments that cannot be", arguments?));
                }
            };
            let slot = self.pick(&proposed.free, attempt);
            let claimed = self.claim(slot, proposed.contradiction)?;
            match (slot, claimed.mine) {
                (Some(slot), true) if claimed.by_all => {
                    let free = proposed.free.iter().map(|bits| bits.count_ones() as usize);
                    return Ok(Agreed {
                        slot,
                        left: free.sum::<usize>() - 1,
                        ended: claimed.ended,
                    });
                }
                (Some(slot), true) => self.pe.release_slot(slot),
                _ => {}
            }
            if let Some(pe) = claimed.contradiction {
                return Err(unequal(pe, "arguments that contradict another's", arguments?));
            }
            // A3.
            if slot.is_none() && std::mem::replace(&mut none_before, true) {
                break;
            }
        }
        Err(Error::TooMany { what: "teams and barriers", limit: MAX_BARRIERS, call: None })
    }

    /// A scratch word of a member.
    fn scratch(&self, pe: usize, offset: usize) -> Route {
        self.pe.route(pe, Pe::barrier_slot(self.slot) + offset as u64)
    }

    /// Writes one of this PE's scratch words.
    fn publish(&self, offset: usize, value: u64) {
        let word = self.pe.local(Pe::barrier_slot(self.slot) + offset as u64);
        // SAFETY: an aligned word of this PE's own slot, which others only read.
        unsafe { shm::store(word.cast(), value) }
    }

    /// Members publish which slots are free, and digests of their calls. Gives a member whose
    /// arguments are wrong, if there is one.
    fn propose(&self, mine: u64, peers: &[usize]) -> Result<std::result::Result<Proposed, usize>> {
        let free_at = offset_of!(BarrierSlot, free_slots);
        // A2.
        self.pe.free_rested();
        let mut free = *self.pe.free_slots();
        for (index, &bits) in free.iter().enumerate() {
            self.publish(free_at + 8 * index, bits);
        }
        let turn = self.proposals.fetch_add(1, Ordering::Relaxed) % 2; // A4
        let proposal_at = offset_of!(BarrierSlot, proposal) + 8 * turn;
        self.publish(proposal_at, mine);
        (self.meet)()?;
        for &member in self.members {
            // A1.
            if self.scratch(member, proposal_at).load::<u64>(self.pe)? == WRONG {
                return Ok(Err(member));
            }
            for (index, bits) in free.iter_mut().enumerate() {
                *bits &= self.scratch(member, free_at + 8 * index).load::<u64>(self.pe)?;
            }
        }
        let mut contradiction = None;
        for &peer in peers {
            if self.scratch(peer, proposal_at).load::<u64>(self.pe)? != mine {
                contradiction = Some(peer);
            }
        }
        Ok(Ok(Proposed { free, contradiction }))
    }

    /// The slot that all members try to claim. All pick the same one.
    fn pick(&self, free: &[u64], attempt: usize) -> Option<usize> {
        from(self.slot * 31 + attempt * 7).find(|&slot| free[slot / 64] >> (slot % 64) & 1 == 1)
    }

    /// Claims a slot, unless a peer's proposal contradicts this PE's, and reads the claims of all
    /// members.
    fn claim(&self, slot: Option<usize>, mut contradiction: Option<usize>) -> Result<Claimed> {
        let claim_at = offset_of!(BarrierSlot, claim);
        let mine = contradiction.is_none() && slot.is_some_and(|slot| self.pe.claim_slot(slot));
        let claim = match slot {
            Some(slot) if mine => {
                clear(self.pe, slot, self.members.len());
                CLAIMED | self.pe.ended(slot) << 2
            }
            _ if contradiction.is_some() => REFUSED, // A1
            _ => 0,
        };
        self.publish(claim_at, claim);
        // No member may use the slot before all have cleared it.
        (self.meet)()?;
        let (mut by_all, mut ended) = (true, vec![0; self.pe.npes()]);
        for &member in self.members {
            let claim = self.scratch(member, claim_at).load::<u64>(self.pe)?;
            by_all &= claim & OUTCOME_MASK == CLAIMED;
            ended[member] = claim >> 2;
            if claim == REFUSED && contradiction.is_none() {
                contradiction = Some(member);
            }
        }
        Ok(Claimed { mine, by_all, ended, contradiction })
    }
}

/// A slot for a team of this PE alone, which needs nobody's agreement: no other PE uses its words.
pub(super) fn alone(pe: &Pe) -> Result<Agreed> {
    if let Some(error) = ending::refusal(pe) {
        return Err(error);
    }
    // A2.
    pe.free_rested();
    // PEs that each make such a team take equal slots, and so leave equal ones to larger teams.
    let slot = from(FIRST_ALONE).find(|&slot| pe.claim_slot(slot)).ok_or(Error::TooMany {
        what: "teams and barriers",
        limit: MAX_BARRIERS,
        call: None,
    })?;
    clear(pe, slot, 1);
    let left = pe.free_slots().iter().map(|bits| bits.count_ones() as usize).sum();
    let mut ended = vec![0; pe.npes()];
    ended[pe.me()] = pe.ended(slot);
    Ok(Agreed { slot, left, ended })
}

/// Zeroes this PE's part of a slot that it has claimed for a team of so many members.
fn clear(pe: &Pe, slot: usize, members: usize) {
    // Where there are several nodes, steps use other lines than one of each rank.
    let used = if pe.record().is_mixed() { MAX_LINED } else { members };
    let (lines, lined) = (Pe::lines(slot), used.min(MAX_LINED));
    let barrier = pe.local(Pe::barrier_slot(slot));
    // SAFETY: this PE's own slot, all but its last word, and the lines by which members of the new
    // team, which are some of these, will notify it. No PE uses them: by A2 all have dropped the
    // slot, and where the new team has other members, the barrier of the proposal has completed
    // their writes.
    unsafe {
        shm::zero(barrier, offset_of!(BarrierSlot, ended));
        shm::zero(pe.local(lines), lined * TURNS * size_of::<StepLine>());
    }
}
