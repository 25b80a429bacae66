//! Jobs on several hosts. Here most hosts are processes of this machine: instead of ssh, a small
//! script starts their agents.

mod common;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use common::{Ended, Job, Random, children, pe, run, send, start, start_with, state, until};
use rustix::process::Signal;

/// Instead of ssh: each starts an agent in its own way, called as `SCRIPT HOST WORDS...`.
const SCRIPTS: [(&str, &str); 10] = [
    ("local", "shift; exec \"$@\""),
    // A login shell says something first, in lines and then without an end of line.
    ("banner", "printf 'Welcome to %s\\n\\nprompt> ' $1; shift; exec \"$@\""),
    ("warning", "echo \"warning: $1 is slow\" >&2; shift; exec \"$@\""),
    // Only the second call finds it: on PATH.
    (
        "on_path",
        "case $2 in /*) echo \"sh: $2: not found\" >&2; exit 127;; esac; exec MEMONET agent",
    ),
    ("missing", "echo \"sh: $2: not found\" >&2; exit 127"),
    (
        "other_version",
        "printf '\\001memonet control 0.0.1 (layout 1, control 0)\\n'; exec cat > /dev/null",
    ),
    ("unreachable", "echo \"ssh: connect to host $1 port 22: No route to host\" >&2; exit 255"),
    ("hangs", "exec sleep 1000"),
    (
        "garbage",
        "shift; (printf '\\001'; head -c 100000 /dev/zero | tr '\\0' '\\377') ; exec \"$@\"",
    ),
    ("dies", "shift; exec 3<&0; \"$@\" <&3 & sleep 1; kill -9 $!; wait"),
];

fn script(name: &str) -> String {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in SCRIPTS {
            let text = text.replace("MEMONET", env!("CARGO_BIN_EXE_memonet"));
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    });
    FOLDER.path().join(name).to_str().unwrap().to_owned()
}

/// The options of a job on these hosts.
fn on(hosts: &str, by: &str) -> Vec<String> {
    ["--hosts", hosts, "--launch-agent", &script(by), "--interface", "lo"].map(str::to_owned).into()
}

