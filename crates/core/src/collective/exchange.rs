//! Moving blocks between members: gather, all-gather, collect, scatter, all-to-all.

use super::{OUTBOX, Place, Span, Way, check_length};
use crate::error::{Error, Result};
use crate::shm::Plain;
use crate::team::Team;

/// Bytes at the head of an outbox that say how much a member contributes.
const COUNT: usize = 64;

impl Team {
    /// Every member gets the elements of all, by rank: those of rank r at `r * from.len()` of `to`. *Collective.*
    ///
    /// # Errors
    /// [`Length`](crate::Error::Length) when `to` does not have room for exactly that; else as for [`broadcast`](Self::broadcast).
    pub fn all_gather<T: Plain>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        check_disjoint(to.place, from.place)?;
        self.gather_places(None, to.place, from.place)
    }

    /// The member with rank `root` gets the elements of all, as in [`all_gather`](Self::all_gather). *Collective.*
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn gather<T: Plain>(&self, root: usize, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        check_disjoint(to.place, from.place)?;
        self.gather_places(Some(root), to.place, from.place)
    }

    /// Member r gets elements `r * to.len()` and on of `from` of the member with rank `root`. *Collective.*
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn scatter<T: Plain>(&self, root: usize, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        let (to, from) = (to.place, from.place);
        self.check_rank(root)?;
        self.check_places(to, from)?;
        check_length("bytes of the source, and of all destinations", from.bytes, to.bytes * self.len())?;
        check_disjoint(to, from)?;
        let mine = from.part(self.rank() * to.bytes, to.bytes);
        if self.collective_way(from.bytes) == Way::Outbox {
            let outbox = self.next_outbox().part(0, from.bytes);
            if self.rank() == root {
                self.give(root, from, outbox)?;
            }
            self.barrier()?;
            return self.take(root, outbox.part(self.rank() * to.bytes, to.bytes), to);
        }
        self.barrier()?;
        self.take(root, mine, to)?;
        self.barrier()
    }

    /// Every member gets the elements of all, one after the other by rank; members may contribute different numbers. Gives how
    /// many there are in all. *Collective.*
    ///
    /// # Errors
    /// [`Length`](crate::Error::Length), at every member, when one's `to` does not have room for them; else as for
    /// [`broadcast`](Self::broadcast).
    pub fn collect<T: Plain>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<usize> {
        check_disjoint(to.place, from.place)?;
        Ok(self.collect_places(to.place, from.place)? / size_of::<T>())
    }

    /// Member r gets elements `s * n ...` of every member s: the blocks are `to.len() / members` long; block s of `to` is block r of
    /// s's `from`. *Collective.*
    ///
    /// # Errors
    /// [`Length`](crate::Error::Length) when the spans differ, or cannot be cut evenly; else as for [`broadcast`](Self::broadcast).
    pub fn all_to_all<T: Plain>(&self, to: Span<'_, T>, from: Span<'_, T>) -> Result<()> {
        check_length("elements beyond equal blocks, and none", from.len() % self.len(), 0)?;
        check_disjoint(to.place, from.place)?;
        self.all_to_all_places(to.place, from.place)
    }

    /// [`gather`](Self::gather) to one rank, or to all, between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`all_gather`](Self::all_gather).
    pub fn gather_places(&self, root: Option<usize>, to: Place, from: Place) -> Result<()> {
        root.map_or(Ok(()), |root| self.check_rank(root))?;
        self.check_places(to, from)?;
        check_length("bytes of the destination, and of all sources", to.bytes, from.bytes * self.len())?;
        let block = |rank: usize| to.part(rank * from.bytes, from.bytes);
        if self.collective_way(from.bytes) == Way::Outbox {
            let outbox = self.next_outbox().part(0, from.bytes);
            self.give(self.rank(), from, outbox)?;
            self.barrier()?;
            if root.is_none_or(|root| root == self.rank()) {
                for rank in 0..self.len() {
                    self.take(rank, outbox, block(rank))?;
                }
            }
            return Ok(());
        }
        self.barrier()?;
        for rank in root.map_or(0..self.len(), |root| root..root + 1) {
            self.give(rank, from, block(self.rank()))?;
        }
        self.barrier()
    }

    /// [`collect`](Self::collect) between places, for front ends; gives bytes. `to` may be more than is filled. *Collective.*
    ///
    /// # Errors
    /// As for [`collect`](Self::collect).
    pub fn collect_places(&self, to: Place, from: Place) -> Result<usize> {
        self.check_places(to, from)?;
        let outbox = self.next_outbox();
        let small = match self.collective_way(0) {
            Way::Outbox => OUTBOX - COUNT,
            Way::Direct => 0,
        };
        // SAFETY: the head of this PE's own outbox, aligned; others read it after the barrier.
        unsafe {
            crate::shm::store(self.here(outbox).cast(), from.bytes as u64);
            crate::shm::store(self.here(outbox.part(8, 8)).cast(), to.bytes as u64);
        }
        if from.bytes <= small {
            self.give(self.rank(), from, outbox.part(COUNT, from.bytes))?;
        }
        self.barrier()?;
        let head = |at: usize| {
            let words = (0..self.len()).map(|rank| Ok(self.there(rank, outbox.part(at, 8)).load::<u64>(self.pe())? as usize));
            words.collect::<Result<Vec<usize>>>()
        };
        let counts = head(0)?;
        let total: usize = counts.iter().sum();
        let room = head(8)?.into_iter().min().unwrap_or_default();
        if total > room {
            // All see the same numbers, and all leave here.
            return Err(Error::Length {
                what: "bytes of all sources, and the smallest destination",
                left: total,
                right: room,
            });
        }
        let starts = counts.iter().scan(0, |next, count| Some(std::mem::replace(next, *next + count)));
        let starts: Vec<usize> = starts.collect();
        if counts.iter().all(|&count| count <= small) {
            for (rank, (&start, &count)) in starts.iter().zip(&counts).enumerate() {
                self.take(rank, outbox.part(COUNT, count), to.part(start, count))?;
            }
            return Ok(total);
        }
        // Everybody is in the call, as the barrier has shown.
        for rank in 0..self.len() {
            self.give(rank, from, to.part(starts[self.rank()], from.bytes))?;
        }
        self.barrier()?;
        Ok(total)
    }

    /// [`all_to_all`](Self::all_to_all) between places, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`all_to_all`](Self::all_to_all).
    pub fn all_to_all_places(&self, to: Place, from: Place) -> Result<()> {
        self.check_places(to, from)?;
        check_length("bytes of source and destination", from.bytes, to.bytes)?;
        check_length("bytes beyond equal blocks, and none", from.bytes % self.len(), 0)?;
        let bytes = from.bytes / self.len();
        let mine = self.rank() * bytes;
        if self.collective_way(from.bytes) == Way::Outbox {
            let outbox = self.next_outbox().part(0, from.bytes);
            self.give(self.rank(), from, outbox)?;
            self.barrier()?;
            for rank in 0..self.len() {
                self.take(rank, outbox.part(mine, bytes), to.part(rank * bytes, bytes))?;
            }
            return Ok(());
        }
        self.barrier()?;
        // Each begins with itself, so that they are not all at the same one.
        for step in 0..self.len() {
            let rank = (self.rank() + step) % self.len();
            self.give(rank, from.part(rank * bytes, bytes), to.part(mine, bytes))?;
        }
        self.barrier()
    }
}

fn check_disjoint(to: Place, from: Place) -> Result<()> {
    if to.overlaps(from) {
        return Err(Error::Misuse("source and destination of this collective overlap: they must not"));
    }
    Ok(())
}
