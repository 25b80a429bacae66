//! `--trace`: the timeline of a job.
//!
//! PEs record events into memory that the launcher of their host has made ([recorder]). When all
//! have ended, the launcher reads them and writes the timeline, event by event. On a simulated
//! machine it adds what the machine's parts have done. On several hosts, agents send the events
//! of their PEs at the end, and [hosts] puts them on one clock.
//!
//! [recorder]: memonet_core::unstable::recorder

mod hosts;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use memonet_core::unstable::recorder::events::layout::{Areas, RECORD_BYTES};
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_sim::trace::Recorder;
use memonet_trace::chrome::{Argument, Timeline};
use memonet_trace::program::{self, Clock, Drawn, Source};

use super::course::{Fates, Outcome};
use super::spec::Options;
use crate::results::Results;
use crate::tell::tell;
pub use hosts::OfHosts;

/// The most events of a PE, unless the user says otherwise.
const EVENTS: u64 = 1_000_000;
/// The most bytes for the events of all PEs of a host, unless the user says otherwise.
const HOST_BYTES: u64 = 1 << 30;

/// Bytes for the events of each of so many PEs of a host; 0 where no timeline is asked for.
pub fn bytes_for(options: &Options, pes: usize) -> u64 {
    if options.trace.is_none() {
        return 0;
    }
    let fitting = HOST_BYTES / RECORD_BYTES / pes.max(1) as u64;
    Areas::bytes_for(options.trace_events.unwrap_or(EVENTS.min(fitting)))
}

/// The timeline that is asked for.
pub struct Trace {
    path: PathBuf,
    file: Results,
}

impl Trace {
    /// Opens the file, if one is asked for: what cannot be written is refused before the start.
    pub fn begin(options: &Options) -> Result<Option<Trace>> {
        let Some(path) = &options.trace else { return Ok(None) };
        let file = Results::open(path)
            .with_context(|| format!("cannot write the trace to {}", path.display()))?;
        Ok(Some(Trace { path: path.clone(), file }))
    }

    /// Writes the timeline of a job on this machine. Gives the job's outcome, which is a failure
    /// where the timeline cannot be written. `stages`: what the parts of a simulated machine have
    /// done.
    pub fn write_here(
        self,
        records: &RecordFile,
        mut fates: Fates,
        stages: Option<&Recorder>,
        outcome: Outcome,
    ) -> Outcome {
        let mut source = |pe| -> Result<Option<Source<'_>>> {
            let Some(events) = records.events(pe)? else { return Ok(None) };
            // Ends of processes are known in real time alone.
            let ended = fates.remove(&pe).filter(|_| stages.is_none());
            let group = if stages.is_some() { "programs" } else { "PEs" };
            Ok(Some(Source { pe, events, clock: Clock::default(), ended, group }))
        };
        let sources = (0..records.geometry().npes).filter_map(|pe| source(pe).transpose());
        let clock = match stages {
            Some(_) => "virtual time of the simulated machine",
            None => "CLOCK_MONOTONIC of the host",
        };
        let about = [("clock", clock.into())];
        let written = sources
            .collect::<Result<Vec<_>>>()
            .and_then(|sources| self.write(&sources, stages, &about));
        outcome.reported(written)
    }

    /// Writes the timeline, and says what it lacks.
    fn write(
        self,
        sources: &[Source<'_>],
        stages: Option<&Recorder>,
        about: &[Argument<'_>],
    ) -> Result<()> {
        let file = self.file.begin();
        let drawn = file.and_then(|file| draw(BufWriter::new(file), sources, stages, about));
        let drawn =
            drawn.with_context(|| format!("cannot write the trace to {}", self.path.display()))?;
        for (pe, kept, missing) in drawn.missing {
            tell(format_args!(
                "the trace has the first {kept} events of PE {pe}, and lacks {missing}. `--trace-events {}` keeps all",
                kept + missing
            ));
        }
        Ok(())
    }
}

fn draw(
    out: impl Write,
    sources: &[Source<'_>],
    stages: Option<&Recorder>,
    about: &[Argument<'_>],
) -> io::Result<Drawn> {
    let mut timeline = Timeline::begin(out)?;
    // Virtual time begins with the job.
    let drawn = program::draw(sources, stages.map(|_| 0), &mut timeline)?;
    stages.map_or(Ok(()), |stages| stages.draw(&mut timeline))?;
    let missing = drawn.missing.iter().map(|(.., missing)| missing).sum::<u64>();
    let mut all = vec![
        ("made by", format!("memonet {}", env!("CARGO_PKG_VERSION")).into()),
        ("events", drawn.events.into()),
        ("events missing", missing.into()),
    ];
    all.extend_from_slice(about);
    timeline.end(&all)?;
    Ok(drawn)
}
