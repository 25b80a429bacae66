//! The last phase of a job: it ends within seconds, whatever keeps its processes, and nothing is
//! left of it.

mod common;

use common::{Ended, Random, children, ends, pe, run, send, start, state, until, wait};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Near, on the test network, on a simulated machine, and under a wrapper that goes on.
const SETTINGS: [(&[&str], &[&str]); 4] = [
    (&[], &[]),
    (&["--env", "MEMONET_FABRIC=far"], &[]),
    (&["--machine", "scc"], &[]),
    (&[], &["sh", "-c", "\"$0\" \"$@\"; sleep 1000"]),
];

/// Runs the example `ends` on three PEs in one of these settings. It is to end by itself.
#[track_caller]
fn in_setting((options, wrapper): (&[&str], &[&str]), arguments: &[&str]) -> Ended {
    let ended = run(&[&["-n", "3"], options, wrapper, &[&ends()], arguments].concat());
    assert!(
        !ended.stderr.contains("--timeout"),
        "{options:?} {wrapper:?} {arguments:?}: {ended:?}"
    );
    ended
}

#[test]
fn a_pe_that_ended_the_job_and_does_not_end_is_ended() {
    let check = |how: &str, setting| {
        let ended = in_setting(setting, &["handler", how]);
        assert_eq!((ended.status, &*ended.stdout), (5, "in the handler\n"), "{how}: {ended:?}");
        let said = "PE 2 asked for the end of the job, but has not ended 5s later";
        assert!(ended.stderr.contains(said), "{how}: {ended:?}");
    };
    // At once, as each of them takes its time.
    std::thread::scope(|scope| {
        for how in ["block", "ignore", "stop"] {
            for setting in SETTINGS {
                scope.spawn(move || check(how, setting));
            }
        }
    });
}

#[test]
fn a_pe_that_ends_the_job_and_itself_is_not_commented_on() {
    for how in ["nothing", "thread"] {
        for setting in SETTINGS {
            let ended = in_setting(setting, &["handler", how]);
            assert_eq!(
                (ended.status, &*ended.stdout, &*ended.stderr),
                (5, "in the handler\n", ""),
                "{how}: {ended:?}"
            );
        }
    }
}

/// The status 0 that it has asked for says that all is well.
#[test]
fn a_death_in_an_exit_handler_is_a_failure() {
    for (how, status, cause) in
        [("kill", 128 + 9, "killed by signal 9"), ("abort", 128 + 6, "killed by signal 6")]
    {
        for setting in &SETTINGS[..3] {
            let ended = in_setting(*setting, &["handler", how]);
            assert_eq!(ended.status, status, "{how}: {ended:?}");
            assert!(
                ended.stderr.contains("PE 2 (")
                    && ended.stderr.contains(cause)
                    && !ended.stderr.contains("PE 0"),
                "{how}: {ended:?}"
            );
        }
    }
}

#[test]
fn a_forked_child_ends_the_job_and_its_parent() {
    for how in ["waits", "forever"] {
        for npes in ["1", "2", "4"] {
            for _ in 0..5 {
                let ended = run(&["-n", npes, &ends(), "child", how]);
                assert_eq!((ended.status, &*ended.stderr), (7, ""), "{how}, {npes}: {ended:?}");
            }
        }
    }
}

#[test]
fn a_child_has_only_copies() {
    let program = common::example("copies");
    for (options, machine) in [
        (&[][..], "real"),
        (&["--fabric", "far"], "real"),
        (&["--fabric", "tcp"], "real"),
        (&["--env", "MEMONET_CHECK=1"], "real"),
        (&["--machine", "rdma-100g"], "simulated"),
    ] {
        let ended = run(&[options, &["-n", "2", &program, machine]].concat());
        assert_eq!((ended.status, &*ended.stderr), (0, ""), "{options:?}: {ended:?}");
    }
    let tree = ["--env", "MEMONET_MULTICAST=tree", "--env", "MEMONET_BARRIER=dissemination"];
    for options in
        [&["--fabric", "tcp", "-n", "2"][..], &["-n", "5"], &["--fabric", "far", "-n", "5"]]
    {
        let ended = run(&[&tree, options, &[&program]].concat());
        assert_eq!((ended.status, &*ended.stderr), (0, ""), "{options:?}: {ended:?}");
    }
}

/// The child's number for the launcher means nothing in its namespace, and nobody tells of its end.
#[test]
fn a_request_is_seen_though_the_call_does_not_arrive() {
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let mut probe = Command::new(unshare[0]);
    let works = probe.args(&unshare[1..]).arg("true").stderr(Stdio::null()).status();
    if !works.is_ok_and(|status| status.success()) {
        return common::skip("there are no pid namespaces here");
    }
    let script = format!("{} {} child later; exit $?", unshare.join(" "), ends());
    let ended = run(&["-n", "2", "sh", "-c", &script]);
    assert_eq!(ended.status, 7, "{ended:?}");
}

#[test]
fn garbage_in_the_control_page_ends_the_job_in_failure() {
    for seed in [0, 1, 2, 3, 4, 5, 64, 255].into_iter().chain(1000..1012) {
        let ended = run(&["-n", "4", &ends(), "garbage", &seed.to_string()]);
        assert!(ended.status != 0 && !ended.stderr.contains("--timeout"), "{seed}: {ended:?}");
    }
}

