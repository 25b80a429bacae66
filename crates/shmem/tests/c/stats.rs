//! `memonet run --stats` of C programs: exact counts, under the functions' C names.

use crate::common::{assert_success, complaint, folder, installed, job, source};
use std::path::Path;

const NPES: u64 = 3;

/// Kind, operations and bytes for each pair of PEs.
const KINDS: [(&str, u64, u64); 8] = [
    // Three of 128 bytes, one of 4 words, four of one.
    ("put", 3 + 1 + 4, 3 * 128 + 4 * 8 + 4 * 8),
    ("get", 1, 128),
    ("put_signal", 1, 64),
    ("store", 7, 7 * 8),
    ("load", 4, 4 * 8),
    ("signal", 1, 8),
    ("fetch_atomic", 4, 4 * 8),
    ("atomic", 1, 8),
];

/// Names and calls of each PE.
const CALLS: [(&str, u64); 14] = [
    ("shmem_init", 1),
    ("shmem_malloc", 1),
    ("shmem_long_p", 7 * NPES),
    ("shmem_long_g", 4 * NPES),
    ("shmem_putmem", 3 * NPES),
    ("shmem_long_put_nbi", NPES),
    ("shmem_long_iput", NPES),
    ("shmem_long_atomic_add", NPES),
    ("shmem_long_atomic_fetch_add", 3 * NPES),
    ("shmem_quiet", NPES),
    ("shmem_long_put_signal", NPES),
    ("shmem_barrier_all", 2),
    ("shmem_signal_wait_until", 1),
    ("shmem_finalize", 1),
];

#[track_caller]
fn check(program: &Path, options: &[&str], arguments: &[&str]) {
    let options = [options, &["--stats"]].concat();
    let output = assert_success(&mut job(NPES as usize, &options, program, arguments));
    let told = String::from_utf8(output.stderr).expect("text");
    let row = |name: &str| {
        let row = told.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        let row = row.unwrap_or_else(|| panic!("{options:?}: no {name} in\n{told}"));
        let number = |column| row.split_whitespace().nth(column)?.parse::<u64>().ok();
        [number(2), number(3)]
    };
    for (kind, operations, bytes) in KINDS {
        let expected = [operations, bytes].map(|count| Some(count * NPES * NPES));
        assert_eq!(row(kind), expected, "{options:?}: {kind} in\n{told}");
    }
    for (name, calls) in CALLS {
        assert_eq!(row(name)[0], Some(calls * NPES), "{options:?}: {name} in\n{told}");
    }
}

#[test]
fn counts_are_exact_and_have_c_names() {
    let folder = folder();
    // At -O2 the header's own code makes some of the calls.
    let ways: [&[&str]; 3] = [&["-O2"], &["-O0"], &["-O2", "-static"]];
    for options in ways {
        // A child makes a call, too; not where the fabric has a thread, which a statically linked
        // program may not have when it forks.
        let (near, far): (&[&str], &[&str]) = match options.contains(&"-static") {
            true => (&["fork"], &[]),
            false => (&["fork"], &["fork"]),
        };
        let program = folder.path().join(options.concat());
        assert_success(
            installed("oshcc").args(options).arg("-o").arg(&program).arg(source("stats.c")),
        );
        check(&program, &[], near);
        check(&program, &["--fabric", "far:delay_us=50,reorder=1,nodes=2"], far);
        check(&program, &["--machine", "rdma-100g"], &[]);
    }
}

/// A call that fails ends the process, and is counted as its wait is.
#[test]
fn no_call_waits_for_longer_than_it_lasts() {
    let folder = folder();
    let program = folder.path().join("program");
    assert_success(installed("oshcc").args(["-O2", "-o"]).arg(&program).arg(source("stats.c")));
    let told = complaint(&mut job(NPES as usize, &["--stats"], &program, &["fail"]));
    let row = told.lines().find(|line| line.starts_with("memonet: shmem_barrier_all "));
    let row: Vec<_> = row.unwrap_or_else(|| panic!("{told}")).split_whitespace().collect();
    let seconds = |column: usize| row[column].parse::<f64>().unwrap();
    assert_eq!(row[2], "2", "{told}");
    assert!(seconds(3) >= seconds(5) && seconds(5) > 0.02, "{told}");
}
