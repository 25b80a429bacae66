//! Deaths of PEs and of the launcher, at any moment: survivors learn of them, and nothing stays
//! behind.

mod common;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{
    Random, children, collect, kill_one, marked, pe, run, send, skip, start, until, wait,
};
use memonet_core::unstable::launch::JobFile;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::Signal;

#[test]
fn survivors_learn_who_died_and_how() {
    for (how, status, cause) in [
        ("kill", 128 + 9, "killed by signal 9 (SIGKILL)"),
        ("segv", 128 + 11, "killed by signal 11 (SIGSEGV"),
        ("abort", 128 + 6, "killed by signal 6 (SIGABRT"),
        ("_exit", 1, "left with _exit(0), without finalising"),
        ("exit", 3, "ended with exit status 3"),
        ("panic", 101, "ended with exit status 101"),
    ] {
        // They stay a while, or some would see the death of another survivor first.
        let ended = run(&["-n", "4", "--keep-going", "--env", "LINGER=1", &pe(), "die", how]);
        assert_eq!(ended.status, status, "{how}: {ended:?}");
        for survivor in 0..3 {
            let saw = format!("PE {survivor} saw: PE 3 failed: {cause}");
            assert!(ended.stdout.contains(&saw), "{how}: {ended:?}");
        }
        let ended = run(&["-n", "4", &pe(), "die", how]);
        assert_eq!(ended.status, status, "{how}: {ended:?}");
        let line = ended
            .stderr
            .lines()
            .find(|line| line.starts_with("memonet: PE 3 ("))
            .expect("a report");
        assert!(line.contains(cause), "{line}");
        assert!(ended.stderr.contains("last line of its output: last words"), "{}", ended.stderr);
        assert!(
            ended.stdout.contains("saw: PE 3 failed") && ended.stderr.contains("then PE "),
            "{ended:?}"
        );
    }
}

#[test]
fn the_report_of_a_panic_quotes_its_message() {
    for (backtrace, ends_with) in [("0", ""), ("1", "stack backtrace:")] {
        let setting = format!("RUST_BACKTRACE={backtrace}");
        let ended = run(&["-n", "2", "--env", &setting, &pe(), "die", "panic"]);
        assert!(ended.stderr.contains(ends_with), "{ended:?}");
        let report: Vec<&str> =
            ended.stderr.lines().filter(|line| line.starts_with("memonet: ")).collect();
        let starts = [
            "PE 1 (",
            "  last line of its output: last words",
            "  from its error output: thread 'main'",
            "    on purpose",
            "then PE 0",
        ];
        assert_eq!(report.len(), starts.len(), "{ended:?}");
        for (line, start) in report.iter().zip(starts) {
            assert!(line.starts_with(&format!("memonet: {start}")), "no {start:?}: {ended:?}");
        }
    }
}

/// A cgroup with little memory, which is removed again; none where only others may make such.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn with_memory(bytes: u64) -> Option<Cgroup> {
        let name = format!("memonet-test-{}", std::process::id());
        let versions =
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        let made = versions.iter().find_map(|(root, limit)| {
            let cgroup = Cgroup(std::path::Path::new(root).join(&name));
            std::fs::create_dir(&cgroup.0).ok()?;
            // Elsewhere than in a tree of cgroups, there is no such file.
            let mut limit = std::fs::File::options().write(true).open(cgroup.0.join(limit)).ok()?;
            std::io::Write::write_all(&mut limit, bytes.to_string().as_bytes()).ok()?;
            Some(cgroup)
        });
        if made.is_none() {
            skip("only root can make a cgroup with a limit on memory");
        }
        made
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        until("the cgroup is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_kill_is_blamed_on_memory_only_where_memory_ran_out() {
    let ended = run(&["-n", "2", &pe(), "die", "kill"]);
    assert!(ended.stderr.contains("(SIGKILL). A user, a debugger"), "{ended:?}");
    assert!(!ended.stderr.contains("emory ran out"), "{ended:?}");

    let Some(cgroup) = Cgroup::with_memory(64 << 20) else { return };
    let mut launcher = Command::new("sh");
    launcher.args(["-c", "echo $$ > $0/cgroup.procs && exec \"$@\""]).arg(&cgroup.0);
    launcher.args([env!("CARGO_BIN_EXE_memonet"), "run", "-n", "1", "--timeout", "20"]);
    // It keeps what has no end of line.
    let output = launcher.args(["tail", "/dev/zero"]).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 9), "{text}");
    let counter = cgroup.0.display();
    assert!(
        text.contains(&format!(
            "(SIGKILL). Memory ran out, and the kernel killed it (oom_kill in {counter}/"
        )),
        "{text}"
    );
}

