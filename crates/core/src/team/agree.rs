//! How the members of a team find a place for a new team or barrier: all take the same, or all get
//! an error.

use super::Team;
use crate::base::error::{Error, Result};
use crate::base::layout::{BarrierSlot, MAX_BARRIERS, MAX_LINED, StepLine, TURNS};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a member proposes whose arguments are wrong by themselves. No digest.
const WRONG: u64 = 0;

/// What a member says of its claim, in the two lowest bits; above, where it succeeded, how many it
/// has dropped in that slot.
const CLAIMED: u64 = 1;
/// The claim cannot succeed at any slot.
const REFUSED: u64 = 2;
const SAYS: u64 = 3;

/// A slot that all members have taken.
pub(super) struct Agreed {
    pub(super) slot: usize,
    /// Slots that all members had free besides: the same number at each.
    pub(super) left: usize,
    /// How many teams and barriers each PE of the job had dropped in it before; 0 where it is none
    /// of the members.
    ended: Vec<u64>,
}

impl Agreed {
    /// The same for the members of a team among them, in its order.
    pub(super) fn ended(&self, pes: &[usize]) -> Arc<[u64]> {
        pes.iter().map(|&pe| self.ended[pe]).collect()
    }
}

/// Tries to find a slot before giving up: as many as teams could be in each other's way.
const ATTEMPTS: usize = 64;

/// A call as one word, to be compared.
pub(super) fn digest(call: &str, arguments: &str) -> u64 {
    let bytes = call.bytes().chain([0]).chain(arguments.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash | 1
}

/// Members who look for a slot together.
pub(super) struct Council<'a> {
    pub(super) pe: &'a Pe,
    pub(super) members: &'a [usize],
    /// The slot that holds their scratch words; nobody else uses these now.
    pub(super) slot: usize,
    /// A barrier of theirs.
    pub(super) meet: &'a dyn Fn() -> Result<()>,
    /// Proposals that were made with these scratch words; equal at all members, at least in being
    /// odd.
    pub(super) proposals: &'a AtomicUsize,
}

/// What the members' proposals say together.
struct Proposed {
    /// Slots that are free at all of them.
    free: [u64; MAX_BARRIERS / 64],
    /// A peer whose proposal is not this PE's.
    contradiction: Option<usize>,
}

/// What the members' claims say together.
struct Claimed {
    /// Whether this PE has the slot.
    mine: bool,
    by_all: bool,
    /// How many each PE had dropped in the slot before.
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
            meet: &|| self.barrier(),
            proposals: &self.proposals,
        };
        council.agree(call, arguments, peers)
    }
}

