//! Reports on long waits: what they say of programs that wait in known ways, and that asking
//! disturbs nothing.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;
use std::time::Duration;

use common::{Ended, Job, example, run, send, start, until};
use rustix::process::Signal;

static PROGRAM: LazyLock<String> = LazyLock::new(|| example("waits"));

/// The line of the program at which its source has this text.
fn line(text: &str) -> String {
    let source = include_str!("../examples/waits.rs");
    let line = source.lines().position(|line| line.contains(text)).expect("it is there");
    format!("waits.rs:{}", line + 1)
}

/// Runs a case on three PEs until its time is over.
fn on_three(options: &[&str], case: &str) -> Ended {
    run(&[&["-n", "3"], options, &[&PROGRAM, case]].concat())
}

#[track_caller]
fn says(ended: &Ended, status: i32, parts: &[&str]) {
    assert_eq!(ended.status, status, "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "no {part:?} in:\n{}", ended.stderr);
    }
}

const LIMIT: [&str; 2] = ["--timeout", "1.5"];

#[test]
fn a_barrier_without_a_pe_that_waits_for_a_word() {
    let ended = on_three(&LIMIT, "barrier");
    let word = format!(
        "word 3 of the window made at crates/cli/examples/{} to be >= 5; it is 4",
        line("job.window::<u64>(8)")
    );
    let at = format!("in Window::wait_until at crates/cli/examples/{}", line("wait_until(3"));
    says(
        &ended,
        124,
        &[
            "the job has not ended after 1.5s, its --timeout",
            "PE 0, 2 have waited ",
            "in Job::barrier at crates/cli/examples/waits.rs:",
            "for the barrier of all PEs; missing: PE 1",
            "PE 1 has waited ",
            &word,
            &at,
            "PE 1 has not come to the barrier of all PEs, for which PE 0, 2 wait",
            "deadlock: PE 0-2 all wait, and only they could do what any of them waits for",
        ],
    );
}

#[test]
fn what_can_be_seen_of_each_wait_is_said() {
    let two_teams = "deadlock: PE 0 waits for PE 1, PE 1 for PE 0";
    let cases: [(&str, &[&str]); 9] = [
        (
            "word",
            &["for any of 4 words of the window", "word 0 is -7, word 1 is 0", "deadlock: PE 0-2"],
        ),
        (
            "lock",
            &[
                "in Lock::lock at ",
                "for a lock in a word of the window made at ",
                "; held by: PE 0",
                "deadlock: PE 0 waits for PE 1, PE 1 for PE 0; PE 2 waits for them",
            ],
        ),
        ("mutexes", &["in Mutex::lock at ", "held by: PE 0", "held by: PE 1", two_teams]),
        (
            "teams",
            &[
                "for the barrier of PE 0-1; missing: PE 1",
                "PE 2: has left the job in order",
                two_teams,
            ],
        ),
        (
            "calls",
            &[
                "different calls of one team: PE 0 is in Team::broadcast at ",
                "PE 1 in Team::barrier at ",
                "deadlock",
            ],
        ),
        (
            "channel",
            &[
                "PE 1-2 have waited ",
                "in Multicast::recv at ",
                "for the other end of a multicast channel; missing: PE 0",
                "deadlock",
            ],
        ),
        ("twice", &["held by: PE 0", "deadlock: PE 0 waits for itself; PE 1-2 wait for it"]),
        ("finalised", &["PE 0, 2 have waited ", "PE 1: has left the job in order"]),
        ("never", &["PE 1: has not joined the job; it sleeps in the kernel"]),
    ];
    for (case, parts) in cases {
        says(&on_three(&LIMIT, case), 124, parts);
    }
}

/// The launcher reads in the memory of a PE that computes which call that might wait was its last.
#[test]
fn the_last_call_that_might_wait_is_told_without_a_trace() {
    let last = format!(
        "PE 1: does not answer; it computes, or polls; the last call in which it might wait was Job::window at crates/cli/examples/{}",
        line("    let _window = job.window::<u64>(1)?; // the last call")
    );
    says(&on_three(&LIMIT, "compute"), 124, &[&last]);
    says(&on_three(&[&["--machine", "scc"], &LIMIT[..]].concat(), "compute"), 124, &[&last]);
    let (_folder, hosts) = hosts();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).chain(LIMIT).collect();
    says(&run(&[&hosts[..], &[&PROGRAM, "compute"]].concat()), 124, &[&last]);
    // Further threads may have made other calls since.
    let ended = on_three(&LIMIT, "beside");
    says(&ended, 124, &["the last call in which the thread that has joined might wait was Job::"]);
}

