//! `memonet run --stats`: what is told of a run is what its PEs have done.

mod common;

use std::collections::BTreeMap;

use common::{Ended, command, pe, run, wait};
use serde_json::Value;

/// Operations and bytes that the program `count` of `pe` makes on each PE.
const COUNTED: [(&str, u64, u64); 7] = [
    // Three of 8 words, four of one, one of 16, two of 2.
    ("put", 3 + 4 + 1 + 2, 8 * (3 * 8 + 4 + 16 + 2 * 2)),
    ("get", 2, 8 * (32 + 1)),
    ("put_signal", 1 + 1, 8 * (4 + 2)),
    ("store", 5, 8 * 5),
    ("load", 4, 8 * 4),
    ("signal", 2, 8 * 2),
    ("fetch_atomic", 3 + 1, 8 * (3 + 1)),
];

/// A job whose PEs run the program, and its statistics as JSON.
fn counted(options: &[&str], npes: &str, how: &str) -> (Ended, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stats.json");
    let form = format!("json:{}", file.display());
    let program = pe();
    let ended = run(&[options, &["-n", npes, "--stats", &form, &program, "count", how]].concat());
    let stats = serde_json::from_str(&std::fs::read_to_string(&file).unwrap());
    (ended, stats.expect("JSON"))
}

/// Operations and bytes of a PE, by target and kind.
fn operations(stats: &Value, pe: usize) -> BTreeMap<(u64, String), (u64, u64)> {
    let told = stats["pes"].as_array().unwrap().iter().find(|told| told["pe"] == pe);
    let number = |one: &Value, field: &str| one[field].as_u64().unwrap();
    let row = |one: &Value| {
        let kind = one["kind"].as_str().unwrap().to_owned();
        ((number(one, "target"), kind), (number(one, "operations"), number(one, "bytes")))
    };
    told.unwrap()["operations"].as_array().unwrap().iter().map(row).collect()
}

/// Calls of a name that a PE has made, and its waits in them.
fn calls(stats: &Value, pe: usize, name: &str) -> [u64; 2] {
    let told = stats["pes"].as_array().unwrap().iter().find(|told| told["pe"] == pe).unwrap();
    let call = told["calls"].as_array().unwrap().iter().find(|call| call["name"] == name);
    call.map_or([0; 2], |call| ["calls", "waits"].map(|field| call[field].as_u64().unwrap()))
}

/// What each PE makes on each.
fn expected(npes: u64) -> BTreeMap<(u64, String), (u64, u64)> {
    let to = |target| COUNTED.map(|(kind, count, bytes)| ((target, kind.into()), (count, bytes)));
    (0..npes).flat_map(to).collect()
}

#[test]
fn counts_are_exact_however_pes_reach_each_other() {
    let ways: [&[&str]; 6] = [
        &[],
        &["--fabric", "far:delay_us=50,reorder=1"],
        &["--fabric", "far:delay_us=50,reorder=1,nodes=2"],
        &["--fabric", "tcp"],
        &["--env", "MEMONET_CHECK=1"],
        &["--machine", "rdma-100g"],
    ];
    for way in ways {
        let (ended, stats) = counted(way, "3", "");
        assert_eq!(ended.status, 0, "{way:?}: {ended:?}");
        assert_eq!(
            (&stats["npes"], &stats["simulated"]),
            (&3.into(), &way.contains(&"--machine").into())
        );
        for pe in 0..3 {
            assert_eq!(operations(&stats, pe), expected(3), "{way:?}, PE {pe}");
            let made = [
                ("Window::put", 9),
                ("Window::put_strided", 3),
                ("Window::get", 6),
                ("Window::put_signal", 3),
                ("Remote::store", 15),
                ("Remote::load", 12),
                ("Remote::fetch_add", 9),
                ("Remote::compare_swap", 3),
                ("Transfer::start", 9),
                ("Job::barrier", 3),
                ("Window::wait_until", 1),
                ("Job::window", 3),
            ];
            for (name, number) in made {
                assert_eq!(calls(&stats, pe, name)[0], number, "{way:?}, PE {pe}: {name}");
            }
        }
    }
}

#[test]
fn the_counts_of_a_killed_pe_are_told() {
    let (ended, stats) = counted(&["--keep-going"], "3", "die");
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    for pe in 0..3 {
        assert_eq!(operations(&stats, pe), expected(3), "PE {pe}");
        assert_eq!(calls(&stats, pe, "Remote::store"), [15, 0], "PE {pe}");
    }
}

