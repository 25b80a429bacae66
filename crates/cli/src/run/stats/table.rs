//! The statistics as tables for a terminal. Each line begins with the launcher's name.

use super::model::{Object, PeStats, Report};

/// Most PEs for which the matrix is shown.
const MATRIX_PES: usize = 16;
/// Most PEs that have a line each.
const PES: usize = 64;
/// Most names of calls that have a line each.
const CALLS: usize = 24;

/// The tables.
pub fn table(report: &Report) -> String {
    let mut lines = report.machine.clone();
    match report.pes.is_empty() {
        true => lines.push("no PE has joined the job, so nothing was counted".into()),
        false => {
            lines.extend(pes(report));
            lines.extend(kinds(report));
            lines.extend(matrix(report));
            lines.extend(calls(report));
            lines.extend(objects(report));
        }
    }
    lines.iter().map(|line| format!("memonet: {line}\n")).collect()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A line for each PE; where there are many, for those that have moved most bytes.
fn pes(report: &Report) -> Vec<String> {
    let mut all: Vec<&PeStats> = report.pes.iter().collect();
    if all.len() > PES {
        all.sort_by_key(|told| std::cmp::Reverse(told.operations()[1]));
        all.truncate(PES);
    }
    let head = format!(
        "{:>5} {:>14} {:>16} {:>14} {:>14}",
        "PE", "operations", "bytes", "s in calls", "s of waits"
    );
    let line = |told: &&PeStats| {
        let ([operations, bytes], [calls, waits]) = (told.operations(), told.nanos());
        let (calls, waits) = (seconds(calls), seconds(waits));
        format!("{:>5} {operations:>14} {bytes:>16} {calls:>14.9} {waits:>14.9}", told.pe)
    };
    let more = report.pes.len() - all.len();
    let rest = (more > 0).then(|| format!("and {more} more PEs, which have moved fewer bytes"));
    [head].into_iter().chain(all.iter().map(line)).chain(rest).collect()
}

/// A line for each kind of operation that was used.
fn kinds(report: &Report) -> Vec<String> {
    let line = |&kind: &&str| {
        let all = report.pes.iter().flat_map(|told| &told.operations);
        let (mut operations, mut bytes) = (0u64, 0u64);
        for one in all.filter(|one| one.kind == kind) {
            operations = operations.saturating_add(one.operations);
            bytes = bytes.saturating_add(one.bytes);
        }
        (operations > 0).then(|| format!("{kind:<12} {operations:>14} {bytes:>16}"))
    };
    let lines: Vec<String> = report.kinds.iter().filter_map(line).collect();
    let head = format!("{:<12} {:>14} {:>16}", "kind", "operations", "bytes");
    (!lines.is_empty()).then_some(head).into_iter().chain(lines).collect()
}

/// Bytes from each PE to each, where there are few and any.
fn matrix(report: &Report) -> Vec<String> {
    if report.npes > MATRIX_PES || report.pes.iter().all(|told| told.operations.is_empty()) {
        return Vec::new();
    }
    let columns: String =
        (0..report.npes).map(|pe| format!(" {:>9}", format!("PE {pe}"))).collect();
    let line = |told: &PeStats| {
        let mut bytes = vec![0u64; report.npes];
        for one in &told.operations {
            bytes[one.target] = bytes[one.target].saturating_add(one.bytes);
        }
        let cells: String =
            bytes.into_iter().map(|bytes| format!(" {:>9}", short(bytes))).collect();
        format!("PE {:<9}{cells}", told.pe)
    };
    let head = format!("{:<12}{columns}", "bytes from/to");
    [head].into_iter().chain(report.pes.iter().map(line)).collect()
}

/// A number of bytes in a few letters.
fn short(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 9999.5 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    match (bytes, unit) {
        (0, _) => ".".into(),
        (_, 0) => bytes.to_string(),
        _ => format!("{value:.0}{}", units[unit]),
    }
}

/// A line for each name of calls, over all PEs.
fn calls(report: &Report) -> Vec<String> {
    let all = report.calls();
    let head = format!(
        "{:<36} {:>12} {:>14} {:>12} {:>14}",
        "call", "calls", "s in calls", "waits", "s of waits"
    );
    let line = |call: &super::model::Call| {
        let (nanos, waits) = (seconds(call.nanos), seconds(call.wait_nanos));
        let super::model::Call { name, calls, waits: number, .. } = call;
        format!("{name:<36} {calls:>12} {nanos:>14.9} {number:>12} {waits:>14.9}")
    };
    let more = all.len().saturating_sub(CALLS);
    let rest = (more > 0).then(|| format!("and {more} more calls, which took less time"));
    let head = (!all.is_empty()).then_some(head);
    head.into_iter().chain(all.iter().take(CALLS).map(line)).chain(rest).collect()
}

/// A line for each shared object or channel and PE, ordered by object.
fn objects(report: &Report) -> Vec<String> {
    let of = |told: &'_ PeStats| {
        let pe = told.pe;
        told.objects.clone().into_iter().map(move |object| (object.number, pe, object))
    };
    let mut all: Vec<(usize, usize, Object)> = report.pes.iter().flat_map(of).collect();
    all.sort_by_key(|&(number, pe, _)| (number, pe));
    let line = |(number, pe, one): &(usize, usize, Object)| {
        let Object { object, uses, hits, handovers, messages, bytes, .. } = one;
        let name = format!("{object} {number}");
        format!(
            "{name:<12} {pe:>4} {uses:>12} {hits:>12} {handovers:>12} {messages:>12} {bytes:>15}"
        )
    };
    let head = format!(
        "{:<12} {:>4} {:>12} {:>12} {:>12} {:>12} {:>15}",
        "object", "PE", "uses", "hits", "hand-overs", "messages", "bytes"
    );
    (!all.is_empty()).then_some(head).into_iter().chain(all.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::stats::model::{Call, Operation};

    fn report(npes: usize) -> Report {
        let pe = |pe: usize| PeStats {
            pe,
            calls: vec![Call {
                name: "Job::barrier".into(),
                calls: 2,
                nanos: 3_000_000_000,
                waits: 1,
                wait_nanos: 500_000_000,
            }],
            operations: vec![Operation {
                target: (pe + 1) % npes,
                kind: "put".into(),
                operations: 3,
                bytes: 24 << 10,
            }],
            objects: vec![Object { object: "mutex".into(), uses: 4, ..Object::default() }],
        };
        Report::new(npes, (0..npes).map(pe).collect(), None)
    }

    #[test]
    fn few_pes_have_a_matrix_and_many_a_summary() {
        let few = table(&report(2));
        for line in [
            "memonet:     0              3            24576    3.000000000    0.500000000\n",
            "memonet: put                       6            49152\n",
            "memonet: PE 0                 .       24K\n",
            "memonet: PE 1               24K         .\n",
            "memonet: Job::barrier                                    4    6.000000000            2    1.000000000\n",
            "memonet: mutex 0         1            4            0            0            0               0\n",
        ] {
            assert!(few.contains(line), "{line} is not in\n{few}");
        }
        let many = table(&report(1024));
        assert!(many.contains("and 960 more PEs") && !many.contains("bytes from/to"), "{many}");
        let none = table(&Report::new(2, Vec::new(), None));
        assert_eq!(none.lines().count(), 1, "{none}");
    }

    #[test]
    fn bytes_are_short() {
        for (bytes, text) in [(0, "."), (9999, "9999"), (10_240, "10K"), (1 << 30, "1024M")] {
            assert_eq!(short(bytes), text);
        }
        assert_eq!(short(u64::MAX), "16E");
    }
}
