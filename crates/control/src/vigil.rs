//! Whether the other end of a connection lives, and when to tell it that this one does. Nothing
//! here reads a clock, sends or receives.
//!
//! *Contract.* If both ends run, and a cut between them lasts for at most 1.8 s, neither takes the
//! other for lost. If the other end is gone, or the cut lasts longer than [`SILENCE`], it is lost
//! within 2.5 s.
//!
//! *Proof.* 1. While it hears the other end, an end beats every [`HEARTBEAT`], by stream and by
//! datagram. So what was heard last before a cut came at most 0.25 s before it. 2. After `UNEASY`
//! of silence an end beats every `PROBE`. A cut of 1.8 s is longer than that, so the first
//! datagram after it is sent at most 0.05 s later; after a shorter one, at most 0.25 s later. 3. A
//! host whose own link was down has forgotten its neighbours' addresses. Its kernel asks for an
//! address when the first datagram is sent, and then once a second, whatever else is sent. So after
//! a cut of 1.8 s its datagrams get through at most 2 s after the first one that did not, which was
//! due 0.25 s after the last one that did: 2.25 s, less than [`SILENCE`]. The rest is for the way,
//! and for lost datagrams. 4. An end looks at each beat. In silence that is every 0.05 s, so it
//! finds a loss at most 2.45 s after the last sign of life. 5. An end that was itself stopped for
//! more than `STOPPED` cannot tell whether the other one was silent, because what came lies
//! unread. It begins to count anew.

use std::time::{Duration, Instant};

/// Time between two heartbeats.
pub const HEARTBEAT: Duration = Duration::from_millis(250);
/// The other end is lost of which nothing was heard for this long.
pub const SILENCE: Duration = Duration::from_millis(2400);
/// From this silence on, heartbeats come every `PROBE`.
const UNEASY: Duration = Duration::from_millis(500);
/// Time between two heartbeats in silence.
const PROBE: Duration = Duration::from_millis(50);
/// If the loop itself took this long for a pass, this process was stopped.
const STOPPED: Duration = Duration::from_millis(750);

/// One end's view of the other.
#[derive(Debug, Clone)]
pub struct Vigil {
    heard: Instant,
    next_beat: Instant,
    /// When the loop last began a pass.
    passed: Instant,
}

impl Vigil {
    /// Begins as if something was heard.
    pub fn begin(now: Instant) -> Vigil {
        Vigil { heard: now, next_beat: now + HEARTBEAT, passed: now }
    }

    /// The loop begins or ends a pass.
    pub fn pass(&mut self, now: Instant) {
        // Step 5.
        if now.saturating_duration_since(self.passed) > STOPPED {
            self.heard = now;
        }
        self.passed = now;
    }

    /// Something has come from the other end.
    pub fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When to look again, at the latest.
    pub fn next(&self) -> Instant {
        self.next_beat
    }

    /// Whether to beat now.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next_beat <= now;
        if is_due {
            // Step 2.
            let uneasy = self.silence(now) >= UNEASY;
            self.next_beat = now + if uneasy { PROBE } else { HEARTBEAT };
        }
        is_due
    }

    /// For how long nothing was heard.
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }

    /// Whether the other end is lost.
    pub fn is_lost(&self, now: Instant) -> bool {
        self.silence(now) > SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_silence() {
        let said = memonet_core::Cause::Host(memonet_core::Lost::Silent).to_string();
        assert!(said.ends_with(&format!("for {} seconds", SILENCE.as_secs_f64())), "{said}");
    }

    /// Two ends, whose datagrams take a millisecond, with a cut and stops; in steps of 1 ms.
    fn pass(
        cut: std::ops::Range<u64>,
        stopped: std::ops::Range<u64>,
        phase: u64,
    ) -> [Option<u64>; 2] {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut ends = [Vigil::begin(at(0)), Vigil::begin(at(phase))];
        let mut lost = [None; 2];
        let mut under_way = [false; 2];
        for ms in 1..12_000u64 {
            for end in 0..2 {
                let stops = end == 0 && stopped.contains(&ms);
                // What comes to a stopped end waits.
                let comes = !stops && std::mem::take(&mut under_way[end]);
                let wakes = comes || ends[end].next() <= at(ms);
                if stops || !wakes || lost[end].is_some() {
                    continue;
                }
                ends[end].pass(at(ms));
                if comes {
                    ends[end].hear(at(ms));
                }
                if ends[end].is_due(at(ms)) && !cut.contains(&ms) {
                    under_way[1 - end] = true;
                }
                if ends[end].is_lost(at(ms)) {
                    lost[end] = Some(ms);
                }
            }
        }
        lost
    }

    #[test]
    fn short_cuts_are_survived_and_long_ones_found() {
        // (milliseconds of the cut, whether it is survived)
        let table =
            [(0, true), (500, true), (1000, true), (1800, true), (2500, false), (9000, false)];
        for (cut, survived) in table {
            // At any moment between two beats of the ends, which are apart in any way.
            for (moment, phase) in (0..250).step_by(7).flat_map(|m| [(m, 0), (m, 83), (m, 249)]) {
                let begin = 3000 + moment;
                for lost in pass(begin..begin + cut, 0..0, phase) {
                    match lost {
                        None => assert!(survived, "{cut} ms at {moment}: not noticed"),
                        Some(at) => {
                            let found = at - begin;
                            assert!(!survived && found <= 2500, "{cut} ms at {moment}: {found}");
                        }
                    }
                }
            }
        }
    }

    /// The other end is heard again behind its stop, and counts it as silence; its guard's
    /// heartbeats, which are not here, keep it from that for a launcher.
    #[test]
    fn an_end_that_was_stopped_does_not_count_that() {
        for (length, is_lost) in [(700, false), (1500, false), (1900, false), (5000, true)] {
            let [stopped, other] = pass(0..0, 3000..3000 + length, 40);
            assert_eq!((stopped.is_some(), other.is_some()), (is_lost, is_lost), "{length}");
            // Only because the other one has ended by then.
            assert!(stopped.is_none_or(|at| at > 3000 + length + 2400), "{stopped:?}");
        }
    }
}
