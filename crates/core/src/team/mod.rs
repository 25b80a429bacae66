//! Teams: subsets of the PEs, each with a barrier of its own.

mod agree;
mod among;
pub(crate) mod compare;
pub(crate) mod forced;
pub(crate) mod network;
pub(crate) mod place;
mod split;
pub(crate) mod steps;
pub(crate) mod turn;

use agree::Agreed;

use crate::base::error::{Error, Result};
use crate::base::layout::MAX_BARRIERS;
use crate::endpoint::layers::Layers;
use crate::endpoint::pe::Pe;
use crate::sync::barrier::{Algorithm, Barrier};
use forced::Forced;
use network::Network;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use steps::Steps;

/// An ordered subset of the job's PEs. Calls marked *collective* must be made by all of its
/// members, in the same order.
pub struct Team {
    pe: Arc<Pe>,
    members: Arc<[usize]>,
    rank: usize,
    slot: usize,
    slots_left: usize,
    /// Whether the members have each other's memory mapped: all find the same.
    near: bool,
    barrier: Barrier,
    steps: Steps,
    network: Network,
    /// State of the layers above, for this team.
    layers: Layers,
    /// Proposals so far.
    proposals: AtomicUsize,
    /// The way in which collectives go, where the user has said so.
    forced: Option<Forced>,
}

impl Team {
    /// The team of all PEs; its barrier lives in slot 0, which is zero from the start.
    pub(crate) fn world(pe: &Arc<Pe>) -> Result<Self> {
        let (members, ended) = pe.control().everybody();
        Self::with_slot(pe, members, pe.me(), (0, MAX_BARRIERS - 2), ended)
    }

    fn in_slot(pe: &Arc<Pe>, members: Arc<[usize]>, rank: usize, agreed: &Agreed) -> Result<Self> {
        let ended = agreed.ended(&members);
        Self::with_slot(pe, members, rank, (agreed.slot, agreed.left), ended)
    }

    fn with_slot(
        pe: &Arc<Pe>,
        members: Arc<[usize]>,
        rank: usize,
        (slot, slots_left): (usize, usize),
        ended: Arc<[u64]>,
    ) -> Result<Self> {
        let barrier = Barrier::new(pe.clone(), members.clone(), rank, slot, ended)?;
        let forced = Forced::asked()?;
        Ok(Team {
            near: pe.record().are_near(members.iter().copied()),
            network: Network::join(pe, slot, forced)?,
            layers: Layers::default(),
            pe: pe.clone(),
            rank,
            slot,
            slots_left,
            barrier,
            steps: Steps::new(members.len(), forced),
            proposals: AtomicUsize::new(0),
            forced,
            members,
        })
    }

    pub(crate) fn pe(&self) -> &Arc<Pe> {
        &self.pe
    }

    /// Whether all members are near to each other: if not, some are behind a fabric. All members
    /// get the same answer.
    #[inline]
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    #[inline]
    pub(crate) fn forced(&self) -> Option<Forced> {
        self.forced
    }

    #[inline]
    pub(crate) fn steps(&self) -> &Steps {
        &self.steps
    }

    #[inline]
    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// How many more teams and barriers all members had room for when this team was made: the same
    /// number at each of them.
    pub fn room(&self) -> usize {
        self.slots_left
    }

    /// The members, as PE numbers of the job, in the team's order.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// This PE's place in [`members`](Self::members).
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The rank in `other` of the member with rank `rank` of this team; `None` when it is not in
    /// both.
    pub fn translate(&self, rank: usize, other: &Team) -> Option<usize> {
        let &pe = self.members.get(rank)?;
        // In the world, and in what is split off its beginning, a PE's number is its rank.
        if other.members.get(pe) == Some(&pe) {
            return Some(pe);
        }
        other.members.iter().position(|&member| member == pe)
    }

    /// Number of members.
    #[allow(clippy::len_without_is_empty, reason = "a team always has this PE in it")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Completes this PE's writes, then waits until all members are here. *Collective.*
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when a member is gone.
    pub fn barrier(&self) -> Result<()> {
        self.barrier.pass()
    }

    /// The team's own barrier, for its split-phase calls.
    pub fn split_barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// A further barrier over the team, whose phases overlap with those of others as they like.
    /// *Collective.*
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn new_barrier(&self) -> Result<Barrier> {
        let allowed = Algorithm::forced(self.len());
        let slot = self.agree("new_barrier", allowed.map(|_| String::new()), &self.members)?;
        let ended = slot.ended(&self.members);
        Barrier::new(self.pe.clone(), self.members.clone(), self.rank, slot.slot, ended)
    }

    /// A team of some of this team's members, given as PE numbers of the job in the wanted order.
    /// *Collective over this team*: each member names the team it will be in; those outside of it
    /// get `None`. Several disjoint teams may be made by one call, each member naming its own.
    ///
    /// # Errors
    /// [`Error::NoSuchPe`] for a number outside of this team, [`Error::Unequal`] when two members
    /// of one list name different lists, [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn team(&self, pes: &[usize]) -> Result<Option<Team>> {
        let named = pes.contains(&self.pe.me());
        let allowed = self.check(pes).and_then(|()| Algorithm::forced(pes.len()));
        let slot =
            self.agree("team", allowed.map(|_| format!("{pes:?}")), if named { pes } else { &[] })?;
        self.take_slot(&slot, pes)
    }

    /// The team of `pes` in a slot that all have agreed on.
    fn take_slot(&self, slot: &Agreed, pes: &[usize]) -> Result<Option<Team>> {
        match pes.iter().position(|&pe| pe == self.pe.me()) {
            Some(rank) => Self::in_slot(&self.pe, pes.into(), rank, slot).map(Some),
            None => {
                self.pe.release_slot(slot.slot);
                Ok(None)
            }
        }
    }

    /// Whether these PEs are members of this team, each named once.
    fn check(&self, pes: &[usize]) -> Result<()> {
        let mut left = vec![false; self.pe.npes()];
        self.members.iter().for_each(|&member| left[member] = true);
        for &pe in pes {
            match left.get_mut(pe) {
                Some(left) if *left => *left = false,
                _ if self.members.contains(&pe) => {
                    return Err(Error::Misuse("a PE stands twice in the list of a team's members"));
                }
                _ => {
                    return Err(Error::NoSuchPe { pe, npes: self.members.len() });
                }
            }
        }
        Ok(())
    }
}
