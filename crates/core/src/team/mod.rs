//! Teams: subsets of the PEs, each with a barrier of its own.

mod agree;
mod among;
pub(crate) mod at_once;
pub(crate) mod compare;
pub(crate) mod forced;
pub(crate) mod network;
pub(crate) mod place;
mod split;
pub(crate) mod steps;
pub(crate) mod turn;

use agree::Agreed;

use crate::base::error::{Error, Quick, Result};
use crate::base::layout::MAX_BARRIERS;
use crate::base::shows;
use crate::endpoint::awaiting::Meeting;
use crate::endpoint::calls;
use crate::endpoint::copies::Copies;
use crate::endpoint::layers::Layers;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::events::TextId;
use crate::sync::barrier::{Algorithm, AtOnce, Barrier, rank_of};
use crate::sync::slots::{NODE, RESERVED};
use forced::Forced;
use network::Network;
use std::convert::Infallible;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use steps::Steps;

/// An ordered subset of the job's PEs, with a barrier and collectives of its own. All members must
/// make the calls marked *collective*, and in one order.
///
/// | here | OpenSHMEM | MPI |
/// |---|---|---|
/// | `Team` | `shmem_team_t` | `MPI_Comm` |
/// | [`Job::world`](crate::Job::world) | `SHMEM_TEAM_WORLD` | `MPI_COMM_WORLD` |
/// | [`team`](Self::team) | - | `MPI_Comm_create` |
/// | [`split`](Self::split) | - | `MPI_Comm_split` |
/// | [`split_strided`](Self::split_strided) | `shmem_team_split_strided` | `MPI_Comm_split` |
/// | [`split_2d`](Self::split_2d) | `shmem_team_split_2d` | `MPI_Cart_sub` |
/// | [`split_by_node`](Self::split_by_node) | `SHMEM_TEAM_SHARED` | `MPI_Comm_split_type` |
/// | [`barrier`](Self::barrier) | `shmem_team_sync` after `shmem_quiet` | `MPI_Barrier` |
/// | [`broadcast`](Self::broadcast) | `shmem_broadcast` | `MPI_Bcast` |
/// | [`reduce`](Self::reduce), [`all_reduce`](Self::all_reduce) | `shmem_sum_reduce` (to all) | `MPI_Reduce`, `MPI_Allreduce` |
/// | [`scan`](Self::scan), [`exclusive_scan`](Self::exclusive_scan) | `shmem_sum_inscan`, `shmem_sum_exscan` | `MPI_Scan`, `MPI_Exscan` |
/// | [`gather`](Self::gather), [`all_gather`](Self::all_gather) | `shmem_fcollect` (to all) | `MPI_Gather`, `MPI_Allgather` |
/// | [`collect`](Self::collect) | `shmem_collect` | `MPI_Allgatherv` |
/// | [`scatter`](Self::scatter) | - | `MPI_Scatter` |
/// | [`all_to_all`](Self::all_to_all), [`all_to_alls_into`](Self::all_to_alls_into) | `shmem_alltoall`, `shmem_alltoalls` | `MPI_Alltoall` |
///
/// | a collective | takes | for |
/// |---|---|---|
/// | [`all_reduce`](Self::all_reduce) | a value | a number, a vector, a structure |
/// | [`all_reduce_slice`](Self::all_reduce_slice) | a slice of private memory | data outside of windows; they go through the team's staging area, in pieces of up to 256 KiB |
/// | [`all_reduce_into`](Self::all_reduce_into) | [`Span`](crate::Span)s of windows | large data, and data that lie in windows anyway |
///
/// The others are named alike. A call on values must meet a call on values at the other members,
/// and one on spans one on spans.
pub struct Team {
    pe: Arc<Pe>,
    members: Arc<[usize]>,
    rank: usize,
    slot: usize,
    slots_left: usize,
    /// Whether the members have each other's memory mapped.
    near: bool,
    barrier: Barrier,
    steps: Steps,
    network: Network,
    /// The group for writes that the network copies, where the network serves this team.
    copies: Option<Arc<Copies>>,
    /// State of the layers above, for this team.
    layers: Layers,
    /// Proposals of slots so far.
    proposals: AtomicUsize,
    /// The algorithm of collectives that the user forces.
    forced: Option<Forced>,
    /// The members as a text of this PE's timeline.
    label: OnceLock<TextId>,
    /// Collective calls that this member has made, but for those that have failed.
    calls: AtomicU64,
}

