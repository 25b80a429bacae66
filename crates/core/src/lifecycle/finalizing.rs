//! Leaving a job in order.

use crate::base::error::{Call, Error, Quick, Result};
use crate::base::status::State;
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::sync::left_place;
use crate::wait::{self, Awaiting, Terms};
use std::panic::Location;

impl Job {
    /// Leaves the job in order. A process that ends with exit status 0 does this by itself.
    ///
    /// PEs that wait for this one afterwards get [`Error::PeerFailed`] with
    /// [`Cause::Finalized`](crate::Cause::Finalized). Writes to near peers stay possible. With far
    /// peers, this returns when every PE has finalised. Make no other call after it: it may fail
    /// in any way, but does not wait for ever.
    ///
    /// # Errors
    /// The error of an earlier write. [`Error::Misuse`] while a block of a multicast channel is
    /// shown by a [`Peek`](crate::Peek) and not popped: its memory would be freed.
    /// [`Error::PeerFailed`] where others need of this PE what it lacks: the PE from which that
    /// would come cannot be reached, or has left.
    #[track_caller]
    pub fn finalize(&self) -> Result<()> {
        Call::here(NAME, self.pe.me(), None).of(|| {
            if self.pe.is_this_process() && self.pe.shows_memory() {
                return Err(Error::misuse(
                    "a block of a multicast channel was shown and not popped: pop it, or drop the channel, before `finalize`",
                ));
            }
            self.pe.finalize()
        })
    }
}

/// The name by which leaving is recorded, which a process does by itself, too.
const NAME: &str = "Job::finalize";

impl Pe {
    /// Whether other PEs need the relays of this PE, which leaves.
    fn is_needed(&self) -> bool {
        // `count`, not `any`: each relay must learn of the departure.
        self.live_relays().iter().filter(|relay| relay.depart()).count() > 0
    }

    /// Whether a relay shows the program memory that departing would free.
    pub(crate) fn shows_memory(&self) -> bool {
        self.live_relays().iter().any(|relay| relay.shows_memory())
    }

    /// Leaves the job in order. Waits while other PEs need this process, for a fabric or a relay.
    pub(crate) fn finalize(&self) -> Result<()> {
        if self.control().state(self.me()) != State::Joined || !self.is_this_process() {
            return Ok(());
        }
        let _call = self.begin(NAME, Location::caller(), None);
        left_place::leave_none(self)?;
        // A PE must not count as gone before its writes are visible, and its notifications (F5).
        let quiet = self.quiet_all();
        self.live_relays().iter().for_each(|relay| relay.before_departure());
        if !self.control().step(self.me(), State::Joined, State::Finalizing) {
            return Ok(());
        }
        self.control().announce_leaving();
        let (mut quiet, mut served) = (quiet, Ok(()));
        if self.has_relays() {
            served = self.serve_until(|| !self.is_needed())?;
            // This holds for writes of relays, too.
            quiet = quiet.and(self.quiet_all());
        }
        if self.has_fabric() && !self.fabric().outlives_pes() && served.is_ok() {
            let gone = |pe| self.control().state(pe).departed().is_some();
            served = self.serve_until(|| (0..self.npes()).all(gone))?;
        }
        self.drop_kept_relays();
        self.control().step(self.me(), State::Finalizing, State::Done);
        self.live_relays().iter().for_each(|relay| relay.let_go());
        Ok(quiet.and(served.map_err(Into::into))?)
    }

    /// Waits until nobody needs this PE, or it cannot do what others need: the inner error. They
    /// learn that when it is gone.
    fn serve_until(&self, is_free: impl Fn() -> bool) -> Quick<Result<()>> {
        wait::until(self, Terms::forever(Awaiting::Leave), || match is_free() {
            true => Some(Ok(())),
            false => self.lost_neighbour().map(Err),
        })
    }
}