/// It may end as it likes, under a wrapper too, which goes on or not.
#[test]
fn a_process_that_takes_part_in_nothing_is_not_missed() {
    for then in ["true", "sleep 0.5"] {
        let ended = run(&["-n", "2", "sh", "-c", &format!("{} unused; {then}", ends())]);
        // Before Linux 6.15 nobody can tell how another's child ended when its parent was faster.
        let unknown = ended.stderr.contains("this kernel does not report how");
        assert!(ended.status == 0 && ended.stderr.is_empty() || unknown, "{then}: {ended:?}");
    }
}

/// What process 1 of a container is that collects nothing: from here on, orphans come to this
/// process.
fn collect_nothing() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
}

/// The children of this process, the launcher collected.
fn left() -> Vec<(i32, Option<(char, i32)>)> {
    let own = children(std::process::id() as i32);
    own.into_iter().map(|pid| (pid, state(pid))).collect()
}

/// Starts a launcher of which nobody hears anything.
fn silent(arguments: &[&str]) -> (std::process::Child, tempfile::TempDir) {
    let (mut command, _, folder) = common::command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    (command.spawn().unwrap(), folder)
}

/// In a process of its own, as tests of one process share what comes to it.
#[test]
#[ignore = "run by `nothing_is_left_where_process_1_collects_nothing`"]
fn nothing_is_left() {
    collect_nothing();
    let behind = format!("(sleep 1000 &) ; exec {} ring nobody", pe());
    for (arguments, status) in [
        (vec!["-n", "2", &pe(), "twice"], 0),
        (vec!["-n", "2", &pe(), "die", "kill"], 137),
        (vec!["-n", "2", &pe(), "die", "exit"], 3),
        (vec!["-n", "2", &pe(), "end"], 7),
        (vec!["-n", "2", &ends(), "child", "forever"], 7),
        (vec!["-n", "2", "sh", "-c", &behind], 0),
        (vec!["-n", "2", "no-such-program"], 127),
        (vec!["-n", "2", "/dev/null"], 126),
        (vec!["--timeout", "1", "-n", "2", &pe(), "work"], 124),
        (vec!["--machine", "scc", "-n", "2", &ends(), "random", "3"], 0),
    ] {
        let (mut launcher, _folder) = silent(&arguments);
        let ended = wait(&mut launcher);
        assert_eq!((left(), ended.code()), (vec![], Some(status)), "{arguments:?}");
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for delay in [0, 1, 2, 4, 8, 16, 32, 200] {
            let (mut launcher, _folder) = silent(&["-n", "2", &pe(), "work"]);
            std::thread::sleep(Duration::from_millis(delay));
            send(launcher.id() as i32, signal);
            wait(&mut launcher);
            assert_eq!(left(), [], "{signal:?} after {delay} ms");
        }
    }
    // Nobody is left who could collect: the processes are there, ended.
    let (mut launcher, folder) =
        silent(&["-n", "2", "sh", "-c", &format!("{} work & touch $MEMONET_PE; wait", pe())]);
    until("the PEs run", || ["0", "1"].iter().all(|pe| folder.path().join(pe).exists()));
    send(launcher.id() as i32, Signal::KILL);
    wait(&mut launcher);
    until("all have ended", || left().iter().all(|(_, state)| matches!(state, Some(('Z', _)))));
    // As process 1 here may be of that kind.
    while rustix::process::wait(rustix::process::WaitOptions::NOHANG)
        .is_ok_and(|ended| ended.is_some())
    {}
}

#[test]
fn nothing_is_left_where_process_1_collects_nothing() {
    // Built before: what builds it may leave a process.
    drop((pe(), ends()));
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "nothing_is_left", "--ignored", "--test-threads", "1"]);
    let output = alone.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A PE or the launcher is killed at any moment: before it joins, between that and its first
/// meeting, as it finalises, or too late. A job in which a PE was killed fails, and one that does
/// not fail has all of its output.
#[test]
fn kills_at_any_moment_are_failures_or_too_late() {
    let rounds =
        std::env::var("MEMONET_TEST_KILLS").map_or(60, |value| value.parse().expect("a number"));
    let mut random = Random(44);
    let program = ends();
    let (mut failed, mut late) = (0, 0);
    for round in 0..rounds {
        let wrapped = round % 3 == 2;
        let script = format!("{program} random 50; exit $?");
        let started: &[&str] =
            if wrapped { &["sh", "-c", &script] } else { &[&program, "random", "50"] };
        let job = start(&[&["-n", "7"], started].concat());
        let mut pes = Vec::new();
        until("a PE is there, or all have ended", || {
            pes = job.processes();
            !pes.is_empty() || state(job.pid()).is_none_or(|(state, _)| state == 'Z')
        });
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        let pes: Vec<i32> = job.processes().into_iter().filter(|&pid| pid != job.pid()).collect();
        if !pes.is_empty() {
            send(pes[random.below(pes.len() as u64) as usize], Signal::KILL);
        }
        let ended = job.end();
        assert!(!ended.stderr.contains("--timeout"), "round {round}: {ended:?}");
        if ended.status == 0 {
            late += 1;
            let mut expected: Vec<String> = (0..7)
                .flat_map(|pe| ["done", "there"].map(|what| format!("PE {pe} is {what}")))
                .collect();
            expected.sort_unstable();
            assert_eq!(ended.lines(), expected, "round {round}: {ended:?}");
        } else {
            failed += 1;
            assert!(ended.stderr.contains("memonet: PE "), "round {round}: {ended:?}");
        }
    }
    common::note(&format!("{failed} jobs failed, {late} ended before the kill"));
}
