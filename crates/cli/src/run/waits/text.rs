//! A line for each PE: what it waits for, or does instead.

use std::time::Duration;

use memonet_core::unstable::wait::Awaited;
use memonet_core::unstable::wait::wording::{purpose, ranges, time};

use super::absent::{Absent, Meeting, Meetings};
use super::answer::{Activity, Answer, Standing, Wait};

/// Most lines of a report.
const MOST: usize = 40;

/// The lines. PEs of which the same is to be said share one.
pub fn lines(answers: &[Answer], meetings: &Meetings) -> Vec<String> {
    let mut groups: Vec<(Saying, Vec<String>)> = Vec::new();
    for (at, answer) in answers.iter().enumerate() {
        for (who, saying) in sayings(answers.len(), answer, meetings.at(at)) {
            match groups.iter_mut().find(|(other, _)| other.is_like(&saying)) {
                Some((other, all)) => {
                    other.waited = other.waited.max(saying.waited);
                    all.push(who);
                }
                None => groups.push((saying, vec![who])),
            }
        }
    }
    let more = groups.len().saturating_sub(MOST);
    let mut lines: Vec<String> =
        groups.iter().take(MOST).map(|(saying, who)| saying.text(who)).collect();
    if more > 0 {
        lines.push(format!("and {more} more lines"));
    }
    lines
}

/// What is to be said of a thread or a PE.
struct Saying {
    waited: Option<Duration>,
    text: String,
}

impl Saying {
    fn is_like(&self, other: &Saying) -> bool {
        self.waited.is_some() == other.waited.is_some() && self.text == other.text
    }

    fn text(&self, who: &[String]) -> String {
        let many = who.len() > 1;
        let mut numbers: Vec<usize> = who.iter().filter_map(|who| who.parse().ok()).collect();
        let all_pes = numbers.len() == who.len();
        let who = if all_pes { ranges(&mut numbers) } else { who.join(", ") };
        let Saying { waited, text } = self;
        match waited {
            Some(waited) => {
                let verb = if many { "have" } else { "has" };
                format!("PE {who} {verb} waited {} {text}", time(*waited))
            }
            None if many => format!("PE {who}, each: {text}"),
            None => format!("PE {who}: {text}"),
        }
    }
}

/// What is to be said of a PE: one thing for each thread that waits, or one for the PE.
fn sayings<'a>(
    pes: usize,
    answer: &'a Answer,
    meetings: impl Iterator<Item = &'a Meeting>,
) -> Vec<(String, Saying)> {
    let pe = answer.pe;
    let mut all: Vec<(String, Saying)> = Vec::new();
    for (wait, meeting) in answer.waits.iter().zip(meetings) {
        let who = match answer.waits.len() {
            1 => pe.to_string(),
            _ => format!("{pe} (thread {})", wait.thread),
        };
        let waited = Some(Duration::from_nanos(wait.waited));
        let text = waiting(pes, wait, &meeting.absent);
        all.push((who, Saying { waited, text }));
    }
    if all.is_empty() {
        all.push((pe.to_string(), Saying { waited: None, text: other(answer) }));
    }
    if answer.lost > 0 {
        let text = format!("{} further threads wait", answer.lost);
        all.push((pe.to_string(), Saying { waited: None, text }));
    }
    all
}

/// What a PE does that waits in no call.
fn other(answer: &Answer) -> String {
    let does = match &answer.activity {
        Activity::Unknown => "what it does is not known".to_owned(),
        Activity::Ended => "its process has ended".to_owned(),
        Activity::Stopped => {
            "it is stopped, by a signal (SIGSTOP, Ctrl-Z) or a debugger".to_owned()
        }
        Activity::Runs => "it computes, or polls".to_owned(),
        Activity::Sleeps(call) if call.is_empty() => "it sleeps in the kernel".to_owned(),
        Activity::Sleeps(call) => format!("it sleeps in the kernel ({call})"),
    };
    let last = match answer.last.is_empty() {
        true => String::new(),
        false => format!("; {}", answer.last),
    };
    match answer.standing {
        Standing::NotJoined => format!("has not joined the job; {does}"),
        Standing::Member => match answer.activity {
            Activity::Ended | Activity::Stopped => does,
            _ => format!("does not answer; {does}{last}"),
        },
        Standing::Finalised => "has left the job in order".to_owned(),
        Standing::Gone(cause) => format!("is gone: {cause}"),
        Standing::Waits(ref what) => format!("waits for {what}{last}"),
        Standing::Silent => "its host has not answered".to_owned(),
    }
}

