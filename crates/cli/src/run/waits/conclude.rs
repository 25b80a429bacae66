//! What follows from the answers of all PEs.
//!
//! *Only what follows is said.* The answers are not of one moment. They came within a *window*,
//! which begins with the question. A wait that had lasted for at least the window when its thread
//! answered began before the question. So all such waits were under way at one moment, when the
//! question was asked. A PE that is missing in a later look was missing then. Nothing is concluded
//! from shorter waits.
//!
//! * Of a **meeting** (a phase of a barrier, or a call of a team), PEs that wait in it are there.
//!   So are those that a near member has seen to have done their part. A PE that a near member has
//!   seen not to have is *missing*. Any other member is *elsewhere*: it may have done its part
//!   before, without waiting.
//! * A PE **only waits** if all threads of its program wait without a time limit, and have for the
//!   window. Such a PE does nothing until one of these waits ends. If other threads of it sleep
//!   until somebody wakes them, as those of numerical libraries do, it *seems* to only wait.
//! * A wait in a meeting needs all that are missing; a wait for a lock its holder; a wait for a
//!   word or a channel one of those that could write there.
//! * A **deadlock** is a set of PEs that only wait, and of whose waits none can end unless a PE of
//!   the set goes on. It is the greatest such set: all PEs that only wait, without those that may
//!   go on, until no more of them may. Where a PE is in the set only because others are elsewhere,
//!   because it seems to only wait, or because nobody has seen who has its lock and all PEs wait,
//!   the deadlock is not certain, and is told as one that seems to be: unless a simulated machine
//!   has found that nothing is under way, and so that there is a deadlock.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use memonet_core::unstable::wait::Awaited;
use memonet_core::unstable::wait::wording::{purpose, ranges};

use super::absent::{Absent, Meeting, Meetings};
use super::answer::{Answer, Wait, has_lasted};

/// What a wait needs to end.
enum Needs<'a> {
    /// All of these go on.
    All { sure: &'a [usize], possible: &'a [usize] },
    /// One of these goes on.
    Any(Vec<usize>),
    /// One of these has the lock and goes on, or a thread of the library is about to hand it over.
    Holder(Vec<usize>),
    /// Not known, or nothing.
    Unknown,
}

/// All answers, and what the waits in each of them need.
struct Known<'a> {
    answers: &'a [Answer],
    meetings: &'a Meetings,
    needs: Vec<Vec<Needs<'a>>>,
}

impl<'a> Known<'a> {
    fn new(answers: &'a [Answer], meetings: &'a Meetings) -> Known<'a> {
        let of_answer = |(at, answer): (usize, &'a Answer)| {
            let waits = answer.waits.iter().zip(meetings.at(at));
            waits.map(|(wait, meeting)| needs(answers, answer.pe, wait, meeting)).collect()
        };
        let needs = answers.iter().enumerate().map(of_answer).collect();
        Known { answers, meetings, needs }
    }

    /// The PEs that only wait, with what their waits need.
    fn waiting(
        &self,
        window: Duration,
        strict: bool,
    ) -> impl Iterator<Item = (usize, &[Needs<'a>])> {
        let all = self.answers.iter().zip(&self.needs);
        all.filter(move |(answer, _)| answer.only_waits(window, strict))
            .map(|(answer, needs)| (answer.pe, &needs[..]))
    }
}

fn needs<'a>(answers: &'a [Answer], pe: usize, wait: &'a Wait, meeting: &'a Meeting) -> Needs<'a> {
    let Absent { sure, possible } = &meeting.absent;
    let everybody = || answers.iter().map(|answer| answer.pe);
    match wait.what {
        Awaited::Barrier | Awaited::Step => Needs::All { sure, possible },
        Awaited::Lock if !wait.holders.all.is_empty() => {
            Needs::All { sure: &wait.holders.all, possible: &[] }
        }
        Awaited::Word => Needs::Any(everybody().filter(|&other| other != pe).collect()),
        Awaited::WordOf | Awaited::Channel => Needs::Any([&sure[..], possible].concat()),
        // Nobody has seen who has it.
        Awaited::Lock => Needs::Holder(everybody().collect()),
        // Threads of the library answer for a PE, whatever its program does.
        Awaited::Leave | Awaited::Peer => Needs::Unknown,
    }
}

