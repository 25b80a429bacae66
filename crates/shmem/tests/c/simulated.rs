//! C programs on simulated machines, as they are.

use crate::common::{assert_success, folder, installed, job, printed, source};
use std::path::{Path, PathBuf};

/// A program, compiled in each way.
fn compiled(folder: &Path, wrapper: &str, text: &str) -> Vec<PathBuf> {
    let ways: [(&str, &[&str]); 3] =
        [("shared", &[]), ("static", &["-static"]), ("not-pie", &["-no-pie"])];
    let compile = |(name, options): (&str, &[&str])| {
        let program = folder.join(name);
        assert_success(
            installed(wrapper)
                .args(options)
                .args(["-O1", "-pthread", "-o"])
                .arg(&program)
                .arg(source(text)),
        );
        program
    };
    ways.into_iter().map(compile).collect()
}

#[track_caller]
fn sorted(npes: usize, options: &[&str], program: &Path, arguments: &[&str]) -> Vec<String> {
    let text = printed(&mut job(npes, options, program, arguments));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn results_are_the_same_and_times_are_the_machines() {
    let folder = folder();
    let programs = compiled(folder.path(), "oshcc", "simulated.c");
    let real = sorted(3, &[], &programs[0], &[]);
    for machine in ["dimmnet-1/D-tree", "sr2201", "scc", "rdma-100g"] {
        let times: Vec<Vec<String>> = programs
            .iter()
            .map(|program| {
                let lines = sorted(3, &["--machine", machine], program, &["1"]);
                let (times, results): (Vec<_>, Vec<_>) = lines
                    .into_iter()
                    .partition(|line| line.contains("took") || line.contains("slept"));
                let expected = real.iter().cloned().chain((0..3).map(|pe| format!("{pe}: 1 1")));
                let mut expected: Vec<_> = expected.collect();
                expected.sort();
                assert_eq!(results, expected, "{machine} {}", program.display());
                times
            })
            .collect();
        assert!(
            times.iter().all(|other| *other == times[0]),
            "{machine}: however it is linked: {times:?}"
        );
        let slept = "slept for 3750000000 ns, 3750000 us, ";
        let cycles = "3 s of CPU, 3750000000 and 3750000000 cycles, 0";
        let sleeps: Vec<_> = times[0].iter().filter(|line| line.contains("slept")).collect();
        assert!(
            sleeps.len() == 3
                && sleeps.iter().all(|line| line.contains(slept)
                    && (cfg!(not(target_arch = "x86_64")) || line.ends_with(cycles))),
            "{machine}: {sleeps:?}"
        );
    }
}

/// A round trip takes the time that was published for the machine.
#[test]
fn a_ping_pong_takes_the_time_that_was_published() {
    let folder = folder();
    let program = compiled(folder.path(), "oshcc", "simulated.c").remove(0);
    let lines = sorted(2, &["--machine", "dimmnet-1/D"], &program, &["1"]);
    let took = lines.iter().find_map(|line| line.strip_prefix("0: took ")).expect("PE 0 says so");
    // 20 round trips, published as 1840 ns each for a program without the library; tests that fail
    // are looks too.
    let nanos: f64 = took.parse().unwrap();
    assert!((1600.0..2200.0).contains(&(nanos / 20.0)), "{took} ns");
}

/// Blocks come whole and in order whatever links lose, copied by switches where they can copy, and
/// by a tree of puts elsewhere.
#[test]
fn channels_go_by_the_network_or_a_tree() {
    let folder = folder();
    let program = compiled(folder.path(), "oshcc", "../../../../examples/multicast.c").remove(0);
    for (machine, npes, way) in [
        ("dimmnet-2", 4, "datagrams"),
        ("dimmnet-2/lossy", 4, "datagrams"),
        ("dimmnet-2/retransmit", 3, "datagrams"),
        ("sr2201", 3, "tree"),
        ("dimmnet-1/D-tree", 4, "tree"),
    ] {
        let lines = sorted(npes, &["--machine", machine], &program, &[]);
        let [line] = &lines[..] else { panic!("{machine}: {lines:?}") };
        let (by, took) = line.strip_suffix(" ms").and_then(|it| it.split_once(": ")).unwrap();
        assert_eq!(by, way, "{machine}");
        // Two megabytes to each, at no more than the rate of a link.
        let rate = if machine.starts_with("dimmnet-2") { 1000.0 } else { 300.0 };
        assert!(took.parse::<f64>().unwrap() > 2e3 / rate, "{machine}: {took} ms");
    }
}

/// The command words of SR2201 from C: what each way to start them takes, and a refusal.
#[test]
fn command_words_take_what_was_published() {
    let folder = folder();
    let program =
        compiled(folder.path(), "oshcc", "../../../../examples/command_words.c").remove(0);
    for (machine, published) in [("sr2201", 3.45), ("sr2201/system-call", 21.50)] {
        let lines = sorted(2, &["--machine", machine], &program, &[]);
        let [took, refused] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(refused, "refused");
        let took = took.strip_prefix("one way of 8 bytes: ").and_then(|it| it.strip_suffix(" us"));
        let took: f64 = took.expect("its time").parse().unwrap();
        assert!((took / published - 1.0).abs() < 0.05, "{machine}: {took}, published {published}");
    }
}

#[test]
fn waits_of_cxx_end_by_the_machines_time() {
    let folder = folder();
    let came = ["answer: 1 after 0 ms", "condition: 1 after 0 ms"].map(str::to_owned);
    let late = ["no condition", "no condition until", "no answer", "no lock", "no lock until"];
    let late = late.map(|wait| format!("{wait}: 0 after 30 ms"));
    let locks = ["a reader: 1 after 0 ms", "no writer: 0 after 30 ms"].map(str::to_owned);
    let expected: Vec<String> = came.into_iter().chain(late).chain(locks).collect();
    for program in compiled(folder.path(), "oshc++", "waits.cpp") {
        let text = printed(&mut job(1, &["--machine", "rdma-100g"], &program, &[]));
        assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{}", program.display());
    }
}

/// The example of the reduced barrier code: no phase is passed too early, and on SCC, whose
/// barriers go by wires, one code for a phase takes less time than an arrival and a wait.
#[test]
fn the_reduced_code_hides_the_barrier() {
    let folder = folder();
    let program = folder.path().join("rbc");
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rbc.c");
    assert_success(installed("oshcc").args(["-O2", "-o"]).arg(&program).arg(text));
    assert_eq!(sorted(3, &[], &program, &[]).len(), 1);
    for npes in [2, 4] {
        let line = sorted(npes, &["--machine", "scc"], &program, &[]).remove(0);
        let numbers = line.split(' ').filter_map(|word| word.parse().ok());
        let [two_codes, one_code]: [f64; 2] = numbers.collect::<Vec<_>>().try_into().unwrap();
        assert!(two_codes < 10.0, "by the wires: {line}");
        assert!(one_code < 0.95 * two_codes, "{line}");
    }
}
