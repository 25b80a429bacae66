//! The yield hint: whether this PE had better yield first in its next wait.
//!
//! Programs are loops. A PE that receives from another PE (the *leader*) and sends it nothing in
//! return usually waits for that leader again. Where both share a CPU, the next wait of this PE can
//! end no sooner than the leader runs, so spinning before the yield gains nothing. With the hint,
//! the next wait skips the [spin before yield](super::policy): the leader gets the CPU at once.

use crate::endpoint::pe::Pe;
use std::sync::atomic::Ordering;

/// Notes that this PE has received from `leader` and sends it nothing in return.
pub(crate) fn note_leader(pe: &Pe, leader: usize) {
    if pe.crowded() {
        let control = pe.control();
        let shares_cpu = control.cpu_of(leader) == control.cpu_of(pe.me());
        pe.waits().yield_hint.store(shares_cpu, Ordering::Relaxed);
    }
}

/// Takes the hint: whether the wait that begins had better yield at once. True once per note.
pub(super) fn take(pe: &Pe) -> bool {
    let hint = pe.waits().yield_hint.load(Ordering::Relaxed);
    if hint {
        pe.waits().yield_hint.store(false, Ordering::Relaxed);
    }
    hint
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    #[test]
    fn a_pe_that_follows_one_of_its_cpu_yields_first_once() {
        // Some share a CPU.
        let npes = 3.max(crate::lifecycle::launch::available_cpus() + 1);
        let all = Job::threads(npes, |job| {
            let (pe, control) = (&*job.pe, job.pe.control());
            if pe.me() != 1 {
                return Vec::new();
            }
            for (at, cpu) in [(0, 1), (1, 1), (2, 2)] {
                control.say_cpu(at, cpu);
            }
            let hints = [Some(0), None, Some(2), Some(0), None].map(|leader| {
                leader.inspect(|&leader| note_leader(pe, leader));
                take(pe)
            });
            hints.to_vec()
        });
        assert_eq!(all.unwrap()[1], [true, false, false, true, false]);
    }
}
