//! `memonet run`, option by option, through the real program.

mod common;

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use common::{
    broken, command, has, has_entry, pe, pes, run, send, start, start_with, state, until,
    usual_signals, wait,
};
use rustix::process::Signal;

#[test]
fn starts_n_pes_that_know_their_number() {
    let ended = run(&["-n", "5", "sh", "-c", "echo $MEMONET_PE of $MEMONET_NPES"]);
    assert_eq!(ended.lines(), ["0 of 5", "1 of 5", "2 of 5", "3 of 5", "4 of 5"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""));
}

#[test]
fn np_is_n() {
    assert_eq!(run(&["-np", "2", "echo", "-np"]).stdout, "-np\n-np\n");
    assert_eq!(run(&["--np", "2", "echo", "--np"]).stdout, "--np\n--np\n");
    assert_eq!(run(&["--bind", "none", "-np", "1", "echo", "-np", "7"]).stdout, "-np 7\n");
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let ended = run(&["-n", "1", "printf", "<%s>", "-n", "--label", "--", "", "a b"]);
    assert_eq!(ended.stdout, "<-n><--label><--><><a b>");
    assert_eq!(run(&["-n", "1", "--", "echo", "--label"]).stdout, "--label\n");
    assert_eq!(
        run(&["-n", "1", "echo", "-h", "--help", "--version"]).stdout,
        "-h --help --version\n"
    );
}

#[test]
fn label_marks_every_line() {
    let ended =
        run(&["-n", "2", "--label", "sh", "-c", "echo out; echo; echo err >&2; printf end"]);
    let mut out: Vec<&str> = ended.stdout.lines().collect();
    out.sort_unstable();
    assert_eq!(out, ["[0] ", "[0] end", "[0] out", "[1] ", "[1] end", "[1] out"]);
    let mut err: Vec<&str> = ended.stderr.lines().collect();
    err.sort_unstable();
    assert_eq!(err, ["[0] err", "[1] err"]);
}

#[test]
fn lines_stay_whole_under_load() {
    let (pes, lines) = (4, 3000);
    let ended = run(&["-n", "4", &pe(), "print", &lines.to_string()]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    for text in [&ended.stdout, &ended.stderr] {
        let mut next = vec![0; pes];
        for line in text.lines() {
            let mut words = line.split(' ');
            let mut number = || words.next().unwrap().parse::<usize>().unwrap();
            let (pe, i) = (number(), number());
            assert_eq!(i, next[pe], "lines of PE {pe} out of order");
            next[pe] += 1;
            assert_eq!(words.next().unwrap(), "x".repeat(i * 7 % 300), "a torn line");
            assert_eq!(words.next(), None, "two lines in one");
        }
        assert_eq!(next, vec![lines; pes]);
    }
}

#[test]
fn a_prompt_appears_before_its_answer() {
    let (mut command, _, _folder) = command(&[
        "-n",
        "2",
        "sh",
        "-c",
        "if [ $MEMONET_PE = 0 ]; then printf 'name? '; read name; echo hello $name; fi",
    ]);
    let mut launcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut prompt = [0; 6];
    launcher.stdout.as_mut().unwrap().read_exact(&mut prompt).unwrap();
    assert_eq!(&prompt, b"name? ");
    launcher.stdin.take().unwrap().write_all(b"memonet\n").unwrap();
    let mut rest = String::new();
    launcher.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "hello memonet\n");
    wait(&mut launcher);
}

#[test]
fn an_unfinished_line_of_one_pe_does_not_run_into_anothers() {
    let script = "if [ $MEMONET_PE = 0 ]; then printf half; while [ ! -e go ]; do sleep 0.02; done; rm go; sleep 0.3; echo -half
                  else while [ ! -e said ]; do sleep 0.02; done; rm said; echo other; touch go; fi";
    broken(&["-n", "2", "sh", "-c", script], "half", "\nother\n-half\n");
}

#[test]
fn input_goes_to_pe_0_alone() {
    let mut job = start_with(&["-n", "3", "--label", "cat"], Stdio::piped());
    job.launcher.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    assert_eq!(job.end().stdout, "[0] one\n[0] two\n");
}

