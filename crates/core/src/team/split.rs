//! Teams by rule: every k-th member, rows and columns.

use super::Team;
use crate::base::error::{Error, Result};
use crate::sync::barrier::{Algorithm, rank_of};

impl Team {
    /// Makes a team of the `size` members of this team with ranks `start`, `start + stride`, and so
    /// on. A negative stride counts down. *Collective*: all members give the same numbers, and
    /// members outside of the new team get `None`.
    ///
    /// OpenSHMEM: `shmem_team_split_strided`; MPI: `MPI_Comm_split`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// // PEs 3 and 1, in this order.
    /// match job.world().split_strided(3, -2, 2)? {
    ///     Some(odd) => assert_eq!((odd.members(), odd.rank()), (&[3, 1][..], (3 - job.pe()) / 2)),
    ///     None => assert_eq!(job.pe() % 2, 0),
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// An error of one member is returned at all: [`Error::NoSuchPe`] for ranks outside of this
    /// team, [`Error::Misuse`] for a `size` of 0, or for a `stride` of 0 with a larger `size` than
    /// 1; [`Error::Unequal`] when members give different numbers; [`Error::TooMany`]. And
    /// [`Error::PeerFailed`].
    #[track_caller]
    pub fn split_strided(&self, start: usize, stride: isize, size: usize) -> Result<Option<Team>> {
        self.pe.waiting_call("Team::split_strided", None, || {
            let pes = self.strided(start, stride, size).and_then(|pes| {
                Algorithm::forced(size)?;
                Ok(pes)
            });
            let (arguments, pes) = match pes {
                Ok(pes) => (Ok(format!("start {start}, stride {stride}, size {size}")), pes),
                Err(error) => (Err(error), Vec::new()),
            };
            let slot = self.agree("split_strided", arguments, &self.members)?;
            self.take_slot(&slot, &pes)
        })
    }

    /// Lays the members out in rows of `xrange`, by rank, and makes the teams of this PE's row and
    /// of its column. Its rank in the row is its x coordinate, its rank in the column its y
    /// coordinate. A last, incomplete row makes some columns one shorter. An `xrange` beyond the
    /// team's size means that size. *Collective*: all members give the same number.
    ///
    /// OpenSHMEM: `shmem_team_split_2d`; MPI: `MPI_Cart_sub`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(6, |job| -> memonet_core::Result<()> {
    /// let (row, column) = job.world().split_2d(3)?; // 0 1 2
    /// let (x, y) = (job.pe() % 3, job.pe() / 3); //    3 4 5
    /// assert_eq!((row.members()[x], row.rank()), (job.pe(), x));
    /// assert_eq!((column.members(), column.rank()), (&[x, x + 3][..], y));
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// An error of one member is returned at all: [`Error::Misuse`] for an `xrange` of 0;
    /// [`Error::Unequal`] when members give different numbers; [`Error::TooMany`], and then neither
    /// team is made. And [`Error::PeerFailed`].
    #[track_caller]
    pub fn split_2d(&self, xrange: usize) -> Result<(Team, Team)> {
        self.pe.waiting_call("Team::split_2d", None, || {
            let width = xrange.clamp(1, self.len());
            let (x, y) = (self.rank % width, self.rank / width);
            let row = &self.members[y * width..self.len().min((y + 1) * width)];
            let column: Vec<usize> = self.members.iter().skip(x).step_by(width).copied().collect();
            let allowed = if xrange == 0 {
                Err(Error::misuse("rows of a team have at least one member: xrange must not be 0"))
            } else {
                Algorithm::forced(row.len()).and_then(|_| Algorithm::forced(column.len()))
            };
            let arguments = format!("rows of {width}");
            let first =
                self.agree("split_2d", allowed.map(|_| arguments.clone()), &self.members)?;
            // All members get the same answer here too.
            let second = match self.agree("split_2d", Ok(arguments), &self.members) {
                Ok(second) => second,
                Err(error) => {
                    self.pe.release_slot(first.slot);
                    return Err(error);
                }
            };
            // Should one fail, the other gives its slot back.
            let row = Self::in_slot(&self.pe, row.into(), x, &first);
            let column = Self::in_slot(&self.pe, column.into(), y, &second);
            Ok((row?, column?))
        })
    }

    /// Makes the team of the members on this PE's node, in the order of this team: this PE and they
    /// have each other's memory mapped. *Collective.*
    ///
    /// OpenSHMEM: `SHMEM_TEAM_SHARED`; MPI: `MPI_Comm_split_type` with `MPI_COMM_TYPE_SHARED`.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::PeerFailed`]; [`Error::Unequal`] when members are in different
    /// calls.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let node = job.world().split_by_node()?;
    /// assert_eq!(node.members(), [0, 1]); // this job has one node
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    #[track_caller]
    pub fn split_by_node(&self) -> Result<Team> {
        self.pe.waiting_call("Team::split_by_node", None, || {
            let (pe, record) = (&self.pe, self.pe.record());
            if !record.is_mixed() && !record.is_one_node() {
                return self.among(&[pe.me()]);
            }
            let is_here = |&other: &usize| other == pe.me() || record.are_near([pe.me(), other]);
            let members: Vec<usize> = self.members.iter().copied().filter(is_here).collect();
            let rank = rank_of(&members, pe.me()).expect("this PE is on its node");
            let allowed = Algorithm::forced(members.len()).map(|_| String::new());
            let slot = self.agree("split_by_node", allowed, &self.members)?;
            Self::in_slot(pe, members.into(), rank, &slot)
        })
    }

    /// PE numbers of members at a stride.
    fn strided(&self, start: usize, stride: isize, size: usize) -> Result<Vec<usize>> {
        if size == 0 {
            return Err(Error::misuse("a team has at least one member: its size must not be 0"));
        }
        if stride == 0 && size > 1 {
            return Err(Error::misuse("a stride of 0 is for a team of one"));
        }
        // If both ends are inside, all ranks are.
        let last = start as i128 + stride as i128 * (size as i128 - 1);
        for rank in [start as i128, last] {
            if rank < 0 || rank >= self.len() as i128 {
                return Err(Error::NoSuchPe {
                    pe: usize::try_from(rank).unwrap_or(usize::MAX),
                    npes: self.len(),
                    call: None,
                });
            }
        }
        let at =
            |i: usize| self.members[start.wrapping_add_signed(stride.wrapping_mul(i as isize))];
        Ok((0..size).map(at).collect())
    }
}