fn all<'a>(options: &'a [String], rest: &[&'a str]) -> Vec<&'a str> {
    options.iter().map(String::as_str).chain(rest.iter().copied()).collect()
}

fn run_on(hosts: &str, rest: &[&str]) -> Ended {
    run(&all(&on(hosts, "local"), rest))
}

fn start_on(hosts: &str, rest: &[&str]) -> Job {
    start(&all(&on(hosts, "local"), rest))
}

/// The agents that a launcher has called.
fn agents(launcher: i32) -> Vec<i32> {
    let name = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_agent = |&pid: &i32| name(pid).ends_with(b"memonet\0agent\0");
    children(launcher).into_iter().filter(is_agent).collect()
}

/// Waits until so many PEs run that sleep.
fn sleepers(job: &Job, count: usize) -> Vec<i32> {
    let mut found = Vec::new();
    until("PEs sleep", || {
        let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        found = job.processes();
        found.retain(|&pid| name(pid).is_ok_and(|name| name == "sleep\n"));
        found.len() == count
    });
    found
}

#[test]
fn output_has_labels_and_whole_lines() {
    let ended = run_on("a:2,b:2", &["--label", "sh", "-c", "echo $MEMONET_PE of $MEMONET_NPES"]);
    assert_eq!(ended.lines(), ["[0] 0 of 4", "[1] 1 of 4", "[2] 2 of 4", "[3] 3 of 4"]);
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");

    let ended = run_on("a:2,b:1,c:1", &[&pe(), "print", "300"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    for text in [&ended.stdout, &ended.stderr] {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let line = |pe, i: usize| format!("{pe} {i} {}", "x".repeat(i * 7 % 300));
        let mut expected: Vec<_> =
            (0..4).flat_map(|pe| (0..300).map(move |i| line(pe, i))).collect();
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }
}

/// More than fits into any pipe or window on the way, and nobody reads it for a while.
#[test]
fn much_output_arrives_though_its_reader_is_slow() {
    let (mut command, _, folder) =
        common::command(&all(&on("a:1,b:2", "local"), &["sh", "-c", "yes | head -c 4000000"]));
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = launcher.stdout.take().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let copied = std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert_eq!(copied, 3 * 4_000_000);
    assert!(common::wait(&mut launcher).success());
    drop(folder);
}

#[test]
fn a_reader_that_goes_ends_writers() {
    let (mut command, mark, _folder) = common::command(&all(&on("a:1,b:1", "local"), &["yes"]));
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(launcher.stdout.take());
    assert!(!common::wait(&mut launcher).success());
    until("nothing is left", || common::marked(&mark).is_empty());
}

#[test]
fn input_goes_to_pe_0() {
    let text: String = (0..50_000).map(|i| format!("line {i}\n")).collect();
    let args = on("a:1,b:1", "local");
    let script = "test $MEMONET_PE = 0 || ! read nothing || exit 3; cat";
    for slow in [false, true] {
        let mut job = start_with(&all(&args, &["sh", "-c", script]), Stdio::piped());
        let mut input = job.launcher.stdin.take().unwrap();
        let text = text.clone();
        let writer = std::thread::spawn(move || {
            for piece in text.as_bytes().chunks(100_000) {
                input.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(if slow { 50 } else { 0 }));
            }
            text
        });
        let ended = job.end();
        let text = writer.join().unwrap();
        assert_eq!((ended.status, ended.stdout == text), (0, true), "{}", ended.stderr);
    }
    // A file, of which nobody is told that it can be read.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    let input = std::fs::File::open(file.path()).unwrap();
    let ended = start_with(&all(&args, &["sh", "-c", script]), input.into()).end();
    assert_eq!((ended.status, ended.stdout == text), (0, true), "{}", ended.stderr);
}

/// PE 0 does not read it, and ends.
#[test]
fn input_that_nobody_reads_keeps_nobody() {
    let mut job = start_with(&all(&on("a:1,b:1", "local"), &["true"]), Stdio::piped());
    let mut input = job.launcher.stdin.take().unwrap();
    let _ = input.write_all(&[b'x'; 1 << 20]);
    assert_eq!(job.end().status, 0);
}

#[test]
fn environment_and_folder_are_carried_but_for_what_names_a_host() {
    let (mut command, _, folder) = common::command(&all(
        &on("a:1,b:1", "local"),
        &["--env", "X=y z", "sh", "-c", "echo \"$X|$Y|$HOSTNAME|$SSH_TTY|$(pwd)\""],
    ));
    command.env("Y", "quo'te\nline").env("HOSTNAME", "launcher").env("SSH_TTY", "/dev/pts/9");
    // What an agent finds on its own host, which is this one, is what the launcher hands down to
    // what it starts; so only a variable of the launcher's job can show the difference.
    let output = command.output().unwrap();
    let line = format!("y z|quo'te\nline|launcher|/dev/pts/9|{}\n", folder.path().display());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), line.repeat(2));
}

#[test]
fn a_variable_chooses_the_interface() {
    let by = script("local");
    for (value, status) in [("lo", 0), ("nonesuch0", 1)] {
        let words = ["--hosts", "a:1,b:1", "--launch-agent", &by, &pe(), "ring", "2"];
        let (mut command, _, _folder) = common::command(&words);
        let output = command.env("MEMONET_INTERFACE", value).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{errors}");
        assert!(status == 0 || errors.contains("nonesuch0"), "{errors}");
    }
}