/// Whether a wait can end only if a PE of `stuck` goes on. `strict`: certainly.
fn is_stuck(needs: &Needs, stuck: &BTreeSet<usize>, strict: bool) -> bool {
    let has = |pes: &[usize]| pes.iter().any(|pe| stuck.contains(pe));
    match needs {
        Needs::All { sure, possible } => has(sure) || !strict && has(possible),
        Needs::Any(pes) => !pes.is_empty() && pes.iter().all(|pe| stuck.contains(pe)),
        Needs::Holder(pes) => !strict && pes.iter().all(|pe| stuck.contains(pe)),
        Needs::Unknown => false,
    }
}

/// The PEs of a deadlock.
fn deadlock(known: &Known, window: Duration, strict: bool) -> BTreeSet<usize> {
    let waiting: Vec<_> = known.waiting(window, strict).collect();
    let mut stuck: BTreeSet<usize> = waiting.iter().map(|(pe, _)| *pe).collect();
    loop {
        let goes_on = |(pe, needs): &&(usize, &[Needs])| {
            stuck.contains(pe) && !needs.iter().all(|needs| is_stuck(needs, &stuck, strict))
        };
        let going: BTreeSet<usize> = waiting.iter().filter(goes_on).map(|(pe, _)| *pe).collect();
        if going.is_empty() {
            return stuck;
        }
        stuck.retain(|pe| !going.contains(pe));
    }
}

/// The one PE of a deadlock that a PE waits for, where it can be named.
fn next(known: &Known, pe: usize, stuck: &BTreeSet<usize>) -> Option<usize> {
    let at = known.answers.iter().position(|answer| answer.pe == pe)?;
    let [needs] = &known.needs[at][..] else { return None };
    match needs {
        Needs::All { sure, possible } => {
            sure.iter().chain(*possible).copied().find(|pe| stuck.contains(pe))
        }
        Needs::Any(pes) if pes.len() == 1 => pes.first().copied(),
        Needs::Any(_) | Needs::Holder(_) | Needs::Unknown => None,
    }
}

/// A circle of PEs, each of which waits for the next.
fn circle(known: &Known, stuck: &BTreeSet<usize>) -> Option<Vec<usize>> {
    stuck.iter().find_map(|&first| {
        let mut path = vec![first];
        loop {
            let next = next(known, *path.last()?, stuck)?;
            match path.iter().position(|&pe| pe == next) {
                Some(at) => return Some(path.split_off(at)),
                None => path.push(next),
            }
        }
    })
}

fn names(pes: impl IntoIterator<Item = usize>) -> String {
    format!("PE {}", ranges(&mut pes.into_iter().collect::<Vec<_>>()))
}

fn describe_deadlock(known: &Known, window: Duration, is_found: bool) -> Option<String> {
    let certain = deadlock(known, window, true);
    let (stuck, certainly) = match certain.is_empty() {
        false => (certain, true),
        true => (deadlock(known, window, false), false),
    };
    if stuck.is_empty() {
        return None;
    }
    let is = if certainly || is_found { "deadlock" } else { "this seems to be a deadlock" };
    let circle = circle(known, &stuck);
    let mut text = match circle.as_deref() {
        Some(&[one]) => format!("{is}: PE {one} waits for itself"),
        Some(circle) => {
            let links: Vec<String> = circle
                .iter()
                .zip(circle.iter().cycle().skip(1))
                .enumerate()
                .map(|(at, (pe, next))| {
                    let waits = if at == 0 { " waits" } else { "" };
                    format!("PE {pe}{waits} for PE {next}")
                })
                .collect();
            format!("{is}: {}", links.join(", "))
        }
        None if stuck.len() == 1 => {
            format!("{is}: no other PE can do what {} waits for", names(stuck.iter().copied()))
        }
        None => format!(
            "{is}: {} all wait, and only they could do what any of them waits for",
            names(stuck.iter().copied())
        ),
    };
    let circle = circle.unwrap_or_else(|| stuck.iter().copied().collect());
    let rest: Vec<usize> = stuck.into_iter().filter(|pe| !circle.contains(pe)).collect();
    if !rest.is_empty() {
        let verb = if rest.len() == 1 { "waits" } else { "wait" };
        let them = if circle.len() == 1 { "it" } else { "them" };
        text += &format!("; {} {verb} for {them}", names(rest));
    }
    Some(text)
}

