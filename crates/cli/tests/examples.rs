//! The programs in `examples/`: each compares its result with a sequential run.

mod common;

use common::run;
use std::path::PathBuf;
use std::process::Command;

/// The folder with the examples, built.
fn examples() -> PathBuf {
    let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "memonet", "--examples", "--target-dir"]);
    build.arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the examples do not build");
    profile.join("examples")
}

#[test]
fn parallel_and_sequential_runs_agree() {
    let folder = examples();
    for (name, argument) in [("radix", "20000"), ("lu", "48"), ("tsp", "8"), ("water", "100")] {
        let program = folder.join(name).into_os_string().into_string().unwrap();
        for fabric in ["", "far", "far:delay_us=20,reorder=1,seed=5"] {
            for pes in ["1", "2", "3"] {
                let mut args = vec!["-n", pes];
                if !fabric.is_empty() {
                    args.extend(["--fabric", fabric]);
                }
                let ended = run(&[&args[..], &[&program, argument]].concat());
                assert_eq!(ended.status, 0, "{name} {fabric}: {ended:?}");
                let right = format!("right: {pes} PEs ");
                assert!(
                    ended.stdout.starts_with(&right) && ended.stdout.contains("speed-up"),
                    "{name} {fabric}: {ended:?}"
                );
                let quiet = ended.stdout.contains(" 0 messages, 0 bytes");
                assert!(quiet == fabric.is_empty() || pes == "1", "{name} {fabric}: {ended:?}");
            }
        }
    }
}
