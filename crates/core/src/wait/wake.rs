//! Whom a PE wakes, and on which CPU, where PEs share CPUs.

use super::interference::Interference;
use crate::base::bells::{for_a_moment, this_cpu};
use crate::base::clock::cycles;
use crate::endpoint::pe::Pe;

/// Wakes those of `members` that sleep on CPU `here`.
pub(super) fn wake_on_cpu(pe: &Pe, here: u32, members: &[usize]) {
    let control = pe.control();
    let there = members.iter().filter(|&&other| control.cpu_of(other) == here);
    there.for_each(|&other| control.doorbell(other).ring_ordered());
}

/// The other half of [`Policy::SpinForCpu`](super::policy::Policy::SpinForCpu), for a PE that is
/// about to wake `targets`: wakes those on other CPUs, but leaves them a moment to the PE that is
/// awake there. No wake-up depends on that PE: after the moment all are woken as ever, and a PE
/// that is woken twice looks twice.
pub(super) fn wake_elsewhere(pe: &Pe, targets: impl Iterator<Item = usize> + Clone) {
    if Interference::of(pe).is_assumed(cycles) {
        wake_beyond(pe, this_cpu(), targets);
    }
}

fn wake_beyond(pe: &Pe, here: u32, targets: impl Iterator<Item = usize> + Clone) {
    let control = pe.control();
    let asleep = |target: usize| control.doorbell(target).is_announced();
    let start = cycles();
    for target in targets.clone() {
        let there = control.cpu_of(target);
        if there == here || !asleep(target) {
            continue;
        }
        if targets.clone().any(|other| control.cpu_of(other) == there && !asleep(other)) {
            for_a_moment(start, || !asleep(target));
        }
        control.doorbell(target).ring_ordered();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::job::Job;

    /// Which of PEs 1 to 3, on CPUs 1, 2 and 2, still sleep after `f` at PE 0 on CPU 1, if only
    /// `sleepers` did before.
    fn still_asleep(sleepers: &[usize], f: fn(&Pe)) -> Vec<usize> {
        let all = Job::threads(4, |job| {
            if job.pe() != 0 {
                return Vec::new();
            }
            let control = job.pe.control();
            (0..4).for_each(|pe| control.say_cpu(pe, [1, 1, 2, 2][pe]));
            for &sleeper in sleepers {
                control.doorbell(sleeper).announce(false, control.membarrier());
            }
            f(&job.pe);
            (1..4).filter(|&pe| control.doorbell(pe).is_announced()).collect()
        });
        all.unwrap().swap_remove(0)
    }

    #[test]
    fn a_pe_that_spins_for_its_cpu_wakes_no_others() {
        assert_eq!(still_asleep(&[1, 2, 3], |pe| wake_on_cpu(pe, 1, &[0, 1, 2, 3])), [2, 3]);
        assert_eq!(still_asleep(&[1, 2, 3], |pe| wake_on_cpu(pe, 2, &[0, 1, 3])), [1, 2]);
    }

    #[test]
    fn a_sleeper_that_no_pe_of_its_cpu_wakes_is_woken_from_elsewhere() {
        assert_eq!(still_asleep(&[1, 2, 3], |pe| wake_beyond(pe, 1, 1..4)), [1]);
        // PE 3 could, and does not.
        assert_eq!(still_asleep(&[1, 2], |pe| wake_beyond(pe, 1, 1..4)), [1]);
    }
}
