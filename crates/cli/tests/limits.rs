//! Limits that a shell or a container sets, and outputs that take nothing.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::{pe, run};
use rustix::process::Signal;

/// The command with these arguments, as a shell starts it after `setting`: exit status, output,
/// error output.
fn under(setting: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{setting}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_memonet")]);
    let output = shell.args(args).output().unwrap();
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), stdout, stderr)
}

#[test]
fn more_pes_than_cpus_and_than_the_soft_limit_on_descriptors() {
    let (_, shown, said) = under("ulimit -Sn 100", &["run", "-n", "100", "sh", "-c", "ulimit -Sn"]);
    assert_eq!(shown, "100\n".repeat(100), "{said}");
    let (status, _, said) = under("ulimit -n 100", &["run", "-n", "100", "true"]);
    assert!(status == Some(1) && said.contains("ulimit -Hn"), "{said}");
}

#[test]
fn segments_fit_in_little_address_space() {
    for (kilobytes, npes) in [(500_000, "2"), (2_000_000, "1"), (2_000_000, "7")] {
        let (status, _, said) =
            under(&format!("ulimit -v {kilobytes}"), &["run", "-n", npes, &pe(), "ring", "none"]);
        assert_eq!(status, Some(0), "{kilobytes} KB, {npes} PEs: {said}");
        assert!(said.contains("not all of physical memory: ulimit -v"), "{said}");
    }
}

#[test]
fn what_a_limit_leaves_no_room_for_is_said_once() {
    let (status, _, said) = under("ulimit -f 1000", &["run", "-n", "2", "true"]);
    assert_eq!((status, said.matches("ulimit -f is").count()), (Some(1), 1), "{said}");
}

#[test]
fn doctor_finds_this_machine_fit() {
    let (status, shown, said) = under("true", &["doctor"]);
    assert_eq!(status, Some(0), "{shown}\n{said}");
    for word in ["CPUs", "memory", "memfd", "pidfd", "job of two", "Jobs can run here"] {
        assert!(shown.contains(word), "no {word}: {shown}");
    }
}

#[test]
fn doctor_says_the_same_as_json() {
    for (limit, can_run) in [("true", true), ("ulimit -n 32", false)] {
        let (status, shown, _) = under(limit, &["doctor", "--json"]);
        assert_eq!(status, Some(i32::from(!can_run)), "{shown}");
        let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(report["jobs_can_run"], can_run, "{shown}");
        let findings = report["findings"].as_array().unwrap();
        let bad = findings.iter().filter(|one| one["verdict"] == "bad").collect::<Vec<_>>();
        assert!(findings.len() > 10 && bad.is_empty() == can_run, "{shown}");
        assert!(bad.iter().all(|one| one["fix"].is_string()), "{shown}");
    }
}

#[test]
fn doctor_says_what_is_wrong() {
    let (status, shown, _) = under("ulimit -n 32", &["doctor"]);
    assert_eq!(status, Some(1), "{shown}");
    assert!(shown.contains("BAD") && shown.contains("ulimit -Hn"), "{shown}");
}

#[test]
fn output_that_is_lost_is_a_failure() {
    for program in [["echo", "ab"], ["yes", "ab"]] {
        let (status, _, said) =
            under("exec > /dev/full", &["run", "-n", "1", program[0], program[1]]);
        assert!(status.is_some_and(|status| status != 0), "{program:?}: {said}");
        assert!(said.contains("standard output: No space left"), "{program:?}: {said}");
    }
    assert_eq!(run(&["-n", "1", "echo", "ab"]).status, 0);
}

/// As with any command in a pipeline.
#[test]
fn a_reader_that_has_gone_ends_what_only_prints() {
    for args in [&["doctor"][..], &["machines"], &["bench", "--list"], &["reproduce", "--list"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_memonet"));
        let output = command.args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.signal(), Some(Signal::PIPE.as_raw()), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
    }
}
