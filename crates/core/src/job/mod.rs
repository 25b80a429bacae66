//! A PE's handle on its job, and what all PEs agree on.

pub(crate) mod agree;
pub(crate) mod heap;
pub(crate) mod own_heap;
pub(crate) mod pages;

use crate::base::error::{Cause, Error, Result};
use crate::base::shows;
use crate::base::status::{Participation, State};
use crate::endpoint::ending;
use crate::endpoint::fabric::Costs;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::Recording;
use crate::team::Team;
use crate::wait::{Attention, polling};
use rustix::process::{Pid, Signal};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// A PE's handle on its job. Cheap to clone, and usable from every thread of the PE.
///
/// `memonet::init` gives the job that a launcher has started; [`Job::threads`] starts a job whose
/// PEs are threads of this process.
///
/// ```
/// use memonet_core::Job;
///
/// Job::threads(4, |job| {
///     println!("this is PE {} of {}", job.pe(), job.npes());
/// })?;
/// # Ok::<(), memonet_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Job {
    pub(crate) pe: Arc<Pe>,
    pub(crate) world: Arc<Team>,
}

shows!([] Job as "Job", |it| pe = it.pe(), npes = it.npes());

impl Job {
    /// This PE's number, from 0 on.
    ///
    /// OpenSHMEM: `shmem_my_pe`; MPI: `MPI_Comm_rank`.
    pub fn pe(&self) -> usize {
        self.pe.me()
    }

    /// Number of PEs in the job.
    ///
    /// OpenSHMEM: `shmem_n_pes`; MPI: `MPI_Comm_size`.
    pub fn npes(&self) -> usize {
        self.pe.npes()
    }

    /// Whether a PE's memory is mapped into this process, so that a store to it is one instruction.
    ///
    /// OpenSHMEM: whether `shmem_ptr` gives an address.
    ///
    /// # Panics
    /// When there is no such PE.
    pub fn is_near(&self, pe: usize) -> bool {
        assert!(pe < self.npes(), "there is no PE {pe} in a job of {}", self.npes());
        self.pe.is_near(pe)
    }

