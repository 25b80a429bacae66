//! A question to the PEs of a node, while it stands.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use memonet_core::unstable::launch::{JobFile, State};
use memonet_core::unstable::monotonic;
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_core::unstable::wait::report::Report;
use memonet_core::unstable::wait::wording::time;

use super::activity::{self, Activity, Threads};
use super::answer::{Answer, Standing};
use crate::run::processes::Processes;

/// How long a question stands at most: several times what a wait takes to answer.
pub const LONGEST: Duration = Duration::from_millis(500);
/// Time without a further answer after which no more are expected: more than a wait takes.
const SETTLED: Duration = Duration::from_millis(100);
/// Time between two looks at the answers.
const LOOK: Duration = Duration::from_millis(10);

/// A question that stands.
pub struct Question {
    number: NonZeroU32,
    began: Instant,
    /// Answers at the last look, and since when there have been so many.
    seen: (usize, Instant),
    next: Instant,
}

impl Question {
    /// Asks. Another number than that of the question before makes this one another.
    pub fn ask(number: NonZeroU32, job: &JobFile, now: Instant) -> Question {
        Question { number: job.ask(number), began: now, seen: (0, now), next: now + LOOK }
    }

    /// When to look for answers.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Looks for answers. Gives those of all PEs once none is expected any more, with the time in
    /// which they came, and takes the question back.
    pub fn answers(
        &mut self,
        processes: &Processes,
        records: Option<&RecordFile>,
        now: Instant,
    ) -> Option<(Vec<Answer>, Duration)> {
        if now < self.next {
            return None;
        }
        self.next = now + LOOK;
        let job = processes.job();
        let counts: Vec<usize> = processes.pes().map(|pe| job.answers(pe, self.number).0).collect();
        let all = counts.iter().sum();
        if all != self.seen.0 {
            self.seen = (all, now);
        }
        let expected = |(pe, &count): (usize, &usize)| {
            let joined = matches!(job.state(pe), State::Joined | State::Finalizing);
            joined && count == 0 && processes.runs(pe)
        };
        let missing = processes.pes().zip(&counts).any(expected)
            || processes.pes().any(|pe| self.number == NonZeroU32::MAX && is_silent(processes, pe));
        let settled = !missing && now >= self.seen.1 + SETTLED;
        if !settled && now < self.began + LONGEST {
            return None;
        }
        job.end_question();
        let answers = processes
            .pes()
            .map(|pe| {
                let answer = answer(processes, pe, self.number);
                let recorded = last_call(records, pe);
                let last = if recorded.is_empty() { answer.last.clone() } else { recorded };
                Answer { last, ..answer }
            })
            .collect();
        Some((answers, self.began.elapsed()))
    }
}

/// What is known of all PEs of a simulated machine.
pub fn standing(processes: &Processes) -> Vec<Answer> {
    let number = processes.job().keep_asking();
    processes.pes().map(|pe| answer(processes, pe, number)).collect()
}

/// Whether a PE of a simulated machine is parked, and has not said yet what for, or where its
/// program has called.
pub fn is_silent(processes: &Processes, pe: usize) -> bool {
    let job = processes.job();
    let lacks = |wait: Report| !wait.call.is_empty() && wait.at.is_empty() && wait.caller.is_none();
    let is_silent = |bytes: &Vec<u8>| Report::read(bytes).is_none_or(lacks);
    processes.runs(pe) && job.answers(pe, job.keep_asking()).1.iter().any(is_silent)
}

/// What is known of a PE now.
fn answer(processes: &Processes, pe: usize, question: NonZeroU32) -> Answer {
    let job = processes.job();
    let (count, bytes) = job.answers(pe, question);
    let waits: Vec<Report> = bytes.iter().filter_map(|bytes| Report::read(bytes)).collect();
    let silent = bytes.iter().filter(|bytes| bytes.is_empty()).count();
    let (activity, threads) = match processes.process(pe).filter(|_| processes.runs(pe)) {
        Some(pid) => activity::of(pid, &waits.iter().map(|wait| wait.thread).collect::<Vec<_>>()),
        None => (Activity::Ended, Threads::default()),
    };
    let noted = || noted_call(job, pe, processes.process(pe)?, threads.all);
    Answer {
        pe,
        standing: match (Standing::from(job.state(pe)), &activity) {
            (Standing::Member, Activity::Sleeps(_)) if silent > 0 => {
                Standing::Waits("what it has not said yet".into())
            }
            (standing, _) => standing,
        },
        activity,
        threads,
        lost: count.saturating_sub(waits.len() + silent),
        last: if waits.is_empty() { noted().unwrap_or_default() } else { String::new() },
        waits,
    }
}

/// What a PE of so many threads has called last of what might wait, in words. Where it has several,
/// that of the thread with which it has joined.
fn noted_call(job: &JobFile, pe: usize, process: i32, threads: usize) -> Option<String> {
    let call = job.last_call(pe, process)?;
    let place = if call.at.is_empty() { String::new() } else { format!(" at {}", call.at) };
    let name = format!("{}{place}", call.name);
    let whose = if threads > 1 { "the thread that has joined" } else { "it" };
    Some(match call.has_ended {
        true => format!("the last call in which {whose} might wait was {name}"),
        false => format!("{whose} is in {name}"),
    })
}

/// What a PE's program has called last, and when, in words; nothing where that is not recorded.
fn last_call(records: Option<&RecordFile>, pe: usize) -> String {
    let told = || -> Option<String> {
        // A report goes without it where the file cannot be read.
        let events = records?.events(pe).ok()??;
        let call = events.last_call().ok()??;
        let place = events.text(call.place).map(|place| format!(" at {place}"));
        let name = format!("{}{}", events.text(call.name)?, place.unwrap_or_default());
        let ago = |moment| time(monotonic().saturating_sub(Duration::from_nanos(moment)));
        Some(match call.end {
            Some(end) => format!("its last call was {name}, {} ago", ago(end)),
            None => format!("it is in {name}, since {}", ago(call.start)),
        })
    };
    told().unwrap_or_default()
}
