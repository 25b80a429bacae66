//! The record of a run: every stage that took time.

mod chrome;
mod stage;

pub use stage::{Place, Stage, Track};

use crate::op::Op;
use crate::time::Ps;
use memonet_trace::chrome::Timeline;
use std::io::{self, Write};

/// Collects stages, while recording is on.
#[derive(Debug, Default)]
pub struct Recorder {
    on: bool,
    stages: Vec<Stage>,
}

impl Recorder {
    /// Turns recording on or off. A stage costs nothing while recording is off.
    pub fn keep(&mut self, on: bool) {
        self.on = on;
    }

    /// Records a stage.
    #[inline]
    pub fn stage(&mut self, stage: Stage) {
        if self.on && stage.start != stage.end {
            self.stages.push(stage);
        }
    }

    /// The recorded stages, in the order of recording.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Forgets all recorded stages.
    pub fn clear(&mut self) {
        self.stages.clear();
    }

    /// The time that each stage of a call took, in the order in which the stages began. Times of
    /// stages with one name are summed.
    pub fn breakdown(&self, op: Op) -> Vec<(&'static str, Ps)> {
        let mut stages: Vec<&Stage> = self.stages.iter().filter(|stage| stage.op == op).collect();
        stages.sort_by_key(|stage| stage.start);
        let mut sums: Vec<(&'static str, Ps)> = Vec::new();
        for stage in stages {
            let time = stage.end - stage.start;
            match sums.iter_mut().find(|(name, _)| *name == stage.name) {
                Some((_, sum)) => *sum += time,
                None => sums.push((stage.name, time)),
            }
        }
        sums
    }

    /// Writes a timeline in Chrome's trace format, which Perfetto opens.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn write_chrome(&self, out: &mut impl Write) -> io::Result<()> {
        let mut timeline = Timeline::begin(out)?;
        self.draw(&mut timeline)?;
        timeline.end(&[]).map(drop)
    }

    /// Adds the recorded stages to a timeline, in groups of their own.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn draw<W: Write>(&self, timeline: &mut Timeline<W>) -> io::Result<()> {
        chrome::draw(&self.stages, timeline)
    }
}
