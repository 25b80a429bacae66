//! Why and when the launcher asks what PEs wait for.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use memonet_core::unstable::wait::wording::time;

use super::answer::Answer;

/// The least time between two questions of `--watch`, and the greatest.
const WATCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Questions of `--watch` within its time.
const PARTS: u32 = 4;

/// Why the launcher asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reasons {
    /// The time limit of the job is over.
    pub timeout: bool,
    /// The user has sent SIGQUIT.
    pub signal: bool,
    /// `--watch`.
    pub watch: bool,
}

impl Reasons {
    /// The time limit of the job is over.
    pub const TIMEOUT: Reasons = Reasons { timeout: true, signal: false, watch: false };
    /// The user has sent SIGQUIT.
    pub const SIGNAL: Reasons = Reasons { timeout: false, signal: true, watch: false };
    const WATCH: Reasons = Reasons { timeout: false, signal: false, watch: true };

    fn add(&mut self, more: Reasons) {
        self.timeout |= more.timeout;
        self.signal |= more.signal;
        self.watch |= more.watch;
    }
}

/// Questions that were asked, and that `--watch` asks for.
pub struct Inquiry {
    last: u32,
    /// The reasons of the question that stands.
    asked: Option<Reasons>,
    watch: Option<Watch>,
}

struct Watch {
    after: Duration,
    next: Instant,
    /// When to tell of a wait again, by PE, thread and beginning.
    told: HashMap<(usize, u32, u64), Duration>,
}

impl Inquiry {
    /// Nothing was asked so far. With `watch`, waits are told that last so long.
    pub fn new(watch: Option<Duration>, now: Instant) -> Inquiry {
        let watch = watch.map(|after| Watch { after, next: now, told: HashMap::new() });
        let mut inquiry = Inquiry { last: 0, asked: None, watch };
        inquiry.put_off(now);
        inquiry
    }

    /// Asks for a reason. Gives the number of the question to put, unless one stands: then its
    /// answers serve this reason, too.
    pub fn ask(&mut self, reason: Reasons) -> Option<NonZeroU32> {
        if let Some(asked) = &mut self.asked {
            asked.add(reason);
            return None;
        }
        self.asked = Some(reason);
        // The greatest number is that of simulated machines.
        self.last = self.last % (u32::MAX - 1) + 1;
        NonZeroU32::new(self.last)
    }

    /// When `--watch` asks next.
    pub fn next(&self) -> Option<Instant> {
        self.watch.as_ref().filter(|_| self.asked.is_none()).map(|watch| watch.next)
    }

    /// The number of the question that `--watch` asks for now.
    pub fn is_due(&mut self, now: Instant) -> Option<NonZeroU32> {
        self.next().filter(|&next| next <= now)?;
        self.ask(Reasons::WATCH)
    }

    fn put_off(&mut self, now: Instant) {
        if let Some(watch) = &mut self.watch {
            let pause = (watch.after / PARTS).clamp(WATCH.0, WATCH.1);
            watch.next = now.checked_add(pause).unwrap_or(watch.next);
        }
    }

    /// The question was answered, by all within `window`. Gives what the user is to read, and
    /// whether the job's time is over.
    pub fn answered(
        &mut self,
        answers: &[Answer],
        window: Duration,
        now: Instant,
    ) -> (Option<String>, bool) {
        self.put_off(now);
        let Some(reasons) = self.asked.take() else { return (None, false) };
        // Waits that are told for another reason are told for this one, too.
        let long = self.watch.as_mut().and_then(|watch| watch.tell(answers));
        let title = match (reasons.timeout, reasons.signal, long) {
            (true, ..) => "what PEs wait for:".to_owned(),
            (_, true, _) => "what PEs wait for (SIGQUIT; the job goes on):".to_owned(),
            (_, _, Some(lasted)) => {
                format!("a wait has lasted {}; what PEs wait for:", time(lasted))
            }
            (_, _, None) => return (None, false),
        };
        (Some(super::report(&title, answers, Some(window))), reasons.timeout)
    }
}

impl Watch {
    /// The longest wait, if one has lasted for long enough to be told.
    fn tell(&mut self, answers: &[Answer]) -> Option<Duration> {
        let waits =
            || answers.iter().flat_map(|answer| answer.waits.iter().map(|w| (answer.pe, w)));
        let key = |(pe, wait): (usize, &super::answer::Wait)| (pe, wait.thread, wait.begun);
        let lasted = |wait: &super::answer::Wait| Duration::from_nanos(wait.waited);
        let alive: HashSet<_> = waits().map(key).collect();
        self.told.retain(|told, _| alive.contains(told));
        let is_due = |&(pe, wait): &(usize, &super::answer::Wait)| {
            let from = self.told.get(&key((pe, wait))).copied().unwrap_or(self.after);
            lasted(wait) >= from
        };
        let longest = waits().filter(is_due).map(|(_, wait)| lasted(wait)).max()?;
        for (pe, wait) in waits() {
            let next = self.told.entry(key((pe, wait))).or_insert(self.after);
            while *next <= lasted(wait) {
                *next = next.saturating_mul(2);
            }
        }
        Some(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::{barrier, waits};
    use super::*;

    fn lasting(seconds: f64) -> Vec<Answer> {
        let wait = super::super::answer::Wait { waited: (seconds * 1e9) as u64, ..barrier(0, 1) };
        vec![waits(0, [wait])]
    }

    fn watched(inquiry: &mut Inquiry, seconds: f64) -> Option<String> {
        assert!(inquiry.ask(Reasons::WATCH).is_some());
        inquiry.answered(&lasting(seconds), Duration::ZERO, Instant::now()).0
    }

    #[test]
    fn a_wait_is_told_at_doubling_distances() {
        let mut inquiry = Inquiry::new(Some(Duration::from_secs(1)), Instant::now());
        let times = [0.5, 1.0, 1.5, 2.1, 3.9, 4.0, 7.0, 17.0, 31.0, 32.0];
        let told = times.map(|seconds| watched(&mut inquiry, seconds).is_some());
        assert_eq!(told, [false, true, false, true, false, true, false, true, false, true]);
    }

    #[test]
    fn one_question_serves_all_reasons() {
        let mut inquiry = Inquiry::new(None, Instant::now());
        assert!(inquiry.next().is_none() && inquiry.is_due(Instant::now()).is_none());
        assert_eq!(inquiry.ask(Reasons::SIGNAL), NonZeroU32::new(1));
        assert!(inquiry.ask(Reasons::SIGNAL).is_none() && inquiry.ask(Reasons::TIMEOUT).is_none());
        let (text, is_over) = inquiry.answered(&lasting(1.0), Duration::ZERO, Instant::now());
        assert!(text.is_some() && is_over);
        assert_eq!(inquiry.answered(&lasting(1.0), Duration::ZERO, Instant::now()), (None, false));
        assert_eq!(inquiry.ask(Reasons::TIMEOUT), NonZeroU32::new(2));
    }
}
