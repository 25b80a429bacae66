//! Programs that become other programs before they initialise the library, as those do that set
//! their own environment.

use crate::common::{command, folder, installed, job, printed, source};
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn compiled(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let program = folder.join(name);
    printed(
        installed("oshcc")
            .args(options)
            .arg("-o")
            .args([program.as_os_str(), source("exec.c").as_ref()]),
    );
    program
}

#[track_caller]
fn expect(mut lines: Vec<String>, npes: usize) {
    lines.sort();
    let of = |me: usize| {
        let before = (me + npes - 1) % npes;
        format!("{me} of {npes}: {} {} yes", 100 + before, char::from(b'a' + before as u8))
    };
    assert_eq!(lines, (0..npes).map(of).collect::<Vec<_>>());
}

/// Itself, one whose static data lie elsewhere, and one that has its own library; twice in a row,
/// and through what knows nothing of the library.
#[test]
fn the_next_program_is_the_pe() {
    let folder = folder();
    let [shared, fixed, alone] =
        [("shared", &[][..]), ("fixed", &["-no-pie"]), ("alone", &["-static"])]
            .map(|(name, options)| compiled(folder.path(), name, options).display().to_string());
    for npes in [1, 3] {
        for options in [&[][..], &["--fabric", "far:delay_us=20,reorder=1"]] {
            for (first, next) in [
                (&shared, vec![shared.as_str()]),
                (&shared, vec![&alone]),
                (&fixed, vec![&shared]),
                (&alone, vec![&fixed]),
                (&alone, vec![&alone, &shared]),
                (&shared, vec!["/usr/bin/env", "OTHER=1", &fixed]),
            ] {
                let text = printed(&mut job(npes, options, first.as_ref(), &next));
                expect(text.lines().map(str::to_owned).collect(), npes);
            }
        }
    }
}

/// Another launcher's processes have met before; they do not meet again.
#[test]
fn of_another_launcher_too() {
    let folder = folder();
    let program = compiled(folder.path(), "program", &[]);
    let start = |rank: usize| {
        let mut pe = command(&program);
        pe.arg(&program).env("PMIX_NAMESPACE", folder.path());
        for (name, value) in [("PMI_SIZE", 3), ("MPI_LOCALNRANKS", 3), ("PMI_RANK", rank)] {
            pe.env(name, value.to_string());
        }
        pe.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let ended =
        (0..3).map(start).collect::<Vec<_>>().into_iter().map(|pe| pe.wait_with_output().unwrap());
    let text = |output: std::process::Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    expect(ended.map(text).collect(), 3);
}

/// A program that a PE starts, or that follows a PE in its process, is not the PE; a message says
/// so.
#[test]
fn others_are_not() {
    let folder = folder();
    let program = compiled(folder.path(), "program", &[]);
    let starter = folder.path().join("starter");
    let text = r#"
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    (void)argc;
    if (argv[1][0] == 's') {
        int status = system(argv[2]);
        shmem_init();
        shmem_barrier_all();
        shmem_finalize();
        return WEXITSTATUS(status);
    }
    shmem_init();
    shmem_barrier_all();
    shmem_finalize();
    execv(argv[2], argv + 2);
    return 3;
}
"#;
    let file = folder.path().join("starter.c");
    std::fs::write(&file, text).unwrap();
    printed(installed("oshcc").arg("-o").args([&starter, &file]));
    for (how, why) in [
        ("system", "a program that a PE starts cannot be that PE too"),
        ("exec", "has taken part in the job before it became this one"),
    ] {
        let output =
            job(2, &[], &starter, &[how, &program.display().to_string()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("shmem_init") && said.contains(why), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
}

/// The machine has begun with the first program.
#[test]
fn on_a_simulated_machine_it_says_why_not() {
    let folder = folder();
    let program = compiled(folder.path(), "program", &[]);
    let output = job(2, &["--machine", "rdma-100g"], &program, &[&program.display().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(
            "a program that becomes another one with `execve` cannot have the library too"
        ),
        "{said}"
    );
}
