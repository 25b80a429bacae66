//! The timeline of a job on several hosts: their events, on the launcher's clock.
//!
//! The launcher tells each agent what its own clock shows, again and again, and the agent answers
//! with what the clock of its host shows. Half of the time between is how old the answer is, give
//! or take that half: the quickest answer tells most. Clocks also run at different speeds, so the
//! quickest answers of the first and of the second half of the run give a line.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};
use memonet_core::Error;
use memonet_core::unstable::recorder::file::RecordFile;
use memonet_trace::program::{Clock, Source};
use rustix::fs::{CWD, Mode, OFlags};

use super::{Trace, bytes_for};
use crate::run::course::{Fates, Outcome, monotonic_nanos};
use crate::run::spec::Options;
use crate::tell::tell;

/// The timeline of a job on several hosts.
pub struct OfHosts {
    trace: Trace,
    hosts: Vec<Host>,
    /// Why events could not be kept.
    failed: Option<Error>,
}

struct Host {
    name: String,
    first: usize,
    count: usize,
    records: RecordFile,
    answers: Vec<Answer>,
    /// All its events have come.
    finished: bool,
}

/// What a clock showed when the launcher's showed `sent`, or up to `round_trip` later.
#[derive(Debug, Clone, Copy)]
struct Answer {
    sent: u64,
    round_trip: u64,
    here: u64,
}

impl Trace {
    /// The timeline of these hosts: name, first PE and number of PEs of each.
    pub fn of_hosts(
        self,
        options: &Options,
        hosts: Vec<(String, usize, usize)>,
    ) -> Result<OfHosts> {
        let npes = hosts.iter().map(|(.., count)| count).sum();
        let host = |(name, first, count): (String, usize, usize)| -> Result<Host> {
            let events = bytes_for(options, count);
            let file = nameless(self.path.parent())?;
            let records = RecordFile::received(file, (npes, first, count), events)?;
            Ok(Host { name, first, count, records, answers: Vec::new(), finished: false })
        };
        let hosts = hosts.into_iter().map(host).collect::<Result<_>>()?;
        Ok(OfHosts { trace: self, hosts, failed: None })
    }
}

/// A file without a name in a folder, or in memory where the folder cannot have one.
fn nameless(folder: Option<&Path>) -> Result<OwnedFd> {
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(file);
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("memonet-events", flags).context("memfd_create")
}

impl OfHosts {
    /// Takes an answer of a host's clock.
    pub fn compare_clocks(&mut self, host: usize, sent: u64, here: u64) {
        let round_trip = monotonic_nanos().saturating_sub(sent);
        self.hosts[host].answers.push(Answer { sent, round_trip, here });
    }

    /// Takes a part of the events of a PE. Where this host has no room for it, the timeline cannot
    /// be written.
    pub fn receive(&mut self, host: usize, pe: usize, at: u64, bytes: &[u8]) -> Result<()> {
        if self.failed.is_some() {
            return Ok(());
        }
        match self.hosts[host].records.receive(pe, at, bytes) {
            Err(error @ Error::System { .. }) => self.failed = Some(error),
            received => received?,
        }
        Ok(())
    }

    /// All of a host has come.
    pub fn finished(&mut self, host: usize) {
        self.hosts[host].finished = true;
    }

