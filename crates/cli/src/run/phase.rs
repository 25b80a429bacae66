//! The phases by which a job ends, and their times. This file decides; the supervisor acts.
//!
//! ```text
//! Running ── a PE fails ──► Grace ── 200 ms ──► Terminated ── 1 s ──► Killed ── 5 s ──► Abandoned
//!    │                                          ▲  SIGTERM to all      SIGKILL to all
//!    └── a PE asks for the end ──► Exiting ─ 5 s ┘
//! ```
//!
//! *Every job that must end does so within seconds.* Each phase between `Running` and `Abandoned`
//! has a moment at which the next one begins. That moment is fixed when the phase begins: no
//! process and no word in the control page moves it. A PE that has asked for the end may announce
//! in the control page that it ends by itself. That word decides only whether the PE gets SIGKILL
//! when `Exiting` begins, or at the latest when `Terminated` is over. So the reason why a process
//! stays does not matter: an exit handler, a destructor or another thread that blocks, SIGSTOP, or
//! a word that another process has written.
//!
//! SIGKILL does not immediately end a process that is in an uninterruptible call, or that has much
//! memory to free. In `Abandoned` the supervisor does not wait for it as a PE any more.
//! [`Family`](super::family::Family) waits a while longer, and reports it if it stays.

use std::time::{Duration, Instant};

/// Time for PEs, after the first failure, to notice it in their waits, report it, and end by
/// themselves.
const GRACE: Duration = Duration::from_millis(200);
/// Time for the exit handlers and destructors of a PE that has asked for the end of the job.
pub const HANDLERS: Duration = Duration::from_secs(5);
/// Time for PEs to end after SIGTERM.
pub const LAST_GRACE: Duration = Duration::from_secs(1);
/// Time for the ends of killed PEs to arrive, to be reported.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The phase of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The job runs.
    Running,
    /// A PE has failed. The others may end by themselves until this moment.
    Grace(Instant),
    /// A PE has asked for the end of the job. The PEs that have not asked were killed. Those that
    /// have asked may end by themselves until this moment.
    Exiting(Instant),
    /// All PEs were sent SIGTERM. At this moment SIGKILL follows.
    Terminated(Instant),
    /// All PEs were sent SIGKILL. The supervisor waits for them until this moment.
    Killed(Instant),
    /// The supervisor does not wait for PEs any more.
    Abandoned,
}

/// The action at the beginning of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Send SIGTERM to all PEs. `late`: they had asked for the end of the job, but have not ended.
    Terminate { late: bool },
    /// Send SIGKILL to all PEs.
    Kill,
    /// Stop waiting for PEs.
    Abandon,
}

impl Phase {
    /// The moment at which the phase ends at the latest.
    pub fn until(self) -> Option<Instant> {
        match self {
            Phase::Running | Phase::Abandoned => None,
            Phase::Grace(until)
            | Phase::Exiting(until)
            | Phase::Terminated(until)
            | Phase::Killed(until) => Some(until),
        }
    }

    /// A PE has failed, and others may depend on it.
    pub fn failed(&mut self, now: Instant) {
        if matches!(self, Phase::Running) {
            *self = Phase::Grace(now + GRACE);
        }
    }

    /// A PE has asked for the end of the job. True if all PEs that have not asked must be killed.
    pub fn asked(&mut self, now: Instant) -> bool {
        let first = matches!(self, Phase::Running);
        if first {
            *self = Phase::Exiting(now + HANDLERS);
        }
        first
    }

    /// The job must end without a grace period. Returns the action.
    pub fn hurry(&mut self, now: Instant) -> Option<Deed> {
        let hurries = matches!(self, Phase::Running | Phase::Grace(_) | Phase::Exiting(_));
        hurries.then(|| {
            *self = Phase::Terminated(now + LAST_GRACE);
            Deed::Terminate { late: false }
        })
    }

    /// Time has passed. Returns the action that is due.
    pub fn pass(&mut self, now: Instant) -> Option<Deed> {
        self.until().filter(|&until| until <= now)?;
        let (next, deed) = match self {
            Phase::Terminated(_) => (Phase::Killed(now + LAST_WAIT), Deed::Kill),
            Phase::Killed(_) => (Phase::Abandoned, Deed::Abandon),
            Phase::Exiting(_) => {
                (Phase::Terminated(now + LAST_GRACE), Deed::Terminate { late: true })
            }
            _ => (Phase::Terminated(now + LAST_GRACE), Deed::Terminate { late: false }),
        };
        *self = next;
        Some(deed)
    }

    /// Whether a job that starts its PEs one after the other still starts them.
    pub fn starts(self) -> bool {
        matches!(self, Phase::Running | Phase::Grace(_))
    }

    /// Whether all PEs were sent SIGTERM.
    pub fn has_terminated(self) -> bool {
        matches!(self, Phase::Terminated(_) | Phase::Killed(_) | Phase::Abandoned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After events in any order and number, the job is abandoned within the sum of all graces from
    /// the first event on.
    #[test]
    fn every_order_of_events_leads_to_the_end_in_time() {
        let begin = Instant::now();
        let step = Duration::from_millis(100);
        let longest = GRACE.max(HANDLERS) + LAST_GRACE + LAST_WAIT + 4 * step;
        // Three bits for each of the first moments: which of the three events happens then.
        for events in 1u32..1 << 12 {
            let (mut phase, mut first, mut deeds) = (Phase::Running, None, Vec::new());
            let mut now = begin;
            for moment in 0.. {
                let happens = |event: u32| moment < 4 && events >> (3 * moment + event) & 1 == 1;
                if happens(0) {
                    phase.failed(now);
                }
                if happens(1) {
                    phase.asked(now);
                }
                if happens(2) {
                    deeds.extend(phase.hurry(now));
                }
                if phase != Phase::Running {
                    first.get_or_insert(now);
                }
                deeds.extend(phase.pass(now));
                if phase == Phase::Abandoned {
                    break;
                }
                now += step;
                assert!(now - begin < longest + 4 * step, "{events:#b}: {phase:?}");
            }
            assert!(now - first.unwrap() <= longest, "{events:#b}");
            assert!(
                matches!(deeds[..], [Deed::Terminate { .. }, Deed::Kill, Deed::Abandon]),
                "{events:#b}: {deeds:?}"
            );
        }
    }

    #[test]
    fn a_failure_during_the_last_phases_changes_nothing() {
        let now = Instant::now();
        for before in
            [Phase::Exiting(now), Phase::Terminated(now), Phase::Killed(now), Phase::Abandoned]
        {
            let mut phase = before;
            phase.failed(now + GRACE);
            assert!(!phase.asked(now + GRACE) && phase == before);
        }
    }

    #[test]
    fn those_that_asked_and_stay_are_told_from_those_that_failed() {
        let now = Instant::now();
        let mut phase = Phase::Running;
        assert!(phase.asked(now) && !phase.asked(now) && phase.pass(now).is_none());
        assert_eq!(phase.pass(now + HANDLERS), Some(Deed::Terminate { late: true }));
        let mut phase = Phase::Running;
        phase.failed(now);
        assert_eq!(phase.pass(now + GRACE), Some(Deed::Terminate { late: false }));
    }
}
