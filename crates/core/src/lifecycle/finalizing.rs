//! How a PE leaves its job in order.

use crate::base::error::{Error, Result};
use crate::base::status::State;
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::wait::{self, Awaiting, Terms};

impl Job {
    /// Leaves the job in order. Happens by itself when the process ends with exit status 0.
    ///
    /// PEs that wait for this one afterwards get [`Error::PeerFailed`] with
    /// [`Cause::Finalized`](crate::Cause::Finalized).
    /// Writes to near peers stay possible; with far peers, returns when every PE has finalised.
    ///
    /// # Errors
    /// What an earlier write failed with. [`Error::Misuse`] while a block of a multicast channel is
    /// shown by a [`Peek`](crate::Peek) and not popped: its memory would be given away.
    pub fn finalize(&self) -> Result<()> {
        if self.pe.is_this_process() && self.pe.shows_memory() {
            return Err(Error::Misuse(
                "a block of a multicast channel is still being read: pop it, or drop the channel, before `finalize`",
            ));
        }
        self.pe.finalize()
    }
}

impl Pe {
    /// Whether others need what this PE, which leaves, passes on.
    fn is_needed(&self) -> bool {
        // Each is told, whatever the others say.
        self.live_relays().iter().filter(|relay| relay.depart()).count() > 0
    }

    /// Whether something that this PE passes on shows the program memory that departing would give
    /// away.
    pub(crate) fn shows_memory(&self) -> bool {
        self.live_relays().iter().any(|relay| relay.shows_memory())
    }

    /// Leaves the job in order. Where others need this process, as a fabric or a relay may, waits
    /// until nobody does any more.
    pub(crate) fn finalize(&self) -> Result<()> {
        if self.control().state(self.me()) != State::Joined || !self.is_this_process() {
            return Ok(());
        }
        // A PE counts as gone when all that it wrote is there, not before.
        let quiet = self.quiet();
        if !self.control().step(self.me(), State::Joined, State::Finalizing) {
            return Ok(());
        }
        let reported = crate::dsm::stats::report(self);
        self.control().announce_leaving();
        let quiet = match self.has_relays() {
            true => {
                wait::until(self, Terms::forever(Awaiting::Leave), || {
                    (!self.is_needed()).then_some(())
                })?;
                // What was passed on, too, is there before this PE is gone.
                quiet.and(self.quiet())
            }
            false => quiet,
        };
        if self.has_far() && !self.fabric().outlives_pes() {
            let gone = |pe| self.control().state(pe).departed().is_some();
            wait::until(self, Terms::forever(Awaiting::Leave), || {
                (0..self.npes()).all(gone).then_some(())
            })?;
        }
        self.control().step(self.me(), State::Finalizing, State::Done);
        quiet?;
        reported
    }
}