    /// Writes the timeline. Gives the job's outcome, which is a failure where that cannot be.
    pub fn write(self, mut fates: Fates, outcome: Outcome) -> Outcome {
        let OfHosts { trace, hosts, failed } = self;
        if let Some(error) = failed {
            let why = format!("cannot keep the events for the trace {}", trace.path.display());
            return outcome.reported(Err(anyhow::Error::from(error).context(why)));
        }
        for host in hosts.iter().filter(|host| !host.finished) {
            tell(format_args!(
                "the trace lacks events of PE {} to {}: {} was lost",
                host.first,
                host.first + host.count - 1,
                host.name
            ));
        }
        let clocks: Vec<Clock> = hosts.iter().map(|host| clock(&host.answers)).collect();
        // Perfetto shows names, and nothing of what stands beside the events.
        let named = |(host, clock): (&Host, &Clock)| {
            let ns = clock.uncertainty;
            format!("PEs on {}, clock ±{}.{} us", host.name, ns / 1000, ns / 100 % 10)
        };
        let groups: Vec<String> = hosts.iter().zip(&clocks).map(named).collect();
        let mut about = vec![("clock", "CLOCK_MONOTONIC of the launcher's host".into())];
        let keys: Vec<String> =
            hosts.iter().map(|host| format!("uncertainty of {} in ns", host.name)).collect();
        about.extend(
            keys.iter().zip(&clocks).map(|(key, clock)| (key.as_str(), clock.uncertainty.into())),
        );
        let mut sources = Vec::new();
        for ((host, clock), group) in hosts.iter().zip(clocks).zip(&groups) {
            for pe in host.first..host.first + host.count {
                let ended = fates.remove(&pe);
                match host.records.events(pe) {
                    Ok(Some(events)) => sources.push(Source { pe, events, clock, ended, group }),
                    Ok(None) => {}
                    Err(error) => return outcome.reported(Err(error.into())),
                }
            }
        }
        outcome.reported(trace.write(&sources, None, &about))
    }
}

/// A clock, by its answers.
fn clock(answers: &[Answer]) -> Clock {
    let (early, late) = answers.split_at(answers.len() / 2);
    let best = |answers: &[Answer]| answers.iter().copied().min_by_key(|answer| answer.round_trip);
    let lead = |answer: Answer| {
        let there = answer.sent + answer.round_trip / 2;
        i128::from(answer.here) - i128::from(there)
    };
    // Without an answer, the host was lost at once, and has no events.
    let Some(one) = best(late) else { return Clock::default() };
    let other = best(early).unwrap_or(one);
    let between = i128::from(one.here) - i128::from(other.here);
    // Over less than that, what the answers are off is more than clocks differ in speed.
    let drift = match between > i128::from(LONG_NS) {
        true => (lead(one) - lead(other)) * 1_000_000_000 / between,
        false => 0,
    };
    let best = if drift == 0 && other.round_trip < one.round_trip { other } else { one };
    let half = |answer: Answer| answer.round_trip.div_ceil(2);
    let uncertainty = if drift == 0 { half(best) } else { half(one).max(half(other)) };
    Clock { lead: lead(best) as i64, at: best.here, drift: drift as i64, uncertainty }
}

/// A run over which the speeds of clocks are compared.
const LONG_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the ways there and back take, the error is at most the uncertainty.
        #[test]
        fn a_clock_is_found_to_its_uncertainty(
            lead in -1_000_000_000_000i64..1_000_000_000_000,
            ways in proptest::collection::vec((0u64..1_000_000, 0u64..1_000_000), 1..40),
        ) {
            let start = 2_000_000_000_000u64;
            let answers: Vec<_> = ways.iter().zip(0u64..).map(|(&(there, back), number)| {
                let sent = start + number * 100_000;
                let here = (sent + there).saturating_add_signed(lead);
                Answer { sent, round_trip: there + back, here }
            }).collect();
            let clock = clock(&answers);
            for moment in [start, start + 1_000_000_000] {
                let shown = moment.saturating_add_signed(lead);
                let off = clock.time(shown).abs_diff(moment);
                prop_assert!(off <= clock.uncertainty + 1, "{off} of {}", clock.uncertainty);
            }
        }

        /// Clocks that differ in speed by up to 100 in a million, over a minute.
        #[test]
        fn a_faster_clock_is_found(drift in -100_000i64..100_000, lead in 0i64..1_000_000_000) {
            let start = 2_000_000_000_000u64;
            let shown = |moment: u64| {
                let since = (moment - start) as i128 * i128::from(drift) / 1_000_000_000;
                (i128::from(moment) + i128::from(lead) + since) as u64
            };
            let answers: Vec<_> = (0..240u64).map(|number| {
                let sent = start + number * 250_000_000;
                Answer { sent, round_trip: 20_000, here: shown(sent + 10_000) }
            }).collect();
            let clock = clock(&answers);
            for second in 0..60 {
                let moment = start + second * 1_000_000_000;
                let off = clock.time(shown(moment)).abs_diff(moment);
                prop_assert!(off <= 2 * clock.uncertainty + 100, "{off} after {second} s");
            }
        }
    }
}
