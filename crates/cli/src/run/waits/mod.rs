//! What PEs wait for: the launcher asks, and says what follows.
//!
//! ```text
//!  --timeout, SIGQUIT, --watch ──► Inquiry ──► Question ── a word of the control page ──► waits
//!                                    │                                                      │
//!            report, conclusions ◄───┘◄────────────── Answer of each PE ◄───────────────────┘
//! ```
//!
//! * [`question`]: asks the PEs of a node, and collects their answers for half a second at most.
//! * [`answer`]: what is known of a PE then: its waits, its state, and what its process does.
//! * [`inquiry`]: why the launcher asks, and when.
//! * [`travel`]: answers on their way from other hosts.
//! * [`places`]: the lines of C programs that have made the calls.
//! * [`absent`]: who has not done what a wait needs.
//! * [`text`]: a line for each PE; equal ones are one line.
//! * [`conclude`]: what follows from all answers: who is missing where, and deadlocks.
//!
//! *Asking disturbs nothing*: the proof is at the head of `wait/answer.rs` in `memonet_core`.
//! Nothing here changes the exit status of the job, and a question moves the end of a job by half a
//! second at most, or by two seconds more where a host does not answer.

use std::time::Duration;

mod absent;
mod activity;
mod answer;
mod conclude;
mod inquiry;
mod places;
mod question;
mod text;
mod travel;

pub use inquiry::{Inquiry, Reasons};
pub use question::{LONGEST, Question, is_silent, standing};
pub use travel::{pack, unpack};

pub use answer::{Activity, Answer, Standing};

/// The report on all PEs: what each one waits for, and what follows. All answers were given within
/// `window`; it is `None` where nothing is under way, so that no wait ends.
pub fn report(title: &str, answers: &[Answer], window: Option<Duration>) -> String {
    let answers = &places::located(answers);
    let meetings = &absent::Meetings::of(answers);
    let mut report = title.to_owned();
    let lines = text::lines(answers, meetings);
    for line in lines.into_iter().chain(conclude::conclusions(answers, meetings, window)) {
        report += "\n  ";
        report += &line;
    }
    report
}
