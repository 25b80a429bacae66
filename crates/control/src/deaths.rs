//! Deaths of an agent's own PEs that whoever orders deaths has not put in order yet: the launcher,
//! or without one of memonet's, another agent.
//!
//! Both have the contract and the proof with them: `run/hosts` of the command, and `wired/order.rs`
//! of `memonet_fabrics`. Nothing here reads a clock.

use std::time::{Duration, Instant};

use memonet_core::Cause;

/// How long it may take to order a death. It takes some milliseconds, unless who does it is stopped
/// or cut off. Together with the ways to and from it, less than the 0.3 s within which a death is
/// known.
const ORDER: Duration = Duration::from_millis(250);

/// The deaths.
#[derive(Debug, Default)]
pub struct Deaths {
    waiting: Vec<(usize, Cause, Instant)>,
}

impl Deaths {
    /// A PE has died, which is told now.
    pub fn told(&mut self, pe: usize, cause: Cause, now: Instant) {
        self.waiting.push((pe, cause, now + ORDER));
    }

    /// The death of a PE was ordered.
    pub fn ordered(&mut self, pe: usize) {
        self.waiting.retain(|&(other, ..)| other != pe);
    }

    /// When a death is to be published without an order.
    pub fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|&(.., due)| due).min()
    }

    /// Takes the deaths that were not ordered in time.
    pub fn overdue(&mut self, now: Instant) -> Vec<(usize, Cause)> {
        let late = self.waiting.extract_if(.., |&mut (.., due)| due <= now);
        late.map(|(pe, cause, _)| (pe, cause)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_delays_a_death_for_a_while() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut deaths = Deaths::default();
        assert_eq!((deaths.due(), deaths.overdue(at(10_000))), (None, vec![]));
        deaths.told(3, Cause::Signal(9), at(0));
        deaths.told(1, Cause::Exit(2), at(100));
        deaths.told(2, Cause::Signal(11), at(100));
        deaths.ordered(1);
        assert_eq!((deaths.due(), deaths.overdue(at(249))), (Some(at(250)), vec![]));
        assert_eq!(deaths.overdue(at(250)), [(3, Cause::Signal(9))]);
        // Each is published once, also if it is ordered later.
        deaths.ordered(3);
        assert_eq!((deaths.due(), deaths.overdue(at(349))), (Some(at(350)), vec![]));
        assert_eq!(deaths.overdue(at(1000)), [(2, Cause::Signal(11))]);
        assert_eq!((deaths.due(), deaths.overdue(at(10_000))), (None, vec![]));
    }
}