/// Runs in an allocation of Slurm's with the hosts `a` and `b`, whose `srun` starts all here.
fn run_allocated(args: &[&str], tasks: Option<&str>) -> (Option<i32>, String, String) {
    use std::os::unix::fs::PermissionsExt;
    let (mut command, _, folder) = common::command(args);
    let srun = "#!/bin/sh\nwhile [ $1 != --nodelist ]; do shift; done; shift 2; exec \"$@\"\n";
    for (name, script) in [("srun", srun), ("scontrol", "#!/bin/sh\necho a b\n")] {
        let file = folder.path().join(name);
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    command.env("SLURM_JOB_ID", "1").env("SLURM_JOB_NODELIST", "[a-b]");
    command.env("SLURM_JOB_CPUS_PER_NODE", "8(x2)");
    if let Some(tasks) = tasks {
        command.env("SLURM_NTASKS", "3").env("SLURM_TASKS_PER_NODE", tasks);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_allocation_of_slurm_has_the_hosts() {
    let show = &["-n", "3", "--label", "sh", "-c", "echo $MEMONET_NPES"];
    // Without a number of tasks, each CPU is a slot: then all fit on the first host.
    for (tasks, on_b) in [(Some("2,1"), vec![2]), (Some("1,2"), vec![1, 2]), (None, vec![])] {
        let (status, said, errors) = run_allocated(&[&["-v"], &show[..]].concat(), tasks);
        assert_eq!((status, said.lines().count()), (Some(0), 3), "{said}{errors}");
        let is_on_b = |pe| {
            let mut lines = errors.lines();
            lines.any(|line| {
                line.starts_with(&format!("memonet: PE {pe} is process ")) && line.contains(" on b")
            })
        };
        assert_eq!((0..3).filter(|&pe| is_on_b(pe)).collect::<Vec<_>>(), on_b, "{errors}");
    }
    let (status, _, errors) = run_allocated(&["-n", "4", "true"], Some("2,1"));
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("4 PEs on hosts with 3 slots"), "{errors}");
    let (status, _, errors) = run_allocated(show, Some("2,x"));
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("Slurm gives \"2,x\" for 2 hosts"), "{errors}");
    // What is for one machine stays on this one.
    for (fabric, is_here) in [("far", true), ("tcp:nodes=2", true), ("tcp", false)] {
        let args = [&["-v", "--fabric", fabric], &show[..]].concat();
        let (status, said, errors) = run_allocated(&args, Some("2,1"));
        assert_eq!((status, said.lines().count()), (Some(0), 3), "{said}{errors}");
        assert_eq!(!errors.contains(" on b"), is_here, "{fabric}: {errors}");
    }
}

#[test]
fn the_first_failure_is_reported_and_ends_the_job() {
    let script = "test $MEMONET_PE != 3 || { echo why; exit 7; }; exec sleep 1000";
    let ended = run_on("a:2,b:2", &["sh", "-c", script]);
    assert_eq!(ended.status, 7, "{ended:?}");
    for said in [
        "PE 3 (sh, process ",
        " on b): ended with exit status 7",
        "last line of its output: why",
        "then PE 0-2: killed by signal 15",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}

#[test]
fn others_go_on_where_that_is_asked_for() {
    let script = "test $MEMONET_PE != 1 || kill -9 $$; sleep 0.5; echo $MEMONET_PE went on";
    let ended = run_on("a:2,b:1", &["--keep-going", "sh", "-c", script]);
    assert_eq!(
        (ended.status, ended.lines()),
        (128 + 9, vec!["0 went on", "2 went on"]),
        "{ended:?}"
    );
}

/// The waits of PEs on other hosts end.
#[test]
fn a_death_is_known_on_all_hosts() {
    let pe = pe();
    let ended = run_on("a:2,b:1,c:1", &[&pe, "orphan", "kill"]);
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let saw = |pe| format!("PE {pe} saw: PE 3 on c failed: killed by signal 9 (SIGKILL)");
    assert_eq!(ended.lines(), (0..3).map(saw).collect::<Vec<_>>(), "{ended:?}");
    let ended = run_on("a:1,b:1", &[&pe, "orphan", "return"]);
    assert_eq!(ended.status, 42, "{ended:?}");
    assert!(ended.stdout.contains("PE 1 on b failed: finalised while others"), "{ended:?}");
    let ended = run_on("a:1,b:1", &[&pe, "late"]);
    assert_eq!(ended.status, 42, "{ended:?}");
    assert!(ended.stderr.contains("PE 1 on b failed: finalised while others"), "{ended:?}");
}

#[test]
fn a_pe_ends_the_whole_job() {
    for hosts in ["a:1,b:1", "a:2,b:2,c:1"] {
        let ended = run_on(hosts, &[&pe(), "orphan", "exit"]);
        assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (9, "", ""), "{ended:?}");
    }
}

#[test]
fn pes_reach_each_other_on_one_host_and_between_hosts() {
    for hosts in ["a:3", "a:1,b:1", "a:2,b:1,c:2"] {
        let ended = run_on(hosts, &[&pe(), "ring", "100"]);
        assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
    }
}

/// Each PE has a stream to 20 others, for which the soft limit on descriptors has no room.
#[test]
fn streams_to_all_pes_have_room() {
    let limited = format!("ulimit -Sn 28 && exec {} count", pe());
    let ended = run_on("a:20,b:20", &["sh", "-c", &limited]);
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
    // The hard limit is as low. Whichever end gives up first, the cause is told.
    let ended = run_on("a:20,b:20", &["sh", "-c", &limited.replace("-Sn 28", "-n 22")]);
    assert_ne!(ended.status, 0);
    assert!(ended.stderr.contains("Raise `ulimit -n`, also the hard limit"), "{ended:?}");
}

#[test]
fn signals_reach_all_hosts() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let job = start_on("a:2,b:1", &["sleep", "1000"]);
        sleepers(&job, 3);
        send(job.pid(), signal);
        let ended = job.end();
        assert_eq!(ended.status, status, "{ended:?}");
    }
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let job = start_on("a:1,b:1", &["sh", "-c", script]);
    std::thread::sleep(Duration::from_millis(500));
    send(job.pid(), Signal::USR1);
    let ended = job.end();
    assert_eq!((ended.status, ended.stdout.matches("got it").count()), (0, 2), "{ended:?}");
}

