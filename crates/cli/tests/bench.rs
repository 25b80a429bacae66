//! `memonet bench` as a user runs it: what it prints and writes, and that it leaves nothing behind.
//! How fast the rows are is not tested here: that is for a quiet machine and a reader.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memonet"));
    command.arg("bench").args(args).stdin(Stdio::null());
    command
}

fn succeeds(args: &[&str]) -> Output {
    let output = bench(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Runs rows and returns them as the JSON file has them, after looking at what is common to all.
fn rows(filters: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.json");
    let mut args = vec!["--quick", "--json", path.to_str().unwrap()];
    args.extend(filters);
    let output = succeeds(&args);
    let document = json(&path);
    assert!(document["machine"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{document}");
    let rows = document["rows"].as_array().unwrap().clone();
    for row in &rows {
        let number =
            |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
        assert!(
            number("min") <= number("median")
                && number("median") <= number("p99")
                && number("p99") <= number("max"),
            "{row}"
        );
        assert!(number("min") >= 0.0, "{row}");
        assert!((1.0..=10.0).contains(&number("rounds")), "{row}");
        assert!(
            row["unit"].is_string()
                && ["lower", "higher"].contains(&row["better"].as_str().unwrap()),
            "{row}"
        );
        assert_eq!(row["limit"].is_null(), row["ratio"].is_null(), "{row}");
        assert!(
            row["limit"].is_null() || (number("limit") > 0.0 && number("ratio") > 0.0),
            "{row}"
        );
        let id = row["id"].as_str().unwrap();
        assert!(
            stdout(&output).lines().any(|line| line.split_whitespace().next() == Some(id)),
            "{id} is not in the table"
        );
    }
    rows
}

fn row<'a>(rows: &'a [Value], id: &str) -> &'a Value {
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("no row {id}"))
}

#[test]
fn rows_of_words_have_limits_and_slowest_pes() {
    let rows = rows(&["pingpong", "rate", "fetch_add"]);
    for id in ["pingpong.8", "store_rate", "put_nbi_rate", "fetch_add"] {
        let row = row(&rows, id);
        assert!(row["limit"].is_number() && row["slowest_pe"].is_number(), "{row}");
    }
    assert_eq!(rows.len(), 4);
}

#[test]
fn rows_of_blocks_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("figures");
    let output = succeeds(&[
        "--quick",
        "--plot",
        folder.to_str().unwrap(),
        "put_bandwidth.1024",
        "get_bandwidth.1024",
        "put_signal.64",
    ]);
    for name in ["latency.svg", "latency.png", "bandwidth.svg", "bandwidth.png"] {
        assert!(folder.join(name).metadata().unwrap().len() > 1000, "{name}");
        assert!(stdout(&output).contains(name), "{name} is not told");
    }
}

#[test]
fn barriers_have_limits_with_more_pes_than_cores_and_beside_strangers() {
    let rows = rows(&["barrier.2", "barrier.8", "barrier_busy.4"]);
    assert!(row(&rows, "barrier.2")["limits"].as_object().unwrap().len() == 2);
    assert!(row(&rows, "barrier.8")["limits"].as_object().unwrap().len() >= 4);
    assert!(row(&rows, "barrier_busy.4")["limits"].as_object().unwrap().len() >= 2);
}

#[test]
fn channels_are_measured_beside_bare_memory_and_sockets() {
    let rows = rows(&[
        "multicast_latency",
        "multicast_messages.64",
        "multicast_bandwidth.4.65536",
        "multicast_in_place.4.65536",
        "multicast_udp",
    ]);
    assert_eq!(rows.len(), 5);
    assert_eq!(row(&rows, "multicast_udp.4.65536")["limit_is"], "bare sockets");
    assert!(rows.iter().all(|row| row["limit"].is_number()), "{rows:?}");
    // Large blocks, beside what one PE can copy and what as many can move.
    for id in ["multicast_bandwidth.4.65536", "multicast_in_place.4.65536"] {
        let row = row(&rows, id);
        for limit in ["memcpy by one PE", "a bare ring between as many"] {
            assert!(row["limits"][limit].is_number() && row["ratios"][limit].is_number(), "{row}");
        }
    }
}

