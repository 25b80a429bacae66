//! The gaps of a reader: a short, sorted list of missing ranges below the highest position that the
//! reader knows of. A caller that repairs by other means than this protocol may use it alone.

use crate::config::Nanos;
use crate::wire::Refused;

/// The largest number of gaps that a reader keeps. It refuses a datagram that would open more; the
/// writer sends the bytes again.
pub const MAX_GAPS: usize = 64;

/// A missing range, and the time of the next NAK for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The first missing byte.
    pub start: u64,
    /// The byte after the last missing one.
    pub end: u64,
    /// The time to ask for it.
    pub due: Nanos,
    /// The number of NAKs sent for it.
    pub(crate) asked: u32,
}

/// The gaps: sorted, disjoint, not empty, and below `highest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gaps {
    list: Vec<Gap>,
    highest: u64,
}

impl Default for Gaps {
    fn default() -> Self {
        Self::new()
    }
}

impl Gaps {
    /// Nothing has arrived.
    pub fn new() -> Self {
        Gaps { list: Vec::with_capacity(MAX_GAPS + 1), highest: 0 }
    }

    /// The start of the first gap: all bytes below it have arrived.
    pub fn received(&self) -> u64 {
        self.list.first().map_or(self.highest, |gap| gap.start)
    }

    /// The end of the log, as far as the reader knows.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// A number that grows with each byte that the reader learns of, and with each that arrives.
    pub(crate) fn learnt(&self) -> u64 {
        let missing: u64 = self.list.iter().map(|gap| gap.end - gap.start).sum();
        2 * self.highest - missing
    }

    /// The gaps, ascending.
    pub fn list(&mut self) -> &mut [Gap] {
        &mut self.list
    }

    pub(crate) fn first_due(&self) -> Nanos {
        self.list.iter().map(|gap| gap.due).min().unwrap_or(Nanos::MAX)
    }

    /// Notes that the log goes up to `highest`. A new gap is due at `due`.
    ///
    /// # Errors
    /// [`Refused::Scattered`]; then nothing has changed.
    pub fn know(&mut self, highest: u64, due: Nanos) -> Result<(), Refused> {
        if highest <= self.highest {
            return Ok(());
        }
        self.open(highest, due)?;
        self.highest = highest;
        Ok(())
    }

    /// Notes that all bytes between `highest` and `to` are missing.
    fn open(&mut self, to: u64, due: Nanos) -> Result<(), Refused> {
        let (start, full) = (self.highest, self.list.len() == MAX_GAPS);
        match self.list.last_mut() {
            _ if start == to => {}
            // A gap without a NAK so far grows instead.
            Some(last) if last.end == start && last.asked == 0 => last.end = to,
            _ if full => return Err(Refused::Scattered),
            _ => self.list.push(Gap { start, end: to, due, asked: 0 }),
        }
        Ok(())
    }

    /// Closes gaps between `start` and `end`, whose bytes have arrived. It calls `keep` with each
    /// range that was missing. A new gap is due at `due`.
    ///
    /// # Errors
    /// [`Refused::Scattered`]; then nothing has changed.
    pub fn fill(
        &mut self,
        start: u64,
        end: u64,
        due: Nanos,
        mut keep: impl FnMut(u64, u64),
    ) -> Result<(), Refused> {
        debug_assert!(start < end);
        // The usual case: the next bytes of a log without gaps.
        if start == self.highest {
            self.highest = end;
            keep(start, end);
            return Ok(());
        }
        // The number of gaps grows by one at most: only one gap can have bytes left on both sides.
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
        /// Compares the gaps with a plain set of bytes.
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
