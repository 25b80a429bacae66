//! What is known of a PE that was asked what it waits for.

use std::time::Duration;

use memonet_core::Cause;
use memonet_core::unstable::launch::State;
pub use memonet_core::unstable::wait::report::Report as Wait;

pub use super::activity::{Activity, Threads};

/// Where a PE stands in its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Its process has not joined the job.
    NotJoined,
    /// It has joined.
    Member,
    /// It has left in order.
    Finalised,
    /// It is gone.
    Gone(Cause),
    /// It waits for something of its simulated machine.
    Waits(String),
    /// Its host has not answered.
    Silent,
}

impl From<State> for Standing {
    fn from(state: State) -> Standing {
        match state {
            State::Empty => Standing::NotJoined,
            State::Joined | State::Finalizing => Standing::Member,
            State::Done => Standing::Finalised,
            State::Dead(cause) => Standing::Gone(cause),
        }
    }
}

/// What is known of a PE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub pe: usize,
    pub standing: Standing,
    pub activity: Activity,
    /// Threads of its program, waiting or not.
    pub threads: Threads,
    /// Threads that have answered, for which there was no room or no legible report.
    pub lost: usize,
    /// What its threads wait for.
    pub waits: Vec<Wait>,
    /// What its program has called last, in words, where that is recorded.
    pub last: String,
}

/// Whether a wait had lasted for at least `window` when its thread answered.
pub fn has_lasted(wait: &Wait, window: Duration) -> bool {
    Duration::from_nanos(wait.waited) >= window
}

impl Answer {
    /// The answer of a PE of which nothing was heard.
    pub fn silent(pe: usize) -> Answer {
        Answer {
            pe,
            standing: Standing::Silent,
            activity: Activity::Unknown,
            threads: Threads::default(),
            lost: 0,
            waits: Vec::new(),
            last: String::new(),
        }
    }

    /// On a simulated machine, a PE that sleeps and is not parked waits for its turn.
    pub fn has_no_turn(&mut self) {
        let sleeps = matches!(self.activity, Activity::Sleeps(_)) && self.waits.is_empty();
        if sleeps && self.standing == Standing::Member {
            self.standing = Standing::Waits("its turn, which another PE has".into());
        }
    }

    /// Whether the PE does nothing until one of its waits ends: all threads of its program wait,
    /// none of them for a limited time, and each for at least `window`. Unless `strict`, other
    /// threads may be idle: they were when the question was over, but may have worked before.
    pub fn only_waits(&self, window: Duration, strict: bool) -> bool {
        let idle = if strict { 0 } else { self.threads.idle };
        self.standing == Standing::Member
            && !self.waits.is_empty()
            && self.lost == 0
            && self.threads.all == self.waits.len() + idle
            && self.waits.iter().all(|wait| !wait.limited && has_lasted(wait, window))
    }
}

#[cfg(test)]
pub mod tests {
    use memonet_core::unstable::wait::Awaited;
    use memonet_core::unstable::wait::report::Pes;

    use super::*;

    /// A wait for nothing in particular.
    pub fn wait(what: Awaited) -> Wait {
        Wait {
            thread: 1,
            waited: 1_500_000_000,
            begun: 1,
            limited: false,
            simulated: false,
            what,
            call: String::new(),
            at: String::new(),
            caller: None,
            window: String::new(),
            team: None,
            meeting: None,
            members: None,
            done: Pes::default(),
            missing: Pes::default(),
            lock: None,
            holders: Pes::default(),
            words: None,
            outstanding: None,
        }
    }

    /// A wait in a phase of a barrier.
    pub fn barrier(slot: u64, phase: u64) -> Wait {
        Wait {
            call: "Job::barrier".into(),
            at: "a.rs:1".into(),
            meeting: Some((slot, phase)),
            ..wait(Awaited::Barrier)
        }
    }

    /// A PE all of whose threads wait.
    pub fn waits(pe: usize, waits: impl IntoIterator<Item = Wait>) -> Answer {
        let waits: Vec<Wait> = waits.into_iter().collect();
        Answer {
            pe,
            standing: Standing::Member,
            activity: Activity::Sleeps(String::new()),
            threads: Threads { all: waits.len(), idle: 0 },
            lost: 0,
            waits,
            last: String::new(),
        }
    }

    /// A PE that computes.
    pub fn computes(pe: usize) -> Answer {
        Answer { activity: Activity::Runs, threads: Threads { all: 1, idle: 0 }, ..waits(pe, []) }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_pe_that_may_go_on_does_not_only_wait() {
        let waiting = waits(0, [barrier(0, 1)]);
        assert!(waiting.only_waits(SECOND, true) && !computes(0).only_waits(SECOND, false));
        let threads = |all, idle| Answer { threads: Threads { all, idle }, ..waiting.clone() };
        assert!(threads(3, 2).only_waits(SECOND, false) && !threads(3, 2).only_waits(SECOND, true));
        let limited = Wait { limited: true, ..barrier(0, 1) };
        for other in [
            threads(2, 0),
            threads(3, 1),
            threads(0, 0),
            Answer { lost: 1, ..waiting.clone() },
            Answer { standing: Standing::Finalised, ..waiting.clone() },
            waits(0, [limited]),
            waits(0, [Wait { waited: 999_999_999, ..barrier(0, 1) }]),
        ] {
            assert!(!other.only_waits(SECOND, false), "{other:?}");
        }
    }
}