#[test]
fn waits_startup_and_memory_are_measured() {
    let rows = rows(&["wait_", "startup.2", "memory"]);
    assert!(row(&rows, "wait_cpu.16")["limit"].is_null());
    assert!(row(&rows, "wait_store_latency.16")["limit"].is_null());
    assert!(row(&rows, "wait_signal_latency.16")["limit"].is_number());
    assert!(row(&rows, "startup.2")["slowest_pe"].is_null());
    assert_eq!(row(&rows, "memory.16")["unit"], "KiB");
}

#[test]
fn the_simulated_machine_is_measured_beside_a_bare_heap() {
    let rows = rows(&["sim_events", "sim_barrier.4096", "sim_barrier_memory.4096", "sim_call"]);
    assert_eq!(row(&rows, "sim_events")["limit_is"], "binary heap");
    assert_eq!(row(&rows, "sim_call")["limit_is"], "two futex hand-overs, one CPU");
    assert!(row(&rows, "sim_barrier.4096")["limit"].is_null());
    let memory = row(&rows, "sim_barrier_memory.4096")["median"].as_f64().unwrap();
    assert!(memory > 1.0, "{memory} MiB");
}

#[test]
fn what_cannot_be_quick_is_left_out_and_told() {
    let output = succeeds(&["--quick", "sim_barrier_memory"]);
    let text = stdout(&output);
    assert!(text.contains("\nsim_barrier_memory.4096 "), "{text}");
    assert!(text.contains("too long for --quick: sim_barrier_memory.65536\n"), "{text}");
}

#[test]
fn without_near_peers_there_is_no_limit_but_there_are_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.json");
    let far = bench(&["--quick", "--json", path.to_str().unwrap(), "pingpong", "barrier.4"])
        .env("MEMONET_FABRIC", "far")
        .output()
        .unwrap();
    assert!(far.status.success(), "{}", String::from_utf8_lossy(&far.stderr));
    for row in json(&path)["rows"].as_array().unwrap() {
        assert!(row["limit"].is_null() && row["median"].is_number(), "{row}");
    }
}

#[test]
fn the_list_measures_nothing() {
    let output = succeeds(&["--list"]);
    for text in
        ["pingpong.8", "put_bandwidth.67108864", "barrier_busy.16", "osu_oshm_barrier", "limit:"]
    {
        assert!(stdout(&output).contains(text), "{text} is not listed");
    }
    assert!(!stdout(&output).contains("median"), "{}", stdout(&output));
    assert!(!stdout(&succeeds(&["--list", "startup"])).contains("barrier"));
}

#[test]
fn mistakes_are_told_before_anything_is_measured() {
    let told = |args: &[&str], text: &str| {
        let output = bench(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(text), "{args:?}: {stderr}");
        assert_eq!(stdout(&output), "", "{args:?}");
    };
    told(&["no_such_row"], "--list");
    told(&["--quick", "pingpong", "no_such_row"], "contains `no_such_row`");
    told(&["--json", "/nonexistent/folder/file", "pingpong"], "/nonexistent/folder/file");
    told(&["--plot", "/proc/figures", "put_signal.8"], "/proc/figures");
    told(&["--plot", "/tmp", "pingpong"], "none of them is to be measured");
    told(&["--quick", "barrier.65536"], "takes too long for --quick");
}

/// Processes of a bench that run on behalf of it.
fn children(of: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| parent(pid) == Some(of))
        .collect()
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_bench_leaves_no_busy_process_behind() {
    let mut bench =
        bench(&["barrier_busy.16"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let mut processes = Vec::new();
    // The strangers, one per CPU, the guard of the launcher, and at least one PE.
    eventually("strangers and PEs are running", || {
        processes = children(bench.id());
        processes.len() > cpus + 1
    });
    bench.kill().unwrap();
    bench.wait().unwrap();
    eventually("they are gone", || !processes.iter().any(|&pid| is_alive(pid)));
}
