//! Ends of PEs, in the order of their deaths.
//!
//! A death is known on all hosts before its own agent has read the PE's last output and tells how
//! it ended. The PEs that die because of it may be told of earlier. So an end waits here until all
//! PEs that died before were accounted for: the first one is to blame.

use std::collections::{BTreeSet, VecDeque};

use crate::run::course::End;

/// The ends.
#[derive(Default)]
pub struct Reports {
    /// PEs that have died, by the order of deaths, but for those that were accounted for.
    due: VecDeque<usize>,
    /// All that have died.
    died: BTreeSet<usize>,
    waiting: Vec<End>,
}

impl Reports {
    /// The death of a PE got the next place.
    pub fn died(&mut self, pe: usize) {
        if self.died.insert(pe) {
            self.due.push_back(pe);
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, end: End) {
        self.waiting.push(end);
    }

    /// Nothing more is told of these PEs.
    pub fn forget(&mut self, pes: std::ops::Range<usize>) {
        self.due.retain(|pe| !pes.contains(pe) || self.waiting.iter().any(|end| end.pe == *pe));
    }

    /// The next end to account for.
    pub fn next(&mut self) -> Option<End> {
        let is_next = |end: &End| !self.due.contains(&end.pe) || self.due.front() == Some(&end.pe);
        let end = self.waiting.remove(self.waiting.iter().position(is_next)?);
        self.due.retain(|&pe| pe != end.pe);
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memonet_core::Cause;

    fn end(pe: usize) -> End {
        let (joined, after_finalizing, sent, hint) = (None, false, false, None);
        End { pe, cause: Some(Cause::Signal(9)), joined, after_finalizing, sent, hint }
    }

    fn accounted(reports: &mut Reports) -> Vec<usize> {
        std::iter::from_fn(|| reports.next()).map(|end| end.pe).collect()
    }

    #[test]
    fn ends_are_accounted_for_in_the_order_of_deaths() {
        let mut reports = Reports::default();
        [5, 3, 5, 1].into_iter().for_each(|pe| reports.died(pe));
        reports.ended(end(3));
        // One that ended in order.
        reports.ended(end(7));
        assert_eq!(accounted(&mut reports), [7]);
        reports.ended(end(1));
        assert!(accounted(&mut reports).is_empty());
        reports.ended(end(5));
        assert_eq!(accounted(&mut reports), [5, 3, 1]);
        // Under a wrapper, which ends later.
        reports.ended(end(3));
        assert_eq!(accounted(&mut reports), [3]);
    }

    #[test]
    fn an_end_that_never_comes_holds_up_nobody_for_ever() {
        let mut reports = Reports::default();
        [5, 4, 1].into_iter().for_each(|pe| reports.died(pe));
        reports.ended(end(1));
        reports.ended(end(4));
        assert!(accounted(&mut reports).is_empty());
        reports.forget(4..6);
        assert_eq!(accounted(&mut reports), [4, 1]);
    }
}
