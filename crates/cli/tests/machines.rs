//! `memonet machines` as a user runs it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use memonet_sim::{Machine, Options, run};

fn machines(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memonet"));
    command.arg("machines").args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::str::from_utf8(&output.stdout).unwrap()
}

fn check(path: &Path) {
    let machine = Machine::load(path.to_str().unwrap()).unwrap();
    let done = run(&machine, 5, &Options::default(), |job| job.barrier()).unwrap();
    assert!(done.results.iter().all(Result::is_ok));
    let shown = machines(&["show", path.to_str().unwrap()]);
    let latency = stdout(&shown).lines().find(|line| line.starts_with("nic.send_latency")).unwrap();
    assert!(latency.contains("measured 20") && latency.contains("pingpong.8"), "{latency}");
}

#[test]
fn this_machine_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let written = machines(&["fit", "--quick", "-o", path.to_str().unwrap()]);
    assert!(stdout(&written).contains("mine.toml"));
    check(&path);
    let printed = folder.path().join("printed.toml");
    std::fs::write(&printed, stdout(&machines(&["fit", "--quick"]))).unwrap();
    check(&printed);
}

#[test]
fn a_wrong_name_is_told_before_anything_is_measured() {
    for (name, says) in
        [("mine.txt", "does not end in .toml"), ("/nonexistent/mine.toml", "cannot write")]
    {
        let output = machines(&["fit", "-o", name]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(says), "{stderr}");
    }
}

#[test]
fn the_built_in_ones_are_explained() {
    assert!(stdout(&machines(&[])).contains("memory-channel-2"));
    assert!(stdout(&machines(&["show", "pci-sci"])).contains("FITTED on pci-sci.remote_write"));
}