#[test]
fn a_job_takes_no_longer_than_it_may() {
    let ended = run_on("a:1,b:2", &["--timeout", "1", "sleep", "1000"]);
    assert_eq!(ended.status, 124, "{ended:?}");
    assert!(ended.stderr.contains("Still running: PE 0-2"), "{ended:?}");
    // An agent that never answers does not keep it.
    let ended = run(&all(&on("a:1,b:1", "hangs"), &["--timeout", "1", "true"]));
    assert_eq!(ended.status, 124, "{ended:?}");
}

#[test]
fn a_pe_that_ignores_sigterm_is_killed() {
    let script = "trap '' TERM; test $MEMONET_PE != 0 || exit 3; while :; do sleep 0.05; done";
    let ended = run_on("a:1,b:1", &["sh", "-c", script]);
    assert_eq!(ended.status, 3, "{ended:?}");
    assert!(ended.stderr.contains("PE 1: killed by signal 9 (SIGKILL) by memonet"), "{ended:?}");
}

#[test]
fn what_pes_leave_behind_ends() {
    let ended =
        run_on("a:1,b:1", &["sh", "-c", "(sleep 1000 &); (setsid sleep 1000 &); echo done"]);
    assert_eq!((ended.status, &*ended.stdout), (0, "done\ndone\n"), "{ended:?}");
}