/// Which PEs are missing in which meeting.
fn describe_meetings(known: &Known, window: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    let mut told: HashSet<*const Meeting> = HashSet::new();
    for (at, answer) in known.answers.iter().enumerate() {
        for (wait, meeting) in answer.waits.iter().zip(known.meetings.at(at)) {
            let is_meeting = matches!(wait.what, Awaited::Barrier | Awaited::Step);
            if is_meeting && has_lasted(wait, window) && told.insert(meeting) {
                lines.extend(describe_meeting(known, wait, meeting));
            }
        }
    }
    lines
}

/// Which PEs are missing in the meeting of a wait.
fn describe_meeting(known: &Known, wait: &Wait, meeting: &Meeting) -> Option<String> {
    let Meeting { pes, absent: Absent { sure, possible } } = meeting;
    let verb = if pes.len() == 1 { "waits" } else { "wait" };
    let place = purpose(wait, known.answers.len());
    let place = format!("{place}, for which {} {verb}", names(pes.iter().copied()));
    let (absent, text) = match (sure.is_empty(), wait.what) {
        (true, _) => (possible, ["is not in", "are not in"]),
        (_, Awaited::Barrier) => (sure, ["has not come to", "have not come to"]),
        _ => (sure, ["has not done its part of", "have not done their parts of"]),
    };
    let text = text[usize::from(absent.len() > 1)];
    (!absent.is_empty()).then(|| format!("{} {text} {place}", names(absent.iter().copied())))
}

/// What a collective call does, as far as its name tells: two of one team must do the same.
fn family(call: &str) -> Option<&'static str> {
    const FAMILIES: [(&str, &str); 15] = [
        ("barrier", "barrier"),
        ("sync", "barrier"),
        ("broadcast", "broadcast"),
        ("all_reduce", "all_reduce"),
        ("reduce", "reduce"),
        ("scan", "scan"),
        ("all_gather", "all_gather"),
        ("fcollect", "all_gather"),
        ("collect", "collect"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("all_to_all", "all_to_all"),
        ("alltoall", "all_to_all"),
        ("split", "team"),
        ("::team", "team"),
    ];
    FAMILIES.iter().find(|(part, _)| call.contains(part)).map(|&(_, family)| family)
}

/// Members of a team that are in different calls of it.
fn describe_mismatches(answers: &[Answer]) -> Vec<String> {
    let calls: Vec<(usize, &Wait)> = answers
        .iter()
        .flat_map(|answer| answer.waits.iter().map(move |wait| (answer.pe, wait)))
        .filter(|(_, wait)| {
            let slot = |place: Option<(u64, u64)>| place.map(|(slot, _)| slot);
            wait.team.is_some() && slot(wait.team) == slot(wait.meeting)
        })
        .collect();
    for (at, &(pe, one)) in calls.iter().enumerate() {
        let differs = |&&(_, other): &&(usize, &Wait)| {
            one.team == other.team
                && one.members == other.members
                && matches!((family(&one.call), family(&other.call)), (Some(a), Some(b)) if a != b)
        };
        if let Some(&(other, its)) = calls[at + 1..].iter().find(differs) {
            let place = |wait: &Wait| match wait.at.is_empty() {
                true => wait.call.clone(),
                false => format!("{} at {}", wait.call, wait.at),
            };
            return vec![format!(
                "different calls of one team: PE {pe} is in {}, PE {other} in {}",
                place(one),
                place(its)
            )];
        }
    }
    Vec::new()
}

