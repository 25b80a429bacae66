//! The programs in `examples/`: each compares its result with a sequential run.

mod common;

use common::{Ended, run_for_a_minute};
use std::path::PathBuf;
use std::sync::LazyLock;

/// The folder with the examples, built.
static EXAMPLES: LazyLock<PathBuf> = LazyLock::new(|| {
    // With the command, whose dependencies have more features: else all would be built once more.
    common::examples(&["--package", "memonet", "--package", "memonet-cli", "--examples"])
});

/// Runs a program, which must find its own result right.
#[track_caller]
fn is_right(options: &[&str], program: &str, argument: &str) -> Ended {
    let path = EXAMPLES.join(program).into_os_string().into_string().unwrap();
    let ended = run_for_a_minute(&[options, &[&path, argument]].concat());
    assert_eq!(ended.status, 0, "{program} {argument} {options:?}: {ended:?}");
    assert!(
        ended.stdout.starts_with("right: ") && ended.stdout.contains("speed-up"),
        "{program} {argument} {options:?}: {ended:?}"
    );
    ended
}

#[test]
fn parallel_and_sequential_runs_agree() {
    for (program, argument) in [("radix", "20000"), ("lu", "48"), ("tsp", "8"), ("water", "100")] {
        for fabric in ["", "far", "far:delay_us=20,reorder=1,seed=5"] {
            for pes in ["1", "2", "3"] {
                let mut options = vec!["-n", pes];
                if !fabric.is_empty() {
                    options.extend(["--fabric", fabric]);
                }
                let ended = is_right(&options, program, argument);
                assert!(
                    ended.stdout.contains(&format!("right: {pes} PEs ")),
                    "{program} {fabric}: {ended:?}"
                );
                let quiet = ended.stdout.contains(" 0 messages, 0 bytes");
                assert!(quiet == fabric.is_empty() || pes == "1", "{program} {fabric}: {ended:?}");
            }
        }
    }
}

/// Supersteps in order and overlapped come to the same temperatures; with wires, a superstep that
/// overlaps does not wait for its barrier.
#[test]
fn supersteps_are_right() {
    let path = EXAMPLES.join("supersteps").into_os_string().into_string().unwrap();
    let places = [["--bind", "none"], ["--fabric", "far"], ["--machine", "scc"]];
    for (pes, cells) in [("1", "5"), ("3", "2"), ("4", "16")] {
        for place in places {
            let ended = run_for_a_minute(&[&["-n", pes], &place[..], &[&path, cells]].concat());
            assert_eq!(ended.status, 0, "{pes} {place:?}: {ended:?}");
            let lines: Vec<_> = ended.stdout.lines().collect();
            assert_eq!(lines.len(), 2, "{pes} {place:?}: {ended:?}");
            let times: Vec<f64> = lines
                .iter()
                .zip(["right: in order, ", "right: overlapped, "])
                .map(|(line, begin)| {
                    let time = line.strip_prefix(begin).and_then(|rest| rest.split(' ').next());
                    time.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{ended:?}"))
                })
                .collect();
            assert!(place[1] != "scc" || pes != "4" || times[1] < times[0], "{ended:?}");
        }
    }
}

/// The numbers of `radix` are more than 4 MiB at each home and are read at once; the other programs
/// have no block that long.
#[test]
fn long_runs_agree_on_fabrics_and_machines() {
    let places = [
        ["--bind", "none"],
        ["--fabric", "far"],
        ["--machine", "rdma-100g"],
        ["--machine", "sr2201"],
        ["--machine", "dimmnet-1/D-tree"],
    ];
    for (program, argument) in [("radix", "4194304"), ("lu", "160"), ("tsp", "9"), ("water", "300")]
    {
        for place in places {
            let ended = is_right(&[&["-n", "3"], &place[..]].concat(), program, argument);
            assert!(ended.stdout.contains("right: 3 PEs "), "{program} {place:?}: {ended:?}");
        }
    }
}