    /// Why a PE takes part in nothing any more: its death, [`Cause::Finalized`] where it has left
    /// in order, or [`Cause::Unreachable`] where the connection between the two has broken. `None`
    /// while it lives, as far as is known here. For programs that go on without PEs that fail.
    ///
    /// ```
    /// # use memonet_core::{Cause, Job};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let mut living = Vec::new();
    /// for pe in 0..job.npes() {
    ///     if job.departed(pe)?.is_none() {
    ///         living.push(pe);
    ///     }
    /// }
    /// assert!(living.contains(&job.pe()));
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`NoSuchPe`](crate::Error::NoSuchPe).
    pub fn departed(&self, pe: usize) -> Result<Option<Cause>> {
        if pe >= self.npes() {
            return Err(Error::NoSuchPe { pe, npes: self.npes(), call: None });
        }
        let lost = || self.pe.far_fabric().map(|fabric| fabric.unreachable()).unwrap_or_default();
        let is_lost = || lost().iter().any(|&(other, _)| other as usize == pe);
        let cause = self.pe.control().state(pe).departed();
        Ok(cause.or_else(|| is_lost().then_some(Cause::Unreachable)))
    }

    /// Why a pointer into a PE's own segment does not mean the same on all PEs. `None` where it
    /// does, and at all PEs but the one that reports the reason. Call it when all PEs have joined,
    /// each in a process of its own.
    pub fn why_apart(&self) -> Option<String> {
        self.pe.control().why_apart(self.pe())
    }

    /// Name of the fabric to far peers; `None` when all peers are near.
    pub fn fabric(&self) -> Option<&'static str> {
        self.pe.has_fabric().then(|| self.pe.fabric().name())
    }

    /// What operations on far memory cost: the same at every PE. `None` where all memory is near,
    /// or the fabric does not know.
    pub fn costs(&self) -> Option<Costs> {
        self.pe.record().costs().copied()
    }

    /// Whether the checks that cost time are on, as `MEMONET_CHECK=1` asks. They find a collective
    /// that members call with different arguments or in place of another one, and a lock or mutex
    /// that a thread takes twice.
    pub fn is_checked(&self) -> bool {
        self.pe.is_checked()
    }

    /// Whether this PE records what its program does, for its launcher.
    pub fn is_recorded(&self) -> bool {
        self.pe.recorder().is_some()
    }

    /// For front ends: begins a call of the program, which ends when the value is dropped; `None`
    /// where nothing is recorded. Calls in between are part of it.
    // Without the caller's place, which is that of a front end and not of its program.
    #[doc(hidden)]
    pub fn begin_call(&self, name: &'static str) -> Option<Recording> {
        self.pe.begin(name, Location::caller(), None)
    }

    /// For front ends: how the waits of this PE are asked what they are for, and interrupted.
    #[doc(hidden)]
    pub fn attention(&self) -> Attention {
        Attention::of(&self.pe)
    }

    /// The team of all PEs, on which collectives of the whole job are called.
    ///
    /// OpenSHMEM: `SHMEM_TEAM_WORLD`; MPI: `MPI_COMM_WORLD`.
    pub fn world(&self) -> &Team {
        &self.world
    }

    /// The team of `pes`, in that order; `None` at all other PEs. *Collective over all PEs*: it is
    /// [`Team::team`] of [`world`](Self::world).
    ///
    /// OpenSHMEM: `shmem_team_split_strided`; MPI: `MPI_Comm_create`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let pair = job.team(&[2, 0])?;
    /// match job.pe() {
    ///     1 => assert!(pair.is_none()),
    ///     me => assert_eq!(pair.unwrap().rank(), if me == 2 { 0 } else { 1 }),
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`Team::team`].
    #[track_caller]
    pub fn team(&self, pes: &[usize]) -> Result<Option<Team>> {
        self.pe.waiting_call("Job::team", None, || self.world.team(pes))
    }

    /// Makes the team of this PE's node, as [`Team::split_by_node`] of [`world`](Self::world) does.
    /// *Collective*, but where all PEs share a node, the first call waits for nobody.
    ///
    /// OpenSHMEM: `SHMEM_TEAM_SHARED`; MPI: `MPI_Comm_split_type` with `MPI_COMM_TYPE_SHARED`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let node = job.node_team()?;
    /// assert_eq!(node.members(), [0, 1]); // this job has one node
    /// let under_way = job.world().split_barrier().arrive()?;
    /// node.barrier()?; // beside a phase of the other team
    /// under_way.wait()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`Team::split_by_node`].
    #[track_caller]
    pub fn node_team(&self) -> Result<Team> {
        self.pe.waiting_call("Job::node_team", None, || match Team::whole_node(&self.pe)? {
            Some(team) => Ok(team),
            None => self.world.split_by_node(),
        })
    }

    /// Completes this PE's writes, then waits until all PEs have called. *Collective.* What any PE
    /// wrote before its call is visible to all PEs after theirs.
    ///
    /// OpenSHMEM: `shmem_barrier_all`; MPI: `MPI_Win_fence`, or `MPI_Barrier` after a flush.
    /// [`Team::split_barrier`] is the form in two halves.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// let window = job.window::<u64>(1)?;
    /// window.put_one((job.pe() + 1) % job.npes(), 0, 7)?;
    /// job.barrier()?;
    /// assert_eq!(window.read(0), 7);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`PeerFailed`](crate::Error::PeerFailed) when a PE is gone. Once all have met, the error
    /// with which an earlier write failed.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.world.barrier_named("Job::barrier")
    }

    /// Orders this PE's writes: at each PE, the writes before this call become visible before the
    /// writes after it. A fence costs next to nothing on near peers.
    ///
    /// OpenSHMEM: `shmem_fence`; MPI has no such call (`MPI_Win_flush` does more).
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let (block, flag) = (job.window::<f64>(10)?, job.window::<u64>(1)?);
    /// if job.pe() == 0 {
    ///     block.put(1, 0, &[1.0; 10])?;
    ///     job.fence()?; // the block first, then the flag
    ///     flag.remote(1, 0)?.store(1);
    /// } else {
    ///     flag.wait_until(0, Cmp::Ne, 0)?;
    ///     assert_eq!(block.read(9), 1.0);
    /// }
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// The error with which an earlier write failed.
    #[track_caller]
    #[inline]
    pub fn fence(&self) -> Result<()> {
        if self.pe.fence_at_once() {
            return Ok(());
        }
        self.pe.call("Job::fence", None, || Ok(self.pe.fence()?))
    }

    /// Completes this PE's writes: when it returns, all of them are visible at their targets, and
    /// the sources of [`put_nbi`](crate::Window::put_nbi) may change.
    ///
    /// OpenSHMEM: `shmem_quiet`; MPI: `MPI_Win_flush_all`.
    ///
    /// # Errors
    /// The error with which an earlier write failed.
    #[track_caller]
    #[inline]
    pub fn quiet(&self) -> Result<()> {
        if self.pe.quiet_at_once() {
            return Ok(());
        }
        self.pe.waiting_call("Job::quiet", None, || Ok(self.pe.quiet()?))
    }

    /// Whether all of this PE's writes are visible at their targets, without waiting for that.
    ///
    /// # Errors
    /// The error with which an earlier write failed.
    #[track_caller]
    pub fn is_quiet(&self) -> Result<bool> {
        self.pe.call("Job::is_quiet", None, || {
            match self.pe.has_fabric() {
                true => self
                    .pe
                    .fabric()
                    .is_quiet()
                    .inspect(|&quiet| polling::has_looked(&self.pe, quiet)),
                // Visible in the order they were made; what follows this sees them.
                false => self.quiet().map(|()| true),
            }
        })
    }

    /// Says that the program computes for `ns` nanoseconds. On a simulated machine that time
    /// passes; on a real machine the call does nothing. Simulated time ends after 106 days: what
    /// would last longer takes none, and the next [`quiet`](Self::quiet) says so.
    pub fn compute(&self, ns: u64) {
        if let Some(clock) = self.pe.clock() {
            clock.compute(Duration::from_nanos(ns));
        }
    }

    /// The team of `pes`, in this order; this PE is one of them. *Collective over these PEs alone*:
    /// no other PE takes part. Threads of a PE may make teams of different PEs at once, in any
    /// order.
    ///
    /// MPI: `MPI_Comm_create_group`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// if job.pe() > 0 {
    ///     let workers = job.team_among(&[1, 2])?; // PE 0 does not call
    ///     assert_eq!(workers.rank(), job.pe() - 1);
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// At this PE alone: [`NoSuchPe`](crate::Error::NoSuchPe), and
    /// [`Misuse`](crate::Error::Misuse) for a list that names a PE twice or leaves out this PE, or
    /// that names the PEs of a team that another thread makes now. At all members:
    /// [`Unequal`](crate::Error::Unequal) when members name different lists of the same PEs,
    /// [`TooMany`](crate::Error::TooMany), [`PeerFailed`](crate::Error::PeerFailed).
    #[track_caller]
    pub fn team_among(&self, pes: &[usize]) -> Result<Team> {
        self.pe.waiting_call("Job::team_among", None, || self.world.among(pes))
    }

    /// Ends the whole job: this process exits with `status`, as by `exit`, and the launcher at once
    /// ends the other PEs and exits with that status.
    ///
    /// OpenSHMEM: `shmem_global_exit`; MPI: `MPI_Abort`.
    ///
    /// The first PE that calls this decides on the status. The launcher waits a few seconds for the
    /// exit handlers of the PE that called, and then ends it too. A job without a launcher ends
    /// with this process. Under a launcher that is not memonet's, the other PEs end by themselves,
    /// in their next call that waits.
    pub fn exit(&self, status: u8) -> ! {
        if ending::is_under_way() {
            ending::end(status);
        }
        let control = self.pe.control();
        control.ask_to_exit(self.pe(), status, self.pe.is_this_process());
        let status = control.exit_status().unwrap_or(status);
        if self.pe.is_watched() {
            call_launcher(control.launcher());
        } else {
            control.depart(self.pe(), State::Dead(Cause::Exit(status.into())));
        }
        ending::end(status)
    }

    /// Says whether this PE takes part in anything now; at first it does. For front ends whose
    /// programs leave and come back.
    ///
    /// While a PE does not take part, an end with status 0 is in order, even by `_exit` or as
    /// another program. After it has taken part, no other end concerns the other PEs.
    ///
    /// A process that does not take part yet leaves its place to the program that it becomes by
    /// `execve`: that program joins for itself.
    ///
    /// # Errors
    /// [`Misuse`](crate::Error::Misuse) in a process that is [not the PE](crate::unstable::ending),
    /// and where the PE takes part already, by another copy of the library.
    #[doc(hidden)]
    pub fn take_part(&self, part: Participation) -> Result<()> {
        ending::take_part(&self.pe, part)?;
        let to_successor = part == Participation::NotYet;
        self.pe.control().mapping().hand_down(to_successor);
        self.pe.far_fabric().map_or(Ok(()), |fabric| fabric.take_part(to_successor))
    }

    /// For front ends of languages in which programs fork: refuses a process that this PE has
    /// forked off, and that [is not the PE](crate::unstable::ending).
    ///
    /// # Errors
    /// [`Misuse`](crate::Error::Misuse) in such a process.
    #[doc(hidden)]
    pub fn refuse_child(&self) -> Result<()> {
        ending::refuse_child(&self.pe)
    }

    /// Whether a PE has asked for the end of the whole job. Calls that fail from then on fail
    /// because of that.
    pub fn is_exiting(&self) -> bool {
        self.pe.control().exit_status().is_some()
    }

    /// Waits for the end of a job that [is being ended](Self::is_exiting): a PE calls this when an
    /// error tells it so. The launcher ends it. Under a launcher that is not memonet's, this call
    /// ends the process by itself.
    pub fn await_exit(&self) -> ! {
        if ending::is_under_way() || !self.pe.is_watched() || !self.pe.is_this_process() {
            self.exit(0);
        }
        loop {
            std::thread::park();
        }
    }
}

/// Has the launcher look at the control page, by a signal that says nothing to any other process.
/// Where it cannot be sent (the launcher has another number here, or another user), the launcher
/// looks when this process has ended.
fn call_launcher(pid: u32) {
    if let Some(launcher) =
        Pid::from_raw(pid as i32).filter(|&pid| pid != rustix::process::getpid())
    {
        let _ = rustix::process::kill_process(launcher, Signal::CHILD);
    }
}
