//! PEs that run under something else: a script, a tool, a namespace of their own.

mod common;

use std::process::{Command, Stdio};

use common::{Ended, example, has, pe, run, send, skip, start, until};

/// The last of three PEs died, each of which had a wrapper.
#[track_caller]
fn assert_missed(ended: &Ended, cause: &str) {
    for pe in 0..2 {
        assert!(ended.stdout.contains(&format!("PE {pe} saw: PE 2 failed")), "{ended:?}");
    }
    // Before Linux 6.15 nobody can tell how another's child ended when its parent was faster.
    for (text, unknown) in [
        (&ended.stdout, "PE 2 failed: ended without finalising"),
        (&ended.stderr, "does not report how"),
    ] {
        assert!(text.contains(cause) || text.contains(unknown), "{ended:?}");
    }
    let reports = ended.stderr.lines().filter(|line| line.starts_with("memonet: PE "));
    let reports: Vec<&str> = reports.collect();
    assert!(matches!(reports[..], [one] if one.contains("PE 2 (process ")), "{ended:?}");
}

fn die_under_sh(options: &[&str], how: &str, then: &str) -> Ended {
    let script = format!("{} die {how}; {then}", pe());
    run(&[&["-n", "3"], options, &["sh", "-c", &script]].concat())
}

const LATER: [&str; 2] = ["--env", "LATER=1"];

#[test]
fn a_death_under_a_wrapper_that_goes_on_is_missed_at_once() {
    for (how, status, cause) in [
        ("segv", 128 + 11, "killed by signal 11 (SIGSEGV"),
        ("kill", 128 + 9, "killed by signal 9 (SIGKILL)"),
        ("exit", 3, "ended with exit status 3"),
        ("_exit", 1, "left with _exit(0), without finalising"),
    ] {
        let ended = die_under_sh(&LATER, how, "sleep 1000");
        assert_missed(&ended, cause);
        assert!([status, 255].contains(&ended.status), "{ended:?}");
        // At once, it may be gone before the launcher has looked.
        let ended = die_under_sh(&[], how, "sleep 1000");
        assert_missed(&ended, cause);
        assert!([status, 255].contains(&ended.status), "{ended:?}");
    }
}

/// The kernel cuts names to 15 bytes, perhaps within a letter.
#[test]
fn a_death_under_a_wrapper_is_missed_though_the_name_is_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("fourteen-bytesä");
    std::os::unix::fs::symlink(pe(), &program).unwrap();
    let script = format!("{} die kill; sleep 1000", program.display());
    let ended = run(&["-n", "3", "--env", "LATER=1", "sh", "-c", &script]);
    assert_missed(&ended, "killed by signal 9 (SIGKILL)");
}

/// A shell passes on no signal, and waits for its program before it heeds SIGINT. By SIGTERM it
/// ends at once, and its program has time to end, too.
#[test]
fn a_signal_reaches_the_program_under_a_script() {
    use rustix::process::Signal;
    for signal in [Signal::INT, Signal::TERM] {
        let script = format!("{} interrupts; exit 0", pe());
        let job = start(&["-n", "2", "sh", "-c", &script]);
        for pe in 0..2 {
            let file = job.folder().join(format!("ready{pe}"));
            until("PEs are ready", || file.exists());
            std::fs::remove_file(file).unwrap();
        }
        // For longer than the launcher takes to see that they have joined.
        std::thread::sleep(std::time::Duration::from_secs(1));
        send(job.pid(), signal);
        let ended = job.end();
        for pe in 0..2 {
            assert!(ended.stdout.contains(&format!("PE {pe}: 1 interrupt")), "{ended:?}");
        }
    }
}

#[test]
fn the_exit_status_is_what_the_wrapper_makes_of_it() {
    for options in [&[][..], &LATER] {
        assert_eq!(die_under_sh(options, "segv", "exit $?").status, 128 + 11);
        assert_eq!(die_under_sh(options, "segv", "exit 7").status, 7);
        assert_ne!(die_under_sh(options, "segv", "exit 0").status, 0);
    }
    let late = [&LATER[..], &["--keep-going"]].concat();
    assert_eq!(die_under_sh(&late, "kill", "sleep 0.5; exit 7").status, 7);
}

#[test]
fn who_leaves_in_order_under_a_wrapper_that_goes_on_is_not_missed() {
    let script = format!("{} twice; sleep 0.5; echo end", pe());
    let ended = run(&["-n", "3", "sh", "-c", &script]);
    assert_eq!(
        (ended.status, ended.stdout.as_str(), ended.stderr.as_str()),
        (0, "end\nend\nend\n", "")
    );
}

#[test]
fn a_pid_namespace_hides_nobody() {
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let mut probe = Command::new(unshare[0]);
    if !probe
        .args(&unshare[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("there are no pid namespaces here");
    }
    let under = |program: &str, then: &str| {
        let script = format!("{} sh -c '{} {program}; exit $?'; {then}", unshare.join(" "), pe());
        run(&[&["-n", "3"], &LATER[..], &["sh", "-c", &script]].concat())
    };
    assert_missed(&under("die segv", "sleep 1000"), "killed by signal 11 (SIGSEGV");
    let ended = under("leave 0", "sleep 0.5");
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
}

#[test]
fn gdb_works() {
    if !has("gdb") {
        return;
    }
    let gdb = ["gdb", "-batch", "-ex", "run", "-ex", "info inferiors", "--args"];
    let ended = run(&[&["-n", "2"], &gdb[..], &[&pe(), "init"]].concat());
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let normal = ended.stdout.matches("exited normally").count();
    assert_eq!(normal, 2, "{}\n{}", ended.stdout, ended.stderr);
}

#[test]
fn valgrind_works() {
    if has("valgrind") {
        let ended = run(&["-n", "2", "valgrind", "--error-exitcode=9", &pe(), "init"]);
        assert_eq!(ended.status, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains("64 MiB for windows"), "{}", ended.stderr);
    }
}

/// Waits of PEs that share CPUs ask the kernel more than others.
#[test]
fn valgrind_works_with_more_pes_than_cpus() {
    if has("valgrind") {
        let npes = std::thread::available_parallelism().map_or(1, usize::from) + 1;
        let program = example("traced");
        let valgrind = ["valgrind", "--error-exitcode=9", &program, "2"];
        let ended = run(&[&["-n", &npes.to_string()], &valgrind[..]].concat());
        assert_eq!(ended.status, 0, "{}", ended.stderr);
    }
}
