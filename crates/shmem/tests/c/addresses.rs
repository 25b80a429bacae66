//! The symmetric heap is at one address on all PEs, and a pointer into it may be sent to another
//! one.

use crate::common::{
    BUILT, assert_success, command, folder, has, installed, job, lines, printed, source,
};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn compiled(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let program = folder.join(name);
    let mut compile = installed("oshcc");
    compile.args(options).arg("-o").args([program.as_os_str(), source("addresses.c").as_ref()]);
    printed(&mut compile);
    program
}

/// What each PE prints where all is as it should be.
fn right(npes: usize) -> Vec<String> {
    (0..npes).map(|pe| format!("PE {pe}: blocks 1 list 1 shmem_ptr 1")).collect()
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn they_are_the_same_on_all_pes() {
    let folder = folder();
    for (name, options) in [
        ("shared", &[][..]),
        ("fixed", &["-no-pie"]),
        ("alone", &["-static"]),
        ("alone_pie", &["-static-pie"]),
    ] {
        let program = compiled(folder.path(), name, options);
        for npes in [1, 2, 5] {
            assert_eq!(lines(npes, &program), right(npes), "{name}");
        }
        for options in [&["--fabric", "far:delay_us=5,reorder=1"][..], &["--machine", "rdma-100g"]]
        {
            assert_eq!(
                sorted(&printed(&mut job(3, options, &program, &[]))),
                right(3),
                "{name} {options:?}"
            );
        }
        for argument in ["fork", "exec"] {
            assert_eq!(
                sorted(&printed(&mut job(3, &[], &program, &[argument]))),
                right(3),
                "{name} {argument}"
            );
        }
    }
}

/// The kernel lays out addresses in other ways without a limit on the stack, without randomisation,
/// and as it did long ago.
#[test]
fn however_the_kernel_lays_out_addresses() {
    let folder = folder();
    let program = compiled(folder.path(), "program", &[]);
    for before in [
        "ulimit -s unlimited; exec",
        "exec setarch -R",
        "exec setarch -L",
        "ulimit -s unlimited; exec setarch -RL",
        "ulimit -v 50000000; exec",
    ] {
        let mut shell = command("sh".as_ref());
        shell
            .args(["-c", &format!("{before} \"$0\" run --timeout 30 -n 3 \"$1\"")])
            .arg(BUILT.join("memonet"))
            .arg(&program);
        // The message names the limit.
        let output = assert_success(&mut shell);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("address on") && !said.contains("same address"), "{before}: {said}");
        assert_eq!(sorted(&String::from_utf8(output.stdout).unwrap()), right(3), "{before}");
    }
}

#[test]
fn under_tools_too() {
    let folder = folder();
    let sanitized = compiled(folder.path(), "sanitized", &["-fsanitize=address"]);
    let mut run = job(2, &[], &sanitized, &[]);
    assert_eq!(sorted(&printed(run.env("ASAN_OPTIONS", "detect_leaks=0"))), right(2));
    // Without randomisation, which it does not always stand.
    let sanitized = compiled(folder.path(), "sanitized", &["-fsanitize=thread"]);
    let program = ["-R", sanitized.to_str().unwrap()];
    let mut run = job(2, &[], "setarch".as_ref(), &program);
    assert_eq!(sorted(&printed(run.env("MEMONET_SEGMENT_SIZE", "4G"))), right(2));
    if has("valgrind") {
        let program = compiled(folder.path(), "program", &[]);
        let output = assert_success(&mut job(
            2,
            &[],
            "valgrind".as_ref(),
            &["--quiet", program.to_str().unwrap()],
        ));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("same address"), "{said}");
        assert_eq!(sorted(&String::from_utf8(output.stdout).unwrap()), right(2));
    }
}

#[test]
fn of_pes_of_another_launcher_too() {
    let folder = folder();
    let program = compiled(folder.path(), "program", &[]);
    let start = |rank: usize| {
        let mut pe = command(&program);
        pe.env("PMIX_NAMESPACE", folder.path());
        for (name, value) in [("PMI_SIZE", 3), ("MPI_LOCALNRANKS", 3), ("PMI_RANK", rank)] {
            pe.env(name, value.to_string());
        }
        pe.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let pes: Vec<_> = (0..3).map(start).collect();
    for (pe, expected) in pes.into_iter().zip(right(3)) {
        let output = pe.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            expected,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// One PE says so, once, and by what; all but pointers that are sent works.
#[test]
fn where_one_cannot_have_it_that_is_told() {
    let folder = folder();
    let program = compiled(folder.path(), "taken", &["-DTAKE=1"]);
    let output = assert_success(&mut job(3, &[], &program, &[]));
    let expected: Vec<_> =
        (0..3).map(|pe| format!("PE {pe}: blocks 0 list 0 shmem_ptr 1")).collect();
    assert_eq!(sorted(&String::from_utf8(output.stdout).unwrap()), expected);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("PE 1: the symmetric heap of this PE is not at the same address"),
        "{said}"
    );
    assert!(said.contains("is taken by memory without a name at 0x1000000000"), "{said}");
}

/// So large that there is no such address.
#[test]
fn segments_that_are_too_large_are_told_of() {
    let folder = folder();
    let program = compiled(folder.path(), "program", &[]);
    let output = assert_success(job(3, &[], &program, &[]).env("MEMONET_SEGMENT_SIZE", "10T"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("PE 0: the symmetric heap is at another address on each PE")
            && said.contains("MEMONET_SEGMENT_SIZE"),
        "{said}"
    );
    // The wish is for more than the usual room, and fits nonetheless.
    assert_eq!(
        sorted(&printed(job(3, &[], &program, &[]).env("MEMONET_SEGMENT_SIZE", "6T"))),
        right(3)
    );
}
