//! From one to all: the same to each, or to each its part.

use super::choice::{Algorithm, Call};
use super::steps::{Step, nothing};
use super::{Place, Span, check_apart, check_disjoint, check_length};
use crate::base::error::Result;
use crate::base::shm::Plain;
use crate::team::Team;
use crate::wait::following;

impl Team {
    /// Copies `from` of the member with rank `root` to `to` of every member, the root included.
    /// *Collective.*
    ///
    /// # Errors
    /// [`NoSuchPe`](crate::Error::NoSuchPe), [`Length`](crate::Error::Length),
    /// [`Misuse`](crate::Error::Misuse) when the spans overlap in part, or belong to another job,
    /// or to another PE of this one: before anything is exchanged, as for all collectives.
    /// [`PeerFailed`](crate::Error::PeerFailed) when a member is gone.
    pub fn broadcast<T: Plain>(
        &self,
        root: usize,
        to: Span<'_, T>,
        from: Span<'_, T>,
    ) -> Result<()> {
        let (to, from) = (self.own(to)?, self.own(from)?);
        self.check_call("broadcast", &[("root", root as u64), ("bytes", from.bytes as u64)])?;
        check_apart(to, from)?;
        self.broadcast_places(root, to, from)
    }

    /// [`broadcast`](Self::broadcast) between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    pub fn broadcast_places(&self, root: usize, to: Place, from: Place) -> Result<()> {
        self.check_rank(root)?;
        self.check_places(to, from)?;
        check_length("bytes of source and destination", from.bytes, to.bytes)?;
        let call = Call::Broadcast { bytes: from.bytes };
        let mut algorithm = self.choose(call);
        if algorithm == Algorithm::Network {
            return self.broadcast_in_network(root, to, from);
        }
        self.count_broadcast(from.bytes);
        if algorithm == Algorithm::Multicast {
            if self.broadcast_by_multicast(root, to, from)? {
                return Ok(());
            }
            algorithm = self.choose_without_multicast(call);
        }
        self.hand_out(algorithm, root, to, from, |_| from)
    }

    /// Member r gets elements `r * to.len()` and on of `from` of the member with rank `root`.
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn scatter<T: Plain>(&self, root: usize, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        let (to, from) = (self.own(to)?, self.own(from)?);
        self.check_call("scatter", &[("root", root as u64), ("bytes for each", to.bytes as u64)])?;
        self.check_rank(root)?;
        self.check_places(to, from)?;
        check_length(
            "bytes of the source, and of all destinations",
            from.bytes,
            to.bytes * self.len(),
        )?;
        check_disjoint(to, from)?;
        let call = Call::Scatter { each: to.bytes, all: from.bytes };
        self.hand_out(self.choose(call), root, to, from, |rank| {
            from.part(rank * to.bytes, to.bytes)
        })
    }

    /// Copies a part of the root's source, which is as long as `to`, to each member's `to`. Whoever
    /// has its part is done, and the root is where nobody needs it any more.
    fn hand_out(
        &self,
        algorithm: Algorithm,
        root: usize,
        to: Place,
        from: Place,
        part: impl Fn(usize) -> Place,
    ) -> Result<()> {
        let mine = part(self.rank());
        let step = self.step(false)?;
        if algorithm != Algorithm::Line && !self.is_near() {
            return self.push_out(algorithm, step, root, to, part);
        }
        let outbox = self.outbox(step);
        if self.rank() != root {
            self.hear(step, root..root + 1)?;
            following::follow(self.pe(), self.members()[root]);
            match algorithm {
                Algorithm::Line => self.take_line(step, root, to),
                Algorithm::Published => self.take(
                    root,
                    outbox.part((mine.offset - from.offset) as usize, mine.bytes),
                    to,
                )?,
                _ => {
                    self.take(root, mine, to)?;
                    let given = self.check_given(&|pe| self.has_told(step, root, pe));
                    self.tell(step, root..root + 1, nothing)?;
                    given?;
                }
            }
            return Ok(());
        }
        match algorithm {
            Algorithm::Line => self.tell(step, 0..self.len(), part)?,
            Algorithm::Published => {
                self.take(root, from, outbox.part(0, from.bytes))?;
                self.tell(step, 0..self.len(), nothing)?;
            }
            _ => self.tell(step, 0..self.len(), nothing)?,
        }
        // Its own copy while the others make theirs.
        self.take(root, mine, to)?;
        match algorithm {
            Algorithm::Direct => self.hear(step, 0..self.len()),
            _ => Ok(()),
        }
    }

    /// Through a fabric, the root writes what each is to have: into its outbox at once, or where it
    /// belongs when it has said that it may be written.
    fn push_out(
        &self,
        algorithm: Algorithm,
        step: Step,
        root: usize,
        to: Place,
        part: impl Fn(usize) -> Place,
    ) -> Result<()> {
        let outbox = self.outbox(step);
        match (algorithm, self.rank() == root) {
            (Algorithm::Direct, true) => self.serve(step, to, &part)?,
            (Algorithm::Direct, false) => {
                self.tell(step, root..root + 1, nothing)?;
                return self.hear(step, root..root + 1);
            }
            (_, true) => self.push(step, 0..self.len(), outbox.part(0, to.bytes), |rank| {
                self.here(part(rank))
            })?,
            (_, false) => {
                self.hear(step, root..root + 1)?;
                return self.take(self.rank(), outbox.part(0, to.bytes), to);
            }
        }
        self.take(root, part(root), to)
    }
}
