//! What the tests of the command share: starting it, waiting for it with an end in sight, and
//! looking for what it left behind.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod cluster;
pub mod slurm;

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Far longer than anything here takes, and far shorter than a hang.
pub const SOON: Duration = Duration::from_secs(20);

/// The program that serves as a PE: the example `pe`.
pub fn pe() -> String {
    static PATH: LazyLock<String> = LazyLock::new(|| example("pe"));
    PATH.clone()
}

/// The program whose PEs end in every way: the example `ends`.
pub fn ends() -> String {
    static PATH: LazyLock<String> = LazyLock::new(|| example("ends"));
    PATH.clone()
}

/// An example, built if `cargo test --test NAME` has not.
pub fn example(name: &str) -> String {
    let folder = examples(&["--package", "memonet-cli", "--example", name]);
    folder.join(name).into_os_string().into_string().unwrap()
}

/// The folder of examples. Has cargo build those that `which` selects, unless `make test` says that
/// all of the workspace is built: the same crates with the features that a few packages ask for
/// would be compiled once more.
pub fn examples(which: &[&str]) -> PathBuf {
    let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    if std::env::var_os("MEMONET_TEST_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet"]).args(which);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "{which:?} do not build");
    }
    profile.join("examples")
}

/// A job that is running, and a mark that all its processes carry in their environment.
pub struct Job {
    pub launcher: Child,
    pub mark: String,
    folder: tempfile::TempDir,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status, or 128 + signal.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// `memonet run` with these arguments, in an empty folder of its own.
pub fn command(args: &[&str]) -> (Command, String, tempfile::TempDir) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mark = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_memonet"));
    command.arg("run");
    if !args.contains(&"--timeout") {
        // A reader of a job that hangs would wait forever.
        command.args(["--timeout", "40"]);
    }
    command.args(args).env("MEMONET_TEST_MARK", &mark).env("TMPDIR", folder.path());
    command.current_dir(folder.path());
    usual_signals(&mut command);
    (command, mark, folder)
}

/// Undoes what a shell does to what runs in its background: interrupts ignored, by all that is
/// started from there.
pub fn usual_signals(command: &mut Command) {
    // SAFETY: system calls alone, all that may be done between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Starts `memonet run` with these arguments.
pub fn start(args: &[&str]) -> Job {
    start_with(args, Stdio::null())
}

/// The same, with something to read.
pub fn start_with(args: &[&str], stdin: Stdio) -> Job {
    let (mut command, mark, folder) = command(args);
    // In a group of its own, with this process as its parent: Ctrl-Z stops no process of a group
    // that no parent outside of it would continue.
    command.process_group(0);
    let mut launcher =
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = Some(collect(launcher.stdout.take().unwrap()));
    let stderr = Some(collect(launcher.stderr.take().unwrap()));
    Job { launcher, mark, folder, stdout, stderr }
}

/// Runs `memonet run` with these arguments to its end.
pub fn run(args: &[&str]) -> Ended {
    start(args).end()
}

/// The same for programs that take longer than [`SOON`] on a busy machine.
pub fn run_for_a_minute(args: &[&str]) -> Ended {
    let minute = Duration::from_secs(60);
    start(&[&["--timeout", "60"], args].concat()).end_within(minute)
}

/// Reads all there is, in the background.
pub fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Job {
    pub fn pid(&self) -> i32 {
        self.launcher.id() as i32
    }

    /// Waits for its end and checks that nothing is left of it.
    pub fn end(self) -> Ended {
        self.end_within(SOON)
    }

    pub fn end_within(mut self, limit: Duration) -> Ended {
        let status = wait_within(&mut self.launcher, limit);
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        self.assert_nothing_left();
        Ended {
            status: status.code().or(status.signal().map(|signal| 128 + signal)).unwrap(),
            stdout,
            stderr,
        }
    }

    /// PEs, and what they started.
    pub fn processes(&self) -> Vec<i32> {
        marked(&self.mark).into_iter().filter(|&pid| has_entry(pid, "\0MEMONET_PE=")).collect()
    }

    /// Within a short time, no process, file or shared memory object is there.
    pub fn assert_nothing_left(&self) {
        until("its processes end", || marked(&self.mark).is_empty());
        let files: Vec<_> = std::fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(files.is_empty(), "left behind: {files:?}");
        let shared: Vec<_> =
            std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().collect();
        assert!(
            !shared.iter().any(|entry| entry.file_name().to_string_lossy().contains("memonet")),
            "{shared:?}"
        );
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().into()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(None) = self.launcher.try_wait() {
            let _ = self.launcher.kill();
            let _ = self.launcher.wait();
        }
    }
}

/// Runs a job that writes `half` a line, waits for the file `said`, and then breaks the line: its
/// output goes on with `rest`.
pub fn broken(args: &[&str], half: &str, rest: &str) {
    let (mut command, _, folder) = command(args);
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = launcher.stdout.take().unwrap();
    let mut first = vec![0; half.len()];
    output.read_exact(&mut first).unwrap();
    std::fs::write(folder.path().join("said"), "").unwrap();
    let mut then = String::new();
    output.read_to_string(&mut then).unwrap();
    assert_eq!((first.as_slice(), then.as_str()), (half.as_bytes(), rest));
    wait(&mut launcher);
}

/// Waits for a process, and fails rather than hang.
pub fn wait(process: &mut Child) -> ExitStatus {
    wait_within(process, SOON)
}

/// Sleeps meanwhile. Where the CPUs are busy, Linux 6.18 leaves processes of other sessions no CPU
/// for seconds while a thread of this one wakes up a thousand times a second.
fn wait_within(process: &mut Child, limit: Duration) -> ExitStatus {
    let pid = Pid::from_child(process);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let began = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        let Some(left) = limit.checked_sub(began.elapsed()) else {
            let _ = process.kill();
            panic!("process {} has not ended", process.id());
        };
        let left = Timespec::try_from(left).unwrap();
        // An interrupted wait looks once more.
        let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left));
    }
}

