//! Which PEs have not done what waits need.
//!
//! Waits of one *meeting* (a phase of a barrier, or a call of a team) need the same PEs, so all
//! that is known of a meeting is put together once, however many PEs wait in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memonet_core::unstable::wait::Awaited;
use memonet_core::unstable::wait::report::Pes;

use super::answer::{Answer, Wait};

/// Those who are not in a meeting, or have not done what a wait needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Absent {
    /// Certainly.
    pub sure: Vec<usize>,
    /// Unless they have done their part without waiting.
    pub possible: Vec<usize>,
}

/// A meeting, or a wait that is in none.
#[derive(Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The PEs that wait in it, in the order of the answers.
    pub pes: Vec<usize>,
    pub absent: Absent,
}

/// The meetings that PEs wait in.
pub struct Meetings {
    all: Vec<Meeting>,
    /// The meeting of each wait, by answer.
    of: Vec<Vec<usize>>,
}

/// Where meetings follow each other: each has a number there.
#[derive(PartialEq, Eq, Hash)]
struct Place<'a> {
    what: Awaited,
    slot: u64,
    members: Option<&'a Pes>,
}

/// A wait, its PE, and where it stands: in which answer, and there.
type Found<'a> = (usize, &'a Wait, (usize, usize));

impl Meetings {
    /// The meetings of all waits of these answers.
    pub fn of(answers: &[Answer]) -> Meetings {
        let everybody: Vec<usize> = answers.iter().map(|answer| answer.pe).collect();
        let of = answers.iter().map(|answer| vec![0; answer.waits.len()]).collect();
        let mut meetings = Meetings { all: Vec::new(), of };
        let mut places: HashMap<Place, BTreeMap<u64, Vec<Found>>> = HashMap::new();
        for (at, answer) in answers.iter().enumerate() {
            for (nth, wait) in answer.waits.iter().enumerate() {
                let found = (answer.pe, wait, (at, nth));
                match place(wait) {
                    Some((place, number)) => {
                        places.entry(place).or_default().entry(number).or_default().push(found);
                    }
                    None => meetings.add(&[found], alone(&everybody, answer.pe, wait)),
                }
            }
        }
        for (place, numbers) in places {
            let members = place.members.map_or(&everybody, |members| &members.all);
            // A PE that waits in a later meeting has done its part of this one.
            let mut there = BTreeSet::new();
            for waits in numbers.into_values().rev() {
                there.extend(waits.iter().map(|&(pe, ..)| pe));
                meetings.add(&waits, absent(members, &there, &waits));
            }
        }
        meetings
    }

    fn add(&mut self, waits: &[Found], absent: Absent) {
        for &(_, _, (at, nth)) in waits {
            self.of[at][nth] = self.all.len();
        }
        let mut pes: Vec<usize> = waits.iter().map(|&(pe, ..)| pe).collect();
        pes.dedup();
        self.all.push(Meeting { pes, absent });
    }

    /// The meetings of the waits of the answer at `at`, in their order.
    pub fn at(&self, at: usize) -> impl Iterator<Item = &Meeting> {
        self.of[at].iter().map(|&meeting| &self.all[meeting])
    }
}

/// The place of a wait that is in a meeting, and the number of the meeting there.
fn place(wait: &Wait) -> Option<(Place<'_>, u64)> {
    let (slot, number) = wait.meeting.filter(|_| !has_no_part(wait.what))?;
    Some((Place { what: wait.what, slot, members: wait.members.as_ref() }, number))
}

/// Whether no member does a part of its own in what is waited for.
fn has_no_part(what: Awaited) -> bool {
    matches!(what, Awaited::Leave | Awaited::Word | Awaited::Peer | Awaited::WordOf)
}

/// What a wait needs that is in no meeting.
fn alone(everybody: &[usize], pe: usize, wait: &Wait) -> Absent {
    let members = wait.members.as_ref().map_or(everybody, |members| &members.all);
    match wait.what {
        Awaited::WordOf => {
            let sure = members.iter().copied().filter(|&other| other != pe).collect();
            Absent { sure, possible: Vec::new() }
        }
        what if has_no_part(what) => Absent::default(),
        _ => absent(members, &BTreeSet::from([pe]), &[(pe, wait, (0, 0))]),
    }
}

/// The members that are not `there`, and that no wait of their meeting has seen to be done.
fn absent(members: &[usize], there: &BTreeSet<usize>, waits: &[Found]) -> Absent {
    let all = |seen: fn(&Wait) -> &Pes| -> BTreeSet<usize> {
        waits.iter().flat_map(|(_, wait, _)| &seen(wait).all).copied().collect()
    };
    let (done, missing) = (all(|wait| &wait.done), all(|wait| &wait.missing));
    let absent = members.iter().copied().filter(|pe| !there.contains(pe) && !done.contains(pe));
    let (sure, possible) = absent.partition(|pe| missing.contains(pe));
    Absent { sure, possible }
}
