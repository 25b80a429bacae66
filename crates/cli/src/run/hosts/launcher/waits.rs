//! What PEs wait for, on all hosts: the agents ask, each on its host, and the launcher concludes.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use memonet_control::messages::{PeWaits, ToAgent};

use super::Launcher;
use crate::run::hosts::node::Stage;
use crate::run::waits::{Activity, Answer, LONGEST, Reasons, Standing, unpack};

/// Time for the answers of agents to come, after their PEs have answered: long enough for one whose
/// CPUs are busy.
const ON_THE_WAY: Duration = Duration::from_secs(2);

/// A question that stands on other hosts.
pub struct Asked {
    number: NonZeroU32,
    began: Instant,
    until: Instant,
    /// Nodes whose agents have not answered.
    open: BTreeSet<usize>,
    /// By PE.
    answers: BTreeMap<usize, Answer>,
}

impl Asked {
    /// When to go on without further answers.
    pub fn until(&self) -> Instant {
        self.until
    }
}

impl Launcher {
    /// Asks the PEs of all hosts what they wait for.
    pub(super) fn ask(&mut self, reason: Reasons) {
        if let Some(number) = self.inquiry.ask(reason) {
            self.put(number);
        }
    }

    fn put(&mut self, number: NonZeroU32) {
        let running = |(at, node): (usize, &mut super::Node)| {
            let runs = node.stage == Stage::Running;
            runs.then(|| node.send(&ToAgent::Ask { question: number.get() })).map(|()| at)
        };
        let open = self.nodes.iter_mut().enumerate().filter_map(running).collect();
        let began = Instant::now();
        let until = began + LONGEST + ON_THE_WAY;
        self.asked = Some(Asked { number, began, until, open, answers: BTreeMap::new() });
    }

    /// An agent has told what a PE waits for.
    pub(super) fn note_waits(&mut self, number: u32, pe: usize, waits: &PeWaits) {
        if let Some(asked) = self.asked_as(number) {
            asked.answers.entry(pe).or_insert_with(|| unpack(pe, waits));
        }
    }

    /// An agent has told all.
    pub(super) fn note_answered(&mut self, at: usize, number: u32) {
        self.asked_as(number).into_iter().for_each(|asked| _ = asked.open.remove(&at));
    }

    /// The question of this number, if it still stands: answers may come late.
    fn asked_as(&mut self, number: u32) -> Option<&mut Asked> {
        self.asked.as_mut().filter(|asked| asked.number.get() == number)
    }

    /// Asks what `--watch` wants to know, and goes on once all agents have answered, or could have.
    pub(super) fn pursue(&mut self, now: Instant) {
        if let Some(number) = self.inquiry.is_due(now) {
            self.put(number);
        }
        let nodes = &self.nodes;
        let is_over = |asked: &mut Asked| {
            asked.open.retain(|&at| nodes[at].stage == Stage::Running);
            asked.open.is_empty() || asked.until <= now
        };
        let Some(Asked { mut answers, began, .. }) = self.asked.take_if(|asked| is_over(asked))
        else {
            return;
        };
        for node in nodes {
            for pe in node.pes() {
                let unheard = || unheard(pe, node.stage == Stage::Finished);
                answers.entry(pe).or_insert_with(unheard);
            }
        }
        let answers: Vec<Answer> = answers.into_values().collect();
        let (text, is_over) = self.inquiry.answered(&answers, began.elapsed(), now);
        text.iter().for_each(|text| self.course.say(text));
        if is_over {
            self.hurry(now);
        }
    }
}

/// What is known of a PE whose agent has not told of it.
fn unheard(pe: usize, ended: bool) -> Answer {
    let silent = Answer::silent(pe);
    match ended {
        true => Answer { standing: Standing::Member, activity: Activity::Ended, ..silent },
        false => silent,
    }
}