shows!([] Team as "Team", |it| rank = it.rank, members = it.members);

impl Team {
    /// The team of all PEs; its barrier lives in slot 0, which is zero from the start.
    pub(crate) fn world(pe: &Arc<Pe>) -> Result<Self> {
        let (members, ended) = pe.control().everybody();
        Self::with_slot(pe, members, pe.me(), (0, MAX_BARRIERS - RESERVED), ended)
    }

    /// The team of all PEs in the slot that is reserved for a node's team, if this PE has made none
    /// there. The slot is zero from the start, like the world's, so the PEs need not meet; a fabric
    /// would let them.
    pub(crate) fn whole_node(pe: &Arc<Pe>) -> Result<Option<Self>> {
        if pe.has_fabric() || !pe.claim_node_slot() {
            return Ok(None);
        }
        let (members, ended) = pe.control().everybody();
        Self::with_slot(pe, members, pe.me(), (NODE, MAX_BARRIERS - RESERVED), ended).map(Some)
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
        let copies = Copies::join(pe, &members, slot)?;
        let barrier = Barrier::new(pe.clone(), members.clone(), rank, slot, ended, copies.clone())?;
        let forced = Forced::asked()?;
        Ok(Team {
            near: pe.record().are_near(members.iter().copied()),
            network: Network::join(pe, slot, forced)?,
            copies,
            layers: Layers::default(),
            pe: pe.clone(),
            rank,
            slot,
            slots_left,
            barrier,
            steps: Steps::new(pe, &members, rank, slot, forced),
            proposals: AtomicUsize::new(0),
            forced,
            members,
            label: OnceLock::new(),
            calls: AtomicU64::new(0),
        })
    }

    pub(crate) fn pe(&self) -> &Arc<Pe> {
        &self.pe
    }

    /// Says for a timeline that this PE is in a call of all members, to which it gives so many
    /// bytes.
    #[inline(always)]
    pub(crate) fn note_call(&self, bytes: usize) {
        self.pe.note_team(self.slot, &self.label, &self.members, bytes);
    }

    /// Whether all members are near to each other; otherwise some are behind a fabric. All members
    /// get the same answer.
    #[inline]
    pub(crate) fn is_near(&self) -> bool {
        self.near
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Makes a collective call of the program.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn collective<R>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> Quick<R>,
    ) -> Result<R> {
        self.collective_at(name, Location::caller(), call)
    }

    #[inline(always)]
    pub(crate) fn collective_at<R>(
        &self,
        name: &'static str,
        at: &'static Location<'static>,
        call: impl FnOnce() -> Quick<R>,
    ) -> Result<R> {
        self.pe.collective_call(name, at, || {
            if calls::is_of_team() {
                return call();
            }
            let result = self.counted(call)?;
            self.pe.surface_if_far()?;
            Ok(result)
        })
    }