/// The PE that all waits come down to, if there is no deadlock and one such PE. Unless `strict`,
/// PEs that are elsewhere count as missing.
fn root(waiting: &[(usize, &[Needs])], strict: bool) -> Option<usize> {
    let mut roots = BTreeSet::new();
    for needs in waiting.iter().flat_map(|(_, needs)| *needs) {
        match needs {
            Needs::All { sure, .. } if strict => roots.extend(*sure),
            Needs::All { sure, possible } => roots.extend(sure.iter().chain(*possible)),
            Needs::Any(pes) if pes.len() == 1 => roots.extend(pes),
            Needs::Any(_) | Needs::Holder(_) | Needs::Unknown => return None,
        }
    }
    waiting.iter().for_each(|(pe, _)| _ = roots.remove(pe));
    let mut roots = roots.into_iter();
    roots.next().filter(|_| roots.next().is_none())
}

fn describe_root(known: &Known, window: Duration) -> Option<String> {
    let waiting: Vec<_> = known.waiting(window, false).collect();
    let sure = root(&waiting, true);
    let root = sure.or_else(|| root(&waiting, false))?;
    Some(match (waiting.len(), sure.is_some()) {
        (1, true) => format!("it comes down to PE {root}"),
        (1, false) => format!("it seems to come down to PE {root}"),
        (_, true) => format!("all that wait come down to PE {root}"),
        (_, false) => format!("all that wait seem to come down to PE {root}"),
    })
}

/// What follows from answers that were given within `window`, or, without it, while nothing was
/// under way.
pub fn conclusions(
    answers: &[Answer],
    meetings: &Meetings,
    window: Option<Duration>,
) -> Vec<String> {
    let (window, is_found) = (window.unwrap_or_default(), window.is_none());
    let known = &Known::new(answers, meetings);
    let mut lines = describe_mismatches(answers);
    lines.extend(describe_meetings(known, window));
    match describe_deadlock(known, window, is_found) {
        Some(deadlock) => lines.push(deadlock),
        None => lines.extend(describe_root(known, window)),
    }
    lines
}

#[cfg(test)]
mod tests {
    use memonet_core::unstable::wait::report::Pes;

    use super::super::answer::Threads;
    use super::super::answer::tests::{barrier, computes, wait, waits};
    use super::*;

    fn concluded(answers: &[Answer]) -> Vec<String> {
        within(answers, Duration::from_secs(1))
    }

    fn within(answers: &[Answer], window: Duration) -> Vec<String> {
        conclusions(answers, &Meetings::of(answers), Some(window))
    }

    fn missing(slot: u64, members: &[usize], missing: &[usize]) -> Wait {
        let members = Some(Pes::of(members.iter().copied()));
        Wait { members, missing: Pes::of(missing.iter().copied()), ..barrier(slot, 1) }
    }

    fn lock(place: u64, holder: usize) -> Wait {
        Wait { lock: Some(place), holders: Pes::of([holder]), ..wait(Awaited::Lock) }
    }

    fn with_threads(all: usize, idle: usize, answer: Answer) -> Answer {
        Answer { threads: Threads { all, idle }, ..answer }
    }

    #[test]
    fn barriers_of_two_teams_in_different_orders() {
        let answers =
            [waits(0, [missing(1, &[0, 1], &[1])]), waits(1, [missing(2, &[0, 1], &[0])])];
        let lines = concluded(&answers);
        assert_eq!(lines.last().unwrap(), "deadlock: PE 0 waits for PE 1, PE 1 for PE 0");
        assert_eq!(lines[0], "PE 1 has not come to the barrier of all PEs, for which PE 0 waits");
    }