/// Waits until a condition holds, and fails rather than hang. Looks rarely, for the reason of
/// [`wait_within`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < SOON, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The living processes with this mark in their environment.
pub fn marked(mark: &str) -> Vec<i32> {
    let entry = format!("MEMONET_TEST_MARK={mark}\0");
    processes().into_iter().filter(|&pid| has_entry(pid, &entry)).collect()
}

/// Whether a process was started with an entry of its environment.
pub fn has_entry(pid: i32, entry: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.windows(entry.len()).any(|window| window == entry.as_bytes())
}

fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// State and parent of a process, as /proc has them.
pub fn state(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The children of a process.
pub fn children(parent: i32) -> Vec<i32> {
    processes().into_iter().filter(|&pid| state(pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// The processes that a launcher has started as PEs; it has a child besides, its guard.
pub fn pes(launcher: i32) -> Vec<i32> {
    let children = children(launcher).into_iter();
    children.filter(|&pid| has_entry(pid, "\0MEMONET_PE=")).collect()
}

/// Whether a tool is there that a test needs. Without it the test is skipped, or fails where
/// MEMONET_TEST_TOOLS is 1.
pub fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        let wanted = std::env::var("MEMONET_TEST_TOOLS").is_ok_and(|value| value == "1");
        assert!(
            !wanted,
            "{tool} is not installed, and MEMONET_TEST_TOOLS asks for it: `make deps`"
        );
        skip(&format!("{tool} is not installed. `make deps` does that"));
    }
    there
}

/// Says that a test is skipped.
pub fn skip(why: &str) {
    say("SKIPPED", why);
}

/// Says what a test has found out besides.
pub fn note(what: &str) {
    say("NOTE", what);
}

/// Past the harness, which would keep it for itself.
fn say(kind: &str, what: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "{kind} {}: {what}", thread.name().unwrap_or("a test"));
}

/// A cheap source of moments and victims; which ones does not matter, only that they vary.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Runs a program on `npes` PEs, with these options, and kills one of them at a random moment
/// before `latest`; the others are to end by themselves.
pub fn kill_one(
    npes: usize,
    options: &[&str],
    program: &[&str],
    latest: Duration,
    random: &mut Random,
) -> Ended {
    let count = npes.to_string();
    let job = start(&[&["-n", &count, "--keep-going"], options, program].concat());
    let mut pes: Vec<i32> = Vec::new();
    until("PEs run", || {
        let direct = children(job.pid());
        pes = job.processes().into_iter().filter(|pid| direct.contains(pid)).collect();
        pes.len() == npes
    });
    std::thread::sleep(Duration::from_micros(random.below(latest.as_micros() as u64)));
    send(pes[random.below(npes as u64) as usize], rustix::process::Signal::KILL);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{options:?}: {ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{options:?}: {ended:?}");
    ended
}

/// Sends a signal to one process.
pub fn send(pid: i32, signal: rustix::process::Signal) {
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
}
