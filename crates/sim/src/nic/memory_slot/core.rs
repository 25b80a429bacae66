//! The core processor: a 32-bit RISC on the chip, with SRAM of its own for code and data.
//!
//! It does one thing at a time. The fast path never needs it: it refills the TLBs, and, on machines
//! that say so, it carries out updates of words ([`updates`](super::updates)).
//!
//! A refill is planned when the host writes the word that needs it, which may be long before the
//! NIC comes to that word. So the processor takes each request in the first gap between those that
//! are planned, and not behind all of them.

use crate::time::Ps;
use std::collections::BTreeMap;

/// What the core processor takes for a request.
#[derive(Debug, Clone, Copy)]
pub struct CoreCosts {
    /// Decoding a request, and building the answer.
    pub handle: Ps,
    /// Each access to LLCM or a bank.
    pub access: Ps,
}

/// The core processor of one NIC: when it is busy, from when until when.
#[derive(Debug, Clone, Default)]
pub struct CoreProcessor {
    planned: BTreeMap<Ps, Ps>,
}

impl CoreProcessor {
    /// Takes the processor for `time`, from `at` or from when it has that much time. Returns start
    /// and end. Nobody asks for a time before `now` any more.
    pub fn take(&mut self, now: Ps, at: Ps, time: Ps) -> (Ps, Ps) {
        while self.planned.first_key_value().is_some_and(|(_, &end)| end <= now) {
            self.planned.pop_first();
        }
        let mut start = at;
        for (&from, &until) in &self.planned {
            if start + time <= from {
                break;
            }
            start = start.max(until);
        }
        if time > Ps::ZERO {
            self.planned.insert(start, start + time);
        }
        (start, start + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_does_not_wait_for_one_that_begins_later() {
        let mut core = CoreProcessor::default();
        let mut take = |at, time| core.take(Ps::ZERO, Ps(at), Ps(time)).0.0;
        assert_eq!(take(100, 10), 100);
        assert_eq!(take(0, 100), 0, "the gap before is just long enough");
        assert_eq!(take(105, 10), 110);
        assert_eq!(take(300, 10), 300);
        assert_eq!(take(90, 170), 120);
        assert_eq!(take(90, 11), 310, "from 290 to 300 there is too little time");
        assert_eq!(take(90, 10), 290);
    }

    proptest! {
        /// The processor does one thing at a time, and stands still only where what waits is longer
        /// than the gap.
        #[test]
        fn one_at_a_time(steps in proptest::collection::vec((0u64..50, 0u64..300, 1u64..20), 1..60)) {
            let (mut core, mut now) = (CoreProcessor::default(), 0);
            let mut all: Vec<(u64, u64)> = Vec::new();
            for (passes, ahead, time) in steps {
                now += passes;
                let (at, time) = (now + ahead, Ps(time));
                let (start, end) = core.take(Ps(now), Ps(at), time);
                prop_assert!(start.0 >= at && end == start + time);
                let is_free = |from: u64| all.iter().all(|&(other, until)| until <= from || other >= from + time.0);
                prop_assert!(is_free(start.0));
                prop_assert!((at..start.0).all(|earlier| !is_free(earlier)));
                all.push((start.0, end.0));
            }
        }
    }
}