    #[test]
    fn a_pe_that_computes_is_no_deadlock() {
        let all = [0, 1, 2];
        let answers =
            [waits(0, [missing(0, &all, &[2])]), waits(1, [missing(0, &all, &[2])]), computes(2)];
        let lines = concluded(&answers);
        assert_eq!(
            lines,
            [
                "PE 2 has not come to the barrier of all PEs, for which PE 0-1 wait",
                "all that wait come down to PE 2"
            ]
        );
        // Nor is one that has another thread, or a time limit.
        let word = wait(Awaited::Word);
        let busy = with_threads(2, 0, waits(2, [word.clone()]));
        let limited = waits(2, [Wait { limited: true, ..word.clone() }]);
        for other in [busy, limited] {
            let mut answers = answers.clone();
            answers[2] = other;
            assert!(!concluded(&answers).concat().contains("deadlock"));
        }
        let mut answers = answers;
        answers[2] = waits(2, [word]);
        let last = concluded(&answers).pop().unwrap();
        assert_eq!(
            last,
            "deadlock: PE 0-2 all wait, and only they could do what any of them waits for"
        );
    }

    #[test]
    fn locks_taken_in_different_orders() {
        let answers = [waits(0, [lock(8, 1)]), waits(1, [lock(16, 0)]), waits(2, [lock(8, 1)])];
        let lines = concluded(&answers);
        assert_eq!(lines, ["deadlock: PE 0 waits for PE 1, PE 1 for PE 0; PE 2 waits for them"]);
        assert_eq!(concluded(&[waits(0, [lock(8, 0)])]), ["deadlock: PE 0 waits for itself"]);
        // Two threads of a PE: the other one may hold it.
        let threads = with_threads(2, 0, waits(0, [lock(8, 0)]));
        assert!(concluded(&[threads]).is_empty());
    }

    /// Threads of numerical libraries sleep until they are to help.
    #[test]
    fn idle_threads_may_have_worked_before() {
        let answers = [
            with_threads(3, 2, waits(0, [missing(1, &[0, 1], &[1])])),
            waits(1, [missing(2, &[0, 1], &[0])]),
        ];
        let lines = concluded(&answers);
        assert_eq!(
            lines.last().unwrap(),
            "this seems to be a deadlock: PE 0 waits for PE 1, PE 1 for PE 0"
        );
    }

    /// Of a lock whose words are not mapped, nobody sees the holder.
    #[test]
    fn a_lock_of_an_unknown_holder_is_had_by_one_of_all() {
        let far = || Wait { lock: Some(8), ..wait(Awaited::Lock) };
        let answers = [waits(0, [far()]), waits(1, [far()])];
        let all = "this seems to be a deadlock: PE 0-1 all wait, and only they could do what any of them waits for";
        assert_eq!(concluded(&answers), [all]);
        assert!(concluded(&[waits(0, [far()]), computes(1)]).is_empty());
    }

    /// Waits that were not under way at one moment.
    #[test]
    fn nothing_follows_from_short_waits() {
        let answers =
            [waits(0, [missing(1, &[0, 1], &[1])]), waits(1, [missing(2, &[0, 1], &[0])])];
        assert_eq!(within(&answers, Duration::from_millis(1500)).len(), 3);
        let mut short = answers.clone();
        short[1].waits[0].waited = 999_999_999;
        let lines = concluded(&short);
        assert!(!lines.concat().contains("deadlock") && lines.len() == 2, "{lines:?}");
        assert!(within(&answers, Duration::from_secs(2)).is_empty());
    }

