//! Collectives of values and slices of the program's own memory: no window is needed.
//!
//! Values go through the team's staging area, slices in as many pieces as it takes. Each piece is
//! one collective between the members' areas; [`staging`](super::staging) has the proof. All
//! members cut alike, because they give equally many elements. A call on no elements does nothing.

use super::operator::{Goal, Number, Operator, Sum};
use super::reduce::NoPanic;
use super::staging::Staging;
use super::{Broadcast, Destinations, check_length};
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{Plain, zeroed};
use crate::team::Team;
use std::slice;
use zerocopy::IntoBytes;

/// The fewest bytes of each member for which the blocks of all members go through one area. Teams
/// so large that a block would be shorter let the members broadcast, one after the other.
const LEAST_BLOCK_BYTES: usize = 64;

impl Team {
    /// Gives every member the `value` of the member with rank `root`. The values of others do not
    /// matter. *Collective.*
    ///
    /// OpenSHMEM: `shmem_broadcast`; MPI: `MPI_Bcast`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let steps = if job.pe() == 0 { 100 } else { 0 };
    /// assert_eq!(job.world().broadcast(0, steps)?, 100);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for all collectives of values: [`NoSuchPe`](Error::NoSuchPe) and
    /// [`Length`](Error::Length) for this PE's own arguments, before anything is exchanged;
    /// [`Misuse`](Error::Misuse) while another thread is in such a call of this team;
    /// [`PeerFailed`](Error::PeerFailed) when a member is gone.
    #[track_caller]
    pub fn broadcast<T: Plain>(&self, root: usize, mut value: T) -> Result<T> {
        self.collective("Team::broadcast", || {
            self.broadcast_slice(root, slice::from_mut(&mut value))?;
            Ok(value)
        })
    }

    /// [`broadcast`](Self::broadcast) of equally many elements at each member, in place.
    /// *Collective.*
    ///
    /// Slices of more than some hundred KiB are better in windows, and
    /// [`broadcast_into`](Self::broadcast_into) better for them: they are then copied once, as a
    /// whole.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let mut weights = vec![0.0; 1000];
    /// if job.pe() == 2 {
    ///     weights.fill(0.5);
    /// }
    /// job.world().broadcast_slice(2, &mut weights)?;
    /// assert_eq!(weights, [0.5; 1000]);
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn broadcast_slice<T: Plain>(&self, root: usize, elements: &mut [T]) -> Result<()> {
        self.collective("Team::broadcast_slice", || {
            let bytes = elements.as_mut_bytes();
            self.check_call("broadcast", &[("root", root as u64), ("bytes", bytes.len() as u64)])?;
            self.check_rank(root)?;
            self.broadcast_bytes(&self.stage()?, root, bytes)
        })
    }

    fn broadcast_bytes(&self, staging: &Staging<'_>, root: usize, bytes: &mut [u8]) -> Quick<()> {
        for piece in bytes.chunks_mut(staging.half()) {
            let place = staging.source(piece.len());
            if self.rank() == root {
                staging.write(place, piece);
            }
            self.broadcast_places(Broadcast::new(root, place, place))?;
            if self.rank() != root {
                staging.read(place, piece);
            }
        }
        Ok(())
    }

