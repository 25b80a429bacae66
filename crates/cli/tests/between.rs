//! `memonet bench --hosts` and `memonet doctor --hosts`, on hosts that are processes of this
//! machine: instead of ssh, a small script starts what belongs there.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

/// Instead of ssh: called as `SCRIPT HOST WORDS...`.
const SCRIPTS: [(&str, &str); 5] = [
    ("local", "shift; exec \"$@\""),
    // A login shell says something first. The second host cannot be reached.
    (
        "half",
        "test $1 = a || { echo \"ssh: connect to host $1: No route to host\" >&2; exit 255; }; \
         printf 'Welcome\\n\\nprompt> '; shift; exec \"$@\"",
    ),
    ("on_path", "case $2 in /*) exit 127;; esac; shift 2; exec MEMONET \"$@\""),
    ("missing", "exit 127"),
    ("other", "echo 'error: unexpected argument --as-host found' >&2; exit 2"),
];

fn script(name: &str) -> String {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in SCRIPTS {
            let text = text.replace("MEMONET", env!("CARGO_BIN_EXE_memonet"));
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    });
    FOLDER.path().join(name).to_str().unwrap().to_owned()
}

fn memonet(args: &[&str], hosts: &str, by: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memonet"));
    command.args(args).args(["--hosts", hosts, "--launch-agent", &script(by)]);
    command.args(["--interface", "lo"]).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Measures these rows on two hosts.
fn rows(filters: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.json");
    let args = [&["bench", "--quick", "--json", path.to_str().unwrap()], filters].concat();
    let output = memonet(&args, "a,b:7", "local");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(document["machine"]["hosts"], serde_json::json!(["a", "b"]));
    let rows = document["rows"].as_array().unwrap().clone();
    for row in &rows {
        let number = |field: &str| row[field].as_f64().unwrap_or_default();
        assert!(number("median") > 0.0 && number("limit") > 0.0 && number("ratio") > 0.0, "{row}");
        let id = row["id"].as_str().unwrap();
        let is_shown = |line: &str| line.split_whitespace().next() == Some(id);
        assert!(text(&output.stdout).lines().any(is_shown), "{id} is not in the table");
    }
    rows
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["id"].as_str()).collect()
}

#[test]
fn words_and_blocks_have_bare_sockets_beside_them() {
    let rows = rows(&["pingpong", "_get", "fetch_add", "put"]);
    let all = [
        "far_pingpong.8",
        "far_get.8",
        "far_get_computing.8",
        "far_fetch_add",
        "far_fetch_add_computing",
        "far_put_quiet.8",
        "far_put_nbi_rate",
        "far_put_bandwidth.65536",
        "far_put_bandwidth.1048576",
        "far_ofi_pingpong.8",
        "far_ofi_put_bandwidth.1048576",
        "near_pingpong.8",
    ];
    let mut all = all.to_vec();
    if let Err(why) = memonet_fabrics::libfabric_has("tcp;ofi_rxm") {
        println!("SKIPPED rows of libfabric: {why}");
        all.retain(|id| !id.contains("_ofi_"));
    }
    assert_eq!(ids(&rows), all);
    let limit = |row: &Value| row["limit_is"].as_str().unwrap().to_owned();
    let computing = rows.iter().filter(|row| limit(row).contains("blocks beside the computing"));
    assert_eq!(computing.count(), 2);
}

#[test]
fn meetings_and_starts_have_limits() {
    let rows = rows(&[
        "far_barrier.1",
        "far_all_reduce",
        "far_broadcast",
        "far_multicast",
        "startup",
        "near_barrier",
    ]);
    let all = [
        "far_barrier.1",
        "far_all_reduce.1",
        "far_all_reduce.2",
        "far_broadcast.1.65536",
        "far_broadcast.2.65536",
        "far_multicast.1.65536",
        "far_multicast.2.65536",
        "far_startup.1",
        "near_barrier.2",
    ];
    assert_eq!(ids(&rows), all);
}

#[test]
fn rows_between_hosts_are_listed_and_explained() {
    let output = memonet(&["bench", "--list"], "a,b", "local");
    assert!(text(&output.stdout).contains("far_pingpong.8\n"));
    assert!(!text(&output.stdout).contains("store_rate"));
    let output = memonet(&["bench"], "a", "local");
    assert!(!output.status.success() && text(&output.stderr).contains("--hosts a,b"));
    let output = memonet(&["bench", "no_such_row"], "a,b", "local");
    assert!(text(&output.stderr).contains("bench --hosts a,b --list"));
}

#[test]
fn a_host_that_cannot_be_reached_ends_a_bench_with_the_reason() {
    let output = memonet(&["bench", "--quick", "far_get.8"], "a,b", "half");
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("No route to host") && said.contains("far_get.8"), "{said}");
}

#[test]
fn doctor_looks_at_hosts_and_all_pairs() {
    for by in ["local", "on_path"] {
        let output = memonet(&["doctor"], "a,b,c", by);
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{shown}");
        for line in ["a to b", "a to c", "b to a", "b to c", "c to a", "c to b"] {
            let line = format!("  ok    {line}         TCP and handshake, ");
            assert!(shown.contains(&line), "{line}: {shown}");
        }
        for what in
            ["reach", "memonet", "CPUs", "memory", "descriptors", "time", "MTU", "libfabric"]
        {
            assert!(shown.matches(what).count() >= 3, "{what}: {shown}");
        }
        assert!(shown.contains("UDP multicast passes"), "{shown}");
        assert!(shown.contains("Jobs can run on these 3 hosts."), "{shown}");
    }
}

#[test]
fn doctor_says_the_same_of_hosts_as_json() {
    for (by, can_run) in [("local", true), ("half", false)] {
        let output = memonet(&["doctor", "--json"], "a,b", by);
        let shown = text(&output.stdout);
        let report: serde_json::Value = serde_json::from_str(shown).unwrap();
        assert_eq!(report["jobs_can_run"], can_run, "{shown}");
        let about = |what: &str| {
            report["findings"].as_array().unwrap().iter().filter(|one| one["about"] == what).count()
        };
        assert!(about("a") > 0 && about("b") > 0, "{shown}");
        assert_eq!(about("between hosts") > 0, can_run, "{shown}");
    }
}

#[test]
fn doctor_says_why_a_host_is_out_of_reach_and_what_helps() {
    for (by, why, fix) in [
        ("half", "No route to host", "must work without a password"),
        ("missing", "exit status: 127", "install memonet there"),
        ("other", "unexpected argument", "install one version"),
    ] {
        let output = memonet(&["doctor"], "a,b", by);
        let shown = text(&output.stdout);
        assert!(!output.status.success(), "{shown}");
        let bad = shown.lines().find(|line| line.contains("BAD ") && line.contains("reach"));
        assert!(bad.is_some_and(|line| line.contains(why)), "{shown}");
        assert!(shown.contains(fix) && shown.contains("Jobs cannot run"), "{shown}");
    }
}
