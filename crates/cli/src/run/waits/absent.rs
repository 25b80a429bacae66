//! Which PEs have not done what a wait needs.

use memonet_core::unstable::wait::Awaited;

use super::answer::{Answer, Wait};

/// Those who are not in a meeting, or have not done what a wait needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Absent {
    /// Certainly.
    pub sure: Vec<usize>,
    /// Unless they have done their part without waiting.
    pub possible: Vec<usize>,
}

/// Whether two waits are in one meeting, or the second one in a later meeting of the same place.
pub fn meets(wait: &Wait, other: &Wait) -> bool {
    let place = |wait: &Wait| wait.meeting.map(|(slot, _)| slot);
    wait.meeting.is_some()
        && wait.what == other.what
        && wait.members == other.members
        && place(wait) == place(other)
        && wait.meeting <= other.meeting
}

/// The members of a wait that have not done their part.
pub fn absent(answers: &[Answer], pe: usize, wait: &Wait) -> Absent {
    let members: Vec<usize> = match &wait.members {
        Some(members) => members.all.clone(),
        None => answers.iter().map(|answer| answer.pe).collect(),
    };
    let mut absent = Absent::default();
    if matches!(wait.what, Awaited::Leave | Awaited::Word | Awaited::Peer) {
        return absent;
    }
    if wait.what == Awaited::WordOf {
        absent.sure = members.into_iter().filter(|&other| other != pe).collect();
        return absent;
    }
    // What other members of the meeting have seen counts, too.
    let same = |its: &&Wait| meets(wait, its) && meets(its, wait);
    let mut seen: Vec<&Wait> = answers.iter().flat_map(|one| &one.waits).filter(same).collect();
    seen.push(wait);
    for other in members.into_iter().filter(|&other| other != pe) {
        let there = answers.iter().find(|answer| answer.pe == other);
        let waits_there = there.is_some_and(|one| one.waits.iter().any(|its| meets(wait, its)));
        if waits_there || seen.iter().any(|its| its.done.has(other)) {
            continue;
        }
        match seen.iter().any(|its| its.missing.has(other)) {
            true => absent.sure.push(other),
            false => absent.possible.push(other),
        }
    }
    absent
}
