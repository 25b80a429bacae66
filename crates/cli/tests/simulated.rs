//! `memonet run --machine`: programs that know nothing of it, on hardware that is not there.

mod common;
#[path = "../examples/programs/random_blocks.rs"]
mod random_blocks;
#[path = "../examples/programs/rounds.rs"]
mod rounds;

use common::{Ended, run, run_for_a_minute, send, start, until};
use memonet::{Cmp, Job};
use memonet_sim::machine::BUILT_IN;
use memonet_sim::{Machine, Options, now};
use std::collections::HashSet;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

/// The program that the tests run.
static PROGRAM: LazyLock<String> = LazyLock::new(|| common::example("simulated"));

/// Machines of each kind.
const MACHINES: [&str; 5] = ["dimmnet-1/D-tree", "sr2201", "scc", "dimmnet-2/lossy", "rdma-100g"];

/// A machine on which all PEs leave a barrier at one moment.
const STAR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/star.toml");

/// A job of the program on a machine.
fn on(machine: &str, options: &[&str], arguments: &[&str]) -> Ended {
    let mut all = vec!["--machine", machine];
    all.extend(options);
    all.push(&PROGRAM);
    all.extend(arguments);
    run(&all)
}

/// What a run prints that succeeds without a word of complaint.
#[track_caller]
fn printed(machine: &str, options: &[&str], arguments: &[&str]) -> String {
    let ended = on(machine, options, arguments);
    assert_eq!(
        (ended.status, ended.stderr.as_str()),
        (0, ""),
        "{machine} {arguments:?}: {}",
        ended.stdout
    );
    ended.stdout
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// As in the example.
fn ping_pong(job: &Job, times: u64) -> String {
    let window = job.window::<u64>(1).unwrap();
    job.barrier().unwrap();
    let start = now();
    if job.pe() < 2 {
        let other = window.remote(1 - job.pe(), 0).unwrap();
        for round in 1..=times {
            if job.pe() == 0 {
                other.store(round);
            }
            window.wait_until(0, Cmp::Ge, round).unwrap();
            if job.pe() == 1 {
                other.store(round);
            }
        }
    }
    let time = now() - start;
    job.barrier().unwrap();
    format!("{} {}", job.pe(), time.as_nanos())
}

#[test]
fn processes_take_the_time_that_coroutines_take() {
    let of_two = std::iter::once(("dimmnet-1/D", 2));
    for (machine, pes) in of_two.chain(MACHINES.map(|machine| (machine, 3))) {
        let text = printed(machine, &["-n", &pes.to_string()], &["ping-pong", "50"]);
        let program = |job: Job| ping_pong(&job, 50);
        let done =
            memonet_sim::run(&Machine::load(machine).unwrap(), pes, &Options::default(), program)
                .unwrap();
        assert_eq!(sorted(&text), done.results, "{machine}");
    }
}

/// What the machine does for a process in one go takes the time that it takes one by one: at every
/// moment, whoever comes first, and in teams of sizes for which barriers and collectives have
/// different ways.
#[test]
fn barriers_and_collectives_take_processes_the_time_that_they_take_coroutines() {
    for (seed, (machine, pes)) in
        MACHINES.into_iter().flat_map(|machine| [2, 3, 8, 11].map(|pes| (machine, pes))).enumerate()
    {
        let text = printed(machine, &["-n", &pes.to_string()], &["rounds", &seed.to_string()]);
        let program = |job: Job| {
            let moments = rounds::run(&job, seed as u64, now).unwrap();
            format!("{} {moments:?}", job.pe())
        };
        let machine = Machine::load(machine).unwrap();
        let mut done = memonet_sim::run(&machine, pes, &Options::default(), program).unwrap();
        done.results.sort_unstable();
        assert_eq!(sorted(&text), done.results, "{}, {pes} PEs", machine.name());
    }
}

/// Memory is right on each machine, and takes the same time in both ways to run a program.
#[test]
fn blocks_of_all_lengths_arrive_on_every_machine() {
    let variants = ["dimmnet-1/D-tree", "dimmnet-1/fagus", "dimmnet-2/lossy"];
    // The machine of this file exists only in variants.
    let files = BUILT_IN.iter().map(|&(name, _)| name).filter(|&name| name != "dimmnet-1");
    for (machine, seed) in files.chain(variants).zip(1..) {
        let ended = run_for_a_minute(&[
            "--machine",
            machine,
            "-n",
            "2",
            &PROGRAM,
            "random-blocks",
            &seed.to_string(),
        ]);
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{machine}");
        let program = |job: Job| {
            let time = random_blocks::run(&job, seed, now).unwrap();
            format!("{} {}", job.pe(), time.as_nanos())
        };
        let options = Options { segment: None, ..Options::default() };
        let done =
            memonet_sim::run(&Machine::load(machine).unwrap(), 2, &options, program).unwrap();
        assert_eq!(ended.lines(), done.results, "{machine}");
    }
}

#[test]
fn results_are_those_of_a_real_machine() {
    for program in ["blocks", "restricted", "offers", "barriers"] {
        let real = run(&["-n", "3", &PROGRAM, program]);
        assert_eq!(real.status, 0, "{real:?}");
        for machine in MACHINES {
            let text = printed(machine, &["-n", "3"], &[program]);
            assert_eq!(sorted(&text), sorted(&real.stdout), "{machine}");
        }
    }
}

#[test]
fn clocks_show_the_time_of_the_machine() {
    let text = printed("dimmnet-1/D", &["-n", "1"], &["clocks"]);
    let expected = "in 2000: true\nslept: 3600s 3600s\ncycles: 3600000000000\nwaited for 10 ms\nsince the first line: 3600 s\n";
    assert_eq!(text, expected);
}

#[test]
fn waits_for_threads_last_until_they_answer_or_as_long_as_they_are_to() {
    let answered = "channel: Ok(())\ncondition: true false\nsemaphore: 0\nsemaphore: 0\n";
    let late = [
        "channel",
        "semaphore",
        "mutex",
        "condition",
        "monotonic condition",
        "condition by a clock",
        "condition by the other",
        "mutex by a clock",
        "semaphore by a clock",
        "reader",
        "writer",
    ];
    let late: String = late.map(|wait| format!("{wait}: false after 20ms\n")).concat();
    let expected = format!("{answered}{late}free lock: true after 0ns\nrefused: true\n");
    assert_eq!(printed("dimmnet-1/D", &["-n", "1"], &["threads"]), expected);
}

/// The machine, which looks for a PE that waits, gives it its turn.
#[test]
fn a_call_for_attention_ends_a_wait_in_a_barrier() {
    let ended = on("rdma-100g", &["-n", "2", "--timeout", "300"], &["attention"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "interrupted: true\n"), "{ended:?}");
}

#[test]
fn who_sees_real_time_says_so() {
    let ended = on("rdma-100g", &["-n", "2"], &["denied"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    for pe in 0..2 {
        let told = format!("PE {pe} sees real time by its clocks, its sleeps, its cycle counter");
        assert!(ended.stderr.contains(&told), "{ended:?}");
    }
}

#[test]
fn what_a_pe_starts_is_no_pe() {
    assert_eq!(printed("rdma-100g", &["-n", "2"], &["children"]), "a child\n0\n".repeat(2));
}

/// Such sleeps last in real time, and the clocks show it.
#[test]
fn a_sleep_outside_of_the_machine_ends_a_wait_for_a_moment() {
    let expected = "before joining: it is later\n".repeat(2);
    assert_eq!(printed("rdma-100g", &["-n", "2"], &["before"]), expected);
    let expected = "in a child: it is later\n3\n";
    assert_eq!(printed("rdma-100g", &["-n", "1"], &["forked"]), expected);
}

#[test]
fn a_thread_that_sleeps_delays_nobody_but_those_who_wait_for_it() {
    let expected = "barriers end early: true\njoined after 1 s\neach: [3, 1, 2]\n";
    assert_eq!(printed("rdma-100g", &["-n", "1"], &["sleeper"]), expected);
    let text = printed("rdma-100g", &["-n", "2"], &["sleeper"]);
    assert_eq!(text.matches("barriers end early: true").count(), 2, "{text}");
}

#[test]
fn no_clock_goes_back_while_other_threads_call() {
    assert_eq!(printed("rdma-100g", &["-n", "2"], &["readers"]), "went back: 0\n".repeat(2));
}

#[test]
fn a_signal_handler_may_sleep() {
    assert_eq!(printed("rdma-100g", &["-n", "2"], &["handler"]), "over\n".repeat(2));
}

#[test]
fn select_takes_any_number_of_microseconds() {
    assert_eq!(printed("rdma-100g", &["-n", "1"], &["select"]), "0 -1\n3.5s\n");
}

#[test]
fn a_sleep_that_the_machine_refuses_is_told() {
    let ended = on("rdma-100g", &["-n", "1", "--patience", "1"], &["refused"]);
    assert_ne!(ended.status, 0, "{ended:?}");
    assert!(ended.stderr.contains("PE 0: a sleep of 17280000s, in real time: "), "{ended:?}");
    assert!(ended.stderr.contains("simulated time ends after 106 days"), "{ended:?}");
}

#[test]
fn the_next_program_may_read_cycles() {
    assert_eq!(printed("rdma-100g", &["-n", "1"], &["exec"]), "0x0\n".repeat(3));
}

#[test]
fn a_launcher_that_a_pe_starts_lives_in_real_time() {
    let inner = [env!("CARGO_BIN_EXE_memonet"), "run", "-n", "1", "--timeout", "0.2"];
    let all = ["--machine", "rdma-100g", "-n", "1"].into_iter().chain(inner).chain(["sleep", "9"]);
    let ended = run(&all.collect::<Vec<_>>());
    assert_eq!(ended.status, 124, "{ended:?}");
    assert!(ended.stderr.contains("the job has not ended after"), "{ended:?}");
}

/// The tracks of a timeline in which something took time.
fn tracks(trace: &str) -> Vec<String> {
    let trace: serde_json::Value = serde_json::from_str(trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |event: &serde_json::Value| (event["pid"].as_u64(), event["tid"].as_u64());
    let busy: HashSet<_> = events
        .iter()
        .filter(|event| event["ph"] == "X" && event["dur"].is_number())
        .map(of)
        .collect();
    let named =
        |event: &&serde_json::Value| event["name"] == "thread_name" && busy.contains(&of(event));
    let names =
        events.iter().filter(named).map(|event| event["args"]["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn a_run_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    for machine in ["dimmnet-1/D-tree", "scc"] {
        let run = |name: &str, seed: &str| {
            let trace = folder.path().join(name);
            let ended = on(
                machine,
                &["-n", "3", "--seed", seed, "--trace", trace.to_str().unwrap()],
                &["talk"],
            );
            assert_eq!(ended.status, 0, "{ended:?}");
            (ended.stdout, ended.stderr, std::fs::read_to_string(trace).unwrap())
        };
        let (first, again, other) = (run("a", "1"), run("b", "1"), run("c", "2"));
        assert_eq!(first, again, "{machine}");
        assert_ne!(first.0, other.0, "another seed gives other random bytes");
        let tracks = tracks(&first.2);
        for track in ["PE 2", "NIC 2 send", "link from node 2 port 0", "switch 0 port 2"] {
            assert!(tracks.iter().any(|busy| busy == track), "{track}: {tracks:?}");
        }
    }
}

/// What PEs print that run at once comes in one order, that in which they would run one after the
/// other.
#[test]
fn output_of_one_moment_is_in_one_order() {
    let of = |line: &str| line.split([' ', ':']).nth(3).unwrap().parse::<usize>().unwrap();
    let first = printed(STAR, &["-n", "12", "--bind", "none"], &["echo"]);
    let lines: Vec<&str> = first.lines().filter(|line| line.starts_with("round")).collect();
    assert_eq!(lines.len(), 4 * 12 + 4 * (40 + 80) * (1 + 2 + 3));
    // The lines of a PE and round are together.
    let blocks = lines.chunk_by(|a, b| of(a) == of(b) && a[..7] == b[..7]);
    assert_eq!(blocks.count(), 4 * 12);
    for _ in 0..10 {
        assert!(printed(STAR, &["-n", "12"], &["echo"]) == first);
    }
}

/// Nor is what one prints at that moment passed on with what it has printed alone before.
#[test]
fn output_of_one_moment_comes_after_that_of_an_earlier_one() {
    // So many that some have run before the engine looks at the first.
    let pes = 48;
    let first = printed(STAR, &["-n", "48"], &["late"]);
    let lines: Vec<&str> = first.lines().collect();
    for (early, lines) in lines.chunks(pes + 1).enumerate() {
        assert_eq!(lines[0], format!("{early} is early"), "{first}");
        // The others slept first, so one of them is the first to go on.
        assert_ne!(lines[1], format!("after {early}: {early}"), "{first}");
    }
    for _ in 0..3 {
        assert_eq!(printed(STAR, &["-n", "48"], &["late"]), first);
    }
}

#[test]
fn pes_run_at_once_unless_their_computing_is_measured() {
    let met = |options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let ended = on(STAR, options, &["meet", path]);
        assert_eq!(ended.status, 0, "{ended:?}");
        ended.stdout.lines().filter(|line| line.ends_with("meets")).count()
    };
    assert_eq!(met(&["-n", "5"]), 5);
    // The last PE finds the file of the first, which has ended its turn.
    assert_eq!(met(&["-n", "3", "--cpu-scale", "1"]), 1);
}

/// What a run depends on is machine, program and seed: not the CPUs that it may use, the
/// environment, the folder or the language.
#[test]
fn a_run_repeats_itself_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, wrapper: &[&str]| {
        let trace = folder.path().join(name);
        let (program, arguments) = wrapper.split_first().unwrap();
        let mut command = std::process::Command::new(program);
        command.args(arguments).arg(env!("CARGO_BIN_EXE_memonet"));
        command.args(["run", "--machine", "dimmnet-2/lossy", "-n", "3", "--trace"]).arg(&trace);
        let ended = command.arg(&*PROGRAM).arg("offers").output().unwrap();
        assert!(ended.status.success(), "{name}: {ended:?}");
        (ended.stdout, std::fs::read(trace).unwrap())
    };
    let here = run("here", &["env"]);
    let large = format!("LARGE={}", "x".repeat(50_000));
    for (name, wrapper) in [
        ("one CPU", &["taskset", "1"][..]),
        ("no environment", &["env", "-i"]),
        ("much environment", &["env", &large, "TZ=Asia/Tokyo", "LC_ALL=tr_TR.UTF-8", "--chdir=/"]),
        ("an older CPU", &["env", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-ERMS,-FMA"]),
        ("less memory", &["prlimit", "--nofile=256", "--stack=1048576"]),
    ] {
        assert!(run(name, wrapper) == here, "{name}");
    }
}

/// A PE has one CPU, and its threads share it.
#[test]
fn computing_takes_the_cpu_time_of_all_threads_when_asked_to() {
    let scaled = &["-n", "1", "--cpu-scale", "3"][..];
    for (options, threads, expected) in
        [(&["-n", "1"][..], "1", 0..1), (scaled, "1", 600..700), (scaled, "4", 600..700)]
    {
        let text = printed("rdma-100g", options, &["compute", threads]);
        let millis: u64 = text.trim().parse().unwrap();
        assert!(expected.contains(&millis), "{options:?}, {threads} threads: {millis} ms");
    }
}

/// The report repeats itself, as all of a run does, and comes also when the job fails.
#[test]
fn the_report_says_what_a_run_has_used() {
    let options = ["-n", "2", "--stats"];
    let ended = on("rdma-100g", &options, &["ping-pong", "50"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = ended.stderr.lines().map(words).collect();
    let first = ["memonet:", "machine", "rdma-100g:", "2", "PEs", "took"];
    assert_eq!(rows[0][..6], first, "{ended:?}");
    let number = |row: &[String], column: usize| row[column].parse::<f64>().unwrap();
    let took = number(&rows[0], 6);
    for (pe, row) in rows[2..4].iter().enumerate() {
        assert_eq!(row[1], pe.to_string());
        let [computing, calling, waiting, calls] = [2, 3, 4, 5].map(|column| number(row, column));
        assert_eq!(computing, 0.0, "{ended:?}");
        assert!(calling > 0.0 && waiting > calling && calling + waiting < took + 0.01, "{ended:?}");
        assert!(calls >= 50.0, "{ended:?}");
    }
    assert_eq!(rows[4][1..], ["busiest", "links", "busy", "bytes", "packets"], "{ended:?}");
    assert_eq!(rows[9][1..3], ["PE", "operations"], "two links in each direction: {ended:?}");
    // 50 stores of 8 bytes by each.
    assert!(rows.iter().any(|row| row[1..] == ["store", "100", "800"]), "{ended:?}");
    assert_eq!(on("rdma-100g", &options, &["ping-pong", "50"]).stderr, ended.stderr);
    let ended = on("rdma-100g", &["-n", "3", "--stats"], &["deadlock"]);
    assert!(ended.stderr.contains("machine rdma-100g: 3 PEs took"), "{ended:?}");
}

#[test]
fn who_polls_by_plain_loads_is_told() {
    let ended = on("rdma-100g", &["-n", "2", "--patience", "0.5"], &["poll"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(
        ended.stderr.contains("PE 0 has made no call for 500ms")
            && ended.stderr.contains("plain loads"),
        "{ended:?}"
    );
}

#[test]
fn who_waits_for_what_is_outside_of_the_machine_is_told_that_and_not_to_poll() {
    let ended = on("rdma-100g", &["-n", "2", "--patience", "0.5"], &["listen"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(
        ended.stderr.contains("PE 0 has made no call for 500ms. It sleeps in the kernel")
            && !ended.stderr.contains("plain loads"),
        "{ended:?}"
    );
}

/// A pager stops reading, and a user Ctrl-S's a terminal.
#[test]
fn a_pe_whose_output_nobody_reads_is_not_silent() {
    let options = ["--machine", "rdma-100g", "-n", "1", "--patience", "0.3", &PROGRAM, "print"];
    let (mut command, _, _folder) = common::command(&options);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let complaints = common::collect(launcher.stderr.take().unwrap());
    std::thread::sleep(Duration::from_millis(1500));
    let printed = common::collect(launcher.stdout.take().unwrap()).join().unwrap();
    let status = common::wait(&mut launcher);
    assert_eq!((complaints.join().unwrap(), printed.len()), (String::new(), 4 << 20));
    assert!(status.success());
}

#[test]
fn a_stopped_pe_is_not_silent() {
    let job = start(&["--machine", "rdma-100g", "-n", "1", "--patience", "0.3", &PROGRAM, "stop"]);
    let stopped = || {
        let pes = job.processes();
        let stat = |pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        pes.into_iter().find(|&pid| stat(pid).is_some_and(|stat| stat.contains(") T ")))
    };
    until("it has stopped", || stopped().is_some());
    let pid = stopped().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    send(pid, rustix::process::Signal::CONT);
    let ended = job.end();
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
}

#[test]
fn a_deadlock_is_told_with_what_each_waits_for() {
    let ended = on("dimmnet-1/D-tree", &["-n", "3"], &["deadlock"]);
    assert_eq!(ended.status, 1, "{ended:?}");
    for part in [
        "deadlock at ",
        "PE 0 has waited ",
        "for word 0 of the window made at ",
        "to be != 0; it is 0; a time limit ends this wait",
        "PE 1-2 have waited ",
        "for the barrier of all PEs; elsewhere: PE 0",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    // What does not apply is not said.
    let advice = "call memonet from one thread";
    assert!(!ended.stderr.contains(advice), "{ended:?}");
    let ended = on("dimmnet-1/D-tree", &["-n", "3"], &["deadlock", "threads"]);
    assert!(ended.status == 1 && ended.stderr.contains(advice), "{ended:?}");
}

#[test]
fn a_death_reaches_the_others() {
    let ways =
        [("kill", 137, "signal 9"), ("3", 3, "status 3"), ("quietly", 1, "without finalising")];
    for (machine, (how, status, words)) in ["rdma-100g", "scc", "sr2201"].into_iter().zip(ways) {
        let ended = on(machine, &["-n", "3"], &["die", how]);
        assert_eq!(ended.status, status, "{machine} {how}: {ended:?}");
        assert!(
            ended.stderr.contains("PE 1 (") && ended.stderr.contains(words),
            "{how}: {ended:?}"
        );
        let seen = ended.stdout.lines().filter(|line| line.starts_with("error: PE 1 ")).count();
        assert_eq!(seen, 2, "{machine} {how}: {ended:?}");
    }
}

#[test]
fn a_death_at_any_moment_ends_the_run() {
    // Multiplicative congruential, with Knuth's constants.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..100 {
        let machine = MACHINES[round % MACHINES.len()];
        let job = start(&["--machine", machine, "-n", "3", &PROGRAM, "work"]);
        // They start one after the other: some die before others are there.
        let there = 1 + random(3);
        until("some run", || job.processes().len() >= there);
        std::thread::sleep(std::time::Duration::from_micros(random(20_000) as u64));
        let pes = job.processes();
        let victim = pes[random(pes.len())];
        send(victim, rustix::process::Signal::KILL);
        let ended = job.end();
        let told = format!("process {victim}): killed by signal 9");
        assert_eq!(ended.status, 137, "{machine} round {round}: {ended:?}");
        assert!(ended.stderr.contains(&told), "{machine} round {round}: {told}: {ended:?}");
    }
}

#[test]
fn killing_the_launcher_ends_all() {
    let job = start(&["--machine", "rdma-100g", "-n", "2", &PROGRAM, "work"]);
    until("both run", || job.processes().len() == 2);
    send(job.pid(), rustix::process::Signal::KILL);
    job.end();
}

/// What is still under way in the machine is dropped, and the signal alone is told.
#[test]
fn a_job_ends_at_a_signal_though_much_is_under_way() {
    let text = include_str!("../../sim/machines/fast-ethernet-udp.toml")
        .replace("packet = { value = 1472,", "packet = { value = 32,");
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("slow.toml");
    std::fs::write(&machine, text).unwrap();
    let options = ["-n", "2", &PROGRAM, "pour"];
    let job = start(&[&["--machine", machine.to_str().unwrap()], &options[..]].concat());
    let poured = job.folder().join("poured");
    until("much is under way", || poured.exists());
    std::fs::remove_file(poured).unwrap();
    send(job.pid(), rustix::process::Signal::TERM);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 15, "{ended:?}");
    assert!(!ended.stderr.contains("outside"), "{ended:?}");
}

#[test]
fn garbage_in_the_shared_pages_ends_the_run_at_most() {
    for (seed, machine) in
        ["1", "2", "3", "4"].into_iter().flat_map(|seed| MACHINES.map(|machine| (seed, machine)))
    {
        let ended = on(machine, &["-n", "3", "--timeout", "300"], &["hostile", seed]);
        // Where it has asked for a group that nobody else joins, it waits for ever.
        let told = ["PE 1 has broken the rules", "deadlock at "];
        assert_eq!(ended.status, 1, "{machine} {seed}: {ended:?}");
        assert!(told.iter().any(|told| ended.stderr.contains(told)), "{machine} {seed}: {ended:?}");
    }
}

#[test]
fn garbage_in_all_that_is_shared_is_survived() {
    for (seed, machine) in
        ["1", "2", "3"].into_iter().flat_map(|seed| MACHINES.map(|machine| (seed, machine)))
    {
        let ended =
            on(machine, &["-n", "3", "--patience", "2", "--timeout", "300"], &["vandal", seed]);
        // How the processes fare is their business.
        assert!(
            !ended.stderr.contains("bug of memonet") && !ended.stderr.contains("--timeout"),
            "{machine} {seed}: {ended:?}"
        );
    }
}

#[test]
fn machines_that_are_not_there_are_named_with_those_that_are() {
    for (machine, there) in
        [("dimmnet-9", "dimmnet-1, dimmnet-2"), ("dimmnet-1/Z", "A, B, C, D, E")]
    {
        let ended = on(machine, &["-n", "1"], &["ping-pong", "1"]);
        assert_eq!(ended.status, 1, "{ended:?}");
        assert!(
            ended.stderr.contains(machine.split('/').next().unwrap())
                && ended.stderr.contains(there),
            "{ended:?}"
        );
    }
}
