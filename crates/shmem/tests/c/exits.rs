//! Ends of jobs and of libraries.

use crate::common::{PREFIX, assert_success, folder, installed, job, printed};

/// Compiles a program.
fn compiled(folder: &std::path::Path, text: &str) -> std::path::PathBuf {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, text).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &source]).arg("-pthread"));
    program
}

/// PE 0 ends the job while the other PEs wait.
const EXIT: &str = r#"
#include <shmem.h>
#include <stdlib.h>
#include <unistd.h>
static long never;
static void leave(void) {
    int initialized;
    shmem_query_initialized(&initialized);
    if (initialized) shmem_finalize();
}
int main(int argc, char **argv) {
    shmem_init();
    atexit(leave);
    shmem_barrier_all();
    usleep(100000);
    if (shmem_my_pe() == 0) shmem_global_exit(atoi(argv[1]));
    shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
    return 1;
}
"#;

#[test]
fn a_program_that_ends_the_job_may_finalise_in_a_handler() {
    let folder = folder();
    let program = compiled(folder.path(), EXIT);
    for status in [0, 3] {
        let output = job(3, &[], &program, &[&status.to_string()]).output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(status), &[][..]),
            "{output:?}"
        );
    }
}

/// A thread of PE 0 waits for input, with the lock of its stream, while another ends the job, or
/// makes a mistake whose end runs a handler with another one.
const READER: &str = r#"
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int ends[2];
static long never;
static void *reader(void *unused) {
    char line[8];
    FILE *input = fdopen(ends[0], "r");
    if (write(ends[1], "a\n", 2) == 2) fgets(line, sizeof line, input);
    shmem_long_atomic_set(&never, 1, 0);
    fgets(line, sizeof line, input);
    return unused;
}
static void mistake(void) { shmem_long_p(NULL, 1, 0); }
int main(int argc, char **argv) {
    pthread_t thread;
    (void)argc;
    shmem_init();
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        if (pipe(ends) || pthread_create(&thread, NULL, reader, NULL)) return 1;
        shmem_long_wait_until(&never, SHMEM_CMP_EQ, 1);
        usleep(200000);
        printf("printed");
        if (!strcmp(argv[1], "exit")) shmem_global_exit(3);
        atexit(mistake);
        if (!strcmp(argv[1], "handler")) shmem_global_exit(3);
        mistake();
    }
    shmem_long_wait_until(&never, SHMEM_CMP_EQ, 2);
    return 1;
}
"#;

#[test]
fn a_thread_that_waits_for_input_keeps_no_job_from_its_end() {
    let folder = folder();
    let program = compiled(folder.path(), READER);
    for (how, status) in [("exit", 3), ("handler", 3), ("mistake", 1)] {
        let output = job(2, &[], &program, &[how]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{how}: {said}");
        assert_eq!(output.stdout, b"printed", "{how}: {said}");
        assert!(!said.contains("seconds"), "{how}: {said}");
    }
}

#[test]
fn a_job_is_ended_on_purpose_under_wrappers_too() {
    let folder = folder();
    let program = compiled(folder.path(), EXIT);
    for status in [0, 3] {
        let script = format!("{} {status}; sleep 20", program.display());
        let output = job(2, &[], "sh".as_ref(), &["-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("ended with") && !said.contains("killed by"), "{said}");
    }
}

/// What PE 0 forks off ends the job with status 7, or calls what is the PE's alone, which the PE
/// outlives.
const CHILD: &str = r#"
#include <shmem.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static long lock, word;
int main(int argc, char **argv) {
    int status = 0;
    (void)argc;
    shmem_init();
    pid_t child = shmem_my_pe() == 0 ? fork() : 1;
    if (child == 0) {
        if (!strcmp(argv[1], "exit")) shmem_global_exit(7);
        if (!strcmp(argv[1], "barrier")) shmem_barrier_all();
        if (!strcmp(argv[1], "lock")) shmem_set_lock(&lock);
        if (!strcmp(argv[1], "finalize")) shmem_finalize();
        shmem_long_p(shmem_malloc(8), 1, 0);
    }
    if (shmem_my_pe() == 0) waitpid(child, &status, 0);
    shmem_barrier_all();
    shmem_set_lock(&lock);
    word++;
    shmem_clear_lock(&lock);
    shmem_finalize();
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
"#;

#[test]
fn a_forked_child_may_end_the_job_and_meets_nobody() {
    let folder = folder();
    let program = compiled(folder.path(), CHILD);
    for npes in [1, 2, 2, 2] {
        let output = job(npes, &[], &program, &["exit"]).output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(7), &[][..]),
            "{output:?}"
        );
    }
    for call in ["barrier", "lock", "finalize", "malloc"] {
        let output = job(1, &[], &program, &[call]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{call}: {said}");
        assert!(
            said.lines().count() == 1 && said.contains("forked off by the PE"),
            "{call}: {said}"
        );
    }
}

#[test]
fn the_library_may_be_closed() {
    let folder = folder();
    let (source, program) = (folder.path().join("close.c"), folder.path().join("close"));
    let text = r#"
#include <dlfcn.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    ((void (*)(void))dlsym(library, "shmem_init"))();
    ((void (*)(void))dlsym(library, "shmem_finalize"))();
    return dlclose(library);
}
"#;
    std::fs::write(&source, text).unwrap();
    printed(std::process::Command::new("cc").arg("-o").args([&program, &source]).arg("-ldl"));
    let library = PREFIX.join("lib/libmemonet.so");
    assert_success(&mut job(2, &[], &program, &[&library.display().to_string()]));
}