#[test]
fn a_killed_agent_is_a_lost_host() {
    let job = start_on("a:2,b:2", &["sleep", "1000"]);
    sleepers(&job, 4);
    send(agents(job.pid())[1], Signal::KILL);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    for said in [
        " on b): its host is lost: the connection to memonet's agent",
        "PE 0-1: killed by signal 15",
        "then PE 3: its host is lost",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}

/// PEs on other hosts learn it in their waits.
#[test]
fn waits_for_pes_of_a_lost_host_end() {
    let job = start_on("a:1,b:1", &["sh", "-c", &format!("echo up; exec {} orphan forever", pe())]);
    until("PEs run", || job.processes().len() == 2);
    std::thread::sleep(Duration::from_millis(100));
    send(agents(job.pid())[1], Signal::KILL);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    assert!(ended.stdout.contains("PE 0 saw: PE 1 on b failed: its host is lost"), "{ended:?}");
}

#[test]
fn agents_end_with_their_launcher() {
    let job = start_on("a:2,b:2", &["sh", "-c", "(sleep 1000 &); exec sleep 1000"]);
    sleepers(&job, 8);
    let agents = agents(job.pid());
    send(job.pid(), Signal::KILL);
    job.assert_nothing_left();
    for agent in agents {
        until("agents end", || state(agent).is_none_or(|(state, _)| state == 'Z'));
    }
}

/// Any moment may come first: of the start, of the run, of the end.
#[test]
fn kills_at_any_moment_leave_nothing() {
    let mut random = Random(7);
    for round in 0..12 {
        let job = start_on("a:2,b:2,c:1", &["sleep", "0.2"]);
        std::thread::sleep(Duration::from_millis(random.below(400)));
        if round % 2 == 0 {
            let agents = agents(job.pid());
            if let Some(&agent) = agents.get(random.below(3) as usize) {
                send(agent, Signal::KILL);
            }
            let ended = job.end();
            assert!([0, 1, 128 + 9].contains(&ended.status), "{ended:?}");
        } else {
            send(job.pid(), Signal::KILL);
            job.assert_nothing_left();
        }
    }
}

/// For longer than silence may last, by a signal of which it learns nothing, and by that of the
/// terminal.
#[test]
fn a_stopped_launcher_goes_on() {
    for signal in [Signal::STOP, Signal::TSTP] {
        // For longer than a busy machine takes to stop the launcher.
        let script = "for i in 1 2 3 4 5 6 7 8; do sleep 1; echo $i; done";
        let job = start_on("a:1,b:1", &["sh", "-c", script]);
        until("PEs run", || job.processes().len() >= 2);
        send(job.pid(), signal);
        until("it is stopped", || state(job.pid()).is_some_and(|(state, _)| state == 'T'));
        std::thread::sleep(Duration::from_millis(3500));
        // Ctrl-Z stops the PEs with their launcher.
        let mut stopped = job.processes();
        stopped.retain(|&pid| state(pid).is_some_and(|(state, _)| state == 'T'));
        assert_eq!(stopped.is_empty(), signal == Signal::STOP, "{stopped:?}");
        send(job.pid(), Signal::CONT);
        let ended = job.end();
        assert_eq!((ended.status, ended.stdout.lines().count()), (0, 16), "{ended:?}");
    }
}

#[test]
fn a_stopped_agent_is_a_lost_host_unless_the_user_says_otherwise() {
    let job = start_on("a:1,b:1", &["sleep", "1000"]);
    sleepers(&job, 2);
    send(agents(job.pid())[1], Signal::STOP);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    assert!(ended.stderr.contains("nothing was heard of it for 2.4 seconds"), "{ended:?}");

    let job = start_on("a:1,b:1", &["--heartbeat", "off", "sleep", "4"]);
    sleepers(&job, 2);
    let agent = agents(job.pid())[1];
    send(agent, Signal::STOP);
    std::thread::sleep(Duration::from_millis(3500));
    send(agent, Signal::CONT);
    let ended = job.end();
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
}

/// The statistics of shared objects come from all hosts, also where a PE has failed.
#[test]
fn stats_of_shared_objects_come_from_all_hosts() {
    let script = format!("{} use; test $MEMONET_PE != 1 || exit 7", pe());
    let programs: [(&[&str], i32); 2] = [(&[&pe(), "use"], 0), (&["sh", "-c", &script], 7)];
    for (program, status) in programs {
        let ended = run_on("a:2,b:1", &[&["--stats"], program].concat());
        assert_eq!(ended.status, status, "{ended:?}");
        let table = ended.stderr.lines().skip_while(|line| !line.contains("hand-overs"));
        let rows = table.skip(1).map(|line| line.split_whitespace().skip(1).take(3).collect());
        let rows: Vec<Vec<&str>> = rows.collect();
        let expected = ["mutex 0", "rwlock 1"]
            .into_iter()
            .flat_map(|object| (0..3).map(move |pe| format!("{object} {pe}")));
        let rows: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(rows, expected.collect::<Vec<_>>(), "{ended:?}");
    }
    let ended = run_on("a:2,b:1", &["--stats", &pe(), "count"]);
    // Each PE makes 10 puts, of 384 bytes, on each.
    let puts = ended.stderr.lines().find(|line| line.starts_with("memonet: put "));
    let puts: Vec<&str> = puts.unwrap_or_default().split_whitespace().skip(1).collect();
    assert_eq!(puts, ["put", "90", "3456"], "{ended:?}");
    let none = run_on("a:1,b:1", &["--stats", "true"]);
    assert_eq!(none.stderr, "memonet: no PE has joined the job, so nothing was counted\n");
}

#[test]
fn a_simulated_machine_is_refused_on_several_hosts() {
    let ended = run_on("a:1,b:1", &["--machine", "scc", "true"]);
    assert_eq!((ended.status, &*ended.stdout), (1, ""), "{ended:?}");
    assert!(ended.stderr.contains("a simulated machine lies in one process"), "{ended:?}");
}

/// PEs of different hosts could not reach each other by it.
#[test]
fn a_fabric_of_one_machine_is_refused() {
    let ended = run_on("a:1,b:1", &["--fabric", "far", &pe(), "ring", "nobody"]);
    assert_eq!((ended.status, &*ended.stdout), (1, ""), "{ended:?}");
    let said = "names no way between hosts: this job has several";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

#[test]
fn a_program_that_is_not_there_starts_nothing() {
    let here = std::env::temp_dir();
    let cases: [(&[&str], i32, &str); 3] = [
        (&["./nothing"], 127, ": cannot start ./nothing: No such file"),
        (&["no-such-program-anywhere"], 127, "it is not in PATH"),
        (&[here.to_str().unwrap()], 126, "it is a directory"),
    ];
    for (program, status, said) in cases {
        let ended = run_on("a:1,b:1", program);
        assert_eq!((ended.status, &*ended.stdout), (status, ""), "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}

/// Whatever the agent cannot start any more: its guard, its threads or PEs. Limits do not hold for
/// root, so that host has a user of its own.
#[test]
fn a_host_that_takes_no_more_processes_is_named() {
    if !rustix::process::geteuid().is_root() || !common::has("setpriv") {
        return common::skip("it needs root, to run an agent as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), executable.clone()).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // The user must be able to start it.
    std::fs::copy(env!("CARGO_BIN_EXE_memonet"), path("memonet")).unwrap();
    let user = 100_000 + std::process::id();
    let mut limit = 0;
    loop {
        limit += 1;
        assert!(limit < 20, "that is enough for all");
        let script = format!(
            "#!/bin/sh\nhost=$1; shift 2; case $host in a) exec {0} \"$@\";; esac\n\
             exec prlimit --nproc={limit} setpriv --reuid {user} --clear-groups {0} \"$@\"\n",
            path("memonet")
        );
        std::fs::write(path("limited"), script).unwrap();
        std::fs::set_permissions(path("limited"), executable.clone()).unwrap();
        let words = ["--hosts", "a:1,b:2", "--launch-agent", &path("limited"), "--interface", "lo"];
        let program = ["sh", "-c", "cd / && echo $MEMONET_PE"];
        let (mut command, mark, own) = common::command(&[&words[..], &program].concat());
        std::fs::set_permissions(own.path(), executable.clone()).unwrap();
        let output = command.stdin(Stdio::null()).output().unwrap();
        until("nothing is left", || common::marked(&mark).is_empty());
        let [said, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        if output.status.success() {
            assert_eq!((said.lines().count(), &*errors), (3, ""), "{said}");
            break;
        }
        assert!(errors.starts_with("memonet: b: "), "{limit}: {said}{errors}");
        assert!(errors.contains("ulimit -u"), "{limit}: {said}{errors}");
        assert_eq!(errors.lines().count(), 1, "{limit}: {said}{errors}");
    }
    assert!(limit > 4, "a guard, threads and PEs were refused before");
}

/// Found out by the kernel alone, when some PEs run already.
#[test]
fn a_program_that_the_kernel_refuses_ends_the_job() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "\u{7f}ELF but not really").unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let bad = file.path().to_str().unwrap();
    // PE 0 and the whole host a start.
    let ended = run_on("a:2,b:2", &["-n", "3", "sleep", "1000", ":", "-n", "1", bad]);
    assert_eq!((ended.status, &*ended.stdout), (126, ""), "{ended:?}");
    assert!(ended.stderr.contains("b: cannot start /"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

#[test]
fn why_there_is_no_agent_is_said() {
    let cases = [
        (
            "missing",
            127,
            "there is no memonet on a, neither at this program's own path nor on PATH",
        ),
        ("other_version", 1, "a has memonet 0.0.1 (layout 1, control 0), but this is"),
        ("unreachable", 1, "ssh: connect to host a port 22: No route to host"),
    ];
    for (by, status, said) in cases {
        let ended = run(&all(&on("a:1", by), &["echo", "no"]));
        assert_eq!((ended.status, &*ended.stdout), (status, ""), "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
    let mut words = on("a:1,b:1", "local");
    words[3] = "/no/such/command".into();
    let ended = run(&all(&words, &["true"]));
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.stderr.contains("cannot start /no/such/command"), "{ended:?}");
}

#[test]
fn an_agent_is_found_on_path() {
    let ended = run(&all(&on("a:1,b:1", "on_path"), &["echo", "found"]));
    assert_eq!(
        (ended.status, &*ended.stdout, &*ended.stderr),
        (0, "found\nfound\n", ""),
        "{ended:?}"
    );
}

#[test]
fn what_a_login_shell_says_is_shown() {
    let ended = run(&all(&on("a:1", "banner"), &["echo", "mine"]));
    assert_eq!((ended.status, &*ended.stdout), (0, "mine\n"), "{ended:?}");
    assert_eq!(ended.stderr, "memonet: a: Welcome to a\nmemonet: a: prompt>\n");
    let ended = run(&all(&on("a:1", "warning"), &["echo", "mine"]));
    assert_eq!((ended.status, &*ended.stdout), (0, "mine\n"), "{ended:?}");
    assert_eq!(ended.stderr, "memonet: a: warning: a is slow\n");
}

#[test]
fn an_agent_that_dies_between_is_a_lost_host() {
    let ended = run(&all(&on("a:1", "dies"), &["sleep", "1000"]));
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let ended = run(&all(&on("a:1", "garbage"), &["echo", "mine"]));
    assert_eq!((ended.status, &*ended.stdout), (0, "mine\n"), "{ended:?}");
}

/// Without -n, as many PEs as there are slots.
#[test]
fn oshrun_takes_hosts() {
    let (mut command, _, _folder) = common::command(&[]);
    let program = command.get_program().to_owned();
    command = std::process::Command::new(program);
    command.args(["oshrun", "-H", "a:2,b:1", "--launch-agent", &script("local"), "-iface", "lo"]);
    command.args(["-l", "--timeout", "40", "sh", "-c", "echo $MEMONET_PE of $MEMONET_NPES"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"], "{:?}", output.stderr);
}

#[test]
fn hosts_come_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "# two\na slots=2\nb:2\n").unwrap();
    let local = script("local");
    let args = [
        "--hostfile",
        file.path().to_str().unwrap(),
        "--launch-agent",
        &local,
        "--interface",
        "lo",
    ];
    let count = |rest: &[&str]| run(&[&args[..], rest].concat());
    let ended = count(&["-v", "-n", "3", "true"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(
        ended.stderr.contains("PE 2 is process") && !ended.stderr.contains("PE 3"),
        "{ended:?}"
    );
    let two = count(&["-n", "1", "echo", "one", ":", "-n", "2", "sh", "-c", "echo $MEMONET_PE"]);
    assert_eq!(two.lines(), ["1", "2", "one"], "{two:?}");
    for (rest, said) in [
        (&["-n", "5", "true"][..], "5 PEs on hosts with 4 slots"),
        (&["true", ":", "-n", "1", "true"], "give the first one -n"),
    ] {
        let ended = count(rest);
        assert!(ended.status == 1 && ended.stderr.contains(said), "{ended:?}");
    }
}

/// Memory of a near PE is reached by stores where others are far, too: agents make no streams
/// within a node.
#[test]
fn shared_data_of_pes_on_several_nodes() {
    for hosts in ["a:2,b:2", "a:3,b:1"] {
        let ended = run(&all(&on(hosts, "local"), &["--timeout", "60", &pe(), "use"]));
        assert_eq!(ended.status, 0, "{ended:?}");
    }
}
