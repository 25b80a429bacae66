//! What a reader misses: a short, sorted list of ranges below the highest position that it knows
//! of.

use crate::config::Nanos;
use crate::wire::Refused;

/// Most ranges that a reader keeps apart. What would open more is refused, and comes again.
pub const MAX_GAPS: usize = 64;

/// A missing range, and when to ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Gap {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) due: Nanos,
    /// How often it was asked for.
    pub(crate) asked: u32,
}

/// Sorted, apart, none empty, all below `highest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Gaps {
    list: Vec<Gap>,
    highest: u64,
}

impl Gaps {
    pub(crate) fn new() -> Self {
        Gaps { list: Vec::with_capacity(MAX_GAPS + 1), highest: 0 }
    }

    /// Everything below this has arrived.
    pub(crate) fn received(&self) -> u64 {
        self.list.first().map_or(self.highest, |gap| gap.start)
    }

    /// One more than the last byte known of.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Grows with each byte that is known of, and with each that has arrived.
    pub(crate) fn learnt(&self) -> u64 {
        let missing: u64 = self.list.iter().map(|gap| gap.end - gap.start).sum();
        2 * self.highest - missing
    }

    pub(crate) fn list(&mut self) -> &mut [Gap] {
        &mut self.list
    }

    pub(crate) fn first_due(&self) -> Nanos {
        self.list.iter().map(|gap| gap.due).min().unwrap_or(Nanos::MAX)
    }

    /// There is something up to `highest`.
    pub(crate) fn know(&mut self, highest: u64, due: Nanos) -> Result<(), Refused> {
        if highest <= self.highest {
            return Ok(());
        }
        self.open(highest, due)?;
        self.highest = highest;
        Ok(())
    }

    /// All between `highest` and `to` is missing.
    fn open(&mut self, to: u64, due: Nanos) -> Result<(), Refused> {
        let (start, full) = (self.highest, self.list.len() == MAX_GAPS);
        match self.list.last_mut() {
            _ if start == to => {}
            // What nobody has asked for yet grows.
            Some(last) if last.end == start && last.asked == 0 => last.end = to,
            _ if full => return Err(Refused::Scattered),
            _ => self.list.push(Gap { start, end: to, due, asked: 0 }),
        }
        Ok(())
    }

    /// Bytes from `start` to `end` have come; `keep` is called with each range of them that was
    /// missing.
    pub(crate) fn fill(
        &mut self,
        start: u64,
        end: u64,
        due: Nanos,
        mut keep: impl FnMut(u64, u64),
    ) -> Result<(), Refused> {
        debug_assert!(start < end);
        // The usual case.
        if start == self.highest {
            self.highest = end;
            keep(start, end);
            return Ok(());
        }
        // Only a gap with something left on both sides becomes one more, and only one can.
        let splits = self.list.iter().any(|gap| gap.start < start && end < gap.end);
        if splits && self.list.len() == MAX_GAPS {
            return Err(Refused::Scattered);
        }
        if start > self.highest {
            self.open(start, due)?;
        }
        let mut index = 0;
        while let Some(&gap) = self.list.get(index) {
            let (from, to) = (start.max(gap.start), end.min(gap.end));
            if from >= to {
                index += 1;
                continue;
            }
            keep(from, to);
            match (gap.start < from, to < gap.end) {
                (false, false) => {
                    self.list.remove(index);
                }
                (true, false) => self.list[index].end = from,
                (false, true) => self.list[index].start = to,
                (true, true) => {
                    self.list[index].end = from;
                    self.list.insert(index + 1, Gap { start: to, ..gap });
                    break;
                }
            }
        }
        if end > self.highest {
            keep(start.max(self.highest), end);
            self.highest = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain set of bytes.
        #[test]
        fn gaps_are_what_has_not_come(steps in proptest::collection::vec((0u64..400, 1u64..40, proptest::bool::weighted(0.2)), 1..200)) {
            let mut gaps = Gaps::new();
            let mut there = vec![false; 500];
            let mut highest = 0;
            for (at, len, hint) in steps {
                if hint {
                    if gaps.know(at, 0).is_ok() {
                        highest = highest.max(at);
                    }
                } else {
                    let before = gaps.clone();
                    let mut kept = Vec::new();
                    match gaps.fill(at, at + len, 0, |from, to| kept.push((from, to))) {
                        Ok(()) => {
                            for (from, to) in kept {
                                for byte in from..to {
                                    prop_assert!(!there[byte as usize], "{byte} was kept twice");
                                    there[byte as usize] = true;
                                }
                            }
                            prop_assert!((at..at + len).all(|byte| there[byte as usize]));
                            highest = highest.max(at + len);
                        }
                        Err(_) => {
                            prop_assert!(kept.is_empty());
                            prop_assert_eq!(&gaps, &before);
                        }
                    }
                }
                prop_assert_eq!(gaps.highest(), highest);
                let missing = there[..highest as usize].iter().position(|there| !there);
                prop_assert_eq!(gaps.received(), missing.map_or(highest, |byte| byte as u64));
                let list = gaps.list();
                prop_assert!(list.len() <= MAX_GAPS);
                prop_assert!(list.windows(2).all(|pair| pair[0].end <= pair[1].start));
                let total: u64 = list.iter().map(|gap| gap.end - gap.start).sum();
                prop_assert_eq!(total as usize, there[..highest as usize].iter().filter(|there| !**there).count());
            }
        }
    }
}
