//! How a job is brought to its end: what follows what, and when. This file decides; the supervisor
//! acts.
//!
//! ```text
//! Running ── a PE fails ──► Grace ── 200 ms ──► Terminated ── 1 s ──► Killed ── 5 s ──► Abandoned
//!    │                                          ▲  SIGTERM to all      SIGKILL to all
//!    └── a PE asks for the end ──► Exiting ─ 5 s ┘
//! ```
//!
//! *Every job that is to end does so within seconds.* Each phase between `Running` and `Abandoned`
//! has a moment at which the next one begins. That moment is fixed when the phase begins: no
//! process and no word in the control page moves it. A PE that has asked for the end may say there
//! that it ends by itself. All that this word decides is whether the PE gets SIGKILL as `Exiting`
//! begins, or at the latest when `Terminated` is over. So it does not matter what keeps a process:
//! an exit handler, a destructor or another thread that blocks, SIGSTOP, or a word that somebody
//! else has written.
//!
//! SIGKILL does not end a process at once that is in an uninterruptible call, or that has much
//! memory to give back. In `Abandoned` nobody waits for it as a PE any more;
//! [`Family`](super::family::Family) waits for it a while longer, and names it if it stays.

use std::time::{Duration, Instant};

/// How long PEs have, after the first failure, to see it in their waits, say so, and end by
/// themselves.
const GRACE: Duration = Duration::from_millis(200);
/// How long the exit handlers and destructors of a PE may take that has asked for the end of the
/// job.
pub const HANDLERS: Duration = Duration::from_secs(5);
/// How long PEs have after SIGTERM.
const LAST_GRACE: Duration = Duration::from_secs(1);
/// How long the ends of killed PEs are waited for, to be reported.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// What is being done about the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing.
    Running,
    /// A PE has failed; the others may end by themselves until then.
    Grace(Instant),
    /// A PE has asked for the end of the job. Those that have not were killed; those that have may
    /// end by themselves until then.
    Exiting(Instant),
    /// All were sent SIGTERM, and SIGKILL follows then.
    Terminated(Instant),
    /// All were sent SIGKILL, and are waited for until then.
    Killed(Instant),
    /// They are not waited for any more.
    Abandoned,
}

/// What is to be done because a phase has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Send SIGTERM to all; `late`: they have asked for the end of the job, and have not ended.
    Terminate { late: bool },
    /// Send SIGKILL to all.
    Kill,
    /// Wait for no PE any more.
    Abandon,
}

impl Phase {
    /// When the phase ends at the latest.
    pub fn until(self) -> Option<Instant> {
        match self {
            Phase::Running | Phase::Abandoned => None,
            Phase::Grace(until)
            | Phase::Exiting(until)
            | Phase::Terminated(until)
            | Phase::Killed(until) => Some(until),
        }
    }

    /// A PE has failed on which others may depend.
    pub fn failed(&mut self, now: Instant) {
        if matches!(self, Phase::Running) {
            *self = Phase::Grace(now + GRACE);
        }
    }

    /// A PE has asked for the end of the job. True if all who have not are to be killed.
    pub fn asked(&mut self, now: Instant) -> bool {
        let first = matches!(self, Phase::Running);
        if first {
            *self = Phase::Exiting(now + HANDLERS);
        }
        first
    }

    /// The job is to end without a grace. Gives what is to be done for that.
    pub fn hurry(&mut self, now: Instant) -> Option<Deed> {
        let hurries = matches!(self, Phase::Running | Phase::Grace(_) | Phase::Exiting(_));
        hurries.then(|| {
            *self = Phase::Terminated(now + LAST_GRACE);
            Deed::Terminate { late: false }
        })
    }

    /// Time has passed. Gives what is to be done because of that.
    pub fn pass(&mut self, now: Instant) -> Option<Deed> {
        self.until().filter(|&until| until <= now)?;
        let (next, deed) = match self {
            Phase::Terminated(_) => (Phase::Killed(now + LAST_LOOK), Deed::Kill),
            Phase::Killed(_) => (Phase::Abandoned, Deed::Abandon),
            Phase::Exiting(_) => {
                (Phase::Terminated(now + LAST_GRACE), Deed::Terminate { late: true })
            }
            _ => (Phase::Terminated(now + LAST_GRACE), Deed::Terminate { late: false }),
        };
        *self = next;
        Some(deed)
    }

    /// Whether PEs are still started, of a job that starts them one after the other.
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

    /// Whatever happens in which order, and however often: from the first event on, the job is
    /// abandoned within the sum of all graces.
    #[test]
    fn every_order_of_events_leads_to_the_end_in_time() {
        let begin = Instant::now();
        let step = Duration::from_millis(100);
        let longest = GRACE.max(HANDLERS) + LAST_GRACE + LAST_LOOK + 4 * step;
        // Three bits for each of the first moments: which of the three events comes again then.
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
