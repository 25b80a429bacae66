//! Teams by rule: every k-th member, rows and columns.

use super::Team;
use crate::base::error::{Error, Result};
use crate::sync::barrier::Algorithm;

impl Team {
    /// The team of the `size` members of this one with ranks `start`, `start + stride`, and so on;
    /// a negative stride counts down. *Collective*: all members give the same numbers, and those
    /// outside of the new team get `None`.
    ///
    /// # Errors
    /// At all members when it is one's: [`Error::NoSuchPe`] for ranks outside of this team,
    /// [`Error::Misuse`] for a `size` of 0 or a `stride` of 0 between several; [`Error::Unequal`]
    /// when members give different numbers. And [`Error::TooMany`], [`Error::PeerFailed`].
    pub fn split_strided(&self, start: usize, stride: isize, size: usize) -> Result<Option<Team>> {
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
    }

    /// Lays the members out in rows of `xrange`, by rank, and gives the teams of this PE's row and
    /// of its column: in the row its rank is its x coordinate, in the column its y. A last,
    /// incomplete row makes some columns one shorter. An `xrange` beyond the team's size means that
    /// size. *Collective*: all members give the same number.
    ///
    /// # Errors
    /// At all members when it is one's: [`Error::Misuse`] for an `xrange` of 0; [`Error::Unequal`]
    /// when members give different numbers; [`Error::TooMany`]: then there is neither a row nor a
    /// column. And [`Error::PeerFailed`].
    pub fn split_2d(&self, xrange: usize) -> Result<(Team, Team)> {
        let width = xrange.clamp(1, self.len());
        let (x, y) = (self.rank % width, self.rank / width);
        let row = &self.members[y * width..self.len().min((y + 1) * width)];
        let column: Vec<usize> = self.members.iter().skip(x).step_by(width).copied().collect();
        let allowed = if xrange == 0 {
            Err(Error::Misuse("rows of a team have at least one member: xrange must not be 0"))
        } else {
            Algorithm::forced(row.len()).and_then(|_| Algorithm::forced(column.len()))
        };
        let arguments = format!("rows of {width}");
        let first = self.agree("split_2d", allowed.map(|_| arguments.clone()), &self.members)?;
        // All members get the same answer here too.
        let second = match self.agree("split_2d", Ok(arguments), &self.members) {
            Ok(second) => second,
            Err(error) => {
                self.pe.release_slot(first.slot);
                return Err(error);
            }
        };
        let row = Self::in_slot(&self.pe, row.into(), x, &first)?;
        let column = Self::in_slot(&self.pe, column.into(), y, &second)?;
        Ok((row, column))
    }

    /// PE numbers of members at a stride.
    fn strided(&self, start: usize, stride: isize, size: usize) -> Result<Vec<usize>> {
        if size == 0 {
            return Err(Error::Misuse("a team has at least one member: its size must not be 0"));
        }
        if stride == 0 && size > 1 {
            return Err(Error::Misuse("a stride of 0 is for a team of one"));
        }
        // Both ends inside means all inside.
        let last = start as i128 + stride as i128 * (size as i128 - 1);
        for rank in [start as i128, last] {
            if rank < 0 || rank >= self.len() as i128 {
                return Err(Error::NoSuchPe {
                    pe: usize::try_from(rank).unwrap_or(usize::MAX),
                    npes: self.len(),
                });
            }
        }
        let at =
            |i: usize| self.members[start.wrapping_add_signed(stride.wrapping_mul(i as isize))];
        Ok((0..size).map(at).collect())
    }
}
