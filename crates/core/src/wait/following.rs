//! Who leads where PEs share CPUs: a hint for waits.
//!
//! Programs are loops: who has heard from another PE, and told nothing in return, will hear from
//! there again after its next wait. Where that PE is on the same CPU, to be the first there whose
//! wait ends is worth nothing. So the follower gives way in that wait instead of hoping, and when
//! the wait ends, the leader has the CPU.

use crate::endpoint::pe::Pe;
use std::sync::atomic::Ordering;

/// This PE has heard from `leader`, and tells it nothing.
pub(crate) fn follow(pe: &Pe, leader: usize) {
    if pe.crowded() {
        let control = pe.control();
        let here = control.cpu_of(leader) == control.cpu_of(pe.me());
        pe.waits().follows.store(here, Ordering::Relaxed);
    }
}

/// Whether this PE, which waits, had better give way at first. Said once.
pub(crate) fn gives_way(pe: &Pe) -> bool {
    let follows = pe.waits().follows.load(Ordering::Relaxed);
    if follows {
        pe.waits().follows.store(false, Ordering::Relaxed);
    }
    follows
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    #[test]
    fn who_follows_a_pe_of_its_cpu_gives_way_once() {
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
            let given = [Some(0), None, Some(2), Some(0), None].map(|leader| {
                leader.inspect(|&leader| follow(pe, leader));
                gives_way(pe)
            });
            given.to_vec()
        });
        assert_eq!(all.unwrap()[1], [true, false, false, true, false]);
    }
}
