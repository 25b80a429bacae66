//! `memonet run --machine`: programs that know nothing of it, on hardware that is not there.

mod common;

use common::{Ended, run};
use std::path::PathBuf;
use std::sync::LazyLock;

/// The program that the tests run: the example `simulated`, built if `cargo test --test NAME` has not.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let profile = PathBuf::from(common::pe()).parent().unwrap().to_owned();
    let mut build = std::process::Command::new(env!("CARGO"));
    build.args([
        "build",
        "--quiet",
        "--package",
        "memonet-cli",
        "--example",
        "simulated",
        "--target-dir",
    ]);
    build.arg(profile.parent().unwrap().parent().unwrap());
    if profile.parent().unwrap().ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the example `simulated` does not build");
    profile.join("simulated").into_os_string().into_string().unwrap()
});

/// Machines of each kind.
const MACHINES: [&str; 5] = ["dimmnet-1/D", "sr2201", "scc", "dimmnet-2", "rdma-100g"];

/// A job of the program on a machine.
fn on(machine: &str, options: &[&str], arguments: &[&str]) -> Ended {
    let mut all = vec!["--machine", machine];
    all.extend(options);
    all.push(&PROGRAM);
    all.extend(arguments);
    run(&all)
}

#[test]
fn two_processes_talk_on_every_kind_of_machine() {
    for machine in MACHINES {
        let ended = on(machine, &["-n", "2"], &["ping-pong", "50"]);
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{machine}");
        assert_eq!(ended.stdout.lines().count(), 2, "{machine}: {ended:?}");
    }
}

#[test]
fn machines_that_are_not_there_are_named_with_those_that_are() {
    for (machine, there) in [("dimmnet-9", "dimmnet-1, dimmnet-2"), ("dimmnet-1/Z", "A, B, C, D, E")] {
        let ended = on(machine, &["-n", "1"], &["ping-pong", "1"]);
        assert_eq!(ended.status, 1, "{ended:?}");
        assert!(
            ended.stderr.contains(machine.split('/').next().unwrap()) && ended.stderr.contains(there),
            "{ended:?}"
        );
    }
}
