//! The record of a run: every stage that took time, and what programs have called.

mod chrome;
mod stage;

pub use stage::{Place, Stage, Track};

use crate::op::Op;
use crate::time::Ps;
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_trace::chrome::Timeline;
use memonet_trace::program::{self, Clock, Source};
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

    /// Adds the recorded stages to a timeline, in groups of their own.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn draw<W: Write>(&self, timeline: &mut Timeline<W>) -> io::Result<()> {
        chrome::draw(&self.stages, timeline)
    }
}

/// Adds what the programs of a run have called and waited for, in virtual time.
pub(crate) fn draw_programs<W: Write>(
    records: &RecordFile,
    timeline: &mut Timeline<W>,
) -> io::Result<()> {
    let source = |pe| -> io::Result<Option<Source<'_>>> {
        let Some(events) = records.events(pe).map_err(io::Error::other)? else { return Ok(None) };
        let clock = Clock::default();
        Ok(Some(Source { pe, events, clock, ended: None, group: "programs" }))
    };
    let sources = (0..records.geometry().npes).filter_map(|pe| source(pe).transpose());
    let sources = sources.collect::<io::Result<Vec<_>>>()?;
    program::draw(&sources, Some(0), timeline).map(drop)
}