    /// Members of other hosts may have arrived before, without waiting.
    #[test]
    fn what_nobody_has_seen_is_not_certain() {
        let far = |slot, members: &[usize]| missing(slot, members, &[]);
        let answers = [waits(0, [far(1, &[0, 1])]), waits(1, [far(2, &[0, 1])])];
        let lines = concluded(&answers);
        assert_eq!(
            lines.last().unwrap(),
            "this seems to be a deadlock: PE 0 waits for PE 1, PE 1 for PE 0"
        );
        assert!(lines[0].starts_with("PE 1 is not in the barrier"), "{lines:?}");
        // But a machine has, which knows that nothing is under way.
        let lines = conclusions(&answers, &Meetings::of(&answers), None);
        assert_eq!(lines.last().unwrap(), "deadlock: PE 0 waits for PE 1, PE 1 for PE 0");
        // Nobody has seen that PE 1 is missing.
        let lines = concluded(&[waits(0, [far(1, &[0, 1])]), computes(1)]);
        assert_eq!(lines.last().unwrap(), "it seems to come down to PE 1");
        // Both in one meeting: it is under way.
        let answers = [waits(0, [far(1, &[0, 1])]), waits(1, [far(1, &[0, 1])])];
        assert!(concluded(&answers).is_empty());
        // A near member of PE 1 has seen that it is missing, or that it has arrived.
        let all = [0, 1, 2];
        let mut answers = [
            waits(0, [far(1, &all)]),
            waits(1, [far(2, &all)]),
            waits(2, [missing(1, &all, &[1])]),
        ];
        let lines = concluded(&answers);
        assert!(lines.contains(
            &"PE 1 has not come to the barrier of all PEs, for which PE 0, 2 wait".into()
        ));
        answers[2].waits[0].missing = Pes::default();
        answers[2].waits[0].done = Pes::of([1]);
        assert!(!concluded(&answers).iter().any(|line| line.starts_with("PE 1 is not in")));
    }

    #[test]
    fn different_calls_of_one_team() {
        let step = |call: &str, number| Wait {
            call: call.into(),
            team: Some((0, number)),
            meeting: Some((0, number)),
            ..wait(Awaited::Step)
        };
        let told = |one: Wait, other: Wait| {
            concluded(&[waits(0, [one]), waits(1, [other])]).concat().contains("different calls")
        };
        assert!(told(step("Team::broadcast", 3), step("Team::reduce", 3)));
        assert!(told(step("shmem_barrier_all", 3), step("shmem_int_sum_reduce", 3)));
        // The first one's call may be over at the second.
        assert!(!told(step("Team::broadcast", 3), step("Team::reduce", 4)));
        assert!(!told(step("Team::all_gather", 3), step("Team::all_gather_slice", 3)));
        assert!(!told(step("shmem_barrier_all", 3), step("shmem_sync_all", 3)));
        assert!(!told(step("something", 3), step("Team::reduce", 3)));
    }

    /// What is known of a meeting is put together once, and not for each of its waits again.
    #[test]
    fn many_pes_are_concluded_in_a_moment() {
        const PES: usize = 3000;
        let late: Vec<usize> = (PES / 2..PES).collect();
        let waiting = |pe| waits(pe, [Wait { missing: Pes::of(late.clone()), ..barrier(0, 1) }]);
        let mut answers: Vec<Answer> = (0..PES / 2).map(waiting).collect();
        answers.extend(late.iter().map(|&pe| waits(pe, [lock(8, pe - 1)])));
        let lines = concluded(&answers);
        assert!(lines[0].starts_with("PE 1500-2999 have not come to the barrier"), "{lines:?}");
        assert!(lines[1].starts_with("deadlock: PE 1500 waits for PE 1499"), "{lines:?}");
    }

    #[test]
    fn any_answers_lead_to_lines() {
        let strange = Wait {
            members: Some(Pes::of([7, 9])),
            holders: Pes::of([70_000]),
            ..wait(Awaited::Lock)
        };
        for what in [Awaited::Word, Awaited::WordOf, Awaited::Channel, Awaited::Leave] {
            let none = Wait { members: Some(Pes::default()), ..wait(what) };
            concluded(&[waits(0, [none, strange.clone()]), Answer::silent(1)]);
        }
        assert!(concluded(&[]).is_empty());
    }
}