impl Council<'_> {
    /// Finds a barrier slot that is free on every member, clears it, and takes it. All members get
    /// the same.
    ///
    /// `arguments` are those of this member's `call`, in words, which must be those of each of
    /// `peers`; or the error that they are by themselves.
    ///
    /// Other teams, in other threads of the members, may be looking at the same time. So each
    /// member claims the slot that all found free, and all compare whether everybody's claim
    /// succeeded; where one did not, all give it up and try another. Teams begin their search at
    /// different slots, so that they seldom meet twice.
    ///
    /// Nobody leaves before all have heard. An error that a member found by itself is in its
    /// proposal: all see it after one barrier, and leave. Whoever finds proposals that contradict
    /// its own says so in its claim, as the others need not have compared the same two; all leave
    /// after the second barrier.
    ///
    /// A slot is free only where all have dropped what they had there together with this member:
    /// not only the barrier's words are looked at by the late, but also the scratch words here
    /// after the last barrier, and eager buffers. A slot that a late member, who is in this call,
    /// has just dropped may come too late for the first attempt; so where none is free, they look
    /// once more.
    ///
    /// The words of a claim are free again when their first barrier is passed the next time. A
    /// proposal may be the last thing that is read of a call, so there are two words that take
    /// turns: one is written again only behind the barrier of the proposal between.
    pub(super) fn agree(
        &self,
        call: &'static str,
        arguments: Result<String>,
        peers: &[usize],
    ) -> Result<Agreed> {
        let mine = arguments.as_ref().map_or(WRONG, |arguments| digest(call, arguments));
        let unequal = |pe: usize, theirs: &str, ours: String| Error::Unequal {
            call,
            pe,
            theirs: theirs.into(),
            ours,
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
            if slot.is_none() && std::mem::replace(&mut none_before, true) {
                break;
            }
        }
        Err(Error::TooMany { what: "teams and barriers", limit: MAX_BARRIERS })
    }

    /// A scratch word of a member.
    fn scratch(&self, pe: usize, offset: usize) -> Route {
        self.pe.route(pe, Pe::barrier_slot(self.slot) + offset as u64)
    }

    /// Writes a scratch word of this PE's own.
    fn publish(&self, offset: usize, value: u64) {
        let word = self.pe.local(Pe::barrier_slot(self.slot) + offset as u64);
        // SAFETY: an aligned word of this PE's own slot, which others only read.
        unsafe { shm::store(word.cast(), value) }
    }

    /// Members tell each other which slots are free, and what they ask for. Gives a member whose
    /// arguments cannot be, if there is one.
    fn propose(&self, mine: u64, peers: &[usize]) -> Result<std::result::Result<Proposed, usize>> {
        let free_at = offset_of!(BarrierSlot, free_slots);
        self.pe.free_rested();
        let mut free = *self.pe.free_slots();
        for (index, &bits) in free.iter().enumerate() {
            self.publish(free_at + 8 * index, bits);
        }
        let turn = self.proposals.fetch_add(1, Ordering::Relaxed) % 2;
        let proposal_at = offset_of!(BarrierSlot, proposal) + 8 * turn;
        self.publish(proposal_at, mine);
        (self.meet)()?;
        for &member in self.members {
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

    /// The slot that all members try to claim: the same one at each.
    fn pick(&self, free: &[u64], attempt: usize) -> Option<usize> {
        let start = self.slot * 31 + attempt * 7;
        (0..MAX_BARRIERS)
            .map(|i| (start + i) % MAX_BARRIERS)
            .find(|&slot| free[slot / 64] >> (slot % 64) & 1 == 1)
    }

    /// Claims a slot, unless a peer's proposal contradicts this PE's, and hears of the others'
    /// claims.
    fn claim(&self, slot: Option<usize>, mut contradiction: Option<usize>) -> Result<Claimed> {
        let claim_at = offset_of!(BarrierSlot, claim);
        let mine = contradiction.is_none() && slot.is_some_and(|slot| self.pe.claim_slot(slot));
        let claim = match slot {
            Some(slot) if mine => {
                self.clear(slot);
                CLAIMED | self.pe.ended(slot) << 2
            }
            _ if contradiction.is_some() => REFUSED,
            _ => 0,
        };
        self.publish(claim_at, claim);
        // Nobody may use the slot before all have cleared it.
        (self.meet)()?;
        let (mut by_all, mut ended) = (true, vec![0; self.pe.npes()]);
        for &member in self.members {
            let claim = self.scratch(member, claim_at).load::<u64>(self.pe)?;
            by_all &= claim & SAYS == CLAIMED;
            ended[member] = claim >> 2;
            if claim == REFUSED && contradiction.is_none() {
                contradiction = Some(member);
            }
        }
        Ok(Claimed { mine, by_all, ended, contradiction })
    }

    /// Makes this PE's part of a slot that it has claimed as new.
    fn clear(&self, slot: usize) {
        let (lines, lined) = (Pe::lines(slot), self.members.len().min(MAX_LINED));
        let barrier = self.pe.local(Pe::barrier_slot(slot));
        // SAFETY: this PE's own slot, all but its last word, and the lines in which the members of
        // the new team, who are some of these, will notify it. Nobody uses them: everybody has
        // dropped what was there, and has made its writes quiet in the barrier of the proposal.
        unsafe {
            shm::zero(barrier, offset_of!(BarrierSlot, ended));
            shm::zero(self.pe.local(lines), lined * TURNS * size_of::<StepLine>());
        }
    }
}
