//! Paced polling: the beginning of a wait for one's turn with what PEs hand to each other.

use crate::base::clock::cycles;
use crate::base::shm;
use crate::endpoint::pe::Pe;

/// Looks of a paced wait: some 3 us together.
const PACED_LOOKS: u32 = 64;
/// Cycles from one look to the next.
const PACE_CYCLES: u64 = 60;

/// Paced looks for one that may take a line from a PE that is using it.
const RARELY: u32 = 8;

/// Says when to look at words that their owner may use again and again, if nobody takes their line
/// from it: at the first paced look, and rarely after that. Two PEs that contend for a mutex take
/// nearly twice as many turns so as with each paced look.
#[derive(Default)]
pub(crate) struct Rarely(u32);

impl Rarely {
    /// Whether to look now.
    pub(crate) fn now(&mut self) -> bool {
        self.0 += 1;
        self.0 % RARELY == 1
    }
}

/// Looks now and then. Where it finds nothing, [`until`](super::until) follows.
///
/// The PE that hands over has more to write to the lines that are looked at: at the least, that it
/// wants its turn again. A look in between takes the line away from it, and the next PE then waits
/// for what comes late. So looks are [`PACE_CYCLES`] apart by the clock, as a `pause` takes from 30
/// to 140 cycles. There are enough of them for several turns of others, so that none of what a
/// longer wait does comes between.
#[inline(always)]
pub(crate) fn paced_polling<R>(pe: &Pe, mut look: impl FnMut() -> Option<R>) -> Option<R> {
    pe.wake_written();
    if cfg!(loom) || !pe.spins() || pe.is_simulated() {
        return None;
    }
    let mut last = cycles();
    for _ in 0..PACED_LOOKS {
        loop {
            shm::pause();
            let now = cycles();
            if now.wrapping_sub(last) >= PACE_CYCLES {
                last = now;
                break;
            }
        }
        let found = look();
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    #[test]
    fn paced_looks_end() {
        let looks = Job::threads(1, |job| {
            let mut looks = 0;
            let nothing = paced_polling(&job.pe, || {
                looks += 1;
                None::<()>
            });
            assert_eq!(nothing, None);
            assert_eq!(paced_polling(&job.pe, || Some(7)), Some(7));
            looks
        });
        assert_eq!(looks.unwrap(), [PACED_LOOKS], "it has a CPU");
    }
}
