//! Jobs on many hosts, in which relays call the agents. Here the hosts are processes of this
//! machine: instead of ssh, a small script starts what is called there.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;
use std::time::Duration;

use common::{Ended, Job, Random, children, pe, send, start, start_with, state, until};
use rustix::process::Signal;

/// Instead of ssh, called as `SCRIPT HOST WORDS...`. The parent of what a relay calls is the relay.
const SCRIPTS: [(&str, &str); 5] = [
    ("local", ""),
    // Between hosts there is no ssh without a password.
    ("apart", "case $(tr '\\0' ' ' < /proc/$PPID/cmdline) in *--relay*) exit 255;; esac"),
    ("slow", "case $(tr '\\0' ' ' < /proc/$PPID/cmdline) in *--relay*) exec sleep 1000;; esac"),
    ("hangs", "exec sleep 1000"),
    ("no_relay", "case $* in *--relay*) echo 'unexpected argument' >&2; exit 2;; esac"),
];

fn script(name: &str) -> String {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in SCRIPTS {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\nshift; exec \"$@\"\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    });
    FOLDER.path().join(name).to_str().unwrap().to_owned()
}

/// The arguments of a job on hosts h0, h1, ..., of which up to two need no relay.
fn on(hosts: usize, by: &str, rest: &[&str]) -> Vec<String> {
    let list: Vec<String> = (0..hosts).map(|host| format!("h{host}:1")).collect();
    let list = list.join(",");
    let script = script(by);
    let own = ["--hosts", &list, "--launch-agent", &script, "--interface", "lo"];
    let few = ["--direct-hosts", "2"];
    let all = own.iter().chain(few.iter().filter(|_| hosts <= 32)).chain(rest);
    all.map(|&word| word.to_owned()).collect()
}

fn start_on(hosts: usize, by: &str, rest: &[&str]) -> Job {
    let all = on(hosts, by, rest);
    start(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn run_on(hosts: usize, by: &str, rest: &[&str]) -> Ended {
    start_on(hosts, by, rest).end_within(Duration::from_secs(60))
}

fn called(parent: i32, end: &[u8]) -> Vec<i32> {
    let name = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut all = children(parent);
    all.retain(|&pid| name(pid).ends_with(end));
    all
}

fn relays(job: &Job) -> Vec<i32> {
    called(job.pid(), b"agent\0--relay\0")
}

fn agents(relay: i32) -> Vec<i32> {
    called(relay, b"memonet\0agent\0")
}

/// Waits until so many PEs run that sleep.
fn sleepers(job: &Job, count: usize) {
    let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
    let sleeps = |pid: &&i32| name(**pid).is_ok_and(|name| name == "sleep\n");
    until("PEs sleep", || job.processes().iter().filter(sleeps).count() == count);
}

#[test]
fn forty_hosts_run_through_relays() {
    let job = start_on(40, "local", &["sh", "-c", "echo $MEMONET_PE of $MEMONET_NPES; sleep 1000"]);
    sleepers(&job, 40);
    let relays = relays(&job);
    assert_eq!(
        relays.iter().map(|&relay| agents(relay).len()).collect::<Vec<_>>(),
        [7, 7, 7, 7, 7, 5]
    );
    assert!(called(job.pid(), b"memonet\0agent\0").is_empty());
    send(job.pid(), Signal::TERM);
    let ended = job.end();
    assert_eq!(ended.status, 143, "{ended:?}");
    let mut expected: Vec<String> = (0..40).map(|pe| format!("{pe} of 40")).collect();
    expected.sort_unstable();
    assert_eq!(ended.lines(), expected, "{ended:?}");
}

#[test]
fn pes_behind_different_relays_reach_each_other() {
    let ended = run_on(5, "local", &[&pe(), "ring", "20"]);
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
    let ended = run_on(5, "local", &[&pe(), "orphan", "kill"]);
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let saw = |pe| format!("PE {pe} saw: PE 4 on h4 failed: killed by signal 9 (SIGKILL)");
    assert_eq!(ended.lines(), (0..4).map(saw).collect::<Vec<_>>(), "{ended:?}");
}

#[test]
fn input_and_output_pass() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text: String = (0..50_000).map(|i| format!("line {i}\n")).collect();
    std::fs::write(file.path(), &text).unwrap();
    let script = "test $MEMONET_PE = 0 || ! read nothing || exit 3; cat";
    let all = on(5, "local", &["sh", "-c", script]);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let input = std::fs::File::open(file.path()).unwrap();
    let ended = start_with(&all, input.into()).end();
    assert_eq!((ended.status, ended.stdout == text), (0, true), "{}", ended.stderr);
    let script = "yes | head -c 3000000; test $MEMONET_PE != 4 || { printf why >&2; exit 7; }";
    let ended = run_on(5, "local", &["--keep-going", "sh", "-c", script]);
    assert_eq!((ended.status, ended.stdout.len()), (7, 5 * 3_000_000), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("last line of its error output, unfinished: why"),
        "{}",
        ended.stderr
    );
}

/// Where relays cannot reach hosts, or cannot be, the launcher reaches them.
#[test]
fn hosts_that_relays_do_not_reach_are_reached() {
    for by in ["apart", "slow", "no_relay"] {
        let ended = run_on(5, by, &["sh", "-c", "echo $MEMONET_PE"]);
        assert_eq!((ended.status, &*ended.stderr), (0, ""), "{by}: {ended:?}");
        assert_eq!(ended.lines(), ["0", "1", "2", "3", "4"], "{by}: {ended:?}");
    }
}

#[test]
fn what_keeps_a_host_from_the_job_is_said_as_without_relays() {
    let ended = run_on(5, "local", &["./nothing"]);
    assert_eq!((ended.status, &*ended.stdout), (127, ""), "{ended:?}");
    assert!(ended.stderr.contains("cannot start ./nothing: No such file"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    let mut all = on(5, "local", &["true"]);
    all[3] = "/no/such/command".into();
    let ended = start(&all.iter().map(String::as_str).collect::<Vec<_>>()).end();
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.stderr.contains("cannot start /no/such/command"), "{ended:?}");
}

#[test]
fn relays_that_never_answer_keep_nobody() {
    let ended = run_on(5, "hangs", &["--timeout", "1", "true"]);
    assert_eq!(ended.status, 124, "{ended:?}");
    let job = start_on(5, "hangs", &["true"]);
    until("relays are called", || children(job.pid()).len() > 2);
    send(job.pid(), Signal::TERM);
    assert_eq!(job.end().status, 143);
}

/// What a PE of each host prints if it is not lost.
const GO_ON: [&str; 4] = ["--keep-going", "sh", "-c", "sleep 4; echo $MEMONET_PE"];

/// The hosts h0, h1 and h2 have a relay, and so have h3 and h4.
#[test]
fn hosts_are_lost_with_their_relay_and_no_others() {
    let job = start_on(5, "local", &GO_ON);
    sleepers(&job, 5);
    send(relays(&job)[1], Signal::KILL);
    let ended = job.end();
    assert_eq!((ended.status, ended.lines()), (128 + 9, vec!["0", "1", "2"]), "{ended:?}");
    for said in [
        "the connection to h3 is lost, and with it these hosts, whose agents were started from there: h3, h4",
        " on h3): its host is lost: the connection to memonet's agent",
        " on h4): its host is lost: the connection to memonet's agent",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}

#[test]
fn a_killed_agent_beside_a_relay_takes_its_own_host_alone() {
    let job = start_on(5, "local", &GO_ON);
    sleepers(&job, 5);
    send(agents(relays(&job)[0])[0], Signal::KILL);
    let ended = job.end();
    assert_eq!((ended.status, ended.lines()), (128 + 9, vec!["1", "2", "3", "4"]), "{ended:?}");
}

/// Its host is heard by datagrams, so that the stream has to tell.
#[test]
fn a_stopped_relay_is_lost() {
    let job = start_on(5, "local", &["sleep", "1000"]);
    sleepers(&job, 5);
    let relay = relays(&job)[1];
    send(relay, Signal::STOP);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    assert!(ended.stderr.contains("the connection to h3 is lost"), "{ended:?}");
}

#[test]
fn a_stopped_launcher_goes_on() {
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 1; echo $i; done";
    let job = start_on(3, "local", &["sh", "-c", script]);
    until("PEs run", || job.processes().len() >= 3);
    send(job.pid(), Signal::STOP);
    until("it is stopped", || state(job.pid()).is_some_and(|(state, _)| state == 'T'));
    std::thread::sleep(Duration::from_millis(6500));
    send(job.pid(), Signal::CONT);
    let ended = job.end();
    assert_eq!((ended.status, ended.stdout.lines().count()), (0, 24), "{ended:?}");
}

/// Any moment may come first: of the start, of the run, of the end.
#[test]
fn kills_at_any_moment_leave_nothing() {
    let mut random = Random(11);
    for round in 0..9 {
        let job = start_on(5, "local", &["sleep", "0.2"]);
        std::thread::sleep(Duration::from_millis(random.below(500)));
        let relays = relays(&job);
        match (round % 3, relays.get(random.below(2) as usize)) {
            (0, _) | (_, None) => {
                send(job.pid(), Signal::KILL);
                job.assert_nothing_left();
                continue;
            }
            (1, Some(&relay)) => send(relay, Signal::KILL),
            (_, Some(&relay)) => {
                agents(relay).first().iter().for_each(|&&agent| send(agent, Signal::KILL));
            }
        }
        let ended = job.end();
        assert!([0, 1, 128 + 9].contains(&ended.status), "{ended:?}");
    }
}
