//! Teams by color: members that name the same color are together.

use crate::base::error::Result;
use crate::team::Team;

impl Team {
    /// Makes a team of the members that give each `color`, in the order of their `key`s, and of
    /// their ranks where keys are equal. Members without a color get `None`. *Collective.*
    ///
    /// MPI: `MPI_Comm_split`, whose `MPI_UNDEFINED` is `None`.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(4, |job| -> memonet_core::Result<()> {
    /// let me = job.pe() as u64;
    /// let half = job.world().split(Some(me % 2), -(me as i64))?.expect("a color");
    /// assert_eq!(half.members(), if me % 2 == 0 { [2, 0] } else { [3, 1] });
    /// # Ok(()) }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::TooMany`](crate::Error::TooMany), [`Error::PeerFailed`](crate::Error::PeerFailed).
    #[track_caller]
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Team>> {
        self.making("Team::split", || {
            let mine = [u64::from(color.is_some()), color.unwrap_or(0), key as u64];
            let given = self.all_gather(mine)?;
            let is_mine = |&rank: &usize| color.is_some() && given[rank][..2] == mine[..2];
            let mut ranks: Vec<usize> = (0..self.len()).filter(is_mine).collect();
            ranks.sort_by_key(|&rank| given[rank][2] as i64);
            let pes: Vec<usize> = ranks.into_iter().map(|rank| self.members()[rank]).collect();
            Ok(self.team(&pes)?)
        })
    }
}
