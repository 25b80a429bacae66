//! A PE's handle on its job, and what all PEs agree on together.

pub(crate) mod agree;
pub(crate) mod heap;
pub(crate) mod owned;

use crate::base::error::{Cause, Result};
use crate::base::status::{Part, State};
use crate::endpoint::ending;
use crate::endpoint::pe::Pe;
use crate::team::Team;
use crate::wait::polling;
use rustix::process::{Pid, Signal};
use std::sync::Arc;
use std::time::Duration;

/// A PE's handle on its job. Cheap to clone; usable from every thread of the PE.
#[derive(Clone)]
pub struct Job {
    pub(crate) pe: Arc<Pe>,
    pub(crate) world: Arc<Team>,
}

impl Job {
    /// This PE's number.
    pub fn pe(&self) -> usize {
        self.pe.me()
    }

    /// Number of PEs in the job.
    pub fn npes(&self) -> usize {
        self.pe.npes()
    }

    /// Whether a PE's memory is mapped into this process, so that a store to it is a store.
    ///
    /// # Panics
    /// When there is no such PE.
    pub fn is_near(&self, pe: usize) -> bool {
        assert!(pe < self.npes(), "there is no PE {pe} in a job of {}", self.npes());
        self.pe.is_near(pe)
    }

    /// Whether a pointer into this PE's own segment means the same on all PEs: `None`, unless they
    /// have theirs at different addresses, and this is the PE that is to say so. Then why. To be
    /// called when all PEs have joined, each in a process of its own.
    pub fn why_apart(&self) -> Option<String> {
        self.pe.control().why_apart(self.pe())
    }

    /// Name of the way to far peers; `None` when all are near.
    pub fn fabric(&self) -> Option<&'static str> {
        self.pe.has_far().then(|| self.pe.fabric().name())
    }

    /// Whether mistakes are looked for that it costs time to find, as `MEMONET_CHECK=1` asks for: a
    /// collective that members call with different arguments, or in place of another one; a lock or
    /// mutex that a thread takes twice.
    pub fn is_checked(&self) -> bool {
        self.pe.is_checked()
    }

    /// The team of all PEs.
    pub fn world(&self) -> &Team {
        &self.world
    }

    /// [`Team::team`] of [`world`](Self::world).
    ///
    /// # Errors
    /// See there.
    pub fn team(&self, pes: &[usize]) -> Result<Option<Team>> {
        self.world.team(pes)
    }

    /// Completes this PE's writes, then waits until all PEs are here. *Collective.*
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when a PE is gone.
    pub fn barrier(&self) -> Result<()> {
        self.world.barrier()
    }

    /// Orders this PE's writes: those before become visible at each PE before those after. Costs
    /// next to nothing on near peers.
    ///
    /// # Errors
    /// What an earlier write failed with.
    pub fn fence(&self) -> Result<()> {
        Ok(self.pe.fence()?)
    }

    /// Completes this PE's writes: all of them are visible at their targets.
    ///
    /// # Errors
    /// What an earlier write failed with.
    pub fn quiet(&self) -> Result<()> {
        Ok(self.pe.quiet()?)
    }

    /// Whether all of this PE's writes are visible at their targets, without waiting for it.
    ///
    /// # Errors
    /// What an earlier write failed with.
    pub fn is_quiet(&self) -> Result<bool> {
        match self.pe.has_far() {
            true => {
                self.pe.fabric().is_quiet().inspect(|&quiet| polling::has_looked(&self.pe, quiet))
            }
            // Visible in the order they were made; what follows this sees them.
            false => self.quiet().map(|()| true),
        }
    }

    /// Says that the program computes for so many nanoseconds. On a simulated machine that time
    /// passes; on a real one it passes by itself.
    pub fn compute(&self, ns: u64) {
        if let Some(clock) = self.pe.clock() {
            clock.compute(Duration::from_nanos(ns));
        }
    }

    /// The team of `pes`, in this order, of which this PE is one. *Collective over these alone*: no
    /// other PE takes part. Threads of a PE may make teams of different PEs at once, in any order.
    ///
    /// # Errors
    /// [`Error::NoSuchPe`], and [`Error::Misuse`] for a list in which a PE stands twice or this PE
    /// not at all, or whose PEs are those of a team that another thread makes now, at this PE
    /// alone; [`Error::Unequal`] when members name different lists of the same PEs,
    /// [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn team_among(&self, pes: &[usize]) -> Result<Team> {
        self.world.among(pes)
    }

    /// Ends the whole job: this process exits with `status`, as by `exit`, and the launcher ends
    /// the other PEs, at once, and exits with it. The first PE that asks for it decides on the
    /// status. A job that has no launcher ends with this process. Under another launcher than
    /// memonet's, the others end by themselves, in their next call that waits. A launcher of
    /// memonet waits a few seconds for the exit handlers of a PE that has asked, and then ends it
    /// too.
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

    /// Says whether this PE takes part in anything now: while it does not, an end with status 0 is
    /// in order, even by `_exit` or as another program; and after it has, no other end concerns the
    /// others. For front ends that let programs leave and come back; at first it does.
    ///
    /// A process that does not take part yet leaves its place to the program that it becomes: one
    /// that joins early, and then calls `execve`, has not joined for that one.
    ///
    /// # Errors
    /// [`Error::Misuse`] in a process that is [not the PE](crate::endpoint::ending).
    pub fn take_part(&self, part: Part) -> Result<()> {
        ending::take_part(&self.pe, part)?;
        self.pe.control().mapping().hand_down(part == Part::NotYet);
        Ok(())
    }

    /// Whether a PE has asked for the end of the whole job: what fails now fails because of that.
    pub fn is_exiting(&self) -> bool {
        self.pe.control().exit_status().is_some()
    }

    /// What a PE does that finds out by an error that the job [is being ended](Self::is_exiting):
    /// nothing, until the launcher ends it too; another launcher does not, so there it ends by
    /// itself.
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