#[test]
fn a_crash_points_to_the_checks_unless_they_were_decided_on() {
    for (options, hints) in [
        (&[][..], true),
        (&["--env", "MEMONET_CHECK=1"], false),
        (&["--env", "MEMONET_CHECK=0"], false),
    ] {
        let ended = run(&[&["-n", "2"], options, &[&pe(), "die", "segv"]].concat());
        assert_eq!(
            ended.stderr.contains(". If it called OpenSHMEM, MEMONET_CHECK=1"),
            hints,
            "{ended:?}"
        );
    }
    assert!(!run(&["-n", "2", &pe(), "die", "abort"]).stderr.contains("MEMONET_CHECK"));
}

/// Nobody rings those who sleep on the words of a barrier at which PEs share CPUs; and these lie in
/// the segment of PE 0, dead or alive.
#[test]
fn who_sleeps_in_a_barrier_learns_of_a_death() {
    for victim in [7, 0] {
        let central = "MEMONET_BARRIER=central";
        let ended = run(&[
            "-n",
            "8",
            "--keep-going",
            "--env",
            central,
            &pe(),
            "bereave",
            &victim.to_string(),
        ]);
        assert_eq!(ended.status, 128 + 9, "{ended:?}");
        let saw = |pe| format!("PE {pe} saw: PE {victim} failed: killed by signal 9 (SIGKILL)");
        let all: Vec<_> = (0..8).filter(|&pe| pe != victim).map(saw).collect();
        let lines = ended.lines();
        assert_eq!(lines.len(), all.len(), "{ended:?}");
        assert!(lines.iter().zip(&all).all(|(line, saw)| line.starts_with(saw)), "{ended:?}");
    }
}

#[test]
fn who_ends_the_job_ends_the_others_before_itself() {
    for wrapper in [&[][..], &["sh", "-c", "\"$0\" \"$@\"; sleep 1000"]] {
        let ended = run(&[&["-n", "3"], wrapper, &[&pe(), "end"]].concat());
        assert_eq!(
            (ended.status, &*ended.stdout, &*ended.stderr),
            (7, "0 others are left\n", ""),
            "{wrapper:?}"
        );
    }
}

#[test]
fn returning_from_main_is_no_death_but_waits_for_it_end() {
    let ended = run(&["-n", "2", &pe(), "die", "return"]);
    assert!(
        ended.stdout.contains("PE 0 saw: PE 1 failed: finalised while others still waited for it"),
        "{ended:?}"
    );
    assert_eq!(ended.status, 42);
    let ended = run(&["-n", "2", &pe(), "late"]);
    assert!(ended.stderr.contains("PE 1"), "{ended:?}");
    assert_eq!(ended.status, 42);
    assert_eq!(run(&["-n", "3", &pe(), "twice"]).status, 0);
}

#[test]
fn keep_going_tells_survivors_and_lets_them_go_on() {
    let ended = run(&["-n", "3", "--keep-going", "--env", "LINGER=1", &pe(), "die", "kill"]);
    assert_eq!(ended.status, 128 + 9);
    assert_eq!(ended.stdout.matches("saw: PE 2 failed").count(), 2, "{ended:?}");
    assert!(!ended.stderr.contains("SIGTERM"), "{ended:?}");
}

#[test]
fn who_left_in_order_may_fail_later_without_the_others() {
    for (how, status, cause) in
        [("3", 3, "ended with exit status 3"), ("abort", 128 + 6, "killed by signal 6")]
    {
        for wrapped in [false, true] {
            let ended = if wrapped {
                run(&["-n", "3", "sh", "-c", &format!("{} leave {how}; exit $?", pe())])
            } else {
                run(&["-n", "3", &pe(), "leave", how])
            };
            assert_eq!(ended.status, status, "{how}: {ended:?}");
            assert_eq!(ended.lines(), ["PE 0 went on", "PE 1 went on"], "{how}: {ended:?}");
            let text = &ended.stderr;
            let cause = if wrapped { format!("exit status {status}") } else { cause.to_owned() };
            assert!(
                text.contains("PE 2 (")
                    && text.contains(": finalised, then ")
                    && text.contains(&cause),
                "{text}"
            );
            assert!(!text.contains("PE 0") && !text.contains("PE 1"), "{text}");
        }
    }
}

