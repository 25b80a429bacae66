//! What a run has used: the time and the calls of each PE, and what went over each link.

use crate::host::{GroupOp, HostOp};
use crate::time::Ps;
use crate::trace::Place;
use std::fmt;

/// What a run has used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// When the programs began: bringing the machine up may have taken time.
    pub begin: Ps,
    /// When the last program ended; in a run that failed, when that was.
    pub end: Ps,
    /// By number.
    pub pes: Vec<PeUsage>,
    /// The links that have carried packets, the busiest first.
    pub links: Vec<LinkUsage>,
}

/// What a PE has used. Its times add up to the time between its begin and its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeUsage {
    /// Time for which it has computed or slept.
    pub computing: Ps,
    /// Time for which it has been in calls of its NIC: the software of the call, and in calls that
    /// are answered, such as a get or a quiet, the time until the answer.
    pub calling: Ps,
    /// Time for which it has looked at its memory, until something came.
    pub waiting: Ps,
    /// Number of calls of its NIC.
    pub calls: u64,
    /// Bytes that it has written, by puts, stores, signals, atomics and collectives of the network.
    pub written: u64,
    /// Bytes that it has got.
    pub read: u64,
}

/// What went over one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkUsage {
    /// Where it begins.
    pub from: Place,
    /// The port there.
    pub port: u16,
    /// Where it ends.
    pub to: Place,
    /// What it has carried.
    pub carried: Carried,
}

/// What one direction of a link has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Time for which bits went in.
    pub busy: Ps,
    /// Bytes, with headers.
    pub bytes: u64,
    /// Packets, with those that were sent again.
    pub packets: u64,
    /// Packets that were sent again, because the link had lost or damaged them or one before them.
    pub repeated: u64,
    /// Time for which a packet could not go on, because a buffer at the far end was full or too
    /// much was not acknowledged.
    pub stopped: Ps,
}

impl Carried {
    pub(crate) fn add(&mut self, time: Ps, bytes: u64) {
        self.busy += time;
        self.bytes += bytes;
        self.packets += 1;
    }
}

impl PeUsage {
    pub(crate) fn called(&mut self, what: &HostOp) {
        self.calls += 1;
        match what {
            HostOp::Store { word, .. } => self.written += word.len() as u64,
            HostOp::Put { data, signal, .. } => {
                self.written += data.len() as u64 + if signal.is_some() { 8 } else { 0 };
            }
            HostOp::Get { len, .. } => self.read += u64::from(*len),
            HostOp::Atomic { size, .. } => self.written += u64::from(*size),
            HostOp::Group(
                GroupOp::Collective { data, .. }
                | GroupOp::Send { data, .. }
                | GroupOp::Multicast { data, .. },
            ) => {
                self.written += data.len() as u64;
            }
            HostOp::Group(_)
            | HostOp::Prepare { .. }
            | HostOp::Key { .. }
            | HostOp::Fence
            | HostOp::Quiet
            | HostOp::Command(_) => {}
        }
    }
}

/// Links in a report.
const BUSIEST: usize = 5;

impl Usage {
    /// What back-pressure and repeats have done, in a line each, where they have done something.
    fn write_flow(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repeated: u64 = self.links.iter().map(|link| link.carried.repeated).sum();
        let stopped: Ps = self.links.iter().fold(Ps::ZERO, |sum, link| sum + link.carried.stopped);
        let longest = self.links.iter().max_by_key(|link| link.carried.stopped);
        if let Some(LinkUsage { from, to, carried, .. }) = longest.filter(|_| stopped > Ps::ZERO) {
            let (all, most) = (micros(stopped), micros(carried.stopped));
            writeln!(
                f,
                "links stood still for {all} us, for room or acknowledgements; {from} to {to} for {most} us"
            )?;
        }
        if repeated > 0 {
            writeln!(f, "packets sent again over links that lost or damaged some: {repeated}")?;
        }
        Ok(())
    }
}

fn micros(time: Ps) -> String {
    format!("{:.3}", time.as_ns() / 1000.0)
}

/// As a report: a line for the run, one for each PE, one for each of the busiest links, and one
/// each for back-pressure and repeats. Times are in microseconds.
impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.end.since(self.begin);
        writeln!(f, "{} PEs took {} us of the machine's time", self.pes.len(), micros(took))?;
        writeln!(
            f,
            "{:>6} {:>15} {:>15} {:>15} {:>10} {:>14} {:>14}",
            "PE",
            "computing us",
            "in calls us",
            "waiting us",
            "calls",
            "bytes written",
            "bytes got"
        )?;
        for (number, pe) in self.pes.iter().enumerate() {
            let times = [pe.computing, pe.calling, pe.waiting].map(micros);
            writeln!(
                f,
                "{number:>6} {:>15} {:>15} {:>15} {:>10} {:>14} {:>14}",
                times[0], times[1], times[2], pe.calls, pe.written, pe.read
            )?;
        }
        if self.links.is_empty() {
            return Ok(());
        }
        writeln!(f, "{:<29} {:>7} {:>14} {:>10}", "busiest links", "busy", "bytes", "packets")?;
        for LinkUsage { from, to, carried, .. } in self.links.iter().take(BUSIEST) {
            let way = format!("{from} to {to}");
            // What is still on its way when the last PE ends may make a link busy for longer.
            let share = (100.0 * carried.busy.as_ns() / took.as_ns().max(1e-3)).min(100.0);
            let Carried { bytes, packets, .. } = carried;
            writeln!(f, "{way:<29} {share:>5.1} % {bytes:>14} {packets:>10}")?;
        }
        self.write_flow(f)
    }
}