#[test]
fn threads_count_at_once_and_children_do_not() {
    for way in [&[][..], &["--fabric", "far"]] {
        let (ended, stats) = counted(way, "2", "threads");
        assert_eq!(ended.status, 0, "{ended:?}");
        for pe in 0..2 {
            let mut all = expected(2);
            let next = all.get_mut(&(1 - pe as u64, "fetch_atomic".into())).unwrap();
            *next = (next.0 + 4000, next.1 + 32_000);
            assert_eq!(operations(&stats, pe), all, "{way:?}, PE {pe}");
            assert_eq!(calls(&stats, pe, "Remote::fetch_add")[0], 4000 + 6, "{way:?}, PE {pe}");
        }
    }
}

#[test]
fn forms_can_be_mixed_and_files_are_made_before_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let html = format!("html:{}", page.display());
    let ended = run(&["-n", "2", "--stats", "--stats", &html, &pe(), "use"]);
    assert!(ended.stderr.contains("mutex 0") && ended.stderr.contains("Mutex::lock"), "{ended:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\"Mutex::lock\"") && page.ends_with("</html>\n"), "{page}");

    let nowhere = run(&["-n", "1", "--stats", "json:/nowhere/file", "echo", "never"]);
    assert_eq!((nowhere.status, &*nowhere.stdout), (1, ""), "{nowhere:?}");
    assert!(nowhere.stderr.contains("cannot write the statistics to /nowhere/file"), "{nowhere:?}");
    let twice = ["-n", "1", &format!("--stats={html}"), "--trace", &html[5..], "echo", "never"];
    let twice = run(&twice);
    assert_eq!((twice.status, &*twice.stdout), (1, ""), "{twice:?}");
    assert!(twice.stderr.contains("page.html is given for two reports"), "{twice:?}");
    let none = run(&["-n", "1", "--stats=csv:a", "true"]);
    assert!(none.status == 2 && none.stderr.contains("`html:FILE`"), "{none:?}");
}

/// PEs that find something else behind the variable say so.
#[test]
fn only_a_file_of_records_is_taken() {
    for value in ["x", "1", "999", "$MEMONET_JOB_FD"] {
        let script = format!("MEMONET_RECORD_FD={value} exec {} init", pe());
        let ended = run(&["-n", "1", "sh", "-c", &script]);
        assert_eq!(ended.status, 42, "{value}: {ended:?}");
        assert!(ended.stderr.contains("MEMONET_RECORD_FD"), "{value}: {ended:?}");
    }
}

/// A report that cannot be written is told, and takes nothing else with it: neither other reports
/// nor the job's exit status.
#[test]
fn a_report_that_cannot_be_written_is_told_beside_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let ended = run(&[
        "-n",
        "1",
        "--stats",
        "json:/dev/full",
        "--trace",
        trace.to_str().unwrap(),
        &pe(),
        "die",
        "exit",
    ]);
    assert_eq!(ended.status, 3, "{ended:?}");
    assert!(ended.stderr.contains("cannot write the statistics to /dev/full"), "{ended:?}");
    let timeline = std::fs::read_to_string(&trace).unwrap();
    serde_json::from_str::<Value>(&timeline).expect("a timeline");
}

/// Nobody reads standard error.
#[test]
fn a_table_that_nobody_reads_keeps_no_file_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stats.json");
    let form = format!("json:{}", file.display());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (mut command, _, _folder) =
        command(&["-n", "1", "--stats", "--stats", &form, &pe(), "twice"]);
    let mut launcher = command.stderr(writer).spawn().unwrap();
    drop(command);
    assert_eq!(wait(&mut launcher).code(), Some(1), "the table is lost");
    let stats = std::fs::read_to_string(&file).unwrap();
    serde_json::from_str::<Value>(&stats).expect("JSON");
}

/// A job that does not start leaves what an earlier one has left.
#[test]
fn old_reports_stay_until_there_are_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stats.json");
    std::fs::write(&file, "of another job").unwrap();
    let form = format!("json:{}", file.display());
    assert_eq!(run(&["-n", "1", "--stats", &form, "no-such-program"]).status, 127);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of another job");
}