#[test]
fn a_death_after_a_failure_in_order_still_ends_the_others() {
    let ordered = format!("{} twice; exit 3", pe());
    let (dead, waiting) = ("sleep 0.5; kill -KILL $$", "exec sleep 1000");
    let each = |script| ["-n", "1", "sh", "-c", script];
    let ended = run(&[&each(&ordered)[..], &[":"], &each(dead), &[":"], &each(waiting)].concat());
    assert_eq!(ended.status, 3, "{ended:?}");
    assert!(
        ended.stderr.contains("PE 0 (sh, process ") && ended.stderr.contains("): finalised, then"),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("PE 1 (sh, process ")
            && ended.stderr.contains("): killed by signal 9"),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("then PE 2: killed by signal 15 (SIGTERM) by memonet"),
        "{ended:?}"
    );
}

#[test]
fn orphans_are_collected_as_they_end() {
    let script = "i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; touch ready$MEMONET_PE; exec sleep 1000";
    let job = start(&["-n", "2", "sh", "-c", script]);
    for pe in 0..2 {
        let ready = job.folder().join(format!("ready{pe}"));
        until("PEs are ready", || ready.exists());
        std::fs::remove_file(ready).unwrap();
    }
    // The PEs stay, and the launcher's guard.
    until("orphans are collected", || children(job.pid()).len() == 2 + 1);
    send(job.pid(), Signal::TERM);
    assert_eq!(job.end().status, 128 + 15);
}

/// A folder, readable by all, with the launcher in it and a `setpriv` that runs as root whoever
/// starts it.
fn folder_of_root() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        skip("only root can make a program that runs as another user");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "cp \"$1\" memonet && cp \"$(command -v setpriv)\" . && chmod 755 . memonet && chmod 4755 setpriv
        setpriv --reuid 65534 --regid 65534 --clear-groups ./setpriv --reuid 0 true";
    let mut prepare = Command::new("sh");
    prepare.args(["-c", script, "sh", env!("CARGO_BIN_EXE_memonet")]).current_dir(folder.path());
    let done = prepare.status().unwrap().success();
    if !done {
        skip(
            "there is no setpriv, or no program in the folder for temporary files can run as another user",
        );
    }
    done.then_some(folder)
}

#[test]
fn what_may_not_be_killed_is_left_and_named() {
    let Some(folder) = folder_of_root() else { return };
    let of_root = "./setpriv --reuid 0 sleep 1000";
    let behind = format!("{of_root} & until grep -q sleep /proc/$!/comm; do sleep 0.01; done");
    // As something that a PE leaves behind, and as a PE.
    for (options, script, status) in [("20", behind, 0), ("1", format!("exec {of_root}"), 124)] {
        let mut launcher = Command::new("setpriv");
        launcher.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        launcher.args(["./memonet", "run", "-n", "1", "--timeout", options, "sh", "-c", &script]);
        launcher.current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut launcher = launcher.spawn().unwrap();
        let text = collect(launcher.stderr.take().unwrap());
        let ended = wait(&mut launcher);
        // It holds no end of the launcher's own output, so this ends though it lives.
        let text = text.join().unwrap();
        let left =
            text.lines().find_map(|line| line.strip_prefix("memonet: process ")).expect(&text);
        send(left.split(' ').next().unwrap().parse().unwrap(), Signal::KILL);
        assert!(left.contains("(sleep)") && left.contains("another user"), "{text}");
        assert_eq!(ended.code(), Some(status), "{text}");
    }
}

#[test]
fn nothing_outlives_a_killed_launcher_not_even_under_a_wrapper() {
    let direct = start(&["-n", "3", &pe(), "work"]);
    let wrapped = start(&["-n", "2", "sh", "-c", &format!("{} work; true", pe())]);
    for (job, processes) in [(direct, 3), (wrapped, 4)] {
        until("the job is complete", || job.processes().len() == processes);
        send(job.pid(), Signal::KILL);
        assert_eq!(job.end().status, 128 + 9);
    }
}