/// Where calls are recorded, a PE that does not answer has a last one.
#[test]
fn the_last_call_of_a_pe_that_computes_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let options = ["--trace", path.to_str().unwrap()];
    let ended = on_three(&[&options[..], &LIMIT].concat(), "compute");
    let last = format!(
        "it computes, or polls; its last call was Job::window at crates/cli/examples/{}, ",
        line("    let _window = job.window::<u64>(1)?; // the last call")
    );
    says(&ended, 124, &[&last, "s ago"]);
    let (_folder, hosts) = hosts();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).chain(options).collect();
    // On a busy machine PEs of several hosts take a while to meet for the first time.
    for limit in ["1.5", "6", "30"] {
        let ended = run(&[&hosts[..], &["--timeout", limit], &[&PROGRAM, "compute"]].concat());
        if limit == "30" || ended.stderr.contains(&last) {
            return says(&ended, 124, &[&last]);
        }
    }
}

/// Nothing is called a deadlock that may still go on.
#[test]
fn a_pe_that_may_go_on_is_no_deadlock() {
    let cases: [(&str, &[&str]); 4] = [
        ("compute", &["PE 1: does not answer; it computes, or polls", "come down to PE 1"]),
        ("sleep", &["PE 1: does not answer; it sleeps in the kernel"]),
        ("threads", &["PE 0 (thread ", "for word 0 of", "for word 1 of", "missing: PE 0"]),
        ("limit", &["PE 1 has waited ", "a time limit ends this wait"]),
    ];
    for (case, parts) in cases {
        let ended = on_three(&LIMIT, case);
        says(&ended, 124, parts);
        assert!(!ended.stderr.contains("deadlock"), "{case}: {ended:?}");
    }
}

/// What lies in memory that is not mapped is asked of nobody.
#[test]
fn far_pes_say_what_they_see() {
    for fabric in ["far", "far:delay_us=50,reorder=1,nodes=2", "tcp"] {
        let options = [&["--fabric", fabric], &LIMIT[..]].concat();
        let ended = on_three(&options, "barrier");
        let parts = ["in Job::barrier at ", "to be >= 5; it is 4", "deadlock: PE 0-2 all wait"];
        says(&ended, 124, &parts[..2]);
        assert!(
            ended.stderr.contains("PE 1 is not in the barrier of all PEs")
                || ended.stderr.contains("PE 1 has not come to the barrier of all PEs"),
            "{ended:?}"
        );
        assert_eq!(
            ended.stderr.contains("seems to be a deadlock"),
            !fabric.contains("nodes"),
            "{ended:?}"
        );
        says(
            &on_three(&options, "calls"),
            124,
            &["different calls of one team: PE 0 is in Team::broadcast"],
        );
    }
}

#[test]
fn a_simulated_machine_says_it_in_the_same_words() {
    for machine in ["scc", "rdma-100g", "dimmnet-1/D-tree"] {
        let ended = on_three(&["--machine", machine], "barrier");
        says(
            &ended,
            1,
            &[
                "deadlock at ",
                "nothing is under way, and 3 PEs wait",
                "for the barrier of all PEs; elsewhere: PE 1",
                "to be >= 5; it is 4",
                "PE 1 is not in the barrier of all PEs, for which PE 0, 2 wait",
                "  deadlock: PE 0-2 all wait",
            ],
        );
        let ended = on_three(&["--machine", machine, "--timeout", "1"], "compute");
        says(&ended, 124, &["PE 1: does not answer; it computes, or polls"]);
        assert!(!ended.stderr.contains("deadlock"), "{ended:?}");
    }
}

