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

/// The list and the numbers of a machine have a form for programs; a machine file is one itself.
#[test]
fn json_is_offered_where_there_is_some() {
    let show = ["show", "scc"];
    for args in [&["--json"][..], &[&show[..], &["--json"]].concat(), &["--json", "show", "scc"]] {
        assert!(stdout(&machines(args)).trim_start().starts_with(['[', '{']), "{args:?}");
    }
    assert!(!stdout(&machines(&["fit", "--help"])).contains("--json"));
    for args in [["fit", "--json"], ["--json", "fit"]] {
        assert!(!machines(&args).status.success());
    }
}

/// A file that cannot be a machine is refused, in whichever of its variants the mistake is.
#[test]
fn a_file_that_is_shown_is_checked() {
    let text = include_str!("../../../machines/gigabit-ethernet-udp.toml");
    let variant =
        "\n[variant.wide]\nnic.packet = { value = 1, unit = \"GiB\", assumed = \"a test\" }\n";
    let mistakes = [
        (text.replace("gap = ", "gapp = "), "nic.gap is missing"),
        (
            format!("{text}\n[nic.more]\nwings = {{ value = 2, assumed = \"a test\" }}\n"),
            "nic.more.wings is unknown",
        ),
        (text.replace("\"star\"", "\"chain\""), "topology.shape is \"chain\""),
        (format!("{text}{variant}"), "mine.toml/wide, line"),
        // The variant runs, but the machine without it does not.
        (
            format!(
                "{}\n[variant.right]\nnic.packet = {{ value = 1, unit = \"KiB\", assumed = \"a test\" }}\n",
                text.replace("packet = { value = 1472", "packet = { value = 0")
            ),
            "mine.toml, line",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let path = path.to_str().unwrap();
    for (text, says) in mistakes {
        std::fs::write(path, &text).unwrap();
        let output = machines(&["show", path]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(says), "{says}: {output:?}");
    }
    std::fs::write(path, text).unwrap();
    assert!(stdout(&machines(&["show", path])).contains("nic.send_overhead"));
}

/// Each name in the list is that of a machine that runs.
#[test]
fn the_list_has_machines_that_run() {
    let listed = machines(&[]);
    let names = stdout(&listed).lines().filter(|line| !line.starts_with(' '));
    let variants = stdout(&listed).lines().filter_map(|line| line.strip_prefix("    variants: "));
    let mut runs = 0;
    for name in names.chain(variants.flat_map(|line| line.split(", "))) {
        let machine = Machine::load(name).unwrap();
        run(&machine, 2, &Options::default(), |_| ()).unwrap_or_else(|error| panic!("{error}"));
        runs += 1;
    }
    assert!(runs > 20, "{runs}");
}

/// What the variants of a file share can be shown, and is not taken for a machine.
#[test]
fn what_is_no_machine_without_a_variant_says_so() {
    let shown = machines(&["show", "dimmnet-1"]);
    let text = stdout(&shown);
    assert!(text.contains("runs only as a variant: dimmnet-1/A, dimmnet-1/B"), "{text}");
    assert!(!stdout(&machines(&["show", "dimmnet-1/D"])).contains("runs only"));
}

#[test]
fn the_built_in_ones_are_explained() {
    assert!(stdout(&machines(&[])).contains("memory-channel-2"));
    assert!(stdout(&machines(&["show", "pci-sci"])).contains("FITTED on pci-sci.remote_write"));
}