#[test]
fn kills_at_any_moment_leave_nothing_behind() {
    let mut random = Random(42);
    let pe = pe();
    for round in 0..200 {
        let job = start(&["-n", "3", &pe, "work"]);
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        let kill_launcher = round % 4 == 0;
        let victim = if kill_launcher {
            job.pid()
        } else {
            let mut pes: Vec<i32> = Vec::new();
            until("PEs run", || {
                let direct = children(job.pid());
                pes = job.processes().into_iter().filter(|pid| direct.contains(pid)).collect();
                !pes.is_empty()
            });
            pes[random.below(pes.len() as u64) as usize]
        };
        send(victim, Signal::KILL);
        let mark = job.mark.clone();
        let ended = job.end();
        assert_eq!(ended.status, 128 + 9, "round {round}: {ended:?}");
        assert!(marked(&mark).is_empty());
        if !kill_launcher {
            let report = format!("process {victim}): killed by signal 9");
            assert!(ended.stderr.contains(&report), "round {round}: {ended:?}");
        }
    }
}

/// What the one that was killed had in hand, as a PE tells that got away.
fn role(line: &str) -> Option<&str> {
    line.split_once(" has all, though PE ")?.1.split(", ").nth(1)
}

/// Each way to have shared data in hand, as often as `MEMONET_TEST_KILLS` says, or 50 times: nobody
/// hangs, and what is to be kept is whole.
#[test]
fn kills_at_any_moment_tear_no_shared_data() {
    let each =
        std::env::var("MEMONET_TEST_KILLS").map_or(50, |value| value.parse().expect("a number"));
    let mut random = Random(43);
    let pe = pe();
    let mut died = BTreeMap::new();
    let enough = |died: &BTreeMap<String, usize>| {
        let of = |role: &str| died.get(role).copied().unwrap_or(0);
        ["owner", "holder", "reader", "writer"].iter().all(|role| of(role) >= each)
    };
    for round in 0.. {
        let fabric = ["", "far", "far:delay_us=30,reorder=1"][round % 3];
        let setting = format!("MEMONET_FABRIC={fabric}");
        let options: &[&str] = if fabric.is_empty() { &[] } else { &["--env", &setting] };
        let ended = kill_one(3, options, &[&pe, "share"], Duration::from_millis(40), &mut random);
        let stderr = &ended.stderr;
        let roles: Vec<&str> = ended.stdout.lines().filter_map(role).collect();
        // A PE that was still making them has none.
        let none = stderr.lines().filter(|line| line.starts_with("error: PE ")).count();
        assert!(roles.len() + none == 2, "round {round}, {fabric}: {ended:?}");
        assert!(roles.iter().all(|role| *role == roles[0]), "round {round}, {fabric}: {ended:?}");
        if let Some(role) = roles.first() {
            *died.entry(role.to_string()).or_insert(0) += 1;
        }
        assert!(round < 20 * each, "nobody dies in each role: {died:?}");
        if enough(&died) {
            println!(
                "died in {} rounds, near, far and with messages out of order: {died:?}",
                round + 1
            );
            break;
        }
    }
}