/// The options of a job on hosts that are processes of this machine.
fn hosts() -> (tempfile::TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("local");
    std::fs::write(&script, "#!/bin/sh\nshift; exec \"$@\"\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let options = ["--hosts", "a:2,b:1", "--launch-agent", script, "--interface", "lo"];
    (folder, options.map(str::to_owned).into())
}

#[test]
fn hosts_answer_as_one() {
    let (_folder, options) = hosts();
    let options: Vec<&str> = options.iter().map(String::as_str).chain(LIMIT).collect();
    let on_hosts = |case: &str| run(&[&options[..], &[&PROGRAM, case]].concat());
    says(
        &on_hosts("barrier"),
        124,
        &[
            "PE 0, 2 have waited ",
            "PE 1 has waited ",
            "to be >= 5; it is 4",
            // PE 0 has seen it, and PE 2 has not.
            "PE 1 has not come to the barrier of all PEs, for which PE 0, 2 wait",
            "deadlock: PE 0-2 all wait",
        ],
    );
    says(&on_hosts("compute"), 124, &["PE 1: does not answer; it computes, or polls"]);
    says(&on_hosts("teams"), 124, &["deadlock: PE 0 waits for PE 1, PE 1 for PE 0"]);
}

/// Calls that wait for a far PE in its fabric say for whom, and for what.
#[test]
fn a_far_pe_that_does_not_answer_is_told() {
    let (_folder, options) = hosts();
    let options: Vec<&str> = options.iter().map(String::as_str).chain(LIMIT).collect();
    let ended = run(&[&options[..], &[&PROGRAM, "stopped"]].concat());
    let call = |name: &str, text: &str| {
        format!("in {name} at crates/cli/examples/{} for an answer of PE 2", line(text))
    };
    let get = call("Window::get", "window.get(2, 1");
    let requests = "; outstanding: unanswered requests: 1 (on b)";
    let quiet = call("Job::quiet", "job.quiet()?");
    let writes = "; outstanding: unacknowledged writes: 1 (on b)";
    let parts = [
        "PE 0 has waited ",
        &get,
        requests,
        "PE 1 has waited ",
        &quiet,
        writes,
        "PE 2: it is stopped",
    ];
    says(&ended, 124, &parts);
    assert!(!ended.stderr.contains("deadlock"), "{ended:?}");
}

/// A host whose agent does not answer delays the report by 2.5 s at most.
#[test]
fn a_host_that_does_not_answer_is_told() {
    let (_folder, options) = hosts();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let job = start(&[&["--heartbeat", "off"], &options[..], &[&PROGRAM, "barrier"]].concat());
    until("the PEs run", || job.processes().len() == 3);
    let words = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut agents = common::children(job.pid());
    agents.retain(|&pid| words(pid).ends_with(b"memonet\0agent\0"));
    let has_pe = |&pid: &i32| common::has_entry(pid, "\0MEMONET_PE=2\0");
    let agent = agents.into_iter().find(|&agent| common::pes(agent).iter().any(has_pe)).unwrap();
    send(agent, Signal::STOP);
    send(job.pid(), Signal::QUIT);
    std::thread::sleep(Duration::from_secs(4));
    send(agent, Signal::CONT);
    send(job.pid(), Signal::TERM);
    says(&job.end(), 128 + 15, &["PE 2: its host has not answered"]);
}

#[test]
fn sigquit_asks_and_the_job_goes_on() {
    let job = start(&["-n", "3", &PROGRAM, "barrier"]);
    std::thread::sleep(Duration::from_secs(1));
    for _ in 0..2 {
        send(job.pid(), Signal::QUIT);
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(job.processes().len(), 3);
    send(job.pid(), Signal::TERM);
    let ended = job.end();
    says(&ended, 128 + 15, &["what PEs wait for (SIGQUIT; the job goes on):", "missing: PE 1"]);
    assert_eq!(ended.stderr.matches("SIGQUIT; the job goes on").count(), 2, "{ended:?}");
}

/// Lets the program's case "together" go on: it would be over before a busy test saw its PEs.
fn begin(job: &Job) {
    std::fs::write(job.folder().join("begin"), "").unwrap();
}

/// PEs work while they are asked all the time.
#[test]
fn a_storm_of_questions_changes_nothing() {
    for options in [&[][..], &["--fabric", "tcp"], &["--env", "MEMONET_BARRIER=central"]] {
        let job = start(&[&["-n", "3"], options, &[&PROGRAM, "together"]].concat());
        until("the PEs run", || job.processes().len() == 3);
        let pid = job.pid();
        begin(&job);
        let ended = std::thread::scope(|scope| {
            let ended = scope.spawn(|| job.end());
            while !ended.is_finished() {
                let _ = rustix::process::kill_process(
                    rustix::process::Pid::from_raw(pid).unwrap(),
                    Signal::QUIT,
                );
                std::thread::sleep(Duration::from_millis(1));
            }
            ended.join().unwrap()
        });
        assert_eq!(ended.status, 0, "{ended:?}");
        assert!(!ended.stderr.contains("deadlock"), "{ended:?}");
        let lines = ended.lines();
        assert_eq!(lines, ["PE 0", "PE 1", "PE 2"].map(|pe| format!("{pe} has ended in order")));
    }
}

/// From a terminal, the signal comes to the PEs, too.
#[test]
fn pes_survive_the_signal_of_a_terminal() {
    let job = start(&["-n", "2", &PROGRAM, "together"]);
    until("the PEs run", || job.processes().len() == 2);
    for pe in job.processes() {
        send(pe, Signal::QUIT);
    }
    begin(&job);
    assert_eq!(job.end().status, 0);
}

#[test]
fn a_watched_job_whose_waits_end_in_time_says_nothing() {
    let ended = run(&["-n", "2", "--watch", "10", &PROGRAM, "slow"]);
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
}

#[test]
fn a_watched_wait_is_told_at_doubling_distances() {
    let options = ["--watch", "0.5", "--timeout", "5"];
    let ended = on_three(&options, "barrier");
    says(&ended, 124, &["a wait has lasted ", "missing: PE 1"]);
    // At about 0.5, 1, 2 and 4 seconds; on a busy machine two may be one.
    let told = ended.stderr.matches("a wait has lasted ").count();
    assert!((2..=4).contains(&told), "{told}: {ended:?}");
}

#[test]
fn a_stopped_pe_is_told() {
    let job: Job = start(&["-n", "2", &PROGRAM, "barrier"]);
    until("the PEs run", || job.processes().len() == 2);
    std::thread::sleep(Duration::from_millis(500));
    let stopped = job.processes();
    stopped.iter().for_each(|&pe| send(pe, Signal::STOP));
    send(job.pid(), Signal::QUIT);
    std::thread::sleep(Duration::from_secs(1));
    stopped.iter().for_each(|&pe| send(pe, Signal::CONT));
    send(job.pid(), Signal::TERM);
    says(&job.end(), 128 + 15, &["PE 0-1, each: it is stopped, by a signal"]);
}

/// A PE that dies while it is asked is a death as any other.
#[test]
fn deaths_while_pes_are_asked() {
    for pause in [0, 1, 5, 20, 60, 110] {
        let job = start(&["-n", "3", &PROGRAM, "barrier"]);
        until("the PEs run", || job.processes().len() == 3);
        std::thread::sleep(Duration::from_millis(300));
        let victim = job.processes()[0];
        send(job.pid(), Signal::QUIT);
        std::thread::sleep(Duration::from_millis(pause));
        send(victim, Signal::KILL);
        says(&job.end(), 137, &[&format!("process {victim}): killed by signal 9")]);
    }
}

/// Whoever is asked at once, or as the last thing.
#[test]
fn questions_at_start_and_end() {
    for pause in [0, 1, 3, 10, 30, 100] {
        let job = start(&["-n", "2", "sh", "-c", "sleep 0.05"]);
        std::thread::sleep(Duration::from_millis(pause));
        let pid = rustix::process::Pid::from_raw(job.pid()).unwrap();
        // Before the launcher catches it, the signal ends it, as it ends any process.
        let _ = rustix::process::kill_process(pid, Signal::QUIT);
        let ended = job.end();
        assert!([0, 128 + 3].contains(&ended.status), "{ended:?}");
    }
}

#[test]
fn nothing_in_the_shared_places_is_believed() {
    for seed in ["1", "2", "3"] {
        let ended =
            run(&["-n", "3", "--timeout", "2.5", "--watch", "0.3", &PROGRAM, "garbage", seed]);
        says(&ended, 124, &["the job has not ended after 2.5s", "what PEs wait for:"]);
        assert!(
            !ended.stderr.contains('\u{1b}') && !ended.stderr.contains("panicked"),
            "{ended:?}"
        );
    }
}