    /// A collective call that makes something. An error of an earlier write waits for a later call:
    /// what was made would be lost at this PE alone.
    #[track_caller]
    pub(crate) fn making<R>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> Quick<R>,
    ) -> Result<R> {
        self.pe.collective_call(name, Location::caller(), || self.count_call(call))
    }

    /// Notes and counts a collective call that is no part of another one, as one that has ended: it
    /// may not have to wait. If it does, [`collective_after_all`](Self::collective_after_all) takes
    /// that back.
    #[inline(always)]
    fn count_passed(&self, name: &'static str, at: &'static Location<'static>) {
        calls::note_ended(name, at);
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The rest of a call that was counted as passed.
    #[cold]
    #[inline(never)]
    fn collective_after_all<R>(
        &self,
        name: &'static str,
        at: &'static Location<'static>,
        rest: impl FnOnce() -> Quick<R>,
    ) -> Result<R> {
        self.calls.store(self.calls.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.collective_at(name, at, rest)
    }

    /// [`counted`](Self::counted), unless the call is a part of another one.
    #[inline(always)]
    fn count_call<R, E>(
        &self,
        call: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if calls::is_of_team() { call() } else { self.counted(call) }
    }

    /// Counts a collective call that is no part of another one. One that has failed does not count,
    /// as it may have done so before it has met any other member.
    #[inline(always)]
    fn counted<R, E>(
        &self,
        call: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        let number = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(number, Ordering::Relaxed);
        let result = calls::of_team(self.meeting(), call);
        if result.is_err() {
            self.calls.store(number - 1, Ordering::Relaxed);
        }
        result
    }

    /// A collective call that cannot fail, but ends the process.
    pub(crate) fn of_call<R>(&self, call: impl FnOnce() -> R) -> R {
        let Ok(result) = self.count_call(|| Ok::<R, Infallible>(call()));
        result
    }

    /// The collective call that this member is in.
    pub(crate) fn meeting(&self) -> Meeting {
        Meeting { slot: self.slot, number: self.calls.load(Ordering::Relaxed) }
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

    /// The group for writes that the network copies, unless the user forces a way without.
    pub(crate) fn copies(&self) -> Option<&Copies> {
        self.copies.as_deref().filter(|_| self.forced.is_none())
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    /// The number of further teams and barriers for which all members had room when this team was
    /// made. All members get the same number.
    pub fn room(&self) -> usize {
        self.slots_left
    }

    /// The members as PE numbers of the job, in the team's order.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// This PE's place in [`members`](Self::members).
    ///
    /// OpenSHMEM: `shmem_team_my_pe`; MPI: `MPI_Comm_rank`.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The rank in `other` of the member with rank `rank` of this team; `None` when that PE is not
    /// in both teams.
    ///
    /// OpenSHMEM: `shmem_team_translate_pe`; MPI: `MPI_Group_translate_ranks`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// if let Some(odd) = job.world().split_strided(1, 2, 2)? {
    ///     assert_eq!(odd.members(), [1, 3]);
    ///     assert_eq!(odd.translate(1, job.world()), Some(3));
    ///     assert_eq!(job.world().translate(0, &odd), None);
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    pub fn translate(&self, rank: usize, other: &Team) -> Option<usize> {
        let &pe = self.members.get(rank)?;
        rank_of(&other.members, pe)
    }

    /// Number of members.
    ///
    /// OpenSHMEM: `shmem_team_n_pes`; MPI: `MPI_Comm_size`.
    #[allow(clippy::len_without_is_empty, reason = "a team always has this PE in it")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Completes this PE's writes, then waits until all members have called. *Collective.*
    ///
    /// OpenSHMEM: `shmem_quiet`, then `shmem_team_sync`; MPI: `MPI_Barrier` after a flush.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u64>(1)?;
    /// window.put_one((job.pe() + 1) % 2, 0, 7)?; // to the other PE
    /// job.world().barrier()?;
    /// assert_eq!(window.read(0), 7); // from the other PE
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when a member is gone. Once all have met, the error with which an
    /// earlier write failed.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.barrier_named("Team::barrier")
    }

    /// [`barrier`](Self::barrier), by another name of the program.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn barrier_named(&self, name: &'static str) -> Result<()> {
        match self.barrier_at_once(name, Location::caller()) {
            Some(passed) => passed,
            None => self.barrier_in_general(name),
        }
    }

    /// A barrier of near members that has nothing else to do.
    #[inline(always)]
    fn barrier_at_once(
        &self,
        name: &'static str,
        at: &'static Location<'static>,
    ) -> Option<Result<()>> {
        if calls::is_of_team() {
            return None;
        }
        match self.barrier.pass_at_once(|| self.count_passed(name, at)) {
            AtOnce::Passed => Some(Ok(())),
            AtOnce::Arrived => {
                Some(self.collective_after_all(name, at, || self.barrier.go_on_passing()))
            }
            AtOnce::Nothing => None,
        }
    }

    #[inline(never)]
    #[track_caller]
    fn barrier_in_general(&self, name: &'static str) -> Result<()> {
        self.collective(name, || self.pass_barrier())
    }

    /// A [`barrier`](Self::barrier) that is a step of another call: no error of an earlier write
    /// surfaces, as it would end that call at this PE alone.
    #[track_caller]
    pub(crate) fn inner_barrier(&self) -> Result<()> {
        let name = "Team::barrier";
        match self.barrier_at_once(name, Location::caller()) {
            Some(passed) => passed,
            None => self.making(name, || self.pass_barrier()),
        }
    }

    #[inline(always)]
    pub(crate) fn pass_barrier(&self) -> Quick<()> {
        self.note_call(0);
        self.barrier.pass()
    }

    /// The team's own barrier, for its split-phase calls: a PE arrives, does work that does not
    /// depend on the other members, and then waits for them.
    ///
    /// MPI: `MPI_Ibarrier` and `MPI_Wait`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let barrier = job.world().split_barrier();
    /// for _ in 0..3 {
    ///     let arrival = barrier.arrive()?; // this PE's writes are complete for the others
    ///     // work that does not depend on the others
    ///     arrival.wait()?; // all members have arrived
    /// }
    /// barrier.step()?; // the form with one call: waits for the last phase, arrives at the next
    /// barrier.wait()?;
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    pub fn split_barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// Makes a further barrier of the team's members. Its phases may overlap with the phases of
    /// other barriers. *Collective.*
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let (halves, whole) = (job.world().new_barrier()?, job.world().new_barrier()?);
    /// let later = whole.arrive()?;
    /// halves.arrive()?.wait()?; // while the phase of `whole` is under way
    /// later.wait()?;
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::PeerFailed`].
    #[track_caller]
    pub fn new_barrier(&self) -> Result<Barrier> {
        self.making("Team::new_barrier", || {
            let allowed = Algorithm::forced(self.len());
            let slot = self.agree("new_barrier", allowed.map(|_| String::new()), &self.members)?;
            let ended = slot.ended(&self.members);
            let (pe, members) = (self.pe.clone(), self.members.clone());
            Ok(Barrier::new(pe, members, self.rank, slot.slot, ended, self.copies.clone())?)
        })
    }

    /// Makes a team of some of this team's members, given as PE numbers of the job in the wanted
    /// order. *Collective over this team.* One call may make several disjoint teams: each member
    /// names its own. A member that is not in the team that it names gets `None`.
    ///
    /// OpenSHMEM: `shmem_team_split_strided`; MPI: `MPI_Comm_create`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// let parity = job.pe() % 2;
    /// let mine: Vec<usize> = (parity..job.npes()).step_by(2).collect();
    /// let team = job.world().team(&mine)?.expect("this PE is in the list");
    /// assert_eq!((team.len(), team.rank()), (2, job.pe() / 2));
    /// team.barrier()?; // of two PEs
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchPe`] for a number outside of this team, [`Error::Unequal`] when two members
    /// of one list name different lists, [`Error::TooMany`], [`Error::PeerFailed`].
    #[track_caller]
    pub fn team(&self, pes: &[usize]) -> Result<Option<Team>> {
        self.making("Team::team", || {
            let named = pes.contains(&self.pe.me());
            let allowed = self.check(pes).and_then(|()| Algorithm::forced(pes.len()));
            let slot = self.agree(
                "team",
                allowed.map(|_| format!("{pes:?}")),
                if named { pes } else { &[] },
            )?;
            Ok(self.take_slot(&slot, pes)?)
        })
    }

    /// The team of `pes` in a slot that all members have agreed on.
    fn take_slot(&self, slot: &Agreed, pes: &[usize]) -> Result<Option<Team>> {
        match rank_of(pes, self.pe.me()) {
            Some(rank) => Self::in_slot(&self.pe, pes.into(), rank, slot).map(Some),
            None => {
                self.pe.release_slot(slot.slot);
                Ok(None)
            }
        }
    }

    /// Checks that these PEs are members of this team, each named once.
    fn check(&self, pes: &[usize]) -> Result<()> {
        let mut left = vec![false; self.pe.npes()];
        self.members.iter().for_each(|&member| left[member] = true);
        for &pe in pes {
            match left.get_mut(pe) {
                Some(left) if *left => *left = false,
                _ if self.members.contains(&pe) => {
                    return Err(Error::misuse("a PE stands twice in the list of a team's members"));
                }
                _ => {
                    return Err(Error::NoSuchPe { pe, npes: self.members.len(), call: None });
                }
            }
        }
        Ok(())
    }
}