/// Runs a PE without launcher, in an environment that pretends there was one.
fn pretend(environment: &[(&str, &str)], fd: Option<BorrowedFd<'_>>) -> Output {
    let mut command = Command::new(pe());
    command.arg("init").envs(environment.iter().copied()).stdin(Stdio::null());
    if let Some(fd) = fd {
        // Its number is to be the same in the child, which a copy that survives execve has.
        let copy = rustix::io::fcntl_dupfd_cloexec(fd, 100).unwrap();
        rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).unwrap();
        command.env("MEMONET_JOB_FD", copy.as_raw_fd().to_string());
        return command.output().unwrap();
    }
    command.output().unwrap()
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), None, "{text}");
    assert_eq!(output.status.code(), Some(42), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

#[test]
fn a_garbage_environment_is_refused() {
    let whole =
        |fd: &'static str| [("MEMONET_JOB_FD", fd), ("MEMONET_PE", "0"), ("MEMONET_NPES", "2")];
    for fd in ["", "x", "-1", "99999999999999999999", "3.5"] {
        assert_refused(&pretend(&whole(fd), None), &["MEMONET_JOB_FD"]);
    }
    // Closed, and open but something else.
    assert_refused(&pretend(&whole("987"), None), &["MEMONET_JOB_FD"]);
    assert_refused(&pretend(&whole("0"), None), &[]);
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    let pe_0_of_2 = [("MEMONET_PE", "0"), ("MEMONET_NPES", "2")];
    assert_refused(&pretend(&pe_0_of_2, Some(pipe.as_fd())), &[]);
    // Some of the variables, or ones that contradict each other.
    for alone in [&pe_0_of_2[..], &pe_0_of_2[..1], &pe_0_of_2[1..]] {
        assert_refused(
            &pretend(alone, None),
            &[alone[0].0, "without MEMONET_JOB_FD", "memonet run", "unset"],
        );
    }
    let job = JobFile::create(2, 1).unwrap();
    assert_refused(&pretend(&[("MEMONET_PE", "0")], Some(job.fd())), &["MEMONET_NPES"]);
    assert_refused(&pretend(&[("MEMONET_NPES", "2")], Some(job.fd())), &["MEMONET_PE"]);
    assert_refused(
        &pretend(&[("MEMONET_PE", "0"), ("MEMONET_NPES", "3")], Some(job.fd())),
        &["3", "2 PEs"],
    );
    for (number, of) in [("2", "2"), ("x", "2"), ("-1", "2"), ("0", "x"), ("0", "0")] {
        assert_refused(
            &pretend(&[("MEMONET_PE", number), ("MEMONET_NPES", of)], Some(job.fd())),
            &["MEMONET_"],
        );
    }
}

#[test]
fn a_wrong_control_page_is_refused() {
    let environment = [("MEMONET_PE", "0"), ("MEMONET_NPES", "2")];
    let with = |damage: &dyn Fn(BorrowedFd<'_>)| {
        let job = JobFile::create(2, 1).unwrap();
        damage(job.fd());
        pretend(&environment, Some(job.fd()))
    };
    let write = |fd: BorrowedFd<'_>, bytes: &[u8], offset: u64| {
        assert_eq!(rustix::io::pwrite(fd, bytes, offset).unwrap(), bytes.len());
    };
    assert_refused(&with(&|fd| write(fd, b"not mine", 0)), &["control page"]);
    assert_refused(
        &with(&|fd| write(fd, &77u32.to_ne_bytes(), 8)),
        &["control page", "version", "77"],
    );
    assert_refused(&with(&|fd| write(fd, &u32::MAX.to_ne_bytes(), 12)), &[]);
    for word in [24, 32, 40, 48] {
        for value in [0, 1, 4096, u64::MAX, u64::MAX / 2] {
            assert_refused(
                &with(&|fd| write(fd, &u64::to_ne_bytes(value), word)),
                &["control page"],
            );
        }
    }
    // Cut short, or longer than it says; and right in all but the promise that it stays as it is.
    let job = JobFile::create(2, 1).unwrap();
    let mut page = vec![0; 4096];
    rustix::io::pread(job.fd(), &mut page, 0).unwrap();
    let whole = rustix::fs::fstat(job.fd()).unwrap().st_size as u64;
    let copy = |size: u64, seals: SealFlags| {
        let copy =
            rustix::fs::memfd_create("copy", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)
                .unwrap();
        write(copy.as_fd(), &page[..page.len().min(size as usize)], 0);
        rustix::fs::ftruncate(&copy, size).unwrap();
        rustix::fs::fcntl_add_seals(&copy, seals).unwrap();
        pretend(&environment, Some(copy.as_fd()))
    };
    for size in [0, 1, 100, 4096, 1 << 20, whole - 1, whole + 4096] {
        assert_refused(&copy(size, SealFlags::SHRINK | SealFlags::GROW), &["control page"]);
    }
    assert_refused(&copy(whole, SealFlags::empty()), &["could still shrink"]);
    assert_eq!(copy(whole, SealFlags::SHRINK | SealFlags::GROW).status.code(), Some(0));
    // Random bytes all over it.
    let mut random = Random(7);
    for _ in 0..20 {
        let page: Vec<u8> = (0..4096).map(|_| random.below(256) as u8).collect();
        assert_refused(&with(&|fd| write(fd, &page, 0)), &["control page"]);
    }
}