    /// Combines the values of all members, in the order of ranks, and gives every member the
    /// result. *Collective.*
    ///
    /// OpenSHMEM: `shmem_sum_reduce` and its kin; MPI: `MPI_Allreduce`.
    ///
    /// The order is fixed, so all members get the same bits of a floating-point sum, every time.
    ///
    /// ```
    /// # use memonet_core::{Job, Max, Sum};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let error = [0.5, 0.125, 0.25][job.pe()];
    /// assert_eq!(job.world().all_reduce(Max, error)?, 0.5);
    /// assert_eq!(job.world().all_reduce(Sum, 1)?, 3);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn all_reduce<T: Plain>(&self, operator: impl Operator<T>, mut value: T) -> Result<T> {
        self.collective("Team::all_reduce", || {
            self.combine_slice(operator, Goal::All, slice::from_mut(&mut value))?;
            Ok(value)
        })
    }

    /// [`all_reduce`](Self::all_reduce) of equally many elements at each member, each by itself, in
    /// place. *Collective.*
    ///
    /// ```
    /// # use memonet_core::{Job, Sum};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let mut histogram = [1u64, job.pe() as u64, 0];
    /// job.world().all_reduce_slice(Sum, &mut histogram)?;
    /// assert_eq!(histogram, [3, 3, 0]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast). An error part of the way leaves some elements
    /// combined, and others as they were.
    #[track_caller]
    pub fn all_reduce_slice<T: Plain>(
        &self,
        operator: impl Operator<T>,
        elements: &mut [T],
    ) -> Result<()> {
        self.collective("Team::all_reduce_slice", || {
            self.combine_slice(operator, Goal::All, elements)
        })
    }

    /// Combines the values of all members, in the order of ranks, for the member with rank `root`.
    /// Gives the others `None`. *Collective.*
    ///
    /// MPI: `MPI_Reduce`.
    ///
    /// ```
    /// # use memonet_core::{Job, Min};
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// match job.world().reduce(Min, 0, 10 - job.pe())? {
    ///     Some(least) => assert_eq!((job.pe(), least), (0, 8)),
    ///     None => assert_ne!(job.pe(), 0),
    /// }
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn reduce<T: Plain>(
        &self,
        operator: impl Operator<T>,
        root: usize,
        mut value: T,
    ) -> Result<Option<T>> {
        self.collective("Team::reduce", || {
            self.combine_slice(operator, Goal::Root(root), slice::from_mut(&mut value))?;
            Ok((self.rank() == root).then_some(value))
        })
    }

    /// [`reduce`](Self::reduce) of equally many elements at each member, each by itself. The root's
    /// elements become the results; those of others stay what they are. *Collective.*
    ///
    /// # Errors
    /// As for [`all_reduce_slice`](Self::all_reduce_slice).
    #[track_caller]
    pub fn reduce_slice<T: Plain>(
        &self,
        operator: impl Operator<T>,
        root: usize,
        elements: &mut [T],
    ) -> Result<()> {
        self.collective("Team::reduce_slice", || {
            self.combine_slice(operator, Goal::Root(root), elements)
        })
    }

    /// Gives each member the combination of its own value and the values of all lower ranks.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_sum_inscan`; MPI: `MPI_Scan`.
    ///
    /// ```
    /// # use memonet_core::{Job, Sum};
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// let sum = job.world().scan(Sum, job.pe() + 1)?; // of 1, 2, 3, 4
    /// assert_eq!(sum, [1, 3, 6, 10][job.pe()]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn scan<T: Plain>(&self, operator: impl Operator<T>, mut value: T) -> Result<T> {
        self.collective("Team::scan", || {
            self.combine_slice(operator, Goal::Inclusive, slice::from_mut(&mut value))?;
            Ok(value)
        })
    }

    /// [`scan`](Self::scan) of equally many elements at each member, each by itself, in place.
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`all_reduce_slice`](Self::all_reduce_slice).
    #[track_caller]
    pub fn scan_slice<T: Plain>(
        &self,
        operator: impl Operator<T>,
        elements: &mut [T],
    ) -> Result<()> {
        self.collective("Team::scan_slice", || {
            self.combine_slice(operator, Goal::Inclusive, elements)
        })
    }

    /// Gives each member the sum of the values of all lower ranks; the first member gets zero.
    /// *Collective.*
    ///
    /// OpenSHMEM: `shmem_sum_exscan`; MPI: `MPI_Exscan`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let mine = 10 + job.pe(); // elements that this PE has
    /// let first = job.world().exclusive_scan(mine)?; // the index of its first among those of all
    /// assert_eq!(first, [0, 10, 21][job.pe()]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn exclusive_scan<T: Number>(&self, mut value: T) -> Result<T>
    where
        Sum: Operator<T>,
    {
        self.collective("Team::exclusive_scan", || {
            self.combine_slice(Sum, Goal::Exclusive, slice::from_mut(&mut value))?;
            Ok(value)
        })
    }

    /// [`exclusive_scan`](Self::exclusive_scan) of equally many elements at each member, each by
    /// itself, in place. *Collective.*
    ///
    /// # Errors
    /// As for [`all_reduce_slice`](Self::all_reduce_slice).
    #[track_caller]
    pub fn exclusive_scan_slice<T: Number>(&self, elements: &mut [T]) -> Result<()>
    where
        Sum: Operator<T>,
    {
        self.collective("Team::exclusive_scan_slice", || {
            self.combine_slice(Sum, Goal::Exclusive, elements)
        })
    }

    fn combine_slice<T: Plain, O: Operator<T>>(
        &self,
        operator: O,
        goal: Goal,
        elements: &mut [T],
    ) -> Quick<()> {
        if self.pe().is_checked() {
            self.compare_combined::<T, O>(goal, false, elements.len())?;
        }
        if let Goal::Root(root) = goal {
            self.check_rank(root)?;
        }
        let staging = self.stage()?;
        let most = staging.half().checked_div(size_of::<T>());
        match most.ok_or(Error::misuse("elements that are combined must have a size"))? {
            0 => {
                let unwound = NoPanic(self);
                let mut each = elements.iter_mut();
                let combined = each
                    .try_for_each(|element| self.combine_large(&staging, operator, goal, element));
                std::mem::forget(unwound);
                combined
            }
            most => elements.chunks_mut(most).try_for_each(|piece| {
                let bytes = size_of_val(piece);
                let (to, from) = (staging.destination(bytes), staging.source(bytes));
                staging.write(from, piece.as_bytes());
                // SAFETY: any bytes are a value of plain data.
                unsafe { self.combine_elements(operator, goal, to, from) }?;
                if !matches!(goal, Goal::Root(root) if root != self.rank()) {
                    staging.read(to, piece.as_mut_bytes());
                }
                Ok(())
            }),
        }
    }

    /// Combines elements that are longer than an area: each member gets those of all.
    fn combine_large<T: Plain>(
        &self,
        staging: &Staging<'_>,
        operator: impl Operator<T>,
        goal: Goal,
        element: &mut T,
    ) -> Quick<()> {
        let (me, mut all) = (self.rank(), zeroed(self.len()));
        self.gather_bytes(staging, None, element.as_bytes(), all.as_mut_bytes())?;
        let given = match goal {
            Goal::Root(root) if root != me => return Ok(()),
            Goal::All | Goal::Root(_) => &all[..],
            Goal::Inclusive => &all[..=me],
            Goal::Exclusive => &all[..me],
        };
        let total = given.iter().copied().reduce(|lower, higher| operator.combine(lower, higher));
        *element = total.unwrap_or_else(T::new_zeroed);
        Ok(())
    }

    /// Gives every member the values of all members, in the order of ranks. *Collective.*
    ///
    /// OpenSHMEM: `shmem_fcollect`; MPI: `MPI_Allgather`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// assert_eq!(job.world().all_gather(10 * job.pe())?, [0, 10, 20]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn all_gather<T: Plain>(&self, value: T) -> Result<Vec<T>> {
        self.collective("Team::all_gather", || Ok(self.all_gather_slice(&[value])?))
    }

    /// Gives every member the elements of all members, one after the other in the order of ranks.
    /// Each member gives equally many; [`collect`](Self::collect) takes different numbers.
    /// *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn all_gather_slice<T: Plain>(&self, elements: &[T]) -> Result<Vec<T>> {
        self.collective("Team::all_gather_slice", || {
            let mine = elements.as_bytes();
            self.check_call("all_gather", &[("bytes of each", mine.len() as u64)])?;
            let mut all = self.room_for(elements.len())?;
            self.gather_bytes(&self.stage()?, None, mine, all.as_mut_bytes())?;
            Ok(all)
        })
    }

    /// Gives the member with rank `root` the values of all members, in the order of ranks, and the
    /// others `None`. *Collective.*
    ///
    /// MPI: `MPI_Gather`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// if let Some(seconds) = job.world().gather(0, job.pe() as f64)? {
    ///     println!("{seconds:?}"); // at PE 0: [0.0, 1.0, 2.0]
    /// #   assert_eq!((job.pe(), seconds), (0, vec![0.0, 1.0, 2.0]));
    /// }
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn gather<T: Plain>(&self, root: usize, value: T) -> Result<Option<Vec<T>>> {
        self.collective("Team::gather", || Ok(self.gather_slice(root, &[value])?))
    }

    /// Gives the member with rank `root` the elements of all members, as in
    /// [`all_gather_slice`](Self::all_gather_slice), and the others `None`. *Collective.*
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn gather_slice<T: Plain>(&self, root: usize, elements: &[T]) -> Result<Option<Vec<T>>> {
        self.collective("Team::gather_slice", || {
            let mine = elements.as_bytes();
            self.check_call(
                "gather",
                &[("root", root as u64), ("bytes of each", mine.len() as u64)],
            )?;
            self.check_rank(root)?;
            let is_root = self.rank() == root;
            let mut all = self.room_for(if is_root { elements.len() } else { 0 })?;
            self.gather_bytes(&self.stage()?, Some(root), mine, all.as_mut_bytes())?;
            Ok(is_root.then_some(all))
        })
    }

    /// Gives every member the elements of each member, in the order of ranks. Members may give
    /// different numbers of elements. *Collective.*
    ///
    /// The time is that of an [`all_gather_slice`](Self::all_gather_slice) of as many elements as
    /// the member with the most gives.
    ///
    /// OpenSHMEM: `shmem_collect`; MPI: `MPI_Allgatherv`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let found = vec![7u64; job.pe()]; // PE 0 gives none, PE 1 one, PE 2 two
    /// let all = job.world().collect(&found)?;
    /// assert_eq!(all, [vec![], vec![7], vec![7, 7]]);
    /// assert_eq!(all.concat(), [7, 7, 7]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn collect<T: Plain>(&self, elements: &[T]) -> Result<Vec<Vec<T>>> {
        self.collective("Team::collect", || {
            self.check_call("collect", &[])?;
            let staging = self.stage()?;
            let mut counts = vec![0u64; self.len()];
            let count = elements.len() as u64;
            self.gather_bytes(&staging, None, count.as_bytes(), counts.as_mut_bytes())?;
            let most = counts.iter().copied().max().unwrap_or(0) as usize;
            let mut all = self.room_for(most)?;
            let mut mine = elements.to_vec();
            mine.resize(most, T::new_zeroed());
            self.gather_bytes(&staging, None, mine.as_bytes(), all.as_mut_bytes())?;
            let blocks = (0..self.len()).map(|rank| &all[rank * most..][..counts[rank] as usize]);
            Ok(blocks.map(<[T]>::to_vec).collect())
        })
    }

    /// Room for so many elements of each member.
    fn room_for<T: Plain>(&self, each: usize) -> Quick<Vec<T>> {
        let overflow = Error::Overflow { index: each, size: size_of::<T>(), call: None };
        Ok(zeroed(each.checked_mul(self.len()).ok_or(overflow)?))
    }

    /// Gathers equally many bytes of each member into `all` of `root`, or of all members. At others
    /// `all` is empty.
    fn gather_bytes(
        &self,
        staging: &Staging<'_>,
        root: Option<usize>,
        mine: &[u8],
        all: &mut [u8],
    ) -> Quick<()> {
        let (each, is_here) = (mine.len(), root.is_none_or(|root| root == self.rank()));
        let Some(block) = self.block(staging, each) else {
            return (0..self.len()).try_for_each(|rank| {
                let mut theirs = mine.to_vec();
                self.broadcast_bytes(staging, rank, &mut theirs)?;
                if is_here {
                    all[rank * each..][..each].copy_from_slice(&theirs);
                }
                Ok(())
            });
        };
        for start in (0..each).step_by(block) {
            let bytes = block.min(each - start);
            let (to, from) = (staging.destination(self.len() * bytes), staging.source(bytes));
            staging.write(from, &mine[start..][..bytes]);
            self.gather_places(root, to, from, Destinations::InTheCall)?;
            if is_here {
                for rank in 0..self.len() {
                    let part = &mut all[rank * each + start..][..bytes];
                    staging.read(to.part(rank * bytes, bytes), part);
                }
            }
        }
        Ok(())
    }

    /// Bytes of the blocks of each member that go through the areas at once; `None` where the
    /// members broadcast instead.
    fn block(&self, staging: &Staging<'_>, each: usize) -> Option<usize> {
        let most = staging.half() / self.len();
        (each <= most || most >= LEAST_BLOCK_BYTES).then_some(most.max(1))
    }

    /// Gives each member one of the `values` of the member with rank `root`: the member with rank r
    /// gets the one at r. The values of others do not matter: they may be none. *Collective.*
    ///
    /// MPI: `MPI_Scatter`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let seeds = if job.pe() == 0 { vec![11, 22, 33] } else { vec![] };
    /// assert_eq!(job.world().scatter(0, &seeds)?, 11 * (job.pe() + 1));
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Length`](Error::Length), at the root, unless there is one value for each member; else as
    /// for [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn scatter<T: Plain>(&self, root: usize, values: &[T]) -> Result<T> {
        self.collective("Team::scatter", || {
            let mut mine = T::new_zeroed();
            self.scatter_slice(root, values, slice::from_mut(&mut mine))?;
            Ok(mine)
        })
    }

    /// Gives each member its part of `all` of the member with rank `root`: the member with rank r
    /// gets the `mine.len()` elements from `r * mine.len()` on. What others give as `all` does not
    /// matter. *Collective.*
    ///
    /// # Errors
    /// As for [`scatter`](Self::scatter).
    #[track_caller]
    pub fn scatter_slice<T: Plain>(&self, root: usize, all: &[T], mine: &mut [T]) -> Result<()> {
        self.collective("Team::scatter_slice", || {
            let bytes = size_of_val(mine) as u64;
            self.check_call("scatter", &[("root", root as u64), ("bytes for each", bytes)])?;
            self.check_rank(root)?;
            if self.rank() == root {
                let what = "elements of the root, and of all members";
                check_length(what, all.len(), mine.len().saturating_mul(self.len()))?;
            }
            self.scatter_bytes(&self.stage()?, root, all.as_bytes(), mine.as_mut_bytes())
        })
    }

    fn scatter_bytes(
        &self,
        staging: &Staging<'_>,
        root: usize,
        all: &[u8],
        mine: &mut [u8],
    ) -> Quick<()> {
        let (each, is_root) = (mine.len(), self.rank() == root);
        let Some(block) = self.block(staging, each) else {
            return (0..self.len()).try_for_each(|rank| {
                let mut theirs = match is_root {
                    true => all[rank * each..][..each].to_vec(),
                    false => vec![0; each],
                };
                self.broadcast_bytes(staging, root, &mut theirs)?;
                if rank == self.rank() {
                    mine.copy_from_slice(&theirs);
                }
                Ok(())
            });
        };
        for start in (0..each).step_by(block) {
            let bytes = block.min(each - start);
            let (to, from) = (staging.destination(bytes), staging.source(self.len() * bytes));
            for rank in (0..self.len()).filter(|_| is_root) {
                let part = &all[rank * each + start..][..bytes];
                staging.write(from.part(rank * bytes, bytes), part);
            }
            self.scatter_places(root, to, from)?;
            staging.read(to, &mut mine[start..][..bytes]);
        }
        Ok(())
    }

    /// Gives every member one block of each member. A block has `elements.len()` elements divided
    /// by the number of members. At the member with rank r, block s of the result is block r of
    /// what the member with rank s gives. *Collective.*
    ///
    /// OpenSHMEM: `shmem_alltoall`; MPI: `MPI_Alltoall`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(3, |job| -> memonet_core::Result<()> {
    /// let for_each: Vec<usize> = (0..3).map(|to| 10 * job.pe() + to).collect();
    /// let from_each = job.world().all_to_all(&for_each)?;
    /// assert_eq!(from_each, [job.pe(), 10 + job.pe(), 20 + job.pe()]);
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Length`](Error::Length) when the elements cannot be cut into equal blocks; else as for
    /// [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn all_to_all<T: Plain>(&self, elements: &[T]) -> Result<Vec<T>> {
        self.collective("Team::all_to_all", || {
            let bytes = size_of_val(elements) as u64;
            self.check_call("all_to_all", &[("bytes of all", bytes)])?;
            check_length("elements beyond equal blocks, and none", elements.len() % self.len(), 0)?;
            let mut all: Vec<T> = zeroed(elements.len());
            self.exchange_bytes(&self.stage()?, elements.as_bytes(), all.as_mut_bytes())?;
            Ok(all)
        })
    }

    fn exchange_bytes(&self, staging: &Staging<'_>, mine: &[u8], all: &mut [u8]) -> Quick<()> {
        let (n, each) = (self.len(), mine.len() / self.len());
        let Some(block) = self.block(staging, each) else {
            let mut from = all.chunks_mut(each).enumerate();
            return from.try_for_each(|(rank, part)| self.scatter_bytes(staging, rank, mine, part));
        };
        for start in (0..each).step_by(block) {
            let bytes = block.min(each - start);
            let (to, from) = (staging.destination(n * bytes), staging.source(n * bytes));
            let (place, at) = (|rank: usize| rank * bytes, |rank: usize| rank * each + start);
            for rank in 0..n {
                staging.write(from.part(place(rank), bytes), &mine[at(rank)..][..bytes]);
            }
            self.all_to_all_places(to, from, Destinations::InTheCall)?;
            for rank in 0..n {
                staging.read(to.part(place(rank), bytes), &mut all[at(rank)..][..bytes]);
            }
        }
        Ok(())
    }
}
