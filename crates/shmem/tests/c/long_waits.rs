//! What the launcher says of C programs that wait for ever, and of calls that fail.

use std::path::Path;

use crate::common::{BUILT, command, complaint, folder, installed, job, printed, source};

/// Compiles the program, with these options.
fn compile(options: &[&str], program: &Path) {
    let mut compile = installed("oshcc");
    compile.args(["-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(program);
    printed(compile.arg(source("long_waits.c")));
}

/// The last line of the program that has this text, as a message names it.
fn line(text: &str) -> String {
    let lines: Vec<&str> = include_str!("long_waits.c").lines().collect();
    let line = lines.iter().rposition(|line| line.contains(text)).expect("it is there");
    format!("tests/c/long_waits.c:{}", line + 1)
}

/// Runs a job that ends with this status, and gives what it said.
fn said(options: &[&str], program: &Path, status: i32) -> String {
    said_of(options, program, &[], status)
}

/// The same with arguments for the program.
fn said_of(options: &[&str], program: &Path, arguments: &[&str], status: i32) -> String {
    let mut launcher = command(&BUILT.join("memonet"));
    launcher.args(["run", "-n", "3"]).args(options).arg(program).args(arguments);
    let ended = launcher.output();
    let ended = ended.expect("the launcher runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(status), "{options:?}: {said}");
    said
}

#[test]
fn reports_name_the_functions_of_c() {
    let folder = folder();
    let program = folder.path().join("program");
    compile(&["-g"], &program);
    let at = |text: &str| format!(" at {}", line(text));
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
        let said = said(options, &program, status);
        let always = [
            format!("in shmem_long_wait_until{} for the word at 0x", at("wait_until(&word[2]")),
            "to be > 5; it is 1".to_owned(),
            format!("in shmem_set_lock{} for a lock", at("set_lock")),
            format!(
                "in shmem_long_sum_reduce{} for the collective call of all PEs",
                at("sum_reduce")
            ),
        ];
        for part in always.iter().map(String::as_str).chain(parts.iter().copied()) {
            assert!(said.contains(part), "{options:?}: no {part:?} in:\n{said}");
        }
    }
}

/// Extensions, and calls that wait for nobody where PEs are near.
#[test]
fn reports_name_each_function_that_waits() {
    let folder = folder();
    let program = folder.path().join("program");
    compile(&["-g", "-O2"], &program);
    let far: &[&str] = &["--timeout", "3", "--fabric", "tcp"];
    let cases: [(&[&str], &str, &[&str]); 3] = [
        (&["--timeout", "3"], "supersteps", &["shmemx_supersteps_step"]),
        (far, "supersteps", &["shmemx_supersteps_step"]),
        (far, "stopped", &["shmem_long_get", "shmem_long_g"]),
    ];
    for (options, what, functions) in cases {
        let said = said_of(options, &program, &[what], 124);
        for function in functions {
            let named = format!("in {function} at {}", line(&format!("{function}(")));
            assert!(said.contains(&named), "{what}, {options:?}: no {named:?} in:\n{said}");
        }
    }
}

#[test]
fn a_program_without_lines_has_functions_or_addresses() {
    let folder = folder();
    let program = folder.path().join("program");
    for (options, place) in [
        (&["-no-pie"] as &[_], "in shmem_set_lock at main+0x"),
        (&["-static"], "in shmem_set_lock at main+0x"),
        (&["-s"], "in shmem_set_lock at program+0x"),
    ] {
        compile(options, &program);
        // Half a second is for the answers, and a busy machine may take more to walk the stack: a
        // static program's first walk sorts its table of frames.
        let mut last = String::new();
        for _ in 0..5 {
            last = said(&["--timeout", "2"], &program, 124);
            if last.contains(place) {
                break;
            }
        }
        assert!(last.contains(place), "{options:?}: no {place:?} in:\n{last}");
    }
}

#[test]
fn errors_name_the_line_of_c() {
    let folder = folder();
    let program = folder.path().join("program");
    for options in [&["-g"] as &[_], &["-g", "-static"], &["-g", "-O2", "-no-pie"]] {
        compile(options, &program);
        let said = complaint(&mut job(3, &[], &program, &["wrong"]));
        let place = format!("(at {})", line("long_p(&locked, 1, 99)"));
        assert!(said.contains("shmem_long_p: "), "{said}");
        assert!(said.contains(&place), "{options:?}: no {place:?} in:\n{said}");
    }
}