/// What a thread waits for, in a job of `pes` PEs.
fn waiting(pes: usize, wait: &Wait, absent: &Absent) -> String {
    let mut text = String::new();
    if !wait.call.is_empty() {
        text += &format!("in {} ", wait.call);
        if !wait.at.is_empty() {
            text += &format!("at {} ", wait.at);
        }
    }
    text += "for ";
    text += &purpose(wait, pes);
    let Absent { sure, possible } = absent;
    let mut add = |role: &str, pes: &[usize]| {
        if !pes.is_empty() {
            text += &format!("; {role}: PE {}", ranges(&mut pes.to_vec()));
        }
    };
    match wait.what {
        Awaited::Word => {}
        Awaited::Peer => {
            let outstanding = wait.outstanding.iter().filter(|text| !text.is_empty());
            outstanding.for_each(|what| text += &format!("; outstanding: {what}"));
        }
        Awaited::WordOf => add("may be written by", sure),
        Awaited::Lock if wait.holders.all.is_empty() => add("in its queue", &wait.missing.all),
        Awaited::Lock => add("held by", &wait.holders.all),
        _ => {
            add("missing", sure);
            add("elsewhere", possible);
        }
    }
    if wait.limited {
        text += "; a time limit ends this wait";
    }
    text
}

#[cfg(test)]
mod tests {
    use memonet_core::Cause;
    use memonet_core::unstable::wait::Words;
    use memonet_core::unstable::wait::report::Pes;

    use super::super::answer::tests::{barrier, computes, wait, waits};
    use super::*;

    fn lines(answers: &[Answer]) -> Vec<String> {
        super::lines(answers, &Meetings::of(answers))
    }

    #[test]
    fn equal_waits_are_one_line() {
        let in_barrier = || Wait { missing: Pes::of([1]), ..barrier(0, 4) };
        let word = Wait {
            call: "Window::wait_until".into(),
            at: "b.rs:9".into(),
            window: "b.rs:7".into(),
            words: Some(Words {
                address: 64,
                count: 1,
                all: false,
                comparison: ">=".into(),
                wanted: "5".into(),
                seen: vec![(3, "4".into())],
            }),
            ..wait(Awaited::Word)
        };
        let longer = Wait { waited: 12_345_678_900, ..in_barrier() };
        let answers = [
            waits(0, [in_barrier()]),
            waits(1, [word]),
            waits(2, [longer]),
            waits(3, [in_barrier()]),
        ];
        let expected = [
            "PE 0, 2-3 have waited 12 s in Job::barrier at a.rs:1 for the barrier of all PEs; missing: PE 1",
            "PE 1 has waited 1.5 s in Window::wait_until at b.rs:9 for word 3 of the window made at b.rs:7 to be >= 5; it is 4",
        ];
        assert_eq!(lines(&answers), expected);
    }

    #[test]
    fn each_standing_has_its_words() {
        let text = |answer: Answer| lines(&[answer]).concat();
        assert_eq!(text(computes(3)), "PE 3: does not answer; it computes, or polls");
        let of = |standing, activity| Answer { standing, activity, ..computes(0) };
        for (answer, expected) in [
            (
                of(Standing::NotJoined, Activity::Runs),
                "has not joined the job; it computes, or polls",
            ),
            (of(Standing::Member, Activity::Stopped), "it is stopped, by a signal"),
            (
                of(Standing::Member, Activity::Sleeps("read".into())),
                "does not answer; it sleeps in the kernel (read)",
            ),
            (of(Standing::Finalised, Activity::Runs), "has left the job in order"),
            (of(Standing::Gone(Cause::Signal(9)), Activity::Ended), "killed by signal 9"),
            (Answer::silent(0), "its host has not answered"),
        ] {
            let said = text(answer);
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn threads_of_a_pe_have_lines_of_their_own() {
        let second = Wait { thread: 2, ..wait(Awaited::Lock) };
        let all = lines(&[Answer { lost: 3, ..waits(7, [barrier(0, 1), second]) }]);
        assert!(all[0].starts_with("PE 7 (thread 1) has waited 1.5 s in Job::barrier"), "{all:?}");
        assert!(all[1].starts_with("PE 7 (thread 2) has waited 1.5 s for a lock"), "{all:?}");
        assert_eq!(all[2], "PE 7: 3 further threads wait");
    }

    #[test]
    fn a_report_is_bounded() {
        let different = |pe| waits(pe, [Wait { call: format!("f{pe}"), ..wait(Awaited::Leave) }]);
        let answers: Vec<Answer> = (0..1000).map(different).collect();
        let lines = lines(&answers);
        assert_eq!((lines.len(), &*lines[MOST]), (MOST + 1, "and 960 more lines"));
    }
}
