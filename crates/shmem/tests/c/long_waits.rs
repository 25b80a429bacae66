//! What the launcher says of C programs that wait for ever.

use crate::common::{BUILT, command, folder, installed, printed, source};

#[test]
fn reports_name_the_functions_of_c() {
    let folder = folder();
    let program = folder.path().join("program");
    let mut compile = installed("oshcc");
    compile.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    printed(compile.arg(source("long_waits.c")));
    let cases: [(&[&str], i32, &[&str]); 3] = [
        (
            &["--timeout", "3"],
            124,
            &["; held by: PE 0", "; missing: PE 0-1", "deadlock: PE 0-2 all wait"],
        ),
        (&["--timeout", "3", "--fabric", "tcp"], 124, &["; elsewhere: PE 0-1"]),
        (&["--machine", "scc"], 1, &["deadlock at ", "; elsewhere: PE 0-1"]),
    ];
    for (options, status, parts) in cases {
        let mut launcher = command(&BUILT.join("memonet"));
        let ended = launcher.args(["run", "-n", "3"]).args(options).arg(&program).output();
        let ended = ended.expect("the launcher runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{options:?}: {said}");
        let always = [
            "in shmem_long_wait_until for the word at 0x",
            "to be > 5; it is 1",
            "in shmem_set_lock for a lock",
            "in shmem_long_sum_reduce for the collective call of all PEs",
        ];
        for part in always.iter().chain(parts) {
            assert!(said.contains(part), "{options:?}: no {part:?} in:\n{said}");
        }
    }
}