#[test]
fn several_programs_are_one_job() {
    let one = "echo one $MEMONET_PE/$MEMONET_NPES $0";
    let two = "echo two $MEMONET_PE/$MEMONET_NPES $0";
    let ended = run(&["-n", "2", "sh", "-c", one, "a", ":", "-np", "1", "sh", "-c", two, "b"]);
    assert_eq!(ended.lines(), ["one 0/3 a", "one 1/3 a", "two 2/3 b"]);
    let ended = run(&["-n", "1", &pe(), "init", ":", "-n", "2", &pe(), "init"]);
    assert_eq!(ended.status, 0, "{}", ended.stderr);
}

#[test]
fn wrong_command_lines_say_what_is_right() {
    for (args, status, expected) in [
        (&["-n", "0", "true"][..], 2, "at least one PE"),
        (&["-n", "2"], 2, "PROGRAM"),
        (&["true"], 2, "-n <N>"),
        (&["-n", "x", "true"], 2, "not a number of PEs"),
        (&["-n", "5000", "true"], 2, "at most 4096"),
        (&["-n", "1", "--lable", "true"], 1, "no option --lable; the nearest is --label"),
        (&["--timeot", "3", "-n", "1", "true"], 1, "no option --timeot"),
        (&["-n", "1", "true", ":"], 1, "-n N PROGRAM"),
        (&["-n", "1", "true", ":", "true"], 1, "-n <N>"),
        (&["-n", "1", ":", "-n", "1", "true"], 1, "no program before"),
        (&["-n", "1", "--timeout", "-3", "true"], 2, "--timeout"),
        (&["-n", "1", "--timeout", "0", "true"], 2, "not a positive number"),
        (&["-n", "1", "--timeout", "nan", "true"], 2, "not a positive number"),
        (&["-n", "1", "--env", "x", "true"], 2, "NAME=VALUE"),
        (&["-n", "1", "--stats", "xml:a", "true"], 2, "no form of --stats"),
        (&["-n", "1", "--env", "MEMONET_SEGMENT_SIZE=lots", "true"], 1, "such as 512M"),
        (&["-n", "4096", "--bind", "core", "true"], 1, "--bind none"),
        (&["-n", "1", "--machine", "scc", "--seed", "x", "true"], 2, "not a number of at most 64"),
        (&["-n", "1", "--direct-hosts", "x", "true"], 2, "not a number of hosts"),
        (&["-n", "1", "--interface", "lo", "true"], 1, "--interface is for --hosts"),
        (&["-n", "1", "--heartbeat", "off", "true"], 1, "--heartbeat is for --hosts"),
    ] {
        let ended = run(args);
        assert_eq!(ended.status, status, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "echo", 0o644);
    let text = file("text", "echo", 0o755);
    let script = file("script", "#!/nowhere/interpreter\n", 0o755);
    for (program, status, expected) in [
        ("no-such-program", 127, "not in PATH"),
        ("./no-such-program", 127, "No such file"),
        ("", 127, "not in PATH"),
        ("/tmp", 126, "directory"),
        (&plain, 126, "chmod +x"),
        (&text, 126, "#!"),
        (&script, 127, "interpreter"),
    ] {
        let ended = run(&["-n", "2", program]);
        assert_eq!(ended.status, status, "{program}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(expected) && ended.stderr.contains(program),
            "{}",
            ended.stderr
        );
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    // The other programs of the job are not even started, or end when that shows too late.
    let ended = run(&["-n", "1", "sh", "-c", "echo started", ":", "-n", "1", "no-such-program"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (127, ""));
    assert_eq!(run(&["-n", "1", "sleep", "1000", ":", "-n", "1", &script]).status, 127);
    // What those have written that were started before is not lost.
    let tells = || {
        let program = ["-n", "1", "sh", "-c", "echo told; sleep 1000", ":"];
        run(&[&program[..], &["-n", "40", "true", ":", "-n", "1", &script]].concat())
    };
    until("PE 0 was fast enough", || tells().stdout == "told\n");
}

#[test]
fn exit_status_is_that_of_the_first_failure() {
    assert_eq!(run(&["-n", "3", "true"]).status, 0);
    let ended = run(&["-n", "2", "sh", "-c", "[ $MEMONET_PE = 0 ] || exit 3; sleep 1000"]);
    assert_eq!(ended.status, 3);
    assert!(ended.stderr.contains("PE 1 (sh, process "), "{}", ended.stderr);
    assert!(ended.stderr.contains("ended with exit status 3"), "{}", ended.stderr);
    assert!(ended.stderr.contains("then PE 0: killed by signal 15"), "{}", ended.stderr);
    assert_eq!(
        run(&["-n", "2", "sh", "-c", "[ $MEMONET_PE = 0 ] || kill -SEGV $$; sleep 1000"]).status,
        128 + 11
    );
    let ended = run(&[
        "-n",
        "2",
        "--keep-going",
        "sh",
        "-c",
        "[ $MEMONET_PE = 1 ] && exit 4; sleep 0.5; exit 5",
    ]);
    assert_eq!(ended.status, 4);
}

#[test]
fn the_report_of_a_death_shows_where_its_output_ended() {
    let script = "[ $MEMONET_PE = 1 ] && { echo first; echo second; printf unfinished >&2; kill -ABRT $$; }; sleep 1000";
    let ended = run(&["-n", "2", "sh", "-c", script]);
    assert!(ended.stderr.contains("SIGABRT"), "{}", ended.stderr);
    assert!(ended.stderr.contains("last line of its output: second"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("last line of its error output, unfinished: unfinished"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_line_right_above_the_report_is_not_repeated() {
    let lines = |script: &str| {
        let ended = run(&["-n", "1", "sh", "-c", script]);
        ended.stderr.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = lines("echo why >&2; exit 3");
    assert!(alone.len() == 2 && alone[0] == "why", "{alone:?}");
    let traceback = "echo 'Traceback (most recent call last):' >&2; echo ' f' >&2";
    let alone = lines(&format!("{traceback}; echo ValueError >&2; exit 1"));
    assert!(alone.len() == 4 && alone[2] == "ValueError", "{alone:?}");
    let elsewhere = lines("echo why; exit 3");
    assert_eq!(elsewhere[1], "memonet:   last line of its output: why", "{elsewhere:?}");
}

#[test]
fn survivors_have_time_to_end_by_themselves_but_not_forever() {
    // One that tidies up at SIGTERM, one that does not listen to it.
    let script = "case $MEMONET_PE in
        0) trap 'echo tidy; exit 0' TERM;;
        1) trap '' TERM;;
        2) while [ ! -e ready0 ] || [ ! -e ready1 ]; do sleep 0.01; done; rm ready*; exit 9;;
    esac; touch ready$MEMONET_PE; while :; do sleep 0.02; done";
    let ended = run(&["-n", "3", "sh", "-c", script]);
    assert_eq!((ended.status, ended.stdout.as_str()), (9, "tidy\n"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("PE 1: killed by signal 9 (SIGKILL) by memonet"),
        "{}",
        ended.stderr
    );
}

#[test]
fn keep_going_lets_the_others_finish() {
    let ended = run(&[
        "-n",
        "3",
        "--keep-going",
        "sh",
        "-c",
        "[ $MEMONET_PE = 1 ] && exit 3; sleep 0.5; echo done",
    ]);
    assert_eq!((ended.status, ended.stdout.as_str()), (3, "done\ndone\n"));
    assert!(ended.stderr.contains("PE 1"), "{}", ended.stderr);
}

#[test]
fn timeout_ends_the_job_and_says_so() {
    let ended = run(&[
        "-n",
        "2",
        "--timeout",
        "1",
        "sh",
        "-c",
        "[ $MEMONET_PE = 0 ] && exit 0; sleep 1000",
    ]);
    assert_eq!(ended.status, 124);
    assert!(
        ended.stderr.contains("--timeout") && ended.stderr.contains("Still running: PE 1\n"),
        "{}",
        ended.stderr
    );
    for long in ["1000", "1e12", "1e18", "1e19", "1e300", "inf"] {
        let ended = run(&["-n", "2", "--timeout", long, "true"]);
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{long}");
    }
}

#[test]
fn environment_reaches_all_pes() {
    let show = "echo $A $MEMONET_FABRIC";
    let ended = run(&["-n", "2", "--env", "A=b=c", "--fabric", "far:seed=7", "sh", "-c", show]);
    assert_eq!(ended.stdout, "b=c far:seed=7\nb=c far:seed=7\n");
}

#[test]
fn segments_have_the_size_that_is_asked_for() {
    let show = "stat -Lc %s /proc/self/fd/$MEMONET_JOB_FD; echo $MEMONET_SEGMENT_SIZE";
    let size = |options: &[&str]| {
        let ended = run(&[&["-n", "1"], options, &["sh", "-c", show]].concat());
        let (size, variable) =
            ended.stdout.trim_end().split_once('\n').unwrap_or((ended.stdout.trim_end(), ""));
        (size.parse::<u64>().unwrap(), variable.to_owned())
    };
    let (small, variable) = size(&["--env", "MEMONET_SEGMENT_SIZE=8M"]);
    assert_eq!(variable, "8M");
    let (large, _) =
        size(&["--env", "MEMONET_SEGMENT_SIZE=8M", "--env", "MEMONET_SEGMENT_SIZE=64M"]);
    // And a quarter of it for globals, and another for staging areas, which are 2 MiB at least.
    assert_eq!(large - small, (56 + 14 + 14) << 20);
    assert!(size(&[]).0 > large, "all of physical memory is less than {large} bytes");
}

#[test]
fn bound_pes_have_an_equal_share_of_their_own() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let show = "grep Cpus_allowed_list /proc/self/status";
    let output = |args: &[&str]| {
        let ended = run(args);
        assert_eq!(ended.status, 0, "{ended:?}");
        ended.stdout
    };
    let one = run(&["-n", "1", "-v", "--bind", "core", "nproc"]);
    assert_eq!(one.stdout, format!("{cpus}\n"), "{one:?}");
    assert!(one.stderr.contains(&format!("each has {cpus} for itself")), "{}", one.stderr);
    if cpus >= 2 {
        let two = output(&["-n", "2", "sh", "-c", show]);
        let (first, second) = two.split_once('\n').unwrap();
        assert_ne!(first, second.trim_end(), "bound to the same CPUs, though there are enough");
        assert_eq!(output(&["-n", "2", "nproc"]), format!("{0}\n{0}\n", cpus / 2));
    }
    assert_eq!(output(&["-n", "1", "--bind", "none", "nproc"]), format!("{cpus}\n"));
    if cpus >= 2 {
        // One more than CPUs does not come out even.
        let many = (cpus + 1).to_string();
        assert_eq!(output(&["-n", &many, "nproc"]), format!("{cpus}\n").repeat(cpus + 1));
    }
    let (thrice, all) = ((3 * cpus).to_string(), format!("{cpus}\n").repeat(3 * cpus));
    assert_eq!(output(&["-n", &thrice, "--bind", "none", "nproc"]), all);
    let shown = output(&["-n", &thrice, "sh", "-c", show]);
    let mut lists: Vec<&str> = shown.lines().collect();
    lists.sort_unstable();
    let each: Vec<usize> = lists.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    assert_eq!(each, vec![3; cpus], "{shown}");
}

#[test]
fn verbose_tells_processes() {
    let ended = run(&["-n", "2", "-v", "sh", "-c", "echo PE $MEMONET_PE is process $$"]);
    for line in ended.stdout.lines() {
        assert!(ended.stderr.contains(&format!("{line} (sh)")), "{line}: {}", ended.stderr);
    }
    assert_eq!(ended.stdout.lines().count(), 2);
}

#[test]
fn pes_start_with_usual_signals_and_limits() {
    // Of the masks, the usual signals; the next ones are the C library's own.
    let show = "/open files/ { print $4 } /SigBlk|SigIgn/ { print $1, substr($2, 10) }";
    let awk = ["awk", show, "/proc/self/limits", "/proc/self/status"];
    let mut outside = std::process::Command::new(awk[0]);
    usual_signals(outside.args(&awk[1..]));
    let outside = String::from_utf8(outside.output().unwrap().stdout).unwrap();
    // SIGQUIT asks the launcher what PEs wait for, and a terminal sends it to all.
    let usual = outside.replace("SigIgn: 0000000", "SigIgn: 0000004");
    assert_ne!(usual, outside);
    assert_eq!(run(&[&["-n", "1"], &awk[..]].concat()).stdout, usual);
}

const TRAPS: &str = "trap 'echo $MEMONET_PE got it; touch ready$MEMONET_PE' USR1 INT TERM; trap 'exit 0' USR2; touch ready$MEMONET_PE
    while :; do sleep 0.02; done";

fn wait_for_traps(folder: &std::path::Path) {
    for pe in 0..2 {
        let file = folder.join(format!("ready{pe}"));
        until("PEs are ready", || file.exists());
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn signals_are_passed_on_once() {
    for signal in [Signal::INT, Signal::USR1, Signal::TERM] {
        let job = start(&["-n", "2", "sh", "-c", TRAPS]);
        wait_for_traps(&job.folder());
        send(job.pid(), signal);
        wait_for_traps(&job.folder());
        // Time for a second one, if there were one.
        std::thread::sleep(std::time::Duration::from_millis(200));
        send(job.pid(), Signal::USR2);
        let ended = job.end();
        assert_eq!(ended.lines(), ["0 got it", "1 got it"], "{signal:?}");
        assert_eq!(ended.status, 0);
    }
}

#[test]
fn a_job_ended_by_a_signal_has_its_status() {
    for (signal, status) in [(Signal::TERM, 128 + 15), (Signal::INT, 128 + 2)] {
        let job = start(&["-n", "2", "sh", "-c", "touch ready$MEMONET_PE; exec sleep 1000"]);
        wait_for_traps(&job.folder());
        send(job.pid(), signal);
        let ended = job.end();
        assert_eq!(ended.status, status);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
}

/// A launcher on a terminal of its own, and the terminal's other end.
fn on_terminal(
    args: &[&str],
) -> (std::process::Child, std::fs::File, std::path::PathBuf, tempfile::TempDir) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let open =
        || std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let (mut command, _, folder) = command(args);
    command.stdin(open()).stdout(open()).stderr(open());
    // SAFETY: both are system calls, all that may be done between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
    let launcher = command.spawn().unwrap();
    (launcher, master.into(), folder.path().into(), folder)
}

/// All that a terminal shows until the job on it has ended.
fn shown(mut master: std::fs::File) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    // The last process to close it shows as an error here.
    while let Ok(n @ 1..) = master.read(&mut piece) {
        text.extend_from_slice(&piece[..n]);
    }
    String::from_utf8_lossy(&text).replace("\r\n", "\n")
}

#[test]
fn an_interrupt_arrives_once() {
    let (program, machine) = (pe(), ["--machine", "dimmnet-1/D"]);
    for (options, by_terminal) in [(&[][..], true), (&machine, true), (&[], false)] {
        let args = [options, &["-n", "2", &program, "interrupts"]].concat();
        let (mut launcher, mut master, folder, _keep) = on_terminal(&args);
        wait_for_traps(&folder);
        match by_terminal {
            true => master.write_all(b"\x03").unwrap(),
            false => send(launcher.id() as i32, Signal::INT),
        }
        let text = shown(master);
        for pe in 0..2 {
            assert!(text.contains(&format!("PE {pe}: 1 interrupt\n")), "{options:?}: {text}");
        }
        assert_eq!(wait(&mut launcher).code(), Some(0));
    }
}

#[test]
fn a_terminals_interrupt_ends_the_job_and_the_launcher_by_it() {
    use std::os::unix::process::ExitStatusExt;
    let (mut launcher, mut master, folder, _keep) =
        on_terminal(&["-n", "2", "sh", "-c", "touch ready$MEMONET_PE; exec sleep 1000"]);
    wait_for_traps(&folder);
    master.write_all(b"\x03").unwrap();
    assert_eq!(wait(&mut launcher).signal(), Some(2));
    assert!(shown(master).contains("ended by SIGINT"));
}

/// The terminal sends nothing to the group that `timeout` makes.
#[test]
fn a_terminals_interrupt_reaches_pes_in_groups_of_their_own() {
    use std::os::unix::process::ExitStatusExt;
    let script = "touch ready$MEMONET_PE; exec sleep 1000";
    let (mut launcher, mut master, folder, _keep) =
        on_terminal(&["-n", "2", "timeout", "1000", "sh", "-c", script]);
    wait_for_traps(&folder);
    master.write_all(b"\x03").unwrap();
    assert_eq!(wait(&mut launcher).signal(), Some(2), "{}", shown(master));
}

#[test]
fn a_stopped_job_goes_on() {
    let (mut command, _, folder) = command(&["-n", "2", "sh", "-c", TRAPS]);
    // In a process group of its own, as shells start it: SIGTSTP does not stop an orphaned group.
    let mut launcher = command.process_group(0).stdout(Stdio::null()).spawn().unwrap();
    let pid = launcher.id() as i32;
    wait_for_traps(folder.path());
    let pes = pes(pid);
    assert_eq!(pes.len(), 2);
    let all = |wanted: char| {
        let are = |stopped: bool| {
            [pid].iter().chain(&pes).all(|&pid| state(pid).is_some_and(|s| (s.0 == 'T') == stopped))
        };
        are(wanted == 'T')
    };
    send(pid, Signal::TSTP);
    until("all are stopped", || all('T'));
    send(pid, Signal::CONT);
    until("all go on", || all('S'));
    send(pid, Signal::USR2);
    assert_eq!(wait(&mut launcher).code(), Some(0));
}

#[test]
fn nobody_reading_the_output_ends_the_writers() {
    let (mut command, _, _folder) = command(&["-n", "2", "yes"]);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut some = [0; 2];
    launcher.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(wait(&mut launcher).code(), Some(128 + 13));
}

#[test]
fn a_blocked_output_does_not_block_the_launcher() {
    let script = "if [ $MEMONET_PE = 0 ]; then touch ready0; exec yes; fi
        trap 'touch got; exit 0' TERM; touch ready1; while :; do sleep 0.02; done";
    let (mut command, _, folder) = command(&["-n", "2", "sh", "-c", script]);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_traps(folder.path());
    // Until the pipe, and all that the launcher is willing to keep, is full: the writer then sleeps
    // in its write.
    let is_writer = |&pid: &i32| has_entry(pid, "\0MEMONET_PE=0\0");
    let writer = pes(launcher.id() as i32).into_iter().find(is_writer).unwrap();
    let blocked = || {
        std::fs::read_to_string(format!("/proc/{writer}/wchan"))
            .is_ok_and(|place| place.contains("pipe_w"))
    };
    until("the output is blocked", || (0..20).all(|_| blocked()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let status = std::fs::read_to_string(format!("/proc/{}/status", launcher.id())).unwrap();
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB")).unwrap();
    assert!(resident.trim().parse::<u64>().unwrap() < 64 << 10, "the launcher keeps {resident} kB");
    send(launcher.id() as i32, Signal::TERM);
    until("the signal arrives", || folder.path().join("got").exists());
    // All that is left to do is to wait for the reader, and another signal ends that.
    until("the launcher ends", || {
        send(launcher.id() as i32, Signal::TERM);
        launcher.try_wait().unwrap().is_some()
    });
}

#[test]
fn what_pes_leave_behind_ends_with_the_job() {
    // A grandchild whose parent is gone, in a session of its own, with the output still open.
    let ended = run(&["-n", "2", "sh", "-c", "setsid sleep 1000 & echo started"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (0, "started\nstarted\n"));
}

#[test]
fn of_the_launchers_descriptors_pes_have_only_the_jobs_memory() {
    let count = "ls /proc/self/fd | wc -l";
    let outside = std::process::Command::new("sh")
        .args(["-c", count])
        .stdin(Stdio::null())
        .output()
        .unwrap()
        .stdout;
    let outside: usize = String::from_utf8(outside).unwrap().trim().parse().unwrap();
    assert_eq!(run(&["-n", "2", "sh", "-c", count]).stdout, format!("{0}\n{0}\n", outside + 1));
}

#[test]
fn stats_of_shared_objects() {
    let ended = run(&["-n", "2", "--stats", &pe(), "use"]);
    assert_eq!(ended.status, 0, "{ended:?}");
    let rows: Vec<Vec<&str>> =
        ended.stderr.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    let head = rows.iter().position(|row| row.starts_with(&["object", "PE", "uses"]));
    let rows = &rows[head.unwrap_or_else(|| panic!("no objects: {ended:?}"))..];
    let uses: Vec<_> =
        rows[1..].iter().map(|row| (row[0], row[1], row[2], row[3], row[6])).collect();
    let expected = [
        ("mutex", "0", "0", "10", "0"),
        ("mutex", "0", "1", "20", "0"),
        ("rwlock", "1", "0", "2", "0"),
        ("rwlock", "1", "1", "2", "0"),
    ];
    assert_eq!(uses, expected, "{ended:?}");
    let far = run(&["-n", "2", "--stats", "--fabric", "far", &pe(), "use"]);
    let messages = |line: &&str| {
        line.split_whitespace()
            .nth(7)
            .and_then(|count| count.parse::<u64>().ok())
            .is_some_and(|count| count > 0)
    };
    let objects = far.stderr.lines().skip_while(|line| !line.contains("hand-overs")).skip(1);
    assert!(objects.filter(messages).count() >= 3, "{far:?}");
    assert_eq!(run(&["-n", "2", &pe(), "use"]).stderr, "");
    let none = run(&["-n", "2", "--stats", "true"]);
    assert_eq!(none.stderr, "memonet: no PE has joined the job, so nothing was counted\n");
}

/// For MPI, each process of a program that is linked with it is alone: that is told once, and the
/// program runs.
#[test]
fn a_program_of_mpi_is_told_how_it_should_be_started() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let compile = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        let source = folder.path().join("source.c");
        std::fs::write(
            &source,
            "int called(void);\n#ifdef LIBRARY\nint called(void) { return 0; }\n#else\nint main(void) { return called(); }\n#endif\n",
        )
        .unwrap();
        let mut cc = std::process::Command::new("cc");
        cc.arg(&source).arg("-o").arg(&path).args(arguments);
        assert!(cc.status().unwrap().success(), "{cc:?}");
        path.display().to_string()
    };
    let program = |library: &str| {
        let library =
            compile(library, &["-shared", "-fPIC", "-DLIBRARY", &format!("-Wl,-soname,{library}")]);
        let here = format!("-Wl,-rpath,{}", folder.path().display());
        compile("program", &[&library, &here])
    };
    let other = program("libmpfr.so.6");
    assert_eq!(run(&["-n", "3", &other]).stderr, "");
    let mpi = program("libmpi.so.40");
    let ended = run(&["-n", "3", &mpi]);
    let (status, stderr) = (ended.status, ended.stderr);
    assert_eq!((status, stderr.lines().count()), (0, 1), "{stderr}");
    assert!(
        stderr.contains("program is linked with MPI (libmpi.so.40)")
            && stderr.contains("`mpiexec -n 3`"),
        "{stderr}"
    );
    // A simulated machine has no MPI at all.
    let ended = run(&["--machine", "rdma-100g", "-n", "3", &mpi]);
    assert_eq!((ended.status, ended.stderr.lines().count()), (1, 1), "{ended:?}");
    for part in ["program is linked with MPI (libmpi.so.40)", "no MPI", "OpenSHMEM", "--machine"] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    // Under a shell it shows only in the end.
    let ended = run(&["--machine", "rdma-100g", "-n", "3", "sh", "-c", "true"]);
    assert_eq!((ended.status, ended.stderr.lines().count()), (0, 1), "{ended:?}");
    assert!(ended.stderr.contains("the program does not use memonet"), "{ended:?}");
    // One that fails before its first call is done has joined.
    let ended = run(&["--machine", "rdma-100g", "-n", "2", &pe(), "orphan", "forever"]);
    assert!(!ended.stderr.contains("does not use memonet"), "{ended:?}");
    // One is what MPI takes it for.
    for alone in [&["-n", "1", mpi.as_str()][..], &["-n", "1", &mpi, ":", "-n", "2", "true"]] {
        assert_eq!(run(alone).stderr, "", "{alone:?}");
    }
}
