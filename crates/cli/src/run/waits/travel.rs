//! Answers on their way from an agent to the launcher.

use memonet_control::codec::Bytes;
use memonet_control::messages::PeWaits;
use memonet_core::unstable::launch::State;

use super::activity::{Activity, Threads};
use super::answer::{Answer, Standing, Wait};

/// The numbers of activities in messages.
const UNKNOWN: u8 = 0;
const ENDED: u8 = 1;
const STOPPED: u8 = 2;
const RUNS: u8 = 3;
const SLEEPS: u8 = 4;

/// The answer as a part of a message; nothing of one that says nothing.
pub fn pack(answer: &Answer) -> Option<PeWaits> {
    let state = match answer.standing {
        Standing::NotJoined => State::Empty,
        Standing::Member => State::Joined,
        Standing::Finalised => State::Done,
        Standing::Gone(cause) => State::Dead(cause),
        Standing::Waits(_) | Standing::Silent => return None,
    };
    let (activity, call) = match &answer.activity {
        Activity::Unknown => (UNKNOWN, ""),
        Activity::Ended => (ENDED, ""),
        Activity::Stopped => (STOPPED, ""),
        Activity::Runs => (RUNS, ""),
        Activity::Sleeps(call) => (SLEEPS, &**call),
    };
    Some(PeWaits {
        pe: answer.pe as u32,
        state: state.to_word(),
        activity,
        call: call.to_owned(),
        threads: answer.threads.all as u32,
        idle: answer.threads.idle as u32,
        lost: answer.lost as u32,
        last: answer.last.clone(),
        waits: answer.waits.iter().map(|wait| Bytes(wait.write())).collect(),
    })
}

/// The answer of a PE, from a message.
pub fn unpack(pe: usize, waits: &PeWaits) -> Answer {
    let legible: Vec<Wait> = waits.waits.iter().filter_map(|bytes| Wait::read(&bytes.0)).collect();
    Answer {
        pe,
        standing: State::from_word(waits.state).into(),
        activity: match waits.activity {
            ENDED => Activity::Ended,
            STOPPED => Activity::Stopped,
            RUNS => Activity::Runs,
            SLEEPS => Activity::Sleeps(waits.call.chars().filter(|c| !c.is_control()).collect()),
            _ => Activity::Unknown,
        },
        threads: Threads { all: waits.threads as usize, idle: waits.idle as usize },
        lost: waits.lost as usize + waits.waits.len() - legible.len(),
        waits: legible,
        last: waits.last.chars().filter(|c| !c.is_control()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use memonet_core::Cause;

    use super::super::answer::tests::{barrier, computes, waits};
    use super::*;

    #[test]
    fn answers_travel() {
        let standings = [
            Standing::NotJoined,
            Standing::Member,
            Standing::Finalised,
            Standing::Gone(Cause::Signal(9)),
        ];
        let activities = [
            Activity::Unknown,
            Activity::Ended,
            Activity::Stopped,
            Activity::Runs,
            Activity::Sleeps("read".into()),
        ];
        for (standing, activity) in
            standings.iter().flat_map(|standing| activities.iter().map(move |a| (standing, a)))
        {
            let (standing, activity) = (standing.clone(), activity.clone());
            let answer = Answer {
                standing,
                activity,
                lost: 2,
                last: "a call".into(),
                ..waits(3, [barrier(1, 2)])
            };
            assert_eq!(unpack(3, &pack(&answer).unwrap()), answer);
        }
        assert_eq!(pack(&Answer::silent(1)), None);
    }

    #[test]
    fn what_cannot_be_read_is_counted() {
        let mut packed = pack(&computes(0)).unwrap();
        packed.waits = vec![Bytes(vec![1, 2, 3])];
        packed.activity = 77;
        packed.call = "\u{1b}[2J".into();
        let answer = unpack(0, &packed);
        assert_eq!((answer.lost, &answer.activity), (1, &Activity::Unknown));
        assert!(answer.waits.is_empty());
    }
}
